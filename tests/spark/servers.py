"""Servers for tests with Spark: ledgers are small, nothing is trimmed, and jobs find a port to ask at."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import pulsar
from magnetar.testing.free_ports import free_ports

from tests.integration.harness import Endpoint, StandaloneServer
from tests.integration.rest import Rest

SETTINGS: Final = {
    "defaultRetentionTimeInMinutes": "-1",
    "defaultRetentionSizeInMB": "-1",
    "managedLedgerMinLedgerRolloverTimeMinutes": "0",
}
"""Without retention a closed ledger that no subscription needs would be gone before a job sees it."""

SHORT_LIVED: Final = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""Of Java: tests are over before it has optimized what they run, which took most of its time."""

RECEIVE_MS_MAX: Final = 30_000


class SparkServer(StandaloneServer):
    """A standalone whose offload service listens on a free port of its own."""

    def __init__(
        self,
        directory: Path,
        settings: Mapping[str, str] | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        (port,) = free_ports(1)
        self.offload_address = f"127.0.0.1:{port}"
        settings = {**SETTINGS, "magnetarControlPort": str(port), **(settings or {})}
        super().__init__(directory, settings, environment)

    @property
    def rest(self) -> Rest:
        """Its admin API."""
        return Rest(self.endpoint)


@contextmanager
def pulsar_client(endpoint: Endpoint, **options: Any) -> Iterator[pulsar.Client]:
    """A PyPI client, closed at the end."""
    logger = pulsar.ConsoleLogger(pulsar.LoggerLevel.Error)
    options = {"operation_timeout_seconds": 30, "logger": logger, **options}
    client = pulsar.Client(endpoint.service_url, **options)
    try:
        yield client
    finally:
        client.close()


def publish(
    client: pulsar.Client,
    topic: str,
    payloads: Sequence[bytes],
    *,
    message: Callable[[int], dict[str, Any]] = lambda number: {},
    batch: int = 100,
    **options: Any,
) -> None:
    """Publish in order, in batches of `batch` (1: each alone), and wait for all.

    `message` gives more of the n-th message: partition_key, properties, event_timestamp ...
    """
    options = {
        "batching_enabled": batch > 1,
        "batching_max_messages": max(batch, 2),
        # Batches end where they are full, and the last one by the flush: never where a timer ticks.
        "batching_max_publish_delay_ms": 60_000,
        "block_if_queue_full": True,
        "max_pending_messages": 5_000,
        **options,
    }
    failed: list[pulsar.Result] = []

    def sent(result: pulsar.Result, _: pulsar.MessageId) -> None:
        if result != pulsar.Result.Ok:
            failed.append(result)

    producer = client.create_producer(topic, **options)
    try:
        for number, payload in enumerate(payloads):
            producer.send_async(payload, sent, **message(number))
        producer.flush()
    finally:
        producer.close()
    assert not failed, failed[:3]


def read_all(client: pulsar.Client, topic: str, count: int) -> list[pulsar.Message]:
    """The next `count` messages from the first one of a topic on, by a reader that is closed then."""
    reader = client.create_reader(topic, pulsar.MessageId.earliest)
    try:
        return [reader.read_next(RECEIVE_MS_MAX) for _ in range(count)]
    finally:
        reader.close()


def close_ledgers(rest: Rest, topic: str) -> None:
    """Have the topic's open ledger closed: what was published until now can be offloaded."""
    rest.do("PUT", f"/{topic.replace('://', '/')}/unload")
