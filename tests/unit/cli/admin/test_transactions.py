"""`magnetar admin transactions`: what is asked of the broker, and what is shown."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any
from unittest.mock import patch

import click
import pytest
from click.testing import CliRunner, Result
from magnetar.cli.admin import transactions
from magnetar.cli.admin.http_client import Answer
from magnetar.cli.main import main
from magnetar.cli.quantity_text import duration_text

TOPIC = "persistent://public/default/t"
ROOT = "/admin/v3/transactions"


class Broker:
    """Keeps each call, and answers with one value."""

    def __init__(self) -> None:
        self.value: Any = {}
        self.asked: list[tuple[str, str, Any, dict[str, object]]] = []

    def ask(
        self,
        _target: object,
        method: str,
        path: str,
        body: Any = None,
        query: dict[str, object] | None = None,
    ) -> Answer:
        self.asked.append((method, path, body, {k: v for k, v in (query or {}).items() if v is not None}))
        return Answer(json.dumps(self.value).encode(), {})


@pytest.fixture
def broker() -> Iterator[Broker]:
    found = Broker()
    with patch.object(transactions, "ask", found.ask):
        yield found


def run(*words: str, output: str = "json") -> Result:
    line = ["admin", "--output", output, "transactions", *words]
    return CliRunner().invoke(main, line, catch_exceptions=False, env={"COLUMNS": "200"})


@pytest.mark.parametrize(
    ("line", "method", "path", "query"),
    [
        ("coordinator-stats", "GET", "coordinatorStats", {}),
        ("coordinator-stats -c 3", "GET", "coordinatorStats", {"coordinatorId": 3}),
        ("coordinator-internal-stats -c 3 -m", "GET", "coordinatorInternalStats/3", {"metadata": True}),
        ("transaction-metadata -m 2 -l 17", "GET", "transactionMetadata/2/17", {}),
        ("abort-transaction -m 0 -l 0", "POST", "abortTransaction/0/0", {}),
        ("slow-transactions -t 10m", "GET", "slowTransactions/600000", {}),
        (
            "slow-transactions -t 1s -c 1 --open-for 2h",
            "GET",
            "slowTransactions/1000",
            {"coordinatorId": 1, "openAtLeastMs": 7_200_000},
        ),
        (
            "transaction-buffer-stats -t TOPIC -l -s",
            "GET",
            "transactionBufferStats/public/default/t",
            {"lowWaterMarks": True, "segmentStats": True},
        ),
        (
            "buffer-snapshot-internal-stats -t TOPIC",
            "GET",
            "transactionBufferInternalStats/public/default/t",
            {},
        ),
        (
            "transaction-in-buffer-stats -m 1 -l 2 -t TOPIC",
            "GET",
            "transactionInBufferStats/public/default/t/1/2",
            {},
        ),
        ("pending-ack-stats -t TOPIC -s a/b", "GET", "pendingAckStats/public/default/t/a%2Fb", {}),
        ("pending-ack-internal-stats -t TOPIC -s s", "GET", "pendingAckInternalStats/public/default/t/s", {}),
        (
            "transaction-in-pending-ack-stats -m 1 -l 2 -t TOPIC -s s",
            "GET",
            "transactionInPendingAckStats/public/default/t/s/1/2",
            {},
        ),
        (
            "position-stats-in-pending-ack -t TOPIC -s s -l 5 -e 6 -b 0",
            "GET",
            "positionStatsInPendingAck/public/default/t/s/5/6",
            {"batchIndex": 0},
        ),
    ],
)
def test_each_command_asks_its_route(
    broker: Broker, line: str, method: str, path: str, query: dict[str, object]
) -> None:
    result = run(*line.replace("TOPIC", TOPIC).split())
    assert result.exit_code == 0, result.output
    (asked,) = broker.asked
    assert (asked[0], asked[1], asked[3]) == (method, f"{ROOT}/{path}", query)


def test_the_number_of_coordinators_is_the_body(broker: Broker) -> None:
    assert run("scale-transactionCoordinators", "-r", "32").exit_code == 0
    assert broker.asked == [("POST", f"{ROOT}/transactionCoordinator/replicas", 32, {})]


def test_a_non_persistent_topic_is_refused_before_anything_is_asked(broker: Broker) -> None:
    result = run("transaction-buffer-stats", "-t", "non-persistent://public/default/t")
    assert result.exit_code == 2
    assert "only persistent topics have transactions" in result.output
    assert broker.asked == []


def test_programs_get_the_brokers_by_coordinator_as_from_pulsar_admin(broker: Broker) -> None:
    broker.value = [
        {"id": 0, "brokerServiceUrl": "pulsar://a:6650"},
        {"id": 1, "brokerServiceUrl": "pulsar://b:6650"},
    ]
    assert json.loads(run("coordinators-list").output) == {"0": "pulsar://a:6650", "1": "pulsar://b:6650"}


def test_a_terminal_gets_a_table_of_coordinators(broker: Broker) -> None:
    broker.value = [{"id": 0, "brokerServiceUrl": "pulsar://a:6650"}]
    lines = run("coordinators-list", output="table").output
    assert "coordinator" in lines
    assert "pulsar://a:6650" in lines


def test_a_terminal_gets_statistics_in_the_order_of_ids(broker: Broker) -> None:
    stats = {
        "state": "Ready",
        "leastSigBits": 41,
        "lowWaterMark": 7,
        "ongoingTxnSize": 3,
        "recoverStartTime": 0,
        "recoverEndTime": 1_600_000_000_000,
    }
    broker.value = {"10": stats, "2": stats}
    lines = run("coordinator-stats", output="table").output.splitlines()
    rows = [[cell.strip() for cell in line.strip("│").split("│")] for line in lines if "Ready" in line]
    assert rows == [[each, "Ready", "3", "41", "7", "2020-09-13 12:26:40"] for each in ("2", "10")]


def test_a_terminal_gets_slow_transactions_by_age(broker: Broker) -> None:
    def found(txn: str, opened_ms: int) -> dict[str, Any]:
        return {
            "txnId": txn,
            "status": "OPEN",
            "openTimestamp": opened_ms,
            "timeoutAt": 300_000,
            "producedPartitions": {TOPIC: {"startPosition": "1:2", "aborted": False}},
            "ackedPartitions": {TOPIC: {"one": {}, "two": {}}},
        }

    broker.value = {"(0,2)": found("(0,2)", 1_000_000), "(0,1)": found("(0,1)", 400_000)}
    with patch("time.time", return_value=1_042.0):
        lines = run("slow-transactions", "-t", "1s", output="table").output
    assert lines.index("(0,1)") < lines.index("(0,2)")
    assert "10 min 42 s" in lines
    assert "42 s" in lines
    assert "5 min" in lines
    assert f"{TOPIC} one" in " ".join(lines.split())


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.25, "0.25 s"),
        (59.0, "59 s"),
        (60.0, "1 min"),
        (125.9, "2 min 5 s"),
        (3_600.0, "1 h"),
        (7_260.0, "2 h 1 min"),
        (90_000.0, "1 d 1 h"),
    ],
)
def test_a_duration_has_its_two_largest_units(seconds: float, text: str) -> None:
    assert duration_text(seconds) == text


def test_the_halves_of_an_id_are_required() -> None:
    for name in ("transaction-metadata", "abort-transaction"):
        result = CliRunner().invoke(main, ["admin", "transactions", name, "-m", "0"])
        assert result.exit_code == 2
        assert "--least-sig-bits" in click.unstyle(result.output)
