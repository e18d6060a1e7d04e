"""Open transactions over HTTP and by command: what holds a topic back, and how an operator ends it."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from typing import Any

import pytest
from click.testing import CliRunner
from magnetar.cli.main import main
from magnetar.common.wire import pulsar_pb2 as pb

from tests.integration.harness import Endpoint
from tests.integration.raw.transcript import Line, line, payload_frame
from tests.integration.rest import Rest

SERVER_SETTINGS = {"transactionCoordinatorEnabled": "true"}

TTL_MS = 300_000

pytestmark = pytest.mark.usefixtures("our_contract")


@dataclass(frozen=True)
class Transaction:
    """An open transaction with one message, and one acknowledgement of an earlier message."""

    rest: Rest
    topic: str
    least: int
    plain: tuple[int, int]
    """Position of the acknowledged message."""
    inside: tuple[int, int]
    """Position of the message in the transaction."""

    @property
    def names(self) -> str:
        return self.topic.split("://")[1]

    @property
    def id(self) -> str:
        return f"(0,{self.least})"

    def get(self, route: str, *rest: object) -> Any:
        return self.rest.get("/" + "/".join(map(str, (route, self.names, *rest))))

    def in_buffer(self) -> Any:
        return self.get("transactionInBufferStats", 0, self.least)

    def state_of(self, position: tuple[int, int], index: str = "") -> str:
        return str(
            self.get("positionStatsInPendingAck", "sub", position[0], f"{position[1]}{index}")["state"]
        )

    def stats(self) -> Any:
        path = f"/{self.topic.replace('://', '/')}/stats?whyNotDispatching=true"
        return Rest(self.rest.endpoint).get(path)


def begin(c: Line, endpoint: Endpoint, topic: str) -> Transaction:
    c.request("tcClientConnectRequest", tc_id=0)
    assert not c.expect("tcClientConnectResponse").command.HasField("error")
    c.request("newTxn", tc_id=0, txn_ttl_seconds=TTL_MS)
    begun = c.expect("newTxnResponse").command
    ids = {"txnid_most_bits": begun.txnid_most_bits, "txnid_least_bits": begun.txnid_least_bits}
    c.subscribe(topic)
    c.open_producer(topic)
    (plain,) = c.publish(b"plain")
    c.flow(10)
    c.expect("message")
    c.request("addPartitionToTxn", partitions=[topic], **ids)
    assert not c.expect("addPartitionToTxnResponse").command.HasField("error")
    c.request("addSubscriptionToTxn", subscription=[{"topic": topic, "subscription": "sub"}], **ids)
    assert not c.expect("addSubscriptionToTxnResponse").command.HasField("error")
    metadata = pb.MessageMetadata(
        producer_name="raw", sequence_id=1, publish_time=int(time.time() * 1000), **ids
    )
    c.send_bytes(payload_frame(1, 1, b"inside", metadata, **ids))
    inside = c.expect("send_receipt", sequence_id=1).position
    acknowledge(c, plain, ids)
    rest = Rest(endpoint, root="/admin/v3/transactions")
    return Transaction(rest, topic, begun.txnid_least_bits, plain, inside)


def acknowledge(c: Line, position: tuple[int, int], ids: dict[str, int]) -> None:
    """Acknowledges a message in a transaction."""
    ledger, entry = position
    ids_of_message = [{"ledgerId": ledger, "entryId": entry}]
    c.request("ack", consumer_id=1, ack_type="Individual", message_id=ids_of_message, **ids)
    assert not c.expect("ackResponse").command.HasField("error")


def run_admin(endpoint: Endpoint, *arguments: str) -> str:
    """Runs a command of `magnetar admin transactions` in this process; returns what it printed."""
    line = ["admin", "--admin-url", endpoint.http_url, "transactions", *arguments]
    done = CliRunner().invoke(main, line)
    assert done.exit_code == 0, (line, done.output)
    return str(done.stdout)


def text(position: tuple[int, int]) -> str:
    return f"{position[0]}:{position[1]}"


def test_an_open_transaction_is_shown_wherever_it_takes_part(endpoint: Endpoint, topic: str) -> None:
    with line(endpoint) as c:
        txn = begin(c, endpoint, topic)
        found = txn.rest.get(f"/transactionMetadata/0/{txn.least}")
        assert abs(found.pop("openTimestamp") - time.time() * 1000) < 60_000
        assert found == {
            "txnId": txn.id,
            "status": "OPEN",
            "timeoutAt": TTL_MS,
            "producedPartitions": {topic: {"startPosition": text(txn.inside), "aborted": False}},
            "ackedPartitions": {topic: {"sub": {}}},
        }
        assert txn.in_buffer() == {"startPosition": text(txn.inside), "aborted": False}
        buffer = txn.get("transactionBufferStats")
        assert (buffer["state"], buffer["ongoingTxnSize"]) == ("Ready", 1)
        assert buffer["maxReadPosition"] == text(txn.plain)
        assert "lowWaterMarks" not in buffer
        pending = txn.get("pendingAckStats", "sub?lowWaterMarks=true")
        assert (pending["state"], pending["ongoingTxnSize"]) == ("Ready", 1)
        assert isinstance(pending["lowWaterMarks"], dict)
        assert txn.get("transactionInPendingAckStats", "sub", 0, txn.least) == {}
        assert txn.state_of(txn.plain) == "PendingAck"
        assert txn.state_of(txn.inside) == "NotInPendingAck"
        assert txn.state_of((txn.plain[0] + 1_000_000, 0)) == "InvalidPosition"
        assert txn.rest.call("POST", f"/abortTransaction/0/{txn.least}").status == 204


def test_statistics_name_the_transaction_that_a_subscription_waits_for(
    endpoint: Endpoint, topic: str
) -> None:
    with line(endpoint) as c:
        txn = begin(c, endpoint, topic)
        stats = txn.stats()
        assert (stats["ongoingTxnCount"], stats["committedTxnCount"], stats["abortedTxnCount"]) == (1, 0, 0)
        why = stats["subscriptions"]["sub"]["whyNotDispatching"]
        assert why.startswith(f"waits for transaction {txn.id}, open for "), why
        c.request("endTxn", txnid_most_bits=0, txnid_least_bits=txn.least, txn_action="COMMIT")
        assert {c.receive().name, c.receive().name} == {"message", "endTxnResponse"}
        stats = txn.stats()
        assert (stats["ongoingTxnCount"], stats["committedTxnCount"], stats["abortedTxnCount"]) == (0, 1, 0)
        assert txn.state_of(txn.plain) == "MarkDelete"
        assert txn.in_buffer() == {"aborted": False}
        assert txn.rest.get(f"/transactionMetadata/0/{txn.least}")["status"] == "COMMITTED"
        assert txn.rest.call("POST", f"/abortTransaction/0/{txn.least}").status == 409


def test_an_open_transaction_is_explained_with_its_first_message(endpoint: Endpoint, topic: str) -> None:
    with line(endpoint) as c:
        txn = begin(c, endpoint, topic)
        own = Rest(endpoint, root="/admin/magnetar/v1")
        reasons = own.get(f"/{topic.replace('://', '/')}/subscription/sub/explain")["reasons"]
        assert [each["data"] for each in reasons if each["code"] == "transaction_open"] == [
            {"transaction": txn.id, "firstMessage": text(txn.inside)},
            {"transaction": txn.id, "acknowledgedEntries": 1},
        ]
        assert all(each["since"] and each["stops"] for each in reasons)
        assert txn.rest.call("POST", f"/abortTransaction/0/{txn.least}").status == 204


def test_statistics_name_the_transaction_that_acknowledges_the_rest(endpoint: Endpoint, topic: str) -> None:
    with line(endpoint) as c:
        txn = begin(c, endpoint, topic)
        assert txn.rest.call("POST", f"/abortTransaction/0/{txn.least}").status == 204
        c.expect("message")
        c.request("newTxn", tc_id=0, txn_ttl_seconds=TTL_MS)
        least = c.expect("newTxnResponse").command.txnid_least_bits
        ids = {"txnid_most_bits": 0, "txnid_least_bits": least}
        c.request("addSubscriptionToTxn", subscription=[{"topic": topic, "subscription": "sub"}], **ids)
        c.expect("addSubscriptionToTxnResponse")
        acknowledge(c, txn.plain, ids)
        why = txn.stats()["subscriptions"]["sub"]["whyNotDispatching"]
        assert why.startswith(f"waits for transaction (0,{least}), open for "), why
        assert why.endswith(", in which messages are acknowledged"), why
        assert txn.rest.call("POST", f"/abortTransaction/0/{least}").status == 204


def test_an_operator_finds_and_aborts_a_slow_transaction(endpoint: Endpoint, topic: str) -> None:
    with line(endpoint) as c:
        txn = begin(c, endpoint, topic)
        of_long_ones = ("slow-transactions", "--time", "4m")
        assert txn.id in json.loads(run_admin(endpoint, *of_long_ones))
        assert txn.id not in json.loads(run_admin(endpoint, *of_long_ones, "--open-for", "10m"))
        assert txn.id not in json.loads(run_admin(endpoint, "slow-transactions", "--time", "6m"))
        run_admin(endpoint, "abort-transaction", "-m", "0", "-l", str(txn.least))
        redelivered = c.expect("message")
        assert redelivered.position == txn.plain
        assert txn.in_buffer()["aborted"] is True
        assert txn.id not in json.loads(run_admin(endpoint, *of_long_ones))
        assert txn.get("transactionBufferStats")["totalAbortedTransactions"] == 1
        assert txn.stats()["abortedTxnCount"] == 1
        assert txn.rest.call("POST", f"/abortTransaction/0/{txn.least}").status == 204, "idempotent"


def test_a_topic_without_transactions_has_empty_statistics(endpoint: Endpoint, topic: str) -> None:
    with line(endpoint) as c:
        c.open_producer(topic)
        c.subscribe(topic)
        (position,) = c.publish(b"plain")
    txn = Transaction(Rest(endpoint, root="/admin/v3/transactions"), topic, 7, position, position)
    buffer = txn.get("transactionBufferStats")
    assert (buffer["state"], buffer["ongoingTxnSize"], buffer["totalAbortedTransactions"]) == (
        "NoSnapshot",
        0,
        0,
    )
    assert buffer["maxReadPosition"] == text(position)
    assert txn.in_buffer() == {"aborted": False}
    assert txn.get("pendingAckStats", "sub")["state"] == "None"
    assert txn.get("transactionInPendingAckStats", "sub", 0, 7) == {}
    assert txn.state_of(position) == "NotInPendingAck"
    internal = txn.get("transactionBufferInternalStats")
    assert internal["snapshotType"] == "Single"
    assert txn.get("pendingAckInternalStats", "sub")["pendingAckLogStats"]["managedLedgerName"]


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("transactionBufferStats/public/default/missing", 404),
        ("transactionBufferStats/public/missing/t", 404),
        ("pendingAckStats/public/default/TOPIC/missing", 404),
        ("transactionInBufferStats/public/default/TOPIC/0/-1", 400),
        ("transactionMetadata/0/999999", 404),
        ("transactionMetadata/7/0", 404),
        ("coordinatorStats?coordinatorId=7", 404),
    ],
)
def test_what_is_not_there_is_refused(endpoint: Endpoint, topic: str, path: str, status: int) -> None:
    with line(endpoint) as c:
        c.open_producer(topic)
    rest = Rest(endpoint, root="/admin/v3/transactions")
    reply = rest.call("GET", "/" + path.replace("TOPIC", topic.rpartition("/")[2]))
    assert reply.status == status, reply
    assert reply.reason


def test_coordinators_are_shown_and_more_are_made(endpoint: Endpoint) -> None:
    rest = Rest(endpoint, root="/admin/v3/transactions")
    before = rest.get("/coordinators")
    assert [each["id"] for each in before] == list(range(len(before)))
    assert {each["brokerServiceUrl"] for each in before} == {endpoint.service_url}
    assert rest.call("POST", "/transactionCoordinator/replicas", len(before)).status == 406
    assert rest.call("POST", "/transactionCoordinator/replicas", len(before) + 1).status == 204
    stats = rest.get("/coordinatorStats")
    assert list(stats) == [str(each) for each in range(len(before) + 1)]
    assert stats[str(len(before))]["state"] == "Ready"
    assert stats[str(len(before))]["leastSigBits"] == -1
    log = rest.get(f"/coordinatorInternalStats/{len(before)}")["transactionLogStats"]
    assert log["managedLedgerName"] == f"transactions/{len(before)}"
    assert log["managedLedgerInternalStats"]["state"] == "NoLedger", "nothing was written to it yet"
