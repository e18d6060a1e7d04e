"""All dashboards, the files that they are written to, and the part of docs/dashboards.md about them."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from tools.dashboards.bookie import BOOKIE
from tools.dashboards.broker import BROKER
from tools.dashboards.discovery import DISCOVERY
from tools.dashboards.model import Dashboard, to_text
from tools.dashboards.offload import OFFLOAD
from tools.dashboards.overview import OVERVIEW
from tools.dashboards.topic import TOPIC

ROOT: Final = Path(__file__).resolve().parents[2]
DIRECTORY: Final = ROOT / "helm" / "magnetar" / "dashboards"
PAGE: Final = ROOT / "docs" / "dashboards.md"
ALL: Final = (OVERVIEW, BROKER, TOPIC, BOOKIE, DISCOVERY, OFFLOAD)

REFERENCE: Final = """\
## Every panel

Written by `make docs` from `tools/dashboards`; change it there. Each panel explains itself in Grafana: point
at the `i` beside its title.
"""


def files() -> dict[Path, str]:
    """Expected generated files: the dashboards, and the page with their reference."""
    by_hand, _, _ = PAGE.read_text().partition(REFERENCE.splitlines()[0] + "\n")
    wanted = {DIRECTORY / f"{each.name}.json": to_text(each) for each in ALL}
    wanted[PAGE] = by_hand + REFERENCE + "".join(map(chapter, ALL))
    return wanted


def chapter(dashboard: Dashboard) -> str:
    """Returns a dashboard as a table: a line for each row of panels, with their titles."""
    lines = ["", f"### {dashboard.title}", "", dashboard.about, "", "| row | panels |", "| --- | --- |"]
    lines += [f"| {row.title} | {'; '.join(panel.title for panel in row.panels)} |" for row in dashboard.rows]
    return "\n".join(lines) + "\n"
