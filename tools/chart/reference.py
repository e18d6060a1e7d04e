"""The reference of the chart's values in docs/kubernetes.md: a table for each part of the cluster."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from itertools import groupby
from typing import Any, Final

from tools.chart.values_file import ROOT, Value

PAGE: Final = ROOT / "docs" / "kubernetes.md"
HEADING: Final = "## Values\n"
_BEGINNING: Final = f"""\
{HEADING}
Written by `make docs` from the comments in `helm/magnetar/values.yaml`; change them there.
`values.schema.json` beside it is what helm checks them with; `config` of a service is checked against all of
its settings ([configuration.md](configuration.md)).
"""
_TITLES: Final = {
    "": "Everything",
    "serviceAccounts": "Service accounts",
    "rbac": "Rights",
    "externalEtcd": "etcd that is there already",
    "networkPolicy": "Who may reach what",
    "metrics": "Metrics, alerts and dashboards",
    "etcd": "etcd",
}


def page(values: Sequence[Value]) -> str:
    """Return the whole page: the hand-written part and the reference."""
    written, found, _ = PAGE.read_text(encoding="utf-8").partition(HEADING)
    assert found, f"{PAGE} has no heading for the values"
    return written + reference(values)


def reference(values: Sequence[Value]) -> str:
    """The reference: values that several parts have alike first, then a table for each part."""
    parts = [_BEGINNING]
    alike: dict[tuple[str, str, str], list[Value]] = {}
    for value in values:
        if len(value.path) > 1:
            row = (".".join(value.path[1:]), _default(value.default), _cell(value.about))
            alike.setdefault(row, []).append(value)
    shared = {row: of_parts for row, of_parts in alike.items() if len(of_parts) > 1}
    parts.append(
        "\n### Values: Shared\n\nEach part listed has the value under its own name, as in `PART.VALUE`.\n"
    )
    parts.append("\n| value | parts | default | meaning |\n| --- | --- | --- | --- |\n")
    for (name, default, about), of_parts in shared.items():
        names = ", ".join(f"`{value.path[0]}`" for value in of_parts)
        parts.append(f"| `{name}` | {names} | {default} | {about} |\n")
    told = {value.name for of_parts in shared.values() for value in of_parts}
    values = [value for value in values if value.name not in told]
    for section, of_section in groupby(sorted(values, key=_order(values)), key=_section):
        title = _TITLES.get(section) or section.capitalize()
        parts.append(f"\n### Values: {title}\n\n| value | default | meaning |\n| --- | --- | --- |\n")
        parts += [
            f"| `{value.name}` | {_default(value.default)} | {_cell(value.about)} |\n" for value in of_section
        ]
    return "".join(parts)


def _section(value: Value) -> str:
    return value.path[0] if len(value.path) > 1 else ""


def _order(values: Sequence[Value]) -> Callable[[Value], int]:
    """Sections in the order of the file, those values first that are in none."""
    sections = [""]
    for value in values:
        if _section(value) not in sections:
            sections.append(_section(value))
    return lambda value: sections.index(_section(value))


def _default(default: Any) -> str:
    if default in ("", [], {}):
        return "empty"
    if isinstance(default, str):
        return f"`{default}`"
    return f"`{_cell(json.dumps(default))}`"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")
