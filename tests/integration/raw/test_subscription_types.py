"""Which types a subscription may have, and what of it stays between its consumers."""

from __future__ import annotations

import json
import urllib.request
from typing import Any

import pytest
from magnetar.common.wire import pulsar_pb2 as pb

from tests.integration.harness import Endpoint
from tests.integration.raw.transcript import line, numbered, payload_frame, payloads

SERVER_SETTINGS = {
    "subscriptionTypesEnabled": "Exclusive,Shared",
    "activeConsumerFailoverDelayTimeMillis": "100",
}

pytestmark = pytest.mark.usefixtures("server")


@pytest.mark.parametrize("kind", ["Failover", "Key_Shared"])
@pytest.mark.parametrize("domain", ["persistent", "non-persistent"])
def test_a_type_that_is_switched_off_is_refused(
    endpoint: Endpoint, topic: str, domain: str, kind: str
) -> None:
    name = topic.replace("persistent", domain)
    with line(endpoint) as c:
        assert kind in c.expect_error(c.ask_subscribe(name, subType=kind), "NotAllowedError")
        c.subscribe(name, subType="Shared")


def test_exclusive_consumers_with_hash_ranges_divide_a_topic_by_key(endpoint: Endpoint, topic: str) -> None:
    def ranges(*pairs: tuple[int, int]) -> dict[str, Any]:
        return {
            "hashRanges": [{"start": start, "end": end} for start, end in pairs],
            "keySharedMode": "STICKY",
        }

    with line(endpoint) as c, line(endpoint) as producer:
        for consumer_id, bad in enumerate((((5, 4),), ((0, 65_536),), ((0, 9), (9, 20)))):
            c.expect_error(
                c.ask_subscribe(topic, "bad", consumer_id, keySharedMeta=ranges(*bad)), "ConsumerAssignError"
            )
        c.subscribe(topic, "low", 1, keySharedMeta=ranges((0, 20_000), (40_001, 65_535)))
        c.subscribe(topic, "high", 2, keySharedMeta=ranges((20_001, 40_000)))
        c.flow(200, consumer_id=1)
        c.flow(200, consumer_id=2)
        producer.open_producer(topic)
        for number in range(100):
            key = f"key-{number % 20}"
            metadata = pb.MessageMetadata(
                producer_name="raw", sequence_id=number, publish_time=1, partition_key=key
            )
            producer.send_bytes(payload_frame(1, number, b"%d" % number, metadata))
        got: dict[int, list[int]] = {1: [], 2: []}
        for frame in c.expect_messages(100):
            got[frame.command.consumer_id].append(int(frame.payload))
        assert sorted(got[1] + got[2]) == list(range(100))
        assert got[1] == sorted(got[1])
        assert got[2] == sorted(got[2])
        keys = [{number % 20 for number in numbers} for numbers in got.values()]
        assert all(keys)
        assert not keys[0] & keys[1]


def test_subscription_type_changes_without_connected_consumers(endpoint: Endpoint, topic: str) -> None:
    with line(endpoint) as c:
        for kind in ("Shared", "Exclusive", "Shared"):
            c.subscribe(topic, subType=kind)
            c.expect("success", request_id=c.request("close_consumer", consumer_id=1))


def test_properties_of_a_subscription_are_kept_and_shown(endpoint: Endpoint, topic: str) -> None:
    def shown(subscription: str) -> dict[str, str]:
        path = topic.replace("://", "/")
        with urllib.request.urlopen(f"{endpoint.http_url}/admin/v2/{path}/stats", timeout=10) as answer:
            stats = json.loads(answer.read())
        properties: dict[str, str] = stats["subscriptions"][subscription]["subscriptionProperties"]
        return properties

    with line(endpoint) as c:
        c.subscribe(topic, "given", subscription_properties=[{"key": "team", "value": "red"}])
        c.subscribe(topic, "later", 2)
        c.subscribe(topic, "reader", 3, durable=False, subscription_properties=[{"key": "a", "value": "b"}])
        assert (shown("given"), shown("later"), shown("reader")) == ({"team": "red"}, {}, {"a": "b"})
        for consumer_id, subscription in ((1, "given"), (2, "later")):
            c.expect("success", request_id=c.request("close_consumer", consumer_id=consumer_id))
            # Those of a subscription that has some are not replaced.
            c.subscribe(
                topic, subscription, consumer_id, subscription_properties=[{"key": "team", "value": "blue"}]
            )
        assert (shown("given"), shown("later")) == ({"team": "red"}, {"team": "blue"})


def test_redelivery_counts_rise_only_on_request_and_survive_between_consumers(
    endpoint: Endpoint, topic: str
) -> None:
    with line(endpoint) as producer:
        producer.open_producer(topic)
        with line(endpoint) as c:
            c.subscribe(topic, subType="Shared")
            c.flow(100)
            positions = producer.publish(*numbered(3))
            c.expect_messages(3)
            ids = [{"ledgerId": positions[1][0], "entryId": positions[1][1]}]
            for count in (1, 2):
                c.send("redeliverUnacknowledgedMessages", consumer_id=1, message_ids=ids)
                assert c.expect("message").command.redelivery_count == count
        with line(endpoint) as c:
            c.subscribe(topic, subType="Shared")
            c.flow(100)
            got = c.expect_messages(3)
            assert payloads(got) == numbered(3)
            assert [frame.command.redelivery_count for frame in got] == [0, 2, 0]


def test_ids_that_the_consumer_does_not_hold_are_not_delivered_again(endpoint: Endpoint, topic: str) -> None:
    with line(endpoint) as c, line(endpoint) as other:
        c.open_producer(topic)
        c.subscribe(topic, subType="Shared")
        c.flow(2)
        positions = c.publish(*numbered(4))
        c.expect_messages(2)
        c.ack(positions[0])
        other.subscribe(topic, subType="Shared")
        other.flow(2)
        other.expect_messages(2)
        ids = [{"ledgerId": ledger, "entryId": entry} for ledger, entry in positions]
        c.flow(10)
        c.send("redeliverUnacknowledgedMessages", consumer_id=1, message_ids=ids)
        again = c.expect("message")
        assert (again.payload, again.command.redelivery_count) == (b"1", 1)
        c.expect_quiet()
        other.expect_quiet()
