"""What people see of large answers on a terminal, and that programs get them as they are."""

from __future__ import annotations

import json
from typing import Any

import pytest
from magnetar.cli.admin.http_client import show
from magnetar.cli.admin.target import Target

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
    assert "616,224 (602 KiB)" in shown
    lines = [[cell.strip() for cell in line.split("│")[1:-1]] for line in shown.splitlines() if "│" in line]
    assert ["msgRateIn", "119.02"] in lines
    assert ["lastOffloadSuccessTimeStamp", "2001-09-09 01:46:40"] in lines
    assert ["compaction.lastCompactionDurationTimeInMills", "5"] in lines
    assert ["web", "0.33", "127.0.0.1:4"] in lines
    assert ["billing", "Shared", "7"] in lines
    assert ["billing", "c1", "2.5", ""] in lines
    assert "figure1" not in shown
    assert "blocked" not in shown, "nobody is"
    assert "use --output json for all" in shown
    assert "{" not in shown, "no JSON on a terminal"


def test_a_few_figures_are_shown_even_when_they_are_0(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    shown = drawn({"retentionTimeInMinutes": 0, "retentionSizeInMB": -1}, monkeypatch, capsys)
    assert "retentionTimeInMinutes" in shown
    assert "--output json" not in shown


def test_missing_value_is_shown_as_missing(
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


def narrow(
    value: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], columns: int
) -> str:
    monkeypatch.setenv("COLUMNS", str(columns))
    show(Target("", "", "table"), "Figures of t", value)
    shown = capsys.readouterr().out
    assert all(len(line) <= columns for line in shown.splitlines() if "│" in line)
    return shown


SUBSCRIPTION = {
    "type": "Shared",
    "msgBacklog": 1_234_567,
    "msgDelayed": 0,
    "unackedMessages": 12_345,
    "msgInReplay": 0,
    "msgRateOut": 10_000.25,
    "messageAckRate": 9_999.75,
    "msgRateRedeliver": 0.0,
}


def test_a_narrow_terminal_leaves_out_columns_without_anything(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    subscriptions = {"subscriptions": {f"subscription-{number}": SUBSCRIPTION for number in range(3)}}
    shown = narrow(subscriptions, monkeypatch, capsys, 80)
    heading = next(line for line in shown.splitlines() if "subscription " in line)
    assert [word for word in heading.split() if word.isalpha() or "/" in word] == [
        "subscription", "type", "backlog", "delayed", "unacked", "out/s", "acks/s",
    ]  # fmt: skip
    assert "use --output json for all" in shown


def test_wide_records_are_drawn_vertically(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    subscriptions = {"subscriptions": {f"subscription-{number}": SUBSCRIPTION for number in range(3)}}
    shown = narrow(subscriptions, monkeypatch, capsys, 50)
    lines = [[cell.strip() for cell in line.split("│")[1:-1]] for line in shown.splitlines() if "│" in line]
    assert lines.count(["backlog", "1234567"]) == 3
    assert ["subscription", "subscription-2"] in lines


def test_a_name_of_a_setting_stays_whole(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    name = "keySharedLookAheadMsgInReplayThresholdPerSubscription"
    shown = narrow({name: "20000", "path": "/a/long/path" * 9}, monkeypatch, capsys, 80)
    assert name in shown


def test_partitions_are_known_by_their_number(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    partitions = {f"persistent://t/n/{'long' * 20}-partition-{n}": {"msgInCounter": n * 7} for n in range(12)}
    shown = narrow({"partitions": partitions}, monkeypatch, capsys, 80)
    lines = [[cell.strip() for cell in line.split("│")[1:-1]] for line in shown.splitlines() if "│" in line]
    assert lines[-12:] == [[str(n), str(n * 7)] for n in range(12)]


def test_an_empty_list_in_an_answer_is_none(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert narrow({"bookies": []}, monkeypatch, capsys, 80) == "Figures of t: none\n"
