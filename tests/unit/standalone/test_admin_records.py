"""What people see of large answers on a terminal, and that programs get them as they are."""

from __future__ import annotations

import json
from typing import Any

import pytest
from magnetar.standalone.admin import Target
from magnetar.standalone.admin_http import show

STATS: dict[str, Any] = {
    "msgRateIn": 119.02194038210012,
    "msgThroughputIn": 0.0,
    "bytesInCounter": 616224,
    **{f"figure{number}": 0 for number in range(12)},
    "lastOffloadSuccessTimeStamp": 1_000_000_000_000,
    "publishers": [
        {"producerName": "web", "msgRateIn": 1 / 3, "address": "/127.0.0.1:4", "metadata": {"a": "b"}}
    ],
    "subscriptions": {
        "billing": {
            "type": "Shared",
            "msgBacklog": 7,
            "blockedSubscriptionOnUnackedMsgs": False,
            "consumers": [{"consumerName": "c1", "msgRateOut": 2.5, "lastAckedTimestamp": 0}],
        },
    },
    "replication": {},
    "compaction": {"lastCompactionDurationTimeInMills": 5},
}


def drawn(
    value: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], **asked: bool
) -> str:
    monkeypatch.setenv("COLUMNS", "120")
    show(Target("", "", "table"), "Figures of t", value, **asked)
    return capsys.readouterr().out


def test_rates_are_rounded_and_what_there_is_several_of_is_a_table(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    shown = drawn(STATS, monkeypatch, capsys)
    lines = [[cell.strip() for cell in line.split("│")[1:-1]] for line in shown.splitlines() if "│" in line]
    assert ["msgRateIn", "119.02"] in lines
    assert ["lastOffloadSuccessTimeStamp", "2001-09-09 01:46:40"] in lines
    assert ["compaction.lastCompactionDurationTimeInMills", "5"] in lines
    assert ["web", "0.33", "127.0.0.1:4"] in lines
    assert ["billing", "Shared", "7"] in lines
    assert ["billing", "c1", "2.5", ""] in lines
    assert "figure1" not in shown
    assert "blocked" not in shown, "nobody is"
    assert "--output json has everything" in shown
    assert "{" not in shown, "no JSON on a terminal"


def test_a_few_figures_are_shown_even_when_they_are_0(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    shown = drawn({"retentionTimeInMinutes": 0, "retentionSizeInMB": -1}, monkeypatch, capsys)
    assert "retentionTimeInMinutes" in shown
    assert "--output json" not in shown


def test_what_is_not_there_is_said(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert drawn({}, monkeypatch, capsys) == "Figures of t: none\n"
    assert drawn([], monkeypatch, capsys) == "Figures of t: none\n"
    assert drawn(None, monkeypatch, capsys, asked=True) == "Figures of t: not set\n"
    assert drawn(None, monkeypatch, capsys) == "", "an answer that nobody expects"


@pytest.mark.parametrize("output", ["json", "auto"])
def test_programs_get_every_figure_with_every_digit(output: str, capsys: pytest.CaptureFixture[str]) -> None:
    show(Target("", "", output), "Figures of t", STATS)
    assert json.loads(capsys.readouterr().out) == STATS
    show(Target("", "", output), "retention of t", None, asked=True)
    assert json.loads(capsys.readouterr().out) is None
