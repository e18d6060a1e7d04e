"""Prometheus' own promtool takes the rules, and each alert fires when it should and not a minute before."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.deploy.alert_cases import CASES, Case
from tests.deploy.alert_quiet import SLOW_UPGRADE, UPGRADE, WELL
from tools.deploy_setup import promtool_program

RULES = Path(__file__).resolve().parents[2] / "helm" / "magnetar" / "rules" / "magnetar.yaml"
PROMTOOL = promtool_program()
PROMTOOL_SECONDS_MAX = 240
WELL_MIN = 1_500
"""Longer than the longest that any alert waits: a day."""

pytestmark = pytest.mark.skipif(PROMTOOL is None, reason="there is no promtool: run 'make deploy-setup'")


@cache
def alerts() -> dict[str, Any]:
    groups = yaml.safe_load(RULES.read_text())["groups"]
    return {rule["alert"]: rule for group in groups for rule in group["rules"] if "alert" in rule}


def promtool(*arguments: str | Path) -> str:
    """What it prints; fails with that when it ends with an error."""
    assert PROMTOOL is not None
    command = [str(PROMTOOL), *map(str, arguments)]
    done = subprocess.run(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=PROMTOOL_SECONDS_MAX,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    return done.stdout


def untold(directory: Path) -> Path:
    """The rules without their annotations: promtool would have every test repeat them, word for word."""
    groups = yaml.safe_load(RULES.read_text())
    for group in groups["groups"]:
        for rule in group["rules"]:
            rule.pop("annotations", None)
    path = directory / "rules.yaml"
    path.write_text(yaml.safe_dump(groups))
    return path


def series(given: Mapping[str, str]) -> list[dict[str, str]]:
    return [{"series": name, "values": values} for name, values in given.items()]


def as_test(case: Case, severity: str) -> dict[str, Any]:
    """In promtool's words."""
    expected = {"exp_labels": {**case.labels, "severity": severity}}
    return {
        "name": case.alert,
        "interval": "1m",
        "input_series": series(case.series),
        "alert_rule_test": [
            {"eval_time": f"{case.quiet_min}m", "alertname": case.alert, "exp_alerts": []},
            {"eval_time": f"{case.fires_min}m", "alertname": case.alert, "exp_alerts": [expected]},
        ],
    }


def test_promtool_takes_the_rules() -> None:
    assert f"{len(alerts())} rules found" in promtool("check", "rules", RULES)


@pytest.mark.full
def test_every_alert_fires_when_it_should_and_not_a_minute_before(tmp_path: Path) -> None:
    rules = alerts()
    assert {case.alert for case in CASES} == rules.keys(), "each alert has its case"
    tests = [as_test(case, rules[case.alert]["labels"]["severity"]) for case in CASES]
    file = tmp_path / "fires.yaml"
    content = {"rule_files": [str(untold(tmp_path))], "evaluation_interval": "1m", "tests": tests}
    file.write_text(yaml.safe_dump(content))

    assert "SUCCESS" in promtool("test", "rules", file)


def test_no_alert_fires_while_a_cluster_is_well(tmp_path: Path) -> None:
    quiet = [
        {"eval_time": f"{minute}m", "alertname": alert, "exp_alerts": []}
        for alert in alerts()
        for minute in (WELL_MIN // 2, WELL_MIN)
    ]
    tests = [{"interval": "1m", "input_series": series(WELL), "alert_rule_test": quiet}]
    file = tmp_path / "well.yaml"
    content = {"rule_files": [str(untold(tmp_path))], "evaluation_interval": "5m", "tests": tests}
    file.write_text(yaml.safe_dump(content))

    assert "SUCCESS" in promtool("test", "rules", file)


def test_no_alert_fires_while_a_cluster_is_upgraded(tmp_path: Path) -> None:
    quiet = [
        {"eval_time": f"{minute}m", "expr": 'ALERTS{alertstate="firing"}', "exp_samples": []}
        for minute in range(8, 60)
    ]
    others = 'ALERTS{alertstate="firing", alertname!="MagnetarBookieDown"}'
    slow = [{**each, "expr": others} for each in quiet]
    tests = [
        {"interval": "1m", "input_series": series(UPGRADE), "promql_expr_test": quiet},
        {"interval": "1m", "input_series": series(SLOW_UPGRADE), "promql_expr_test": slow},
    ]
    file = tmp_path / "upgrade.yaml"
    content = {"rule_files": [str(untold(tmp_path))], "evaluation_interval": "1m", "tests": tests}
    file.write_text(yaml.safe_dump(content))

    assert "SUCCESS" in promtool("test", "rules", file)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.alert)
def test_alert_texts_name_only_labels_of_the_alert(case: Case) -> None:
    told = " ".join(alerts()[case.alert]["annotations"].values())
    assert set(re.findall(r"\$labels\.(\w+)", told)) <= set(case.labels)
