"""Non-persistent topics on the wire: at once or never, whatever the type of the subscription."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from tests.integration.counters import counter
from tests.integration.harness import Endpoint, eventually
from tests.integration.raw.transcript import Line, line, message_id, numbered, payload_frame, payloads

SERVER_SETTINGS = {"maxConcurrentNonPersistentMessagePerConnection": "20"}

TYPES = ["Exclusive", "Failover", "Shared", "Key_Shared"]
DROPPED = (2**64 - 1, 2**64 - 1)


def subscribe(c: Line, topic: str, kind: str, **fields: Any) -> None:
    """Subscribe, whatever is said besides about who is active."""
    request_id = c.ask_subscribe(topic, subType=kind, **fields)
    c.expect("success", request_id=request_id)
    if kind == "Failover":
        c.expect("active_consumer_change")


@pytest.mark.parametrize("durable", [True, False])
@pytest.mark.parametrize("kind", TYPES)
def test_messages_without_permits_are_dropped(
    endpoint: Endpoint, volatile_topic: str, kind: str, durable: bool
) -> None:
    with line(endpoint) as c, line(endpoint) as sender:
        sender.open_producer(volatile_topic)
        subscribe(c, volatile_topic, kind, durable=durable)
        assert sender.publish(*numbered(3)) == [(0, 0)] * 3
        c.expect_quiet()
        c.flow(2)
        c.send("ping")
        c.expect("pong")
        sender.publish(*numbered(5, 10), first=10)
        assert payloads(c.expect_messages(2)) == numbered(2, 10)
        c.expect_quiet()
        c.flow(1)
        c.expect_quiet()


@pytest.mark.parametrize("kind", ["Shared", "Key_Shared"])
def test_several_consumers_divide_what_comes(endpoint: Endpoint, volatile_topic: str, kind: str) -> None:
    with line(endpoint) as c, line(endpoint) as sender:
        sender.open_producer(volatile_topic)
        for consumer_id in (1, 2):
            subscribe(c, volatile_topic, kind, consumer_id=consumer_id, consumer_name=f"c{consumer_id}")
            c.flow(100, consumer_id=consumer_id)
        c.send("ping")
        c.expect("pong")
        for first in range(0, 60, 15):
            sender.publish(*numbered(15, first), first=first)
        frames = c.expect_messages(60)
        assert sorted(payloads(frames)) == sorted(numbered(60))
        shares = Counter(frame.command.consumer_id for frame in frames)
        assert shares.keys() == {1, 2}
        assert kind != "Shared" or shares == {1: 30, 2: 30}, "by turns"


def test_nothing_is_remembered_of_what_was_delivered(endpoint: Endpoint, volatile_topic: str) -> None:
    with line(endpoint) as c:
        c.open_producer(volatile_topic)
        subscribe(c, volatile_topic, "Shared")
        c.flow(10)
        c.send_bytes(b"".join(payload_frame(1, n, b"%d" % n) for n in range(3)))
        frames = [c.receive() for _ in range(6)]
        assert sorted(frame.name for frame in frames) == ["message"] * 3 + ["send_receipt"] * 3
        c.send("redeliverUnacknowledgedMessages", consumer_id=1)
        c.send("redeliverUnacknowledgedMessages", consumer_id=1, message_ids=[message_id((0, 0))])
        c.ack((0, 0), (0, 0), (7, 7))
        c.expect_quiet()


def test_messages_beyond_a_connections_limit_are_dropped_and_counted(
    endpoint: Endpoint, volatile_topic: str
) -> None:
    with line(endpoint) as c, line(endpoint) as sender:
        sender.open_producer(volatile_topic)
        subscribe(c, volatile_topic, "Exclusive")
        c.flow(1_000)
        c.send("ping")
        c.expect("pong")
        dropped_before = counter(endpoint, "magnetar_dropped_messages_total", where="connection")
        sender.send_bytes(b"".join(payload_frame(1, n, b"%d" % n) for n in range(50)))
        receipts = [sender.expect("send_receipt", sequence_id=n).position for n in range(50)]
        assert receipts == [(0, 0)] * 20 + [DROPPED] * 30
        assert payloads(c.expect_messages(20)) == numbered(20)
        c.expect_quiet()
        eventually(
            lambda: (
                counter(endpoint, "magnetar_dropped_messages_total", where="connection")
                == dropped_before + 30
            ),
            "drops are counted",
        )
        assert sender.publish(*numbered(20, 50), first=50) == [(0, 0)] * 20
        assert payloads(c.expect_messages(20)) == numbered(20, 50)
