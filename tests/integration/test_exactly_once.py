"""Producers that send everything again after a crash: with deduplication each message is there once."""

from __future__ import annotations

import threading
import time

import pulsar
import pytest

from tests.integration.clients import drain, expect_nothing
from tests.integration.harness import StandaloneServer

SERVER_SETTINGS = {
    "brokerDeduplicationEnabled": "true",
    "brokerDeduplicationEntriesInterval": "500",
    "managedLedgerMaxEntriesPerLedger": "1000",
    "managedLedgerMinLedgerRolloverTimeMinutes": "0",
}

COUNT = 3_000
BATCH = 20
SEND_SECONDS_MAX = 60


def quiet_client(server: StandaloneServer) -> pulsar.Client:
    return pulsar.Client(server.endpoint.service_url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))


class Sender:
    """An application that sends the numbers from 0 on, each under the sequence id after it.

    (To this client the id 0 means that none was given.) Batches are always the same: this client does not
    say which is the last id of one, so nobody could tell apart batches that overlap.
    """

    def __init__(self, server: StandaloneServer, topic: str, *, batching: bool) -> None:
        self.client = quiet_client(server)
        self.producer = self.client.create_producer(
            topic,
            producer_name="application",
            batching_enabled=batching,
            batching_max_messages=BATCH,
            batching_max_publish_delay_ms=60_000,
            block_if_queue_full=True,
            send_timeout_millis=0,
        )
        self.acknowledged = 0
        self.failures: list[str] = []
        self._lock = threading.Lock()

    def send(self, first: int, end: int) -> None:
        for number in range(first, end):
            self.producer.send_async(b"%d" % number, self._sent, sequence_id=number + 1)

    def _sent(self, result: pulsar.Result, _: pulsar.MessageId) -> None:
        with self._lock:
            if result == pulsar.Result.Ok:
                self.acknowledged += 1
            else:
                self.failures.append(str(result))

    def wait(self, acknowledged: int) -> None:
        deadline = time.monotonic() + SEND_SECONDS_MAX
        while self.acknowledged < acknowledged:
            assert not self.failures, f"{len(self.failures)} sends failed: {self.failures[0]}"
            assert time.monotonic() < deadline, f"{self.acknowledged} of {acknowledged} were acknowledged"
            time.sleep(0.001)


@pytest.mark.parametrize(
    "batching",
    [pytest.param(False, marks=pytest.mark.full, id="unbatched"), pytest.param(True, id="batches")],
)
def test_all_that_is_sent_again_after_crashes_is_there_exactly_once(
    server: StandaloneServer, topic: str, batching: bool
) -> None:
    reader = quiet_client(server)
    consumer = reader.subscribe(topic, "everything", initial_position=pulsar.InitialPosition.Earliest)
    for crash in range(3):
        # The application lives on: its client sends what was not acknowledged once the server is back.
        sender = Sender(server, topic, batching=batching)
        sender.send(0, COUNT)
        sender.wait((crash + 1) * COUNT // 5)
        server.kill_and_start()
        sender.wait(COUNT)
        sender.client.close()
    # The application starts anew and does not know how far it came.
    sender = Sender(server, topic, batching=batching)
    assert sender.producer.last_sequence_id() == (COUNT - BATCH + 1 if batching else COUNT)
    sender.send(0, COUNT + BATCH)
    sender.wait(COUNT + BATCH)
    sender.client.close()
    # Messages fetched before a crash may come again; only a new consumer shows what is stored.
    consumer.close()
    consumer = reader.subscribe(topic, "everything")
    assert drain(consumer, COUNT + BATCH) == [b"%d" % number for number in range(COUNT + BATCH)]
    expect_nothing(consumer)
    reader.close()
