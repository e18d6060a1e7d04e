"""Statistics have the fields that Apache Pulsar's have, name by name, and say what clients really do.

The names in tests/golden/admin/stats_keys.json were read from answers of a live Pulsar 4.0 broker.
"""

from __future__ import annotations

import json
import time
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, Final

import pulsar

from tests.integration.clients import publish
from tests.integration.harness import eventually
from tests.integration.rest import Rest

GOLDEN: Final[dict[str, list[str]]] = json.loads(
    (Path(__file__).parents[1] / "golden" / "admin" / "stats_keys.json").read_text()
)

OLDEST: Final = {"oldestBacklogMessageSubscriptionName"}
"""There only while the age of the oldest message is known."""

SWITCHED: Final = {"lastLedgerSwitchTimestamp"}
"""All cursors of a topic share one ledger here; when it last was another one is not kept."""


NEWER: Final = {"topicCreationTimeStamp", "lastPublishTimeStamp"}
"""What topics have since Pulsar 4.1 (PIP-431)."""


def check(kind: str, shown: Mapping[str, Any], *, besides: Collection[str] = ()) -> None:
    differing = set(shown) ^ set(GOLDEN[kind])
    assert differing <= {*besides, *NEWER}, f"{kind}: {differing}"


def near_now(time_ms: int) -> bool:
    return abs(time.time() * 1000 - time_ms) < 60_000


def test_a_persistent_topic_with_its_clients(rest: Rest, client: pulsar.Client, namespace: str) -> None:
    path, name = f"/persistent/{namespace}/shape", f"persistent://{namespace}/shape"
    kinds = {
        "ex": pulsar.ConsumerType.Exclusive,
        "sh": pulsar.ConsumerType.Shared,
        "ks": pulsar.ConsumerType.KeyShared,
    }
    consumers = {key: client.subscribe(name, key, kind) for key, kind in kinds.items()}
    batched = client.create_producer(
        name, batching_enabled=True, batching_max_messages=4, batching_max_publish_delay_ms=60_000
    )
    for number in range(8):
        batched.send_async(b"%d" % number, None)
    batched.flush()
    plain = client.create_producer(name, batching_enabled=False, properties={"app": "x"})
    ids = [plain.send(b"%d" % number) for number in range(10)]
    for consumer in consumers.values():
        for _ in range(18):
            consumer.receive(10_000)
    for number in (1, 2, 5):
        consumers["sh"].acknowledge(ids[number])
    eventually(lambda: rest.get(f"{path}/stats")["subscriptions"]["sh"]["msgBacklog"] == 9, "acknowledged")

    shown = rest.get(f"{path}/stats?getEarliestTimeInBacklog=true")
    check("topic", shown, besides=OLDEST)
    check("compaction", shown["compaction"])
    for publisher in shown["publishers"]:
        check("publisher", publisher)
        assert publisher["clientVersion"].startswith("Pulsar-CPP-")
    assert {"app": "x"} in [publisher["metadata"] for publisher in shown["publishers"]]
    subscriptions = shown["subscriptions"]
    check("subscription", subscriptions["sh"])
    check("subscription of Exclusive", subscriptions["ex"])
    check("subscription of Key_Shared", subscriptions["ks"])
    for key in ("sh", "ex"):
        check("consumer", subscriptions[key]["consumers"][0])
    check("consumer of Key_Shared", subscriptions["ks"]["consumers"][0])

    assert near_now(shown["earliestMsgPublishTimeInBacklogs"])
    shared = subscriptions["sh"]
    assert shared["earliestMsgPublishTimeInBacklog"] == shown["earliestMsgPublishTimeInBacklogs"]
    assert (shared["unackedMessages"], shared["nonContiguousDeletedMessagesRanges"]) == (15, 2)
    assert shown["nonContiguousDeletedMessagesRanges"] == 2
    assert 0 < shared["nonContiguousDeletedMessagesRangesSerializedSize"] < 100
    assert shared["backlogSize"] == shown["storageSize"] > 0, "nothing is acknowledged up to a position"
    for key in ("lastConsumedFlowTimestamp", "lastConsumedTimestamp", "lastAckedTimestamp"):
        assert near_now(shared[key])
        assert shared[key] == shared["consumers"][0][key]
    assert not subscriptions["ex"]["lastAckedTimestamp"]
    assert subscriptions["ex"]["consumers"][0]["lastAckedTime"] == "1970-01-01T00:00:00Z"
    assert shared["consumers"][0]["avgMessagesPerEntry"] == 2, "18 messages in 12 entries"
    assert shared["consumers"][0]["clientVersion"].startswith("Pulsar-CPP-")

    internal = rest.get(f"{path}/internalStats")
    check("internal", internal)
    check("internal ledger", internal["ledgers"][0])
    check("internal compacted ledger", internal["compactedLedger"])
    cursor = internal["cursors"]["sh"]
    check("internal cursor", cursor, besides=SWITCHED)
    ledger_id = ids[0].ledger_id()
    assert cursor["individuallyDeletedMessages"] == (
        f"[({ledger_id}:2..{ledger_id}:4],({ledger_id}:6..{ledger_id}:7]]"
    )
    assert cursor["readPosition"] == f"{ledger_id}:12"
    assert (cursor["state"], cursor["active"], cursor["waitingReadOp"]) == ("Open", True, True)
    assert cursor["cursorLedger"] >= 0
    assert cursor["cursorLedgerLastEntry"] >= 0
    assert internal["waitingCursorsCount"] == 3


def test_a_mark_delete_position_that_advances_is_shown_with_its_time(
    rest: Rest, client: pulsar.Client, namespace: str
) -> None:
    path, name = f"/persistent/{namespace}/marks", f"persistent://{namespace}/marks"
    consumer = client.subscribe(name, "s")
    publish(client, name, [b"a", b"b"])
    assert not rest.get(f"{path}/stats")["subscriptions"]["s"]["lastMarkDeleteAdvancedTimestamp"]
    consumer.acknowledge(consumer.receive(10_000))
    eventually(
        lambda: near_now(rest.get(f"{path}/stats")["subscriptions"]["s"]["lastMarkDeleteAdvancedTimestamp"]),
        "a mark-delete position written down",
    )


def test_messages_that_are_to_be_delivered_again_are_in_replay(
    rest: Rest, client: pulsar.Client, namespace: str
) -> None:
    path, name = f"/persistent/{namespace}/replay", f"persistent://{namespace}/replay"
    holder = client.subscribe(name, "s", pulsar.ConsumerType.Shared, receiver_queue_size=5)
    publish(client, name, [b"%d" % number for number in range(5)])
    for _ in range(5):
        holder.receive(10_000)
    idle = client.subscribe(name, "s", pulsar.ConsumerType.Shared, receiver_queue_size=0)
    assert rest.get(f"{path}/stats")["subscriptions"]["s"]["msgInReplay"] == 0
    holder.close()
    eventually(lambda: rest.get(f"{path}/stats")["subscriptions"]["s"]["msgInReplay"] == 5, "in replay")
    idle.close()


def test_a_non_persistent_topic_with_its_clients(rest: Rest, client: pulsar.Client, namespace: str) -> None:
    path, name = f"/non-persistent/{namespace}/shape", f"non-persistent://{namespace}/shape"
    consumer = client.subscribe(name, "s", pulsar.ConsumerType.Shared)
    producer = client.create_producer(name)
    producer.send(b"x")
    consumer.receive(10_000)
    shown = rest.get(f"{path}/stats")
    check("non-persistent topic", shown)
    check("non-persistent publisher", shown["publishers"][0])
    check("non-persistent subscription", shown["subscriptions"]["s"])
    check("non-persistent consumer", shown["subscriptions"]["s"]["consumers"][0])
    assert near_now(shown["subscriptions"]["s"]["lastConsumedTimestamp"])
    internal = rest.get(f"{path}/internalStats")
    check("non-persistent internal", internal)
    check("non-persistent cursor", internal["cursors"]["s"])


def test_a_partitioned_topic_as_a_whole(rest: Rest, client: pulsar.Client, namespace: str) -> None:
    path, name = f"/persistent/{namespace}/parts", f"persistent://{namespace}/parts"
    rest.do("PUT", f"{path}/partitions", 3)
    consumer = client.subscribe(name, "s", pulsar.ConsumerType.Failover)
    producer = client.create_producer(name)
    for number in range(6):
        producer.send(b"%d" % number)
        consumer.receive(10_000)
    shown = rest.get(f"{path}/partitioned-stats?perPartition=false")
    check("partitioned topic", shown, besides=OLDEST)
    check("partitioned publisher", shown["publishers"][0])
    check("partitioned subscription", shown["subscriptions"]["s"])
    check("partitioned consumer", shown["subscriptions"]["s"]["consumers"][0])
    each = rest.get(f"{path}/partitioned-stats")["partitions"].values()
    assert len(each) == 3
    latest = max(part["subscriptions"]["s"]["lastConsumedTimestamp"] for part in each)
    assert shown["subscriptions"]["s"]["lastConsumedTimestamp"] == latest
    assert near_now(latest)
    check("partitioned internal", rest.get(f"{path}/partitioned-internalStats"))


def test_a_partitioned_topic_of_which_nothing_is_there_yet_has_every_figure(
    rest: Rest, namespace: str
) -> None:
    path = f"/non-persistent/{namespace}/parts"
    rest.do("PUT", f"{path}/partitions", 3)
    shown = rest.get(f"{path}/partitioned-stats")
    check("partitioned topic", shown, besides=OLDEST)
    assert (shown["msgInCounter"], shown["msgRateIn"], shown["partitions"]) == (0, 0.0, {})
