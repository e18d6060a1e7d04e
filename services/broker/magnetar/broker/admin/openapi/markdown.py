"""Reference of the admin API as a Markdown chapter, made from its routes."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from typing import Final, NamedTuple

from magnetar.broker.admin.edge.routing import COMMON_ERRORS, Parameter, Route

_DOMAINS: Final = ("persistent", "non-persistent")

_FREQUENT: Final = 20
"""Number of calls from which a refusal stands once above all tables, not below that of each object."""


class _Call(NamedTuple):
    """One method of a path, as text."""

    method: str
    summary: str
    takes: str
    answers: str


def chapter(routes: Iterable[Route]) -> str:
    """Return the chapter: errors that many calls share, then a table and the refusals of each object."""
    routes = list(routes)
    counts = Counter(refusal for route in routes for refusal in _refusals(route))
    frequent = sorted(refusal for refusal, count in counts.items() if count >= _FREQUENT)
    lines = ["Besides what its row says, every call may be answered with:", ""]
    lines += ["| status | when |", "| --- | --- |"]
    lines += [f"| {status} | {reason} |" for status, reason in COMMON_ERRORS.items()]
    if frequent:
        lines += ["", f"Calls of several objects are refused with: {'; '.join(frequent)}."]
    # Both topic domains share nearly all calls; identical calls become one row.
    tables: dict[str, dict[str, list[list[_Call]]]] = {}
    refusals: dict[str, dict[str, None]] = {}
    for route in routes:
        in_domain = route.object in _DOMAINS
        path = route.path.replace(f"/{route.object}/", "/{domain}/", 1) if in_domain else route.path
        name = "topics" if in_domain else route.object
        _add(tables.setdefault(name, {}).setdefault(path, []), _call(route))
        refusals.setdefault(name, {}).update(dict.fromkeys(_refusals(route)))
    for name, table in tables.items():
        lines += ["", f"### {name}", "", "| call | what it does | takes | answers |"]
        lines += ["| --- | --- | --- | --- |"]
        lines += _rows([(path, calls) for path, rows in table.items() for calls in rows])
        own = sorted(refusals[name].keys() - set(frequent))
        if own:
            lines += ["", f"Refused with: {_by_status(own)}."]
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
    status = "" if route.answer and route.status == 200 else str(route.status)
    answers = [f"{status} `{route.answer}`".strip() if route.answer else status]
    answers += [f"{status} {when}" for status, when in route.also.items()]
    return _Call(route.method, route.summary, ", ".join(takes), "; ".join(answers))


def _refusals(route: Route) -> list[str]:
    return [
        f"{status} {reason}"
        for status, reasons in sorted(route.errors.items())
        for reason in reasons.split("; ")
    ]


def _by_status(refusals: list[str]) -> str:
    """Return sorted refusals as text, each status once."""
    reasons: dict[str, list[str]] = {}
    for refusal in refusals:
        status, _, reason = refusal.partition(" ")
        reasons.setdefault(status, []).append(reason.rstrip("."))
    texts = (f"**{status}** {'; '.join(dict.fromkeys(found))}" for status, found in reasons.items())
    return ". ".join(texts)


def _rows(found: list[tuple[str, list[_Call]]]) -> list[str]:
    """Return the rows of a table; policies of one parent that differ only in their names share one."""
    joined: dict[tuple[str, ...], list[str]] = {}
    for path, calls in found:
        parent, _, name = path.rpartition("/")
        takes = [(each.method, each.takes) for each in calls if each.takes]
        answers = [(each.method, each.answers) for each in calls if each.answers != "204"]
        summary = _summary(calls)
        methods = ",".join(call.method for call in calls)
        cells = (_without(name, summary), _by_method(takes, calls), _by_method(answers, calls))
        own = "" if len(cells[0]) < len(summary) else path
        joined.setdefault((parent, methods, own, *cells), []).append(path)
    lines = []
    for (_, methods, _, *texts), paths in joined.items():
        first, *others = methods.split(",")
        names = [f"`{first} {paths[0]}`", *(f"`{path.rpartition('/')[2]}`" for path in paths[1:])]
        call = "<br>".join([", ".join(names), *(f"`{method}`" for method in others)])
        escaped = (cell.replace("|", "\\|") for cell in (call, *texts))
        lines.append(f"| {' | '.join(escaped)} |")
    return lines


def _without(name: str, summary: str) -> str:
    """Return a summary without its first sentence if that only repeats the last word of the path."""
    return re.sub(
        rf"^(?:Get|Set|Remove)(?:, (?:set|remove))* {re.escape(name)} of a (?:namespace|topic)\. ?",
        "",
        summary,
    )


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
