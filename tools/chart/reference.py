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
    parts = [_BEGINNING]
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
