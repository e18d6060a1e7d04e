"""Reference of the admin API as a Markdown chapter, made from its routes."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from magnetar.broker.admin.edge.routing import COMMON_ERRORS, Parameter, Route

_DOMAINS: Final = ("persistent", "non-persistent")


def chapter(routes: Iterable[Route]) -> str:
    """Return the chapter: the errors of every call, then a table for each object."""
    lines = ["Besides what its row says, every call may be answered with:", ""]
    lines += ["| status | when |", "| --- | --- |"]
    lines += [f"| {status} | {reason} |" for status, reason in COMMON_ERRORS.items()]
    # Both topic domains share nearly all calls; identical calls become one row.
    rows: dict[str, dict[tuple[str, ...], None]] = {}
    for route in routes:
        topics = route.object in _DOMAINS
        rows.setdefault("topics" if topics else route.object, {})[_row(route)] = None
    for name, found in rows.items():
        lines += ["", f"### {name}", "", "| call | what it does | takes | answers | refuses |"]
        lines += ["| --- | --- | --- | --- | --- |"]
        lines += [f"| {' | '.join(row)} |" for row in found]
    return "\n".join(lines) + "\n"


def _row(route: Route) -> tuple[str, ...]:
    path = route.path
    if route.object in _DOMAINS:
        path = path.replace(f"/{route.object}/", "/{domain}/", 1)
    takes = [f"`{route.body}`"] if route.body else []
    takes += map(_parameter, route.parameters)
    answers = [f"{route.status} `{route.answer}`" if route.answer else str(route.status)]
    answers += [f"{status} {when}" for status, when in route.also.items()]
    refuses = [f"{status} {reason}" for status, reason in sorted(route.errors.items())]
    cells = (f"`{route.method} {path}`", route.summary, ", ".join(takes), "; ".join(answers))
    return tuple(cell.replace("|", "\\|") for cell in (*cells, "; ".join(refuses)))


def _parameter(parameter: Parameter) -> str:
    if parameter.default is None:
        return f"`?{parameter.name}` {parameter.type}"
    default = str(parameter.default).lower() if parameter.type == "boolean" else parameter.default
    return f"`?{parameter.name}={default}`"
