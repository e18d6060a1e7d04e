"""Key_Shared on the wire: which hash ranges are refused, and how; permits by owner."""

from __future__ import annotations

from typing import Any

import pytest
from magnetar.common.wire import pulsar_pb2 as pb

from tests.integration.harness import Endpoint
from tests.integration.raw.transcript import Frame, Line, line, payload_frame

SERVER_SETTINGS = {"connectionLivenessCheckTimeoutMillis": "1000"}

KEY = "Order-3459134"  # slot 6067


def meta(*ranges: tuple[int, int], mode: str = "STICKY", **fields: Any) -> dict[str, Any]:
    hash_ranges = [{"start": start, "end": end} for start, end in ranges]
    return {
        "subType": "Key_Shared",
        "keySharedMeta": {"keySharedMode": mode, "hashRanges": hash_ranges, **fields},
    }


def keyed_frame(sequence_id: int, key: str) -> bytes:
    metadata = pb.MessageMetadata(
        producer_name="raw", sequence_id=sequence_id, publish_time=1, partition_key=key
    )
    return payload_frame(1, sequence_id, b"%d" % sequence_id, metadata)


def publish_keyed(c: Line, *keys: str, first: int = 0) -> None:
    for sequence_id, key in enumerate(keys, first):
        c.send_bytes(keyed_frame(sequence_id, key))
        c.expect("send_receipt", sequence_id=sequence_id)


@pytest.mark.parametrize(
    "ranges",
    [[], [(10, 9)], [(0, 65_536)], [(-1, 5)], [(0, 10), (10, 20)]],
    ids=["none given", "backwards", "too high", "below 0", "overlapping itself"],
)
def test_invalid_sticky_hash_ranges_are_refused(
    endpoint: Endpoint, topic: str, ranges: list[tuple[int, int]]
) -> None:
    with line(endpoint) as c:
        c.expect_error(c.ask_subscribe(topic, **meta(*ranges)), "ConsumerAssignError")
        c.subscribe(topic, **meta(mode="AUTO_SPLIT"))  # as if it had never come


def test_ranges_of_a_live_consumer_are_refused_and_those_of_a_leaver_are_free(
    endpoint: Endpoint, topic: str
) -> None:
    with line(endpoint) as c:
        c.subscribe(topic, consumer_id=1, **meta((0, 100)))
        c.subscribe(topic, consumer_id=2, **meta((101, 200)))
        request_id = c.ask_subscribe(topic, consumer_id=3, **meta((100, 100)))
        message = c.expect_error(request_id, "ConsumerAssignError")
        assert "overlap" in message
        c.request("close_consumer", consumer_id=1)
        c.expect("success")
        c.subscribe(topic, consumer_id=3, **meta((100, 100)))


@pytest.mark.parametrize("domain", ["persistent", "non-persistent"])
def test_ranges_of_connections_that_give_no_sign_of_life_are_free(
    endpoint: Endpoint, topic: str, domain: str
) -> None:
    name = topic.replace("persistent", domain)
    with line(endpoint) as dead, line(endpoint) as dead_too, line(endpoint) as alive, line(endpoint) as c:
        dead.subscribe(name, consumer_id=1, **meta((0, 100)))
        dead_too.subscribe(name, consumer_id=1, **meta((101, 200)))
        alive.subscribe(name, consumer_id=1, **meta((201, 300)))
        request_id = c.ask_subscribe(name, **meta((50, 150)))
        c.expect("success", request_id=request_id)
        for each in (dead, dead_too):
            each.answer_pings = False
            each.expect("ping")
            each.expect_closed()
        alive.answer_pings = False
        request_id = c.ask_subscribe(name, consumer_id=2, **meta((300, 400)))
        alive.expect("ping")
        alive.send("pong")
        assert "overlap" in c.expect_error(request_id, "ConsumerAssignError")
        c.subscribe(name, consumer_id=2, **meta((301, 400)))
        alive.expect_quiet()


def test_consumers_of_one_subscription_share_keys_in_one_way(endpoint: Endpoint, topic: str) -> None:
    with line(endpoint) as c:
        c.subscribe(topic, consumer_id=1, **meta(mode="AUTO_SPLIT"))
        c.expect_error(c.ask_subscribe(topic, consumer_id=2, **meta((0, 9))), "ConsumerBusy")
        out_of_order = meta(mode="AUTO_SPLIT", allowOutOfOrderDelivery=True)
        c.expect_error(c.ask_subscribe(topic, consumer_id=2, **out_of_order), "ConsumerBusy")
        c.subscribe(topic, consumer_id=2, subType="Key_Shared")


def test_an_owner_without_permits_holds_up_its_own_slots_only(endpoint: Endpoint, topic: str) -> None:
    with line(endpoint) as c:
        c.open_producer(topic)
        c.subscribe(topic, consumer_id=1, **meta((6067, 6067)))
        c.subscribe(topic, consumer_id=2, **meta((0, 6066), (6068, 65_535)))
        publish_keyed(c, KEY, "a", KEY, "b")
        c.flow(10, consumer_id=2)
        assert [c.expect("message", consumer_id=2).payload for _ in range(2)] == [b"1", b"3"]
        c.expect_quiet()
        c.flow(1, consumer_id=1)
        assert c.expect("message", consumer_id=1).payload == b"0"
        c.expect_quiet()
        c.flow(5, consumer_id=1)
        assert c.expect("message", consumer_id=1).payload == b"2"


def test_a_moved_key_waits_for_the_acknowledgement_of_its_old_owner(endpoint: Endpoint, topic: str) -> None:
    with line(endpoint) as c:
        c.open_producer(topic)
        c.subscribe(topic, consumer_id=1, subType="Key_Shared", consumer_name="old")
        keys = [f"key-{number}" for number in range(20)]
        publish_keyed(c, *keys)
        c.flow(100, consumer_id=1)
        held = {frame.payload: frame.position for frame in c.expect_messages(20)}
        c.subscribe(topic, consumer_id=2, subType="Key_Shared", consumer_name="new")
        c.flow(100, consumer_id=2)
        for sequence_id, key in enumerate(keys, 20):
            c.send_bytes(keyed_frame(sequence_id, key))
        got: list[Frame] = []
        receipts = 0

        def receive() -> None:
            nonlocal receipts
            frame = c.receive()
            if frame.name == "send_receipt":
                receipts += 1
            else:
                got.append(frame)

        while receipts < 20 or not got:
            receive()
        # A receipt may come before the message. Once a later one of a key that stayed is there, all are.
        c.send_bytes(keyed_frame(40, keys[int(got[0].payload) - 20]))
        while receipts < 21 or got[-1].payload != b"40":
            receive()
        got.pop()
        assert {frame.command.consumer_id for frame in got} == {1}
        stayed = {int(frame.payload) for frame in got}
        moved = set(range(20, 40)) - stayed
        assert moved, "a newcomer takes some keys over"
        c.expect_quiet()
        for number in sorted(moved):
            c.ack(held[b"%d" % (number - 20)], consumer_id=1, receipt=False)
            assert c.expect("message", consumer_id=2).payload == b"%d" % number
