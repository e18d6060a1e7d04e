"""What is kept of topics, over HTTP: looked at, analyzed, trimmed, truncated; in Pulsar's recorded shapes."""

from __future__ import annotations

import re
import time
from itertools import pairwise
from typing import Any

import pulsar
import pytest

from tests.integration.clients import publish
from tests.integration.harness import eventually
from tests.integration.rest import Rest

NO_MESSAGE = {"ledgerId": -1, "entryId": -1, "partitionIndex": -1, "batchIndex": -1, "batchSize": 0}
FIRST = {"ledgerId": -1, "entryId": -1, "partitionIndex": -1}
ISO = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{3})?Z")


def payloads(count: int) -> list[bytes]:
    return [b"m%d" % number for number in range(count)]


def analysis(entries: int, messages: int, first: str, last: str) -> dict[str, Any]:
    return {
        "entries": entries,
        "messages": messages,
        "filterRejectedEntries": 0,
        "filterAcceptedEntries": entries,
        "filterRescheduledEntries": 0,
        "filterRejectedMessages": 0,
        "filterAcceptedMessages": messages,
        "filterRescheduledMessages": 0,
        "aborted": False,
        "firstMessageId": first,
        "lastMessageId": last,
    }


def test_internal_info_has_ledgers_and_cursors(rest: Rest, namespace: str, client: pulsar.Client) -> None:
    topic, path = f"persistent://{namespace}/t", f"/persistent/{namespace}/t"
    rest.do("PUT", path, {"k": "v"})
    rest.do("PUT", f"{path}/subscription/s")
    consumer = client.subscribe(topic, "s", pulsar.ConsumerType.Shared)
    publish(client, topic, payloads(5))
    messages = [consumer.receive(5_000) for _ in range(5)]
    for index in (0, 2, 3):
        consumer.acknowledge(messages[index])
    ledger_id = messages[0].message_id().ledger_id()

    def acknowledged() -> bool:
        return "individualDeletedMessages" in rest.get(f"{path}/internal-info")["cursors"]["s"]

    eventually(acknowledged, "acknowledgements arrive")
    info = rest.get(f"{path}/internal-info")
    assert ISO.fullmatch(info.pop("creationDate"))
    assert info.pop("version") > 0
    (ledger,) = info.pop("ledgers")
    assert ledger.pop("timestamp") > 1_700_000_000_000
    assert ledger == {"ledgerId": ledger_id, "isOffloaded": False}, "still written: its size is not known"
    cursor = info.pop("cursors")["s"]
    assert cursor.pop("version") >= 0
    assert isinstance(cursor.pop("cursorsLedgerId"), int)
    assert cursor == {
        "markDelete": {"ledgerId": ledger_id, "entryId": 0},
        "individualDeletedMessages": [
            {
                "from": {"ledgerId": ledger_id, "entryId": 1},
                "to": {"ledgerId": ledger_id, "entryId": 3},
            }
        ],
    }
    assert info == {"properties": {"k": "v"}}
    rest.do("PUT", f"{path}/unload")
    rest.call("POST", f"{path}/terminate")
    info = rest.get(f"{path}/internal-info")
    assert info["terminatedPosition"] == {"ledgerId": ledger_id, "entryId": 4}
    (ledger,) = info["ledgers"]
    assert (ledger["entries"], ledger["size"] > 0) == (5, True)


def test_internal_info_of_partitions(rest: Rest, namespace: str) -> None:
    path = f"/persistent/{namespace}/p"
    rest.do("PUT", f"{path}/partitions", 2)
    info = rest.get(f"{path}/internal-info")
    assert (info["version"], len(info["partitions"])) == (0, 2)
    one = info["partitions"][f"persistent://{namespace}/p-partition-1"]
    assert (one["ledgers"], one["cursors"]) == ([], {})


def test_how_much_is_kept_and_how_much_is_lacking(rest: Rest, namespace: str, client: pulsar.Client) -> None:
    topic, path = f"persistent://{namespace}/t", f"/persistent/{namespace}/t"
    rest.do("PUT", f"{path}/subscription/s")
    publish(client, topic, payloads(4))
    size = rest.get(f"{path}/stats")["storageSize"]
    shown = rest.get(f"{path}/backlog")
    assert (shown["storageSize"], shown["totalMessages"], shown["messageBacklog"]) == (size, 4, 4)
    assert (shown["topicName"], shown["cursorDetails"]["s"]["cursorBacklog"]) == (topic, 4)
    ledger_id = shown["dataLedgerDetails"][0]["ledgerId"]

    def backlog_size(entry_id: int, ledger: int = ledger_id) -> Any:
        reply = rest.call("PUT", f"{path}/backlogSize", {**FIRST, "ledgerId": ledger, "entryId": entry_id})
        assert reply.status == 200
        return reply.json

    assert [backlog_size(-1, -1), backlog_size(1), backlog_size(3)] == [size, size // 2, 0]
    assert "ledgerId" in rest.refused(400, "PUT", f"{path}/backlogSize", {"ledgerId": "x"})
    rest.refused(400, "PUT", f"{path}/backlogSize", [])


def test_a_backlog_is_analyzed_entry_by_entry(rest: Rest, namespace: str, client: pulsar.Client) -> None:
    topic, path = f"persistent://{namespace}/t", f"/persistent/{namespace}/t"
    consumer = client.subscribe(topic, "s", pulsar.ConsumerType.Shared)
    publish(client, topic, payloads(5))
    producer = client.create_producer(
        topic, batching_enabled=True, batching_max_publish_delay_ms=60_000, batching_max_messages=4
    )
    for payload in payloads(4):
        producer.send_async(payload, lambda *_: None)
    producer.flush()
    messages = [consumer.receive(5_000) for _ in range(9)]
    ledger_id = messages[0].message_id().ledger_id()
    call = f"{path}/subscription/s/analyzeBacklog"
    for body in (None, {}, FIRST):
        reply = rest.call("POST", call, body)
        assert reply.json == analysis(6, 9, f"{ledger_id}:0", f"{ledger_id}:5")
    for index in (0, 3):
        consumer.acknowledge(messages[index])

    def without() -> bool:
        return bool(rest.call("POST", call).json == analysis(4, 7, f"{ledger_id}:1", f"{ledger_id}:5"))

    eventually(without, "what is acknowledged is not counted")
    behind = rest.call("POST", call, {"ledgerId": ledger_id, "entryId": 5})
    assert behind.json == analysis(1, 4, f"{ledger_id}:5", f"{ledger_id}:5")
    rest.do("POST", f"{path}/subscription/s/skip_all")
    nothing = analysis(0, 0, "", "")
    del nothing["firstMessageId"], nothing["lastMessageId"]
    assert rest.call("POST", call).json == nothing
    gone = f"Subscription x not found for topic {topic}"
    assert rest.refused(404, "POST", f"{path}/subscription/x/analyzeBacklog") == gone
    rest.refused(400, "POST", call, {"ledgerId": "one"})


def test_no_subscription_is_replicated_and_none_pretends_to_be(rest: Rest, namespace: str) -> None:
    path = f"/persistent/{namespace}/p"
    rest.do("PUT", f"{path}/partitions", 2)
    rest.do("PUT", f"{path}/subscription/s")
    call = f"{path}/subscription/s/replicatedSubscriptionStatus"
    name = f"persistent://{namespace}/p-partition"
    assert rest.get(call) == {f"{name}-0": False, f"{name}-1": False}
    rest.do("POST", call, False)
    assert "not supported yet" in rest.refused(405, "POST", call, True)
    assert "true or false" in rest.refused(400, "POST", call, "yes")
    rest.refused(404, "GET", call.replace("/s/", "/x/"))


def test_status_of_a_process_that_never_ran_says_so(rest: Rest, namespace: str) -> None:
    path = f"/persistent/{namespace}/t"
    rest.do("PUT", path)
    never = {"status": "NOT_RUN", "lastError": ""}
    assert rest.get(f"{path}/compaction") == never
    assert rest.get(f"{path}/offload") == {**never, "firstUnoffloadedMessage": NO_MESSAGE}
    assert "magnetarOffloadLocation" in rest.refused(412, "PUT", f"{path}/offload", FIRST), "nowhere to go"
    rest.refused(400, "PUT", f"{path}/offload")
    for method, call in (("GET", "compaction"), ("PUT", "compaction"), ("GET", "offload"), ("POST", "trim")):
        gone = rest.refused(404, method, f"/persistent/{namespace}/nope/{call}")
        assert gone == f"Topic persistent://{namespace}/nope not found"


@pytest.mark.parametrize("deduplication", [False, True])
def test_a_truncated_topic_has_nothing_and_goes_on(
    rest: Rest, namespace: str, client: pulsar.Client, deduplication: bool
) -> None:
    topic, path = f"persistent://{namespace}/t", f"/persistent/{namespace}/t"
    rest.do("POST", f"/namespaces/{namespace}/deduplication", deduplication)
    rest.do(
        "POST", f"/namespaces/{namespace}/retention", {"retentionTimeInMinutes": -1, "retentionSizeInMB": -1}
    )
    rest.do("PUT", f"{path}/subscription/unread", "earliest")
    consumer = client.subscribe(topic, "s")
    publish(client, topic, payloads(5))
    assert consumer.receive(5_000).data() == b"m0"
    assert rest.get(f"{path}/internalStats")["numberOfEntries"] == 5
    for _ in range(2):
        rest.do("DELETE", f"{path}/truncate")
    internal = rest.get(f"{path}/internalStats")
    assert (internal["numberOfEntries"], internal["totalSize"]) == (0, 0)
    assert {
        name: each["msgBacklog"] for name, each in rest.get(f"{path}/stats")["subscriptions"].items()
    } == {
        "s": 0,
        "unread": 0,
    }
    publish(client, topic, [b"next"])
    while (message := consumer.receive(5_000)).data() != b"next":
        pass  # what was on its way to the consumer
    rest.do("PUT", f"{path}/unload")
    assert rest.get(f"{path}/internalStats")["numberOfEntries"] == 1, "and it is gone for good"
    assert message.message_id().entry_id() == 0


def test_trimming_and_truncating_every_partition(rest: Rest, namespace: str, client: pulsar.Client) -> None:
    topic, path = f"persistent://{namespace}/p", f"/persistent/{namespace}/p"
    rest.do("PUT", f"{path}/partitions", 2)
    rest.do("PUT", f"{path}/subscription/s", "earliest")
    publish(client, topic, payloads(6))
    rest.do("POST", f"{path}/trim")
    assert rest.get(f"{path}/partitioned-stats")["subscriptions"]["s"]["msgBacklog"] == 6
    rest.do("DELETE", f"{path}/truncate")
    assert rest.get(f"{path}/partitioned-stats")["subscriptions"]["s"]["msgBacklog"] == 0
    for index in range(2):
        assert rest.get(f"{path}-partition-{index}/internalStats")["numberOfEntries"] == 0


def test_storage_commands_refuse_partitioned_and_non_persistent_topics(rest: Rest, namespace: str) -> None:
    path, volatile = f"/persistent/{namespace}/p", f"/non-persistent/{namespace}/np"
    rest.do("PUT", f"{path}/partitions", 2)
    rest.do("PUT", volatile)
    for method, call, body in (
        ("GET", "backlog", None),
        ("PUT", "backlogSize", FIRST),
        ("GET", "compaction", None),
        ("GET", "offload", None),
        ("PUT", "offload", FIRST),
        ("GET", "messageid/1", None),
        ("GET", "examinemessage", None),
    ):
        rest.refused(405, method, f"{path}/{call}", body)
        rest.refused(405, method, f"{volatile}/{call}", body)
    rest.refused(405, "POST", f"{volatile}/trim")
    rest.refused(405, "PUT", f"{volatile}/compaction")
    rest.refused(405, "GET", f"{volatile}/internal-info")
    assert rest.refused(412, "DELETE", f"{volatile}/truncate") == (
        "NonPersistentTopic does not support truncate."
    )


def test_message_ids_by_time(rest: Rest, namespace: str, client: pulsar.Client) -> None:
    path = f"/persistent/{namespace}/p"
    rest.do("PUT", f"{path}/partitions", 2)
    one = f"{path}-partition-1"
    assert rest.get(f"{one}/messageid/1") == {**NO_MESSAGE, "partitionIndex": 1}
    publish(client, f"persistent://{namespace}/p-partition-1", payloads(3))
    first = rest.get(f"{one}/messageid/1")
    assert {**first, "ledgerId": -1} == {**NO_MESSAGE, "entryId": 0, "partitionIndex": 1}
    later_ms = int(time.time() * 1000) + 3_600_000
    assert rest.get(f"{one}/messageid/{later_ms}") == {**first, "entryId": 3}, "the place of the next one"
    assert rest.get(f"{one}/lastMessageId") == {**first, "entryId": 2}
    rest.refused(400, "GET", f"{one}/messageid/yesterday")


def test_non_persistent_topics_by_bundle(rest: Rest, namespace: str) -> None:
    bundles = rest.get(f"/namespaces/{namespace}/bundles")["boundaries"]
    ranges = [f"{lower}_{upper}" for lower, upper in pairwise(bundles)]
    for number in range(6):
        rest.do("PUT", f"/non-persistent/{namespace}/np{number}")
    by_path = [rest.get(f"/non-persistent/{namespace}/{each}") for each in ranges]
    by_query = [rest.get(f"/non-persistent/{namespace}?bundle={each}") for each in ranges]
    assert by_path == by_query
    assert sorted(name for names in by_path for name in names) == rest.get(f"/non-persistent/{namespace}")
    assert "Invalid bundle range" in rest.refused(412, "GET", f"/non-persistent/{namespace}/nonsense")
    rest.refused(412, "GET", f"/non-persistent/{namespace}/0x00000000_0x00000001")
    gone = rest.refused(404, "GET", f"/non-persistent/{namespace}x/{ranges[0]}")
    assert gone == "Namespace does not exist"


@pytest.mark.parametrize("kind", ["LZ4", "ZLib", "ZSTD", "SNAPPY"])
def test_compressed_messages_and_batches_are_shown_as_they_were(
    rest: Rest, namespace: str, client: pulsar.Client, kind: str
) -> None:
    topic, path = f"persistent://{namespace}/{kind}", f"/persistent/{namespace}/{kind}"
    text = b"z" * 70_000 + bytes(range(256)) * 30
    compression = getattr(pulsar.CompressionType, kind)
    client.create_producer(topic, compression_type=compression).send(text, event_timestamp=1_000)
    reply = rest.call("GET", f"{path}/examinemessage?initialPosition=earliest&messagePosition=1")
    assert reply.body == text
    assert reply.headers["X-Pulsar-compression"] == kind.upper()
    assert reply.headers["X-Pulsar-uncompressed-size"] == str(len(text))
    assert reply.headers["X-Pulsar-event-time"] == "1970-01-01T00:00:01Z"
    batching = client.create_producer(
        topic, compression_type=compression, batching_enabled=True, batching_max_publish_delay_ms=60_000
    )
    for payload in (b"one", b"two"):
        batching.send_async(payload, lambda *_: None)
    batching.flush()
    reply = rest.call("GET", f"{path}/examinemessage")
    assert reply.headers["X-Pulsar-num-batch-message"] == "2"
    assert int(reply.headers["X-Pulsar-batch-size"]) > 0
    assert reply.headers["X-Pulsar-Broker-Entry-METADATA-index"] == "2"
    size = int.from_bytes(reply.body[:4], "big")
    assert reply.body[4 + size :].startswith(b"one")
    assert reply.body.endswith(b"two")
