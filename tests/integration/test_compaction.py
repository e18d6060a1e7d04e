"""Compacted views as clients and administrators see them: reading, positions, thresholds, restarts."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import Any

import pulsar
import pytest
from magnetar.common.wire import pulsar_pb2 as pb

from tests.integration.clients import drain, expect_nothing, publish, receive
from tests.integration.harness import Endpoint, StandaloneServer, eventually, page_at
from tests.integration.raw.transcript import batch_messages, line, message_id, payload_frame
from tests.integration.rest import Rest

SERVER_SETTINGS = {
    "brokerServiceCompactionMonitorIntervalInSeconds": "1",
    "managedLedgerMaxEntriesPerLedger": "10",
    "managedLedgerMinLedgerRolloverTimeMinutes": "0",
    "retentionCheckIntervalInSeconds": "1",
}

COMPACTION = "__compaction"
EARLIEST = pulsar.InitialPosition.Earliest


def path_of(topic: str) -> str:
    return f"/{topic.replace('://', '/')}"


def keep(rest: Rest, topic: str) -> None:
    """Keep the topic's messages by a subscription until `drop` deletes it."""
    rest.do("PUT", f"{path_of(topic)}/subscription/keeper", "earliest")


def drop(rest: Rest, topic: str) -> None:
    """Delete the messages of a topic, as retention does once no subscription needs them."""
    rest.do("DELETE", f"{path_of(topic)}/subscription/keeper")
    rest.do("PUT", f"{path_of(topic)}/unload")
    eventually(lambda: entries_of(rest, topic) == 0, "retention takes what no subscription needs")


def compact(rest: Rest, topic: str) -> None:
    """Compact a topic and wait until that has succeeded."""
    rest.do("PUT", f"{path_of(topic)}/compaction")
    compacted(rest, topic)


def compacted(rest: Rest, topic: str) -> None:
    def succeeded() -> bool:
        found = rest.get(f"{path_of(topic)}/compaction")
        assert found["status"] != "ERROR", found
        return bool(found["status"] == "SUCCESS")

    eventually(succeeded, f"{topic} is compacted")


def put(client: pulsar.Client, topic: str, values: Iterable[tuple[str | None, str]]) -> list[Any]:
    """Publish (key, value) one by one; returns the message ids."""
    producer = client.create_producer(topic)
    ids = [producer.send(value.encode(), partition_key=key) for key, value in values]
    producer.close()
    return ids


def put_batch(client: pulsar.Client, topic: str, values: Iterable[tuple[str, str]], **options: Any) -> None:
    """Publish (key, value) as one batch."""
    results: list[pulsar.Result] = []
    producer = client.create_producer(
        topic, batching_enabled=True, batching_max_publish_delay_ms=60_000, **options
    )
    sent = list(values)
    for key, value in sent:
        producer.send_async(value.encode(), lambda result, _: results.append(result), partition_key=key)
    producer.flush()
    eventually(lambda: len(results) == len(sent), "the batch is stored")
    assert set(results) == {pulsar.Result.Ok}
    producer.close()


def view_of(client: pulsar.Client, topic: str, start: Any = pulsar.MessageId.earliest) -> list[str]:
    """Reads the compacted view until the reader is told that nothing is left."""
    reader = client.create_reader(topic, start, is_read_compacted=True)
    found = read_on(reader)
    reader.close()
    return found


def read_on(reader: pulsar.Reader) -> list[str]:
    """Read until nothing is left.

    The C++ library hands on what is compacted out of a batch as messages without a value, which are dropped
    here, as those in Go and Rust do; the one in Java skips them.
    """
    found = []
    while reader.has_message_available():
        found.append(reader.read_next(10_000).data().decode())
    return [each for each in found if each]


def numbered(keys: int, version: int) -> list[tuple[str | None, str]]:
    return [(f"k{key}", f"k{key}v{version}") for key in range(keys)]


def values(keys: int, version: int) -> list[str]:
    return [f"k{key}v{version}" for key in range(keys)]


def test_a_reader_gets_the_last_value_of_each_key_with_its_id_then_what_follows(
    client: pulsar.Client, rest: Rest, topic: str
) -> None:
    keep(rest, topic)
    first = put(client, topic, numbered(5, 1))
    second = put(client, topic, numbered(3, 2))
    compact(rest, topic)
    reader = client.create_reader(topic, pulsar.MessageId.earliest, is_read_compacted=True)
    messages = [reader.read_next(10_000) for _ in range(5)]
    assert [each.data() for each in messages] == [b"k3v1", b"k4v1", b"k0v2", b"k1v2", b"k2v2"]
    ids = [each.message_id() for each in messages]
    assert ids == [*first[3:], *second]
    assert not reader.has_message_available()
    put(client, topic, [("k0", "k0v3"), ("k0", "k0v4")])
    assert read_on(reader) == ["k0v3", "k0v4"], "after the horizon every message comes"
    plain = client.create_reader(topic, pulsar.MessageId.earliest)
    assert read_on(plain) == [*values(5, 1), *values(3, 2), "k0v3", "k0v4"]


def test_batches_are_read_in_part_and_the_last_id_is_that_of_a_message_that_is_left(
    client: pulsar.Client, rest: Rest, topic: str
) -> None:
    put_batch(client, topic, [("a", "a1"), ("b", "b1"), ("c", "c1")])
    put_batch(
        client,
        topic,
        [("b", "b2"), ("d", "d1"), ("d", "")],
        compression_type=pulsar.CompressionType.LZ4,
    )
    compact(rest, topic)
    assert view_of(client, topic) == ["a1", "c1", "b2"], "the reader is told that nothing is left"
    put_batch(client, topic, [("a", ""), ("b", ""), ("c", "")])
    compact(rest, topic)
    assert view_of(client, topic) == [], "an empty view has no last message"
    put(client, topic, [("a", "a2")])
    assert view_of(client, topic) == ["a2"]


def test_an_empty_payload_deletes_its_key_also_without_the_field_of_its_size(
    client: pulsar.Client, endpoint: Endpoint, rest: Rest, topic: str
) -> None:
    put(client, topic, [("a", "a1"), ("b", "b1"), ("c", "c1")])
    with line(endpoint) as c:
        c.open_producer(topic)
        for number, (key, size) in enumerate((("a", 0), ("b", None))):
            metadata = pb.MessageMetadata(
                producer_name="raw", sequence_id=number, publish_time=1, partition_key=key
            )
            if size is not None:
                metadata.uncompressed_size = size
            c.send_bytes(payload_frame(1, number, b"", metadata))
            c.expect("send_receipt", sequence_id=number)
    compact(rest, topic)
    assert view_of(client, topic) == ["c1"]


def test_messages_without_a_key_are_left_out(client: pulsar.Client, rest: Rest, topic: str) -> None:
    put(client, topic, [(None, "no key"), ("a", "a1"), (None, "no key either")])
    compact(rest, topic)
    assert view_of(client, topic) == ["a1"]


@pytest.mark.parametrize("kind", [pulsar.ConsumerType.Exclusive, pulsar.ConsumerType.Failover])
def test_a_durable_subscription_starts_with_the_view_and_goes_on_where_it_was(
    client: pulsar.Client, rest: Rest, topic: str, kind: pulsar.ConsumerType
) -> None:
    put(client, topic, [*numbered(5, 1), *numbered(3, 2)])
    compact(rest, topic)

    def consumer() -> pulsar.Consumer:
        return client.subscribe(
            topic, "s", consumer_type=kind, is_read_compacted=True, initial_position=EARLIEST
        )

    first = consumer()
    messages = [receive(first) for _ in range(4)]
    assert [each.data() for each in messages] == [b"k3v1", b"k4v1", b"k0v2", b"k1v2"]
    first.acknowledge_cumulative(messages[1])
    first.close()
    second = consumer()
    assert drain(second, 3) == [b"k0v2", b"k1v2", b"k2v2"]
    put(client, topic, [("k9", "k9v1")])
    assert drain(second, 1) == [b"k9v1"]
    expect_nothing(second)


def test_a_durable_subscription_from_the_latest_position_skips_the_view(
    client: pulsar.Client, rest: Rest, topic: str
) -> None:
    put(client, topic, numbered(5, 1))
    compact(rest, topic)
    consumer = client.subscribe(topic, "s", is_read_compacted=True)
    expect_nothing(consumer)
    put(client, topic, [("k9", "k9v1")])
    assert drain(consumer, 1) == [b"k9v1"]


def test_the_next_failover_consumer_goes_on_in_the_view(
    client: pulsar.Client, rest: Rest, topic: str
) -> None:
    keep(rest, topic)
    put(client, topic, numbered(20, 1))
    compact(rest, topic)

    def consumer(name: str) -> pulsar.Consumer:
        return client.subscribe(
            topic,
            "s",
            consumer_type=pulsar.ConsumerType.Failover,
            consumer_name=name,
            is_read_compacted=True,
            initial_position=EARLIEST,
            receiver_queue_size=5,
        )

    active, standby, messages = first_served(consumer("a"), consumer("b"))
    messages += [receive(active) for _ in range(10 - len(messages))]
    active.acknowledge_cumulative(messages[-1])
    put(client, topic, numbered(15, 2))
    compact(rest, topic)
    active.close()
    assert drain(standby, 20) == [f"k{key}v1".encode() for key in range(15, 20)] + [
        f"k{key}v2".encode() for key in range(15)
    ]
    expect_nothing(standby)


def first_served(
    one: pulsar.Consumer, other: pulsar.Consumer
) -> tuple[pulsar.Consumer, pulsar.Consumer, list[pulsar.Message]]:
    """The active one of two Failover consumers, the other one, and the first message."""
    for _ in range(100):
        for active, standby in ((one, other), (other, one)):
            try:
                return active, standby, [active.receive(100)]
            except pulsar.Timeout:
                pass
    raise AssertionError("neither consumer gets a message")


def trimmed(client: pulsar.Client, rest: Rest, topic: str) -> list[Any]:
    """30 keys in ledgers that retention took after they were compacted, then one more message."""
    keep(rest, topic)
    ids = put(client, topic, numbered(30, 1))
    compact(rest, topic)
    drop(rest, topic)
    ids += put(client, topic, [("last", "last")])
    return ids


def entries_of(rest: Rest, topic: str) -> int:
    rest.do("POST", f"{path_of(topic)}/trim")
    return int(rest.get(f"{path_of(topic)}/internalStats")["numberOfEntries"])


def test_the_view_outlives_the_messages(client: pulsar.Client, rest: Rest, topic: str) -> None:
    trimmed(client, rest, topic)
    everything = [*values(30, 1), "last"]
    assert view_of(client, topic) == everything
    consumer = client.subscribe(topic, "s", is_read_compacted=True, initial_position=EARLIEST)
    assert drain(consumer, 31) == [each.encode() for each in everything]
    put(client, topic, [("k0", ""), ("k1", "k1v2")])
    put_batch(client, topic, [("k2", "")])
    compact(rest, topic)
    shown = view_of(client, topic)
    assert shown[:28] == [*values(30, 1)[3:], "last"]
    assert shown[28:] == ["k1v2"]


def test_positions_that_retention_took_are_starts_and_targets_in_the_view(
    client: pulsar.Client, rest: Rest, topic: str
) -> None:
    ids = trimmed(client, rest, topic)
    after = [*values(30, 1)[11:], "last"]
    assert view_of(client, topic, ids[10]) == after, "a reader starts after a message that is gone"
    reader = client.create_reader(topic, pulsar.MessageId.latest, is_read_compacted=True)
    assert read_on(reader) == []
    reader.seek(ids[10])
    assert read_on(reader) == after
    reader.seek(pulsar.MessageId.earliest)
    assert len(read_on(reader)) == 31
    reader.seek(1)
    assert len(read_on(reader)) == 31, "a time before all messages is that of the first one in the view"
    consumer = client.subscribe(topic, "s", is_read_compacted=True, initial_position=EARLIEST)
    consumer.seek(ids[10])
    again = drain(consumer, 20)
    assert [each.decode() for each in again][-1] == "last"


def test_a_time_within_the_view_is_a_start(client: pulsar.Client, rest: Rest, topic: str) -> None:
    keep(rest, topic)
    put(client, topic, numbered(15, 1))
    time.sleep(0.02)
    between = int(time.time() * 1000)
    time.sleep(0.02)
    put(client, topic, [(f"l{key}", "later") for key in range(5)])
    compact(rest, topic)
    drop(rest, topic)
    reader = client.create_reader(topic, pulsar.MessageId.earliest, is_read_compacted=True)
    reader.seek(between)
    assert read_on(reader) == ["later"] * 5


def test_acknowledgements_in_the_view_hold_although_its_messages_are_gone(
    client: pulsar.Client, rest: Rest, topic: str
) -> None:
    trimmed(client, rest, topic)
    consumer = client.subscribe(topic, "s", is_read_compacted=True, initial_position=EARLIEST)
    messages = [receive(consumer) for _ in range(10)]
    consumer.acknowledge_cumulative(messages[-1])
    consumer.close()
    rest.do("PUT", f"{path_of(topic)}/unload")
    again = client.subscribe(topic, "s", is_read_compacted=True, initial_position=EARLIEST)
    assert drain(again, 21) == [each.encode() for each in [*values(30, 1)[10:], "last"]]


def test_the_last_message_id_is_that_of_the_view_or_of_what_follows(
    client: pulsar.Client, endpoint: Endpoint, rest: Rest, topic: str
) -> None:
    put_batch(client, topic, [("a", "a1"), ("b", "b1"), ("c", "c1")])
    put_batch(client, topic, [("c", "")])
    compact(rest, topic)
    with line(endpoint) as c:
        c.subscribe(topic, read_compacted=True, durable=False)

        def last(consumer_id: int) -> Any:
            request_id = c.request("getLastMessageId", consumer_id=consumer_id)
            return c.expect("getLastMessageIdResponse", request_id=request_id).command.last_message_id

        c.flow(10)
        (partial,) = c.expect_messages(1)
        assert partial.metadata is not None
        assert partial.metadata.num_messages_in_batch == 3
        assert batch_messages(partial.payload) == [b"a1", b"b1", b""]
        found = last(1)
        assert (found.ledgerId, found.entryId) == partial.position
        assert found.batch_index == 1, "the last message that is left"
        c.subscribe(topic, "plain", 2)
        assert last(2).entryId == 1, "without the view it is the last entry"
        c.open_producer(topic)
        (position,) = c.publish(b"more")
        frame = c.expect("message")
        assert frame.position == position
        found = last(1)
        assert (found.ledgerId, found.entryId, found.batch_index) == (*position, -1)


def test_a_table_view_of_the_client_has_the_last_values(
    client: pulsar.Client, rest: Rest, topic: str
) -> None:
    trimmed(client, rest, topic)
    put(client, topic, [("k0", "k0v2")])
    view = client.create_table_view(topic)
    assert len(view) == 31
    assert (view.get("k0"), view.get("k7"), view.get("last")) == (b"k0v2", b"k7v1", b"last")
    put(client, topic, [("k7", "k7v2")])
    eventually(lambda: view.get("k7") == b"k7v2", "the table view follows")
    view.close()


def test_a_view_is_there_after_a_restart_and_grows(
    server: StandaloneServer, new_client: Callable[..., pulsar.Client], topic: str
) -> None:
    rest, client = Rest(server.endpoint), new_client()
    keep(rest, topic)
    put(client, topic, numbered(10, 1))
    compact(rest, topic)
    reader = client.create_reader(topic, pulsar.MessageId.earliest, is_read_compacted=True)
    assert reader.read_next(10_000).data() == b"k0v1"
    for restart, version in ((server.restart, 2), (server.kill_and_start, 3)):
        restart()
        rest, client = Rest(server.endpoint), new_client()
        assert rest.get(f"{path_of(topic)}/compaction") == {"status": "NOT_RUN", "lastError": ""}
        put(client, topic, [("k0", f"k0v{version}")])
        assert view_of(client, topic)[-1] == f"k0v{version}"
        compact(rest, topic)
        assert view_of(client, topic) == [*values(10, 1)[1:], f"k0v{version}"]


def test_with_a_threshold_a_topic_is_compacted_by_itself_and_keeps_its_messages_until_then(
    client: pulsar.Client, rest: Rest, topic: str
) -> None:
    path = path_of(topic)
    rest.do("PUT", path)
    rest.do("POST", f"{path}/compactionThreshold", 1_000_000)
    assert rest.get(f"{path}/compactionThreshold?applied=true") == 1_000_000
    shown = rest.get(f"{path}/stats")["subscriptions"]
    assert list(shown) == [COMPACTION]
    put(client, topic, [*numbered(20, 1), *numbered(20, 2)])
    assert entries_of(rest, topic) == 40, "nothing is deleted before it was compacted"
    shown = rest.get(f"{path}/stats")["subscriptions"][COMPACTION]
    assert (shown["msgBacklog"], shown["isDurable"], shown["consumers"]) == (40, True, [])
    rest.do("DELETE", f"{path}/truncate")
    assert entries_of(rest, topic) == 40
    rest.do("POST", f"{path}/compactionThreshold", 100)
    eventually(
        lambda: rest.get(f"{path}/compaction")["status"] == "SUCCESS", "the threshold starts a compaction"
    )
    eventually(lambda: entries_of(rest, topic) == 0, "what was compacted is deleted")
    assert view_of(client, topic) == values(20, 2)
    internal = rest.get(f"{path}/internalStats")
    assert internal["compactedLedger"]["entries"] > 0
    cursor = internal["cursors"][COMPACTION]
    assert cursor["properties"] == {"CompactedTopicLedger": internal["compactedLedger"]["ledgerId"]}
    assert rest.get(f"{path}/stats")["subscriptions"][COMPACTION]["msgBacklog"] == 0


def test_the_compaction_subscription_is_listed_refuses_clients_and_unsubscribing_it_drops_the_view(
    client: pulsar.Client, rest: Rest, topic: str
) -> None:
    path = path_of(topic)
    keep(rest, topic)
    put(client, topic, [*numbered(5, 1), *numbered(5, 2)])
    assert rest.get(f"{path}/subscriptions") == ["keeper"]
    rest.refused(404, "DELETE", f"{path}/subscription/{COMPACTION}")
    compact(rest, topic)
    assert rest.get(f"{path}/subscriptions") == ["keeper", COMPACTION]
    with pytest.raises(pulsar.PulsarException):
        client.subscribe(topic, COMPACTION)
    assert "reserved" in rest.refused(405, "PUT", f"{path}/subscription/{COMPACTION}")
    rest.refused(404, "POST", f"{path}/subscription/{COMPACTION}/skip_all")
    assert view_of(client, topic) == values(5, 2)
    rest.do("DELETE", f"{path}/subscription/{COMPACTION}")
    assert rest.get(f"{path}/subscriptions") == ["keeper"]
    assert view_of(client, topic) == [*values(5, 1), *values(5, 2)], "the topic itself is read again"
    assert rest.get(f"{path}/internalStats")["compactedLedger"]["ledgerId"] == -1


def test_unsubscribing_compaction_of_a_namespace_drops_the_views_of_all_its_topics(
    client: pulsar.Client, rest: Rest, namespace: str
) -> None:
    topics = [f"persistent://{namespace}/t-{number}" for number in range(2)]
    for topic in topics:
        keep(rest, topic)
        put(client, topic, [*numbered(3, 1), *numbered(3, 2)])
        compact(rest, topic)
    rest.do("PUT", path_of(f"persistent://{namespace}/without"))
    rest.do("POST", f"/namespaces/{namespace}/unsubscribe/{COMPACTION}")
    for topic in topics:
        assert rest.get(f"{path_of(topic)}/subscriptions") == ["keeper"]
        assert view_of(client, topic) == [*values(3, 1), *values(3, 2)]


def test_figures_of_a_compaction(client: pulsar.Client, endpoint: Endpoint, rest: Rest, topic: str) -> None:
    path = path_of(topic)
    rest.do("PUT", path)
    assert set(rest.get(f"{path}/stats")["compaction"].values()) == {0}
    keep(rest, topic)
    before_ms = int(time.time() * 1000)
    put(client, topic, [*numbered(5, 1), *numbered(5, 2), (None, "no key")])
    compact(rest, topic)
    shown = rest.get(f"{path}/stats")["compaction"]
    assert shown["lastCompactionRemovedEventCount"] == 6
    assert shown["lastCompactionSucceedTimestamp"] >= before_ms
    assert shown["lastCompactionFailedTimestamp"] == 0
    _, page = page_at(f"{endpoint.http_url}/metrics")
    of_topic = [each for each in page.splitlines() if f'topic="{topic}"' in each]
    backlogs = [each for each in of_topic if each.startswith("pulsar_subscription_back_log{")]
    assert sum(COMPACTION in each for each in backlogs) == 1
    lines = [each for each in of_topic if "pulsar_compaction_" in each]
    found = {each.partition("{")[0]: float(each.rpartition(" ")[2]) for each in lines}
    assert found["pulsar_compaction_removed_event_count"] == 6
    assert found["pulsar_compaction_succeed_count"] == 1
    assert found["pulsar_compaction_compacted_entries_count"] == 5
    assert found["pulsar_compaction_compacted_entries_size"] > 0
    assert found["pulsar_compaction_latency_count"] > 0
    report = page_at(f"{endpoint.http_url}/admin/magnetar/v1{path}/compaction")[1]
    assert "left 6 messages out" in report
    assert "without a compaction threshold" in report


def test_a_partitioned_topic_is_compacted_in_all_partitions(
    client: pulsar.Client, rest: Rest, namespace: str
) -> None:
    topic, path = f"persistent://{namespace}/p", f"/persistent/{namespace}/p"
    rest.do("PUT", f"{path}/partitions", 3)
    rest.do("PUT", f"{path}/subscription/keeper", "earliest")
    put(client, topic, [*numbered(20, 1), *numbered(20, 2)])
    rest.do("PUT", f"{path}/compaction")
    for index in range(3):
        compacted(rest, f"{topic}-partition-{index}")
    assert sorted(view_of(client, topic)) == sorted(values(20, 2))
    rest.do("DELETE", f"{path}/subscription/{COMPACTION}")
    assert len(view_of(client, topic)) == 40
    rest.refused(404, "PUT", f"/persistent/{namespace}/none/compaction")


def test_new_partitions_do_not_get_a_subscription_of_compaction(
    client: pulsar.Client, rest: Rest, namespace: str
) -> None:
    topic, path = f"persistent://{namespace}/p", f"/persistent/{namespace}/p"
    rest.do("PUT", f"{path}/partitions", 1)
    put(client, topic, numbered(3, 1))
    rest.do("PUT", f"{path}-partition-0/compaction")
    compacted(rest, f"{topic}-partition-0")
    rest.do("POST", f"{path}/partitions", 2)
    assert rest.get(f"{path}-partition-1/subscriptions") == []


def test_the_end_of_a_terminated_topic_comes_after_its_view(
    client: pulsar.Client, endpoint: Endpoint, rest: Rest, topic: str
) -> None:
    keep(rest, topic)
    put(client, topic, [*numbered(5, 1), *numbered(5, 2)])
    assert rest.call("POST", f"{path_of(topic)}/terminate").status == 200
    compact(rest, topic)
    drop(rest, topic)
    with line(endpoint) as c:
        c.subscribe(topic, read_compacted=True, durable=False)
        c.flow(10)
        messages = c.expect_messages(5)
        assert [frame.payload.decode() for frame in messages] == values(5, 2)
        c.ack(messages[-1].position, cumulative=True, receipt=False)
        c.expect("reachedEndOfTopic", consumer_id=1)


def test_a_deleted_topic_leaves_no_view_to_the_next_one(
    client: pulsar.Client, rest: Rest, topic: str
) -> None:
    path = path_of(topic)
    put(client, topic, [*numbered(3, 1), *numbered(3, 2)])
    compact(rest, topic)
    assert view_of(client, topic) == values(3, 2)
    rest.do("DELETE", path)
    rest.do("PUT", path)
    put(client, topic, numbered(1, 3))
    assert view_of(client, topic) == values(1, 3)
    assert rest.get(f"{path}/internalStats")["compactedLedger"]["ledgerId"] == -1


def test_a_reader_in_the_middle_sees_old_then_new_values_and_misses_no_key(
    client: pulsar.Client, rest: Rest, topic: str
) -> None:
    keep(rest, topic)
    put(client, topic, numbered(40, 1))
    compact(rest, topic)
    reader = client.create_reader(
        topic, pulsar.MessageId.earliest, is_read_compacted=True, receiver_queue_size=1
    )
    found = [reader.read_next(10_000).data().decode() for _ in range(5)]
    put(client, topic, numbered(40, 2))
    compact(rest, topic)
    found += read_on(reader)
    last = {each.partition("v")[0]: each for each in found}
    assert last == {f"k{key}": f"k{key}v2" for key in range(40)}
    versions: dict[str, list[str]] = {}
    for each in found:
        versions.setdefault(each.partition("v")[0], []).append(each)
    assert all(each == sorted(each) for each in versions.values()), "never the older value after the newer"


def test_a_message_that_expired_is_in_the_view(client: pulsar.Client, rest: Rest, topic: str) -> None:
    path = path_of(topic)
    consumer = client.subscribe(topic, "s", initial_position=EARLIEST)
    publish(client, topic, [b"not compacted"])
    put(client, topic, numbered(3, 1))
    rest.do("POST", f"{path}/all_subscription/expireMessages/0")
    consumer.close()
    compact(rest, topic)
    assert view_of(client, topic) == values(3, 1)


def test_a_start_by_an_id_in_the_view_is_taken_literally(
    client: pulsar.Client, endpoint: Endpoint, rest: Rest, topic: str
) -> None:
    ids = put(client, topic, [*numbered(5, 1), *numbered(4, 2)])
    compact(rest, topic)
    gone = (ids[1].ledger_id(), ids[1].entry_id())
    with line(endpoint) as c:
        c.subscribe(topic, read_compacted=True, durable=False, start_message_id=message_id(gone))
        c.flow(10)
        assert [frame.payload for frame in c.expect_messages(5)] == [
            b"k4v1",
            b"k0v2",
            b"k1v2",
            b"k2v2",
            b"k3v2",
        ]
