"""Reference of the admin API as a Markdown chapter, made from its routes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Final, NamedTuple

from magnetar.broker.admin.edge.routing import COMMON_ERRORS, Parameter, Route

_DOMAINS: Final = ("persistent", "non-persistent")

_FREQUENT: Final = 20
"""Number of calls from which a refusal stands once above the tables, not in each row."""


class _Call(NamedTuple):
    """One method of a path, as text."""

    method: str
    summary: str
    takes: str
    answers: str
    refuses: tuple[str, ...]


def chapter(routes: Iterable[Route]) -> str:
    """Returns the chapter: errors that many calls share, then a table for each object."""
    routes = list(routes)
    counts = Counter(refusal for route in routes for refusal in _refusals(route))
    frequent = sorted(refusal for refusal, count in counts.items() if count >= _FREQUENT)
    lines = ["Besides what its row says, every call may be answered with:", ""]
    lines += ["| status | when |", "| --- | --- |"]
    lines += [f"| {status} | {reason} |" for status, reason in COMMON_ERRORS.items()]
    if frequent:
        lines += ["", f"Rows omit refusals that many calls share: {'; '.join(frequent)}."]
    # Both topic domains share nearly all calls; identical calls become one row.
    tables: dict[str, dict[str, list[list[_Call]]]] = {}
    for route in routes:
        in_domain = route.object in _DOMAINS
        path = route.path.replace(f"/{route.object}/", "/{domain}/", 1) if in_domain else route.path
        table = tables.setdefault("topics" if in_domain else route.object, {})
        _add(table.setdefault(path, []), _call(route))
    for name, table in tables.items():
        lines += ["", f"### {name}", "", "| call | what it does | takes | answers | refuses |"]
        lines += ["| --- | --- | --- | --- | --- |"]
        lines += [_row(path, calls, frequent) for path, rows in table.items() for calls in rows]
    return "\n".join(lines) + "\n"


def _add(rows: list[list[_Call]], call: _Call) -> None:
    """Adds a call to the first row of its path that lacks the method, unless a row has the same call."""
    if any(call in row for row in rows):
        return
    for row in rows:
        if all(other.method != call.method for other in row):
            row.append(call)
            return
    rows.append([call])


def _call(route: Route) -> _Call:
    takes = [f"`{route.body}`"] if route.body else []
    takes += map(_parameter, route.parameters)
    answers = [f"{route.status} `{route.answer}`" if route.answer else str(route.status)]
    answers += [f"{status} {when}" for status, when in route.also.items()]
    return _Call(route.method, route.summary, ", ".join(takes), "; ".join(answers), tuple(_refusals(route)))


def _refusals(route: Route) -> list[str]:
    return [
        f"{status} {reason}"
        for status, reasons in sorted(route.errors.items())
        for reason in reasons.split("; ")
    ]


def _row(path: str, calls: list[_Call], frequent: list[str]) -> str:
    first, *others = calls
    call = "<br>".join([f"`{first.method} {path}`", *(f"`{other.method}`" for other in others)])
    refuses = dict.fromkeys(refusal for each in calls for refusal in each.refuses if refusal not in frequent)
    takes = [(each.method, each.takes) for each in calls if each.takes]
    answers = [(each.method, each.answers) for each in calls if each.answers != "204"]
    cells = (call, _summary(calls), _by_method(takes, calls), _by_method(answers, calls), "; ".join(refuses))
    escaped = (cell.replace("|", "\\|") for cell in cells)
    return f"| {' | '.join(escaped)} |"


def _by_method(cells: list[tuple[str, str]], calls: list[_Call]) -> str:
    if len(calls) == 1:
        return "".join(cell for _, cell in cells)
    return "<br>".join(f"{method} {cell}" for method, cell in cells)


def _summary(calls: list[_Call]) -> str:
    """Returns the summaries as one text: verbs with the same object share a sentence."""
    verbs: dict[str, list[str]] = {}
    notes: dict[str, None] = {}
    for call in calls:
        sentence, _, note = call.summary.partition(". ")
        verb, _, rest = sentence.rstrip(".").partition(" ")
        verbs.setdefault(rest, []).append(verb)
        if note:
            notes[note] = None
    sentences = [f"{', '.join(found).capitalize()} {rest}." for rest, found in verbs.items()]
    return " ".join([*sentences, *notes])


def _parameter(parameter: Parameter) -> str:
    if parameter.default is None:
        return f"`?{parameter.name}` {parameter.type}"
    default = str(parameter.default).lower() if parameter.type == "boolean" else parameter.default
    return f"`?{parameter.name}={default}`"
