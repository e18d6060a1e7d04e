"""What can be said of dashboards and alerts without a Prometheus; tests/deploy asks one."""

from __future__ import annotations

import json
import re
from itertools import combinations
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from tools.dashboards.catalog import ALL, DIRECTORY, files
from tools.dashboards.model import COLUMNS, Dashboard

ROOT: Final = Path(__file__).resolve().parents[2]
RULES: Final = ROOT / "helm" / "magnetar" / "rules" / "magnetar.yaml"
OPERATIONS: Final = ROOT / "docs" / "operations.md"
METRICS: Final = ROOT / "docs" / "metrics.md"

UNITS: Final = {
    "binBps",
    "bytes",
    "cps",
    "iops",
    "mps",
    "ms",
    "none",
    "ops",
    "percent",
    "percentunit",
    "reqps",
    "rowsps",
    "rps",
    "s",
    "short",
    "wps",
}
"""Ids that Grafana knows, as far as they are used: it takes any other word as a suffix."""

PREFIXES: Final = "magnetar|pulsar|bookie|bookkeeper|auditor|replication_worker|brk|etcd|process|topic_load"
METRIC: Final = re.compile(rf"\b(?:{PREFIXES})_\w+|\bup\b|\bALERTS\b")
OF_OTHERS: Final = {
    "up",
    "ALERTS",
    "process_cpu_seconds_total",
    "process_max_fds",
    "process_open_fds",
    "process_resident_memory_bytes",
    "process_start_time_seconds",
    "etcd_disk_wal_fsync_duration_seconds",
    "etcd_mvcc_db_total_size_in_bytes",
    "etcd_server_has_leader",
    "etcd_server_leader_changes_seen_total",
    "etcd_server_proposals_committed_total",
    "etcd_server_quota_backend_bytes",
}
"""Metrics of Prometheus, its client library and etcd."""


def shown(dashboard: Dashboard) -> Any:
    return json.loads((DIRECTORY / f"{dashboard.name}.json").read_text())


def panels(dashboard: Dashboard) -> list[Any]:
    """But for rows."""
    return [panel for panel in shown(dashboard)["panels"] if panel["type"] != "row"]


def alerts() -> list[Any]:
    groups = yaml.safe_load(RULES.read_text())["groups"]
    return [rule for group in groups for rule in group["rules"] if "alert" in rule]


def documented() -> set[str]:
    """Every name that docs/metrics.md has, and what histograms and summaries make of theirs."""
    rows = re.findall(r"^\| `(\w+)` \| (\w+) \|", METRICS.read_text(), re.MULTILINE)
    found = {name for name, _ in rows}
    for name, kind in rows:
        if kind in ("histogram", "summary"):
            found |= {f"{name}_{suffix}" for suffix in ("bucket", "count", "sum")}
    return found | OF_OTHERS | {f"{name}_bucket" for name in OF_OTHERS}


@pytest.mark.parametrize("dashboard", ALL, ids=lambda each: each.name)
def test_a_dashboard_is_what_grafana_takes(dashboard: Dashboard) -> None:
    page = shown(dashboard)

    assert page["uid"] == f"magnetar-{dashboard.name}"
    assert page["title"].startswith("Magnetar / ")
    assert page["description"]
    ids = [panel["id"] for panel in page["panels"]]
    assert len(set(ids)) == len(ids)
    variables = {variable["name"]: variable for variable in page["templating"]["list"]}
    assert variables["datasource"]["type"] == "datasource"
    assert "cluster" in variables
    for variable in variables.values():
        assert variable["type"] == "datasource" or variable["datasource"]["uid"] == "${datasource}"


@pytest.mark.parametrize("dashboard", ALL, ids=lambda each: each.name)
def test_every_panel_has_a_unit_and_a_sentence_of_help_and_asks_the_chosen_prometheus(
    dashboard: Dashboard,
) -> None:
    for panel in panels(dashboard):
        what = (dashboard.name, panel["title"])
        assert panel["fieldConfig"]["defaults"]["unit"] in UNITS, what
        assert re.fullmatch(r"[A-Z0-9].{15,}[^.]\.", panel["description"]), what
        assert panel["targets"], what
        assert len({target["refId"] for target in panel["targets"]}) == len(panel["targets"]), what
        for asked in (panel, *panel["targets"]):
            assert asked["datasource"] == {"type": "prometheus", "uid": "${datasource}"}, what
        for target in panel["targets"]:
            assert target["legendFormat"], what


@pytest.mark.parametrize("dashboard", ALL, ids=lambda each: each.name)
def test_panels_lie_on_the_grid_and_not_on_each_other(dashboard: Dashboard) -> None:
    places = [panel["gridPos"] for panel in shown(dashboard)["panels"]]
    for place in places:
        assert place["x"] >= 0
        assert place["x"] + place["w"] <= COLUMNS
    for one, other in combinations(places, 2):
        beside = one["x"] + one["w"] <= other["x"] or other["x"] + other["w"] <= one["x"]
        below = one["y"] + one["h"] <= other["y"] or other["y"] + other["h"] <= one["y"]
        assert beside or below, (one, other)


@pytest.mark.parametrize("dashboard", ALL, ids=lambda each: each.name)
def test_every_query_is_about_the_chosen_cluster_and_about_metrics_that_there_are(
    dashboard: Dashboard,
) -> None:
    names = documented()
    variables = {variable["name"] for variable in shown(dashboard)["templating"]["list"]}
    for panel in panels(dashboard):
        for target in panel["targets"]:
            expr, what = target["expr"], (panel["title"], target["expr"])
            asked = METRIC.findall(expr)
            assert asked, what
            assert set(asked) <= names, (set(asked) - names, what)
            selectors = re.findall(r"\{[^}]*\}", expr)
            assert len(selectors) == len(asked), what
            assert all('cluster="$cluster"' in one for one in selectors), what
            used = set(re.findall(r"\$(\w+)", expr)) - {"__rate_interval"}
            assert used <= variables, what


def test_the_committed_dashboards_and_their_page_are_those_of_the_code() -> None:
    for path, text in files().items():
        assert path.read_text() == text, f"{path.name} is out of date, run 'make docs'"
    assert {path.name for path in DIRECTORY.iterdir()} == {f"{each.name}.json" for each in ALL}


def test_every_alert_says_what_it_is_about_and_asks_for_metrics_that_there_are() -> None:
    names = documented()
    rules = alerts()
    assert len({rule["alert"] for rule in rules}) == len(rules)
    for rule in rules:
        alert = rule["alert"]
        assert re.fullmatch(r"Magnetar([A-Z][a-z]+)+", alert)
        assert rule["labels"]["severity"] in ("critical", "warning", "info"), alert
        assert rule["annotations"].keys() == {"summary", "description", "runbook"}, alert
        assert rule["annotations"]["description"].endswith("."), alert
        asked = set(METRIC.findall(rule["expr"]))
        assert asked, alert
        assert asked <= names, (alert, asked - names)


def test_every_alert_has_its_section_in_the_page_for_operators() -> None:
    headings = re.findall(r"^#+ (.*)$", OPERATIONS.read_text(), re.MULTILINE)
    anchors = {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}
    anchors |= set(re.findall(r'<a (?:id|name)="([^"]+)">', OPERATIONS.read_text()))
    for rule in alerts():
        page, _, anchor = rule["annotations"]["runbook"].partition("#")
        assert page == "docs/operations.md"
        assert anchor == f"alert-{rule['alert'].lower()}"
        assert anchor in anchors, f"docs/operations.md has no section about {rule['alert']}"
