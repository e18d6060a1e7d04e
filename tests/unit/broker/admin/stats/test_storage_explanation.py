"""Each reason why a ledger is kept, from a topic that produces it; the bytes of the rows are all bytes."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

from magnetar.broker.admin.stats.storage_explanation import StorageCode, storage_explanation
from magnetar.broker.topics.persistent_topic import PersistentTopic
from magnetar.common.metadata.metadata_pb2 import Offload
from magnetar.common.naming.position import EARLIEST
from magnetar.ledger.managed_ledger.ledger_list import SpanOffload
from magnetar.ledger.managed_ledger.offload_progress import OffloadRules

from tests.unit.broker.topics.simulated_broker import SimBroker, simulated


def explained(topic: PersistentTopic) -> list[dict[str, Any]]:
    """The rows, after the sums were checked."""
    found = storage_explanation(topic)
    rows: list[dict[str, Any]] = found["ledgers"]
    deleting = sum(span.byte_length for span in topic.ledger.kept().deleting)
    assert sum(row["bytes"] for row in rows) == found["bytes"] == topic.ledger.storage_bytes + deleting
    assert sum(found["bytesByCode"].values()) == found["bytes"]
    assert all(row["next"] for row in rows)
    return rows


def codes(topic: PersistentTopic) -> list[str]:
    return [row["code"] for row in explained(topic)]


async def fill(broker: SimBroker, topic: PersistentTopic, ledgers: int) -> None:
    """Publishes so many ledgers, which are closed, and one that is not full."""
    for _ in range(ledgers):
        await broker.publish(topic, 11)
        await asyncio.sleep(5)
    await broker.publish(topic, 1)


async def behind(broker: SimBroker) -> PersistentTopic:
    """A topic of two full ledgers and one that is written to, with a subscription at its begin."""
    topic = await broker.topic()
    await broker.subscription(topic)
    await fill(broker, topic, 2)
    return topic


def test_a_subscription_that_is_behind_and_the_open_ledger() -> None:
    async def scenario(broker: SimBroker) -> None:
        topic = await behind(broker)
        rows = explained(topic)
        assert [row["code"] for row in rows] == ["subscription", "subscription", "open_ledger"]
        assert rows[0]["holders"] == ["s"]
        assert rows[0]["text"].startswith("subscription s needs entries after ")
        assert rows[0]["text"].endswith(f"it is {topic.ledger.storage_bytes} bytes behind")
        assert (rows[0]["copies"], rows[0]["entries"], rows[2]["closed"]) == (["bookies"], 11, None)
        last = topic.ledger.spans.spans[1].last_position
        topic.subscriptions["s"].ack_cumulative(last, (await broker.consumer(topic))[1])
        await asyncio.sleep(5)
        assert codes(topic) == ["open_ledger"]

    simulated(scenario)


def test_retention_and_ledgers_behind_a_kept_one() -> None:
    async def scenario(broker: SimBroker) -> None:
        topic = await broker.topic()
        topic.apply_policies(replace(topic.policies, retention_time_min=10, retention_size_bytes=-1))
        await fill(broker, topic, 2)
        rows = explained(topic)
        assert [row["code"] for row in rows] == ["retention", "retention", "open_ledger"]
        assert rows[0]["text"].startswith(
            "retention keeps acknowledged messages: for 10 min after its closing, "
        )
        topic.ledger.spans.spans[1].closed_ms -= 3_600_000
        assert codes(topic) == ["retention", "behind_ledger", "open_ledger"]

    simulated(scenario)


def test_deduplication_compaction_and_transactions() -> None:
    async def scenario(broker: SimBroker) -> None:
        topic = await broker.topic()
        topic.apply_policies(replace(topic.policies, retention_time_min=-1, retention_size_bytes=-1))
        await fill(broker, topic, 1)
        assert codes(topic) == ["retention", "open_ledger"]
        topic.ledger.compaction.hold(True)
        assert codes(topic) == ["compaction", "open_ledger"]
        topic.ledger.compaction.hold(False)
        topic.ledger.use_transactions().record.durable_mark = EARLIEST
        assert codes(topic) == ["transactions", "open_ledger"]

    simulated(scenario)

    async def deduplicated(broker: SimBroker) -> None:
        topic = await broker.topic()
        topic.apply_policies(replace(topic.policies, retention_time_min=-1, retention_size_bytes=-1))
        topic.apply_policies(replace(topic.policies, deduplication=True))
        await asyncio.sleep(1)
        await fill(broker, topic, 1)
        assert codes(topic)[0] == "deduplication"

    simulated(deduplicated)


def test_restored_metadata_and_ledgers_that_are_being_deleted() -> None:
    async def scenario(broker: SimBroker) -> None:
        topic = await behind(broker)
        broker.ledgers.restored.holds = True
        topic.ledger.cursors["s"].ack_cumulative(topic.ledger.last_position)
        await asyncio.sleep(5)
        assert codes(topic) == ["metadata_restored", "metadata_restored", "open_ledger"]
        broker.ledgers.restored.holds = False
        assert codes(topic) == ["being_deleted", "being_deleted", "open_ledger"]
        topic.ledger.trim()
        rows = explained(topic)
        assert [row["code"] for row in rows] == ["being_deleted", "being_deleted", "open_ledger"]
        assert rows[0]["text"] == "it is off the topic's list, and is being deleted"
        await asyncio.sleep(5)
        assert codes(topic) == ["open_ledger"]

    simulated(scenario)


def test_where_copies_are_and_how_long_bookies_keep_theirs() -> None:
    async def scenario(broker: SimBroker) -> None:
        topic = await behind(broker)
        first, second, _ = topic.ledger.spans.spans
        topic.ledger.offload = OffloadRules(deletion_lag_ms=60_000)
        first.offload = SpanOffload(1, Offload.COMPLETE, completed_ms=1_000, left_bookies_ms=2_000)
        second.offload = SpanOffload(1, Offload.COMPLETE, completed_ms=1_000)
        found = storage_explanation(topic)
        copies = [row["copies"] for row in found["ledgers"]]
        assert copies == [["objects"], ["bookies", "objects"], ["bookies"]]
        assert [row["bookiesUntil"] for row in found["ledgers"]] == [None, "1970-01-01T00:01:01.000Z", None]
        assert found["bytesOnBookies"] == found["bytes"] - first.byte_length

    simulated(scenario)


def test_each_code_is_in_the_page() -> None:
    page = (Path(__file__).parents[5] / "docs/explain.md").read_text()
    assert all(f"| `{code}` |" in page for code in StorageCode)
