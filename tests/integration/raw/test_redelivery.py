"""What a client's own timing of redelivery rests on, and reading what is compacted."""

from __future__ import annotations

from typing import Any

import pytest

from tests.integration.harness import Endpoint
from tests.integration.raw.transcript import line, message_id

DELAY_S_MIN, DELAY_S_MAX, MULTIPLIER = 0.01, 0.06, 2.0


def test_a_client_can_back_off_by_the_count_and_nothing_comes_before_it_asks(
    endpoint: Endpoint, topic: str
) -> None:
    with line(endpoint) as c:
        c.open_producer(topic)
        c.subscribe(topic, subType="Shared")
        c.flow(100)
        (position,) = c.publish(b"again and again")
        delays = []
        for count in range(6):
            frame = c.expect("message")
            assert (frame.position, frame.command.redelivery_count) == (position, count)
            delays.append(min(DELAY_S_MIN * MULTIPLIER**frame.command.redelivery_count, DELAY_S_MAX))
            c.expect_quiet(delays[-1])
            c.send("redeliverUnacknowledgedMessages", consumer_id=1, message_ids=[message_id(position)])
        assert delays == [0.01, 0.02, 0.04, 0.06, 0.06, 0.06]


@pytest.mark.parametrize("durable", [True, False])
@pytest.mark.parametrize("sub_type", ["Exclusive", "Failover"])
def test_compacted_reading_of_a_topic_that_was_never_compacted_is_the_topic_itself(
    endpoint: Endpoint, topic: str, sub_type: str, durable: bool
) -> None:
    with line(endpoint) as c:
        c.open_producer(topic)
        positions = c.publish(b"a", b"b", b"c")
        c.subscribe(topic, subType=sub_type, read_compacted=True, durable=durable)
        if sub_type == "Failover":
            c.expect("active_consumer_change", is_active=True)
        c.flow(10)
        assert [frame.payload for frame in c.expect_messages(3)] == [b"a", b"b", b"c"]
        request_id = c.request("getLastMessageId", consumer_id=1)
        last = c.expect("getLastMessageIdResponse", request_id=request_id).command.last_message_id
        assert (last.ledgerId, last.entryId) == positions[-1]


@pytest.mark.parametrize("sub_type", ["Shared", "Key_Shared"])
def test_compacted_reading_is_not_for_types_without_order(
    endpoint: Endpoint, topic: str, sub_type: str
) -> None:
    with line(endpoint) as c:
        fields: dict[str, Any] = (
            {"keySharedMeta": {"keySharedMode": "AUTO_SPLIT"}} if sub_type == "Key_Shared" else {}
        )
        request_id = c.ask_subscribe(topic, subType=sub_type, read_compacted=True, **fields)
        c.expect_error(request_id, "NotAllowedError")


def test_compacted_reading_is_not_for_topics_that_keep_nothing(
    endpoint: Endpoint, volatile_topic: str
) -> None:
    with line(endpoint) as c:
        c.expect_error(c.ask_subscribe(volatile_topic, read_compacted=True), "NotAllowedError")
