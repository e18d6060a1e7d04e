"""Exchanges that open and close consumers."""

from __future__ import annotations

from tests.integration.raw.exchange import AVRO_SCHEMA, FAILOVER_SECONDS, Exchange, ask_subscribe, schema
from tests.integration.raw.transcript import Line

# Consuming


def subscribe(x: Exchange) -> None:
    x.recorded().subscribe(x.topic)


def subscribe_with_a_schema(x: Exchange) -> None:
    x.recorded().subscribe(x.topic, schema=schema("Avro", AVRO_SCHEMA))


def subscribe_shared(x: Exchange) -> None:
    x.recorded().subscribe(x.topic, subType="Shared")


def subscribe_failover(x: Exchange) -> None:
    line = x.recorded()
    line.ask_subscribe(x.topic, subType="Failover")
    x.until_quiet(line)


def second_consumer_of_a_failover_subscription(x: Exchange) -> None:
    _second_of_two(x)


def second_consumer_of_a_failover_subscription_becomes_active(x: Exchange) -> None:
    first, line = _second_of_two(x)
    first.close()
    x.until_quiet(line, FAILOVER_SECONDS)


def _second_of_two(x: Exchange) -> tuple[Line, Line]:
    """Two consumers of partition 0, of which the first by name is active; the second is recorded."""
    x.rest.do("PUT", f"{x.path}/partitions", 1)
    topic = f"{x.topic}-partition-0"
    first, second = x.aside(), x.recorded()
    first.ask_subscribe(topic, subType="Failover", consumer_name="a")
    assert {first.receive().name, first.receive().name} == {"success", "active_consumer_change"}
    second.ask_subscribe(topic, subType="Failover", consumer_name="b")
    x.until_quiet(second, FAILOVER_SECONDS)
    return first, second


def subscribe_key_shared(x: Exchange) -> None:
    x.recorded().subscribe(x.topic, subType="Key_Shared")


def subscribe_without_a_cursor(x: Exchange) -> None:
    x.recorded().subscribe(x.topic, durable=False, start_message_id={"ledgerId": 0, "entryId": 0})


def subscribe_to_a_non_persistent_topic(x: Exchange) -> None:
    x.recorded().subscribe(x.topic.replace("persistent:", "non-persistent:"))


def second_consumer_of_an_exclusive_subscription(x: Exchange) -> None:
    line = x.recorded()
    line.subscribe(x.topic, consumer_id=1)
    line.ask_subscribe(x.topic, consumer_id=2)
    x.until_quiet(line)


def subscribe_by_another_type(x: Exchange) -> None:
    x.aside().subscribe(x.topic)
    ask_subscribe(x, subType="Shared")


def subscribe_without_a_name(x: Exchange) -> None:
    line = x.recorded()
    line.ask_subscribe(x.topic, "")
    x.until_quiet(line)


def subscribe_twice_by_one_id(x: Exchange) -> None:
    line = x.recorded()
    line.subscribe(x.topic)
    line.ask_subscribe(x.topic)
    x.until_quiet(line)


def subscribe_with_ranges_that_overlap(x: Exchange) -> None:
    meta = {"keySharedMode": "STICKY", "hashRanges": [{"start": 0, "end": 100}]}
    x.aside().subscribe(x.topic, subType="Key_Shared", keySharedMeta=meta)
    ask_subscribe(x, subType="Key_Shared", keySharedMeta=meta)


def subscribe_with_no_ranges(x: Exchange) -> None:
    ask_subscribe(x, subType="Key_Shared", keySharedMeta={"keySharedMode": "STICKY"})


def subscribe_to_a_compacted_view_by_shared(x: Exchange) -> None:
    ask_subscribe(x, subType="Shared", read_compacted=True)


def subscribe_to_a_compacted_view(x: Exchange) -> None:
    ask_subscribe(x, read_compacted=True)


def subscribe_where_the_topic_may_not_be_created(x: Exchange) -> None:
    ask_subscribe(x, force_topic_creation=False)


def subscribe_in_a_namespace_that_is_not_there(x: Exchange) -> None:
    line = x.recorded()
    line.ask_subscribe(f"persistent://public/{x.short_name}/t")
    x.until_quiet(line)


def subscribe_without_a_cursor_beside_a_durable_one(x: Exchange) -> None:
    first = x.aside()
    first.subscribe(x.topic)
    first.request("close_consumer", consumer_id=1)
    first.expect("success")
    ask_subscribe(x, durable=False)


def subscribe_durably_beside_one_without_a_cursor(x: Exchange) -> None:
    x.aside().subscribe(x.topic, durable=False, subType="Shared")
    ask_subscribe(x, subType="Shared")
