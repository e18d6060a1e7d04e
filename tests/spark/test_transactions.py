"""Transactions and offload: only committed messages are read, wherever they are, with the ids they had."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import duckdb
import magnetar.spark
import pulsar
import pytest
from pyspark.sql import DataFrame, SparkSession

from tests.integration.harness import eventually
from tests.integration.raw.transaction_line import begin, end, send_in
from tests.integration.raw.transcript import Line, line
from tests.spark.offload_runs import Ran, complete_ledgers, ledgers_of, part_files, run_in_session, told
from tests.spark.servers import SparkServer, close_ledgers, pulsar_client, read_all

SETTINGS: Final = {
    "transactionCoordinatorEnabled": "true",
    "managedLedgerOffloadDeletionLagMs": "0",
    "magnetarOffloadRefreshIntervalSeconds": "1",
}
LEFT_SECONDS_MAX: Final = 120.0

Ids = dict[str, int]


class Publishing:
    """Publishes alone or in transactions, with a producer of its own for each ledger."""

    def __init__(self, server: SparkServer, topic: str, coordinator: Line) -> None:
        self._server = server
        self._topic = topic
        self._coordinator = coordinator
        self.sequence_id = 0

    def begin(self) -> Ids:
        txn = begin(self._coordinator)
        request = self._coordinator.request("addPartitionToTxn", partitions=[self._topic], **txn)
        answer = self._coordinator.expect("addPartitionToTxnResponse", request_id=request).command
        assert not answer.HasField("error"), answer
        return txn

    @contextmanager
    def ledger(self) -> Iterator[Callable[..., None]]:
        """Gives a function that publishes; the ledger is closed at the end."""
        with line(self._server.endpoint) as c:
            c.open_producer(self._topic)

            def send(payload: bytes, txn: Ids | None = None) -> None:
                if txn is None:
                    c.publish(payload, first=self.sequence_id)
                else:
                    send_in(c, txn, payload, self.sequence_id)
                self.sequence_id += 1

            yield send
        close_ledgers(self._server.rest, self._topic)


def payloads(frame: DataFrame) -> list[bytes]:
    rows = frame.select("ledger_id", "entry_id", "payload").collect()
    return [bytes(row.payload) for row in sorted(rows)]


def by_ledger(ran: Ran) -> list[dict[str, Any]]:
    """Ledgers that a job reported, in their order; it reports them as they end."""
    return sorted(
        (each for each in ran.records if "ledgerId" in each), key=lambda each: int(each["ledgerId"])
    )


def queried(sql: str) -> list[Any]:
    with duckdb.connect() as connection:
        return connection.execute(sql).fetchall()


@pytest.mark.full
def test_committed_messages_are_read_by_everyone_and_no_others_wherever_they_are(
    spark: SparkSession,
    new_server: Callable[..., SparkServer],
    topic: str,
    location: str,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
) -> None:
    server = new_server(SETTINGS)
    address = server.offload_address
    given = {"offload.address": address, "topic": topic}
    magnetar.spark.register(spark)

    def read_everywhere() -> list[bytes]:
        found = payloads(spark.read.format("magnetar").options(**given).load())
        assert payloads(magnetar.spark.read_topic(spark, given)) == found
        return found

    with pulsar_client(server.endpoint) as client:
        client.subscribe(topic, "keeps").close()
    with line(server.endpoint) as c:
        asked = c.request("tcClientConnectRequest", tc_id=0)
        c.expect("tcClientConnectResponse", request_id=asked)
        publishing = Publishing(server, topic, c)
        with publishing.ledger() as send:
            kept, dropped = publishing.begin(), publishing.begin()
            send(b"a")
            send(b"b", kept)
            send(b"aborted 1", dropped)
            send(b"c", kept)
            send(b"aborted 2", dropped)
            send(b"d")
            assert end(c, dropped, "ABORT") == end(c, kept, "COMMIT") == ""
        late = publishing.begin()
        with publishing.ledger() as send:
            send(b"e")
            send(b"f", late)
            send(b"g")
        with publishing.ledger() as send:
            send(b"h")
        assert read_everywhere() == [b"a", b"b", b"c", b"d", b"e"], "by the broker"

        run = ("--topic", topic, "--want", "--location", location)
        records = by_ledger(run_in_session(spark, capfd, address, *run))
        assert [each["result"] for each in records] == ["offloaded", "held", "held"]
        assert records[0]["rawReasons"] == {"aborted": 2}
        status = told(capfd, "status", "--service", address, "--topic", topic, "--json").records
        assert [each["state"] for each in status] == ["offloaded", "held", "held"]
        assert [each["entries"] for each in status] == [6, 3, 1]
        assert "waits for transaction (0," in status[1]["error"]
        assert read_everywhere() == [b"a", b"b", b"c", b"d", b"e"], "from objects and by the broker"

        (first,) = part_files(complete_ledgers(address, topic))
        found = queried(f"SELECT payload FROM '{first}' WHERE raw_reason IS NULL ORDER BY entry_id")
        assert [row[0] for row in found] == [b"a", b"b", b"c", b"d"]
        aborted = queried(
            f"SELECT entry_id, payload, key, producer_name FROM '{first}' WHERE raw_reason = 'aborted'"
        )
        assert aborted == [(2, None, None, None), (4, None, None, None)]

        assert end(c, late, "COMMIT") == ""
    records = by_ledger(run_in_session(spark, capfd, address, "--topic", topic))
    assert [each["result"] for each in records] == ["offloaded", "offloaded"]

    def have_left() -> bool:
        return sum(bool(each.offload.left_bookies_ms) for each in ledgers_of(address, topic)) == 3

    eventually(have_left, "all closed ledgers left the log", LEFT_SECONDS_MAX)
    server.stop()
    server.start()
    everything = [b"a", b"b", b"c", b"d", b"e", b"f", b"g", b"h"]
    with pulsar_client(server.endpoint) as client:
        messages = read_all(client, topic, len(everything))
        assert [each.data() for each in messages] == everything
        ids = [each.message_id().entry_id() for each in messages]
        assert ids == [0, 1, 3, 5, 0, 1, 2, 0], "as they were, with holes where transactions were aborted"
        consumer = client.subscribe(topic, "new", initial_position=pulsar.InitialPosition.Earliest)
        got = [consumer.receive(30_000).data() for _ in everything]
        assert got == everything
    assert read_everywhere() == everything, "from objects alone"

    streamed: list[bytes] = []
    query = (
        spark.readStream.format("magnetar")
        .options(**given, starting="earliest")
        .load()
        .writeStream.foreachBatch(lambda frame, _: streamed.extend(payloads(frame)))
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(120)
    assert streamed == everything
