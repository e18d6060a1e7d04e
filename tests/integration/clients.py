"""Short forms for what nearly every test does with the PyPI client."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Any

import pulsar
import pytest

RECEIVE_MS_MAX = 30_000
QUIET_MS = 300


def receive(consumer: pulsar.Consumer, timeout_ms: int = RECEIVE_MS_MAX) -> pulsar.Message:
    """The next message; fails when none comes in time."""
    return consumer.receive(timeout_ms)


def drain(consumer: pulsar.Consumer, count: int, *, acknowledge: bool = True) -> list[bytes]:
    """The payloads of the next `count` messages, acknowledged."""
    payloads = []
    for _ in range(count):
        message = consumer.receive(RECEIVE_MS_MAX)
        payloads.append(message.data())
        if acknowledge:
            consumer.acknowledge(message)
    return payloads


def drain_all(consumer: pulsar.Consumer, *, quiet_ms: int = QUIET_MS) -> list[bytes]:
    """The payloads of all messages until none comes for `quiet_ms`, acknowledged.

    For consumers whose share is not known beforehand; tests check the sum of all shares.
    """
    payloads: list[bytes] = []
    while True:
        try:
            message = consumer.receive(quiet_ms)
        except pulsar.Timeout:
            return payloads
        payloads.append(message.data())
        consumer.acknowledge(message)


def expect_nothing(consumer: pulsar.Consumer, quiet_ms: int = QUIET_MS) -> None:
    """No message comes within `quiet_ms`."""
    with pytest.raises(pulsar.Timeout):
        consumer.receive(quiet_ms)


def publish(
    client: pulsar.Client,
    topic: str,
    payloads: Iterable[bytes],
    *,
    batching: bool = False,
    messages_per_batch: int = 1000,
    **options: Any,
) -> list[pulsar.MessageId]:
    """Pipeline all payloads from one producer; returns their ids once each of them is acknowledged.

    Batches end when they are full and with the last payload, not by time: how many there are is certain.
    """
    ids: list[pulsar.MessageId] = []
    failures: list[str] = []

    def on_sent(result: pulsar.Result, message_id: pulsar.MessageId) -> None:
        if result == pulsar.Result.Ok:
            ids.append(message_id)
        else:
            failures.append(str(result))

    producer = client.create_producer(
        topic,
        block_if_queue_full=True,
        batching_enabled=batching,
        batching_max_messages=messages_per_batch,
        batching_max_publish_delay_ms=60_000,
        **options,
    )
    count = 0
    for payload in payloads:
        producer.send_async(payload, on_sent)
        count += 1
    producer.flush()
    deadline = time.monotonic() + RECEIVE_MS_MAX / 1000
    while len(ids) + len(failures) < count and time.monotonic() < deadline:
        time.sleep(0.002)  # callbacks run on the client's own threads
    producer.close()
    assert not failures, f"{len(failures)} of {count} sends failed: {failures[0]}"
    assert len(ids) == count, f"only {len(ids)} of {count} sends were acknowledged"
    return ids
