"""What a topic sees of its cursors: they survive what may happen, and keep the ledgers they need."""

from __future__ import annotations

import asyncio
import random
from dataclasses import replace

import pytest
from magnetar.common.errors import (
    CursorLedgerMissing,
    StorageError,
    SubscriptionNotFound,
)
from magnetar.common.metadata.store import TXN_OPS_MAX
from magnetar.common.naming.position import EARLIEST, LATEST, Position
from magnetar.ledger.ledger_store import LedgerRef, Run
from magnetar.ledger.segment_log.config import SegmentLogConfig

from tests.simulation.power_loss import KEYS, Process
from tests.unit.ledger.managed_ledger.harness import (
    ROLL_AT_10,
    head_of,
    keys_of,
    ledger_ids,
    load,
    load_again,
    simulated,
    until,
)


def test_a_topic_with_a_subscription_that_was_closed_in_order_loads_with_one_write() -> None:
    async def scenario(process: Process) -> None:
        topic = await load(process)
        cursor = await topic.ledger.create_cursor("sub", EARLIEST, {})
        positions = await topic.publish_confirmed(8)
        cursor.ack(*positions[0])
        await topic.ledger.close()
        revision = process.world.metadata.revision
        again = await load_again(topic.ctx)
        assert process.world.metadata.revision == revision + 1
        assert again.ledger.cursors["sub"].mark_delete == positions[0]
        await again.ledger.close()
        assert process.world.metadata.revision == revision + 1

    simulated(scenario)


def test_a_cursor_exists_once_it_is_on_disk_and_survives_a_kill() -> None:
    async def scenario(process: Process) -> None:
        topic = await load(process)
        positions = await topic.publish_confirmed(5)
        first, second = await asyncio.gather(
            topic.ledger.create_cursor("sub", Position(positions[0].ledger_id, 2), {"a": "b"}),
            topic.ledger.create_cursor("sub", EARLIEST, {}),
        )
        assert first is second
        assert topic.ledger.cursors == {"sub": first}
        assert first.backlog() == 2
        late = await topic.ledger.create_cursor("late", LATEST, {})
        assert late.mark_delete == positions[-1]
        process.world.kill()
        again = await load(process, create=False)
        assert sorted(again.ledger.cursors) == ["late", "sub"]
        assert again.ledger.cursors["sub"].mark_delete == positions[2]
        assert again.ledger.cursors["sub"].properties == {"a": "b"}
        assert again.ledger.cursors["late"].backlog() == 0

    simulated(scenario)


def test_acknowledgements_of_every_kind_survive_a_kill_once_flushed() -> None:
    async def scenario(process: Process) -> None:
        topic = await load(process)
        cursor = await topic.ledger.create_cursor("sub", EARLIEST, {})
        positions = await topic.publish_confirmed(20)
        cursor.ack_cumulative(positions[3])
        cursor.ack(*positions[6])
        cursor.ack_range(positions[9].ledger_id, positions[9].entry_id, positions[11].entry_id)
        assert not cursor.ack_batch(*positions[15], 0b0110, 4)
        assert cursor.count_redelivery(*positions[16]) == 1
        assert cursor.count_redelivery(*positions[16]) == 2
        await topic.flushed()
        cursor.ack(*positions[18])
        process.world.kill()
        again = await load(process, create=False)
        cursor = again.ledger.cursors["sub"]
        acked = [number for number, position in enumerate(positions) if cursor.is_acked(*position)]
        assert acked == [0, 1, 2, 3, 6, 9, 10, 11]
        assert cursor.batch_acked(*positions[15]) == 0b0110
        assert cursor.delivery_count(*positions[16]) == 2
        assert cursor.backlog() == 12

    simulated(scenario)


def test_unawaited_acknowledgments_reach_disk_within_the_flush_interval() -> None:
    async def scenario(process: Process) -> None:
        topic = await load(process, replace(ROLL_AT_10, cursor_flush_interval_s=1.0))
        cursor = await topic.ledger.create_cursor("sub", EARLIEST, {})
        positions = await topic.publish_confirmed(4)
        cursor.ack(*positions[0])
        await asyncio.sleep(0.9)
        cursor.ack(*positions[2])
        await asyncio.sleep(0.2)
        process.world.kill()
        again = await load(process, create=False)
        assert [again.ledger.cursors["sub"].is_acked(*position) for position in positions] == [
            True,
            False,
            True,
            False,
        ]

    simulated(scenario)


def test_flushes_asked_for_at_once_share_appends_and_all_are_told() -> None:
    async def scenario(process: Process) -> None:
        topic = await load(process)
        cursor = await topic.ledger.create_cursor("sub", EARLIEST, {})
        positions = await topic.publish_confirmed(50)
        await topic.flushed()
        before = topic.ledger._cursor_ledger._entries
        told: list[StorageError | None] = []
        for position in positions:
            cursor.ack(*position)
            topic.ledger.flush_cursors(told.append)
        assert not told, "never called from inside"
        assert not cursor.advanced_ms, "nothing of it is durable yet"
        await until(lambda: len(told) == 50)
        assert cursor.advanced_ms > 0
        assert told == [None] * 50
        assert topic.ledger._cursor_ledger._entries <= before + 2
        topic.ledger.flush_cursors(told.append)
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert len(told) == 51, "a flush of nothing is confirmed soon"

    simulated(scenario)


def test_a_deleted_cursor_does_not_come_back_and_its_name_starts_afresh() -> None:
    async def scenario(process: Process) -> None:
        topic = await load(process)
        cursor = await topic.ledger.create_cursor("sub", EARLIEST, {})
        positions = await topic.publish_confirmed(5)
        cursor.ack(*positions[1])
        await topic.ledger.delete_cursor("sub")
        with pytest.raises(SubscriptionNotFound):
            await topic.ledger.delete_cursor("sub")
        process.world.kill()
        again = await load(process, create=False)
        assert not again.ledger.cursors
        fresh = await again.ledger.create_cursor("sub", EARLIEST, {})
        assert fresh.backlog() == 5
        await again.ledger.delete_cursor("sub")
        again.ledger.open_non_durable_cursor("reader", EARLIEST)
        await again.ledger.delete_cursor("reader")

    simulated(scenario)


def test_a_seek_drops_the_ack_state_and_is_on_disk() -> None:
    async def scenario(process: Process) -> None:
        topic = await load(process)
        cursor = await topic.ledger.create_cursor("sub", EARLIEST, {})
        positions = await topic.publish_confirmed(9)
        cursor.ack_cumulative(positions[6])
        cursor.ack(*positions[8])
        await topic.flushed()
        await topic.ledger.reset_cursor(cursor, positions[1])
        assert not cursor.has_holes
        assert cursor.backlog() == 7
        process.world.kill()
        again = await load(process, create=False)
        assert again.ledger.cursors["sub"].mark_delete == positions[1]
        assert again.ledger.cursors["sub"].backlog() == 7

    simulated(scenario)


def test_properties_of_a_cursor_are_replaced_and_survive_a_kill_in_the_record_and_in_a_snapshot() -> None:
    async def scenario(process: Process) -> None:
        topic = await load(process)
        cursor = await topic.ledger.create_cursor("sub", EARLIEST, {"a": "b", "c": "d"})
        (position,) = await topic.publish_confirmed(1)
        await topic.ledger.describe_cursor(cursor, {"a": "x"})
        cursor.ack(*position)
        await topic.flushed()
        await topic.ledger.create_cursor("bare", EARLIEST, {"gone": "soon"})
        await topic.ledger.describe_cursor(topic.ledger.cursors["bare"], {})
        for _ in range(2):  # the second time from the snapshot of a new cursor ledger
            process.world.kill()
            topic = await load(process, create=False)
            found = topic.ledger.cursors
            assert {name: each.properties for name, each in found.items()} == {"sub": {"a": "x"}, "bare": {}}
            assert found["sub"].backlog() == 0
            await topic.ledger.create_cursor("other", EARLIEST, {})
            await topic.ledger.delete_cursor("other")
        reader = topic.ledger.open_non_durable_cursor("reader", EARLIEST)
        await topic.ledger.describe_cursor(reader, {"in": "memory"})
        assert reader.properties == {"in": "memory"}
        deleted = found["sub"]
        await topic.ledger.delete_cursor("sub")
        with pytest.raises(SubscriptionNotFound):
            await topic.ledger.describe_cursor(deleted, {"a": "y"})

    simulated(scenario)


def test_the_cursor_ledger_is_replaced_when_it_has_grown_and_the_old_one_goes() -> None:
    async def scenario(process: Process) -> None:
        topic = await load(process, cursor_ledger_entries_max=10, ledger_entries_max=1_000)
        cursor = await topic.ledger.create_cursor("sub", EARLIEST, {})
        positions = await topic.publish_confirmed(100)
        seen = set()
        for position in positions[::2]:
            cursor.ack(*position)
            await topic.flushed()
            seen.add(head_of(process.world).cursor_ledger.id)
        await until(lambda: topic.ledger._maintenance is None)
        assert len(seen) >= 3
        assert not keys_of(process.world, "intents")
        kept = {KEYS.ledger_id_of(key) for key in keys_of(process.world, "ledgers") if "/topics/" not in key}
        assert kept == {positions[0].ledger_id, head_of(process.world).cursor_ledger.id}
        process.world.kill()
        again = await load(process, create=False)
        recovered = again.ledger.cursors["sub"]
        assert [recovered.is_acked(*position) for position in positions] == [True, False] * 50

    simulated(scenario)


def test_a_missing_cursor_ledger_is_an_error_and_never_earliest() -> None:
    async def scenario(process: Process) -> None:
        topic = await load(process)
        await topic.ledger.create_cursor("sub", LATEST, {})
        await topic.publish_confirmed(5)
        await topic.ledger.close()
        ref = head_of(process.world).cursor_ledger
        await topic.ctx.ledgers.delete(LedgerRef(ref.id, ref.key))
        with pytest.raises(CursorLedgerMissing, match="cursor ledger"):
            await load_again(topic.ctx)

    simulated(scenario)


def test_ledgers_go_once_every_durable_cursor_is_past_them_on_disk() -> None:
    async def scenario(process: Process) -> None:
        topic = await load(process, cursor_flush_interval_s=1_000.0)
        slow = await topic.ledger.create_cursor("slow", EARLIEST, {})
        fast = await topic.ledger.create_cursor("fast", EARLIEST, {})
        positions = []
        for _ in range(4):
            positions += await topic.publish_confirmed(11)
            await asyncio.sleep(0.05)
        ids = ledger_ids(topic)
        fast.ack_cumulative(positions[-1])
        slow.ack_cumulative(positions[21])
        topic.ledger.trim()
        await asyncio.sleep(1)
        assert ledger_ids(topic) == ids, "acknowledged in memory is not acknowledged"
        await topic.flushed()
        await until(lambda: ledger_ids(topic) == ids[2:])
        await asyncio.sleep(0.1)
        # The store's: the cursor ledger, two closed ones, the open one; the topic's: two closed ones.
        assert len(keys_of(process.world, "ledgers")) == 4 + 2
        assert not keys_of(process.world, "intents")
        assert topic.ledger.first_position() == Position(ids[2], -1)
        assert slow.backlog() == 22
        assert slow.mark_delete == positions[21]
        await topic.ledger.delete_cursor("slow")
        await until(lambda: ledger_ids(topic) == [])

    simulated(scenario)


def test_more_ledgers_than_one_transaction_holds_are_trimmed_one_transaction_after_another() -> None:
    """A subscription of old goes, and hundreds of ledgers with it; a store takes 128 operations at once."""

    async def scenario(process: Process) -> None:
        topic = await load(process)
        slow = await topic.ledger.create_cursor("slow", EARLIEST, {})
        for _ in range(TXN_OPS_MAX + 10):
            await topic.publish_confirmed(11)
            await asyncio.sleep(0.05)
        assert len(ledger_ids(topic)) > TXN_OPS_MAX
        assert slow.backlog() == topic.published
        await topic.ledger.delete_cursor("slow")
        # What stays is the store's: the cursor ledger and the open one.
        await until(lambda: len(keys_of(process.world, "ledgers")) == 2)
        assert not ledger_ids(topic)
        assert not keys_of(process.world, "intents")
        await topic.publish_confirmed(1)
        assert not topic.listener.lost

    simulated(scenario)


def test_a_topic_without_durable_cursors_lets_closed_ledgers_go_when_they_close() -> None:
    async def scenario(process: Process) -> None:
        topic = await load(process)
        reader = topic.ledger.open_non_durable_cursor("reader", EARLIEST)
        for _ in range(5):
            await topic.publish_confirmed(11)
            await asyncio.sleep(0.05)
        assert not ledger_ids(topic)
        assert reader.backlog() == topic.ledger.entries == 0
        assert topic.ledger.next_position(reader.mark_delete) is None

    simulated(scenario)


def test_nothing_follows_a_reader_in_a_trimmed_ledger() -> None:
    async def scenario(process: Process) -> None:
        topic = await load(process)
        positions = await topic.publish_confirmed(5)
        reader = topic.ledger.open_non_durable_cursor("reader", positions[2])
        await asyncio.sleep(topic.ctx.config.ledger_age_max_minutes * 60 + 1)
        assert not ledger_ids(topic)
        assert topic.ledger.next_position(reader.mark_delete) is None
        (after, *_) = await topic.publish_confirmed(1)
        assert topic.ledger.next_position(reader.mark_delete) == after

    simulated(scenario)


def test_a_backlog_does_not_count_acknowledgements_in_trimmed_ledgers() -> None:
    async def scenario(process: Process) -> None:
        topic = await load(process)
        reader = topic.ledger.open_non_durable_cursor("reader", EARLIEST)
        positions = await topic.publish_confirmed(11)
        assert reader.ack(*positions[5])
        assert reader.backlog() == 10
        await asyncio.sleep(0.05)
        assert not ledger_ids(topic)
        assert reader.backlog() == 0
        await topic.publish_confirmed(3)
        assert reader.backlog() == 3

    simulated(scenario)


@pytest.mark.full
def test_a_million_holes_go_through_a_flush_a_snapshot_and_a_restart() -> None:
    async def scenario(process: Process) -> None:
        process.config = SegmentLogConfig(segment_size_bytes=4 << 20)
        topic = await load(process, ledger_entries_max=1 << 30)
        cursor = await topic.ledger.create_cursor("sub", EARLIEST, {})
        topic.publish(1_000)
        await topic.published_all()
        for _ in range(999):
            topic.ledger.append(Run([b""] * 1_000), None)
            await asyncio.sleep(0.001)
        await until(lambda: topic.ledger.entries == 1_000_000)
        ledger_id = topic.ledger.last_confirmed.ledger_id
        order = list(range(1, 1_000_000, 2))
        random.Random(1).shuffle(order)
        for entry_id in order:
            cursor.ack(ledger_id, entry_id)
        await topic.flushed()
        cursor.ack(ledger_id, 0)
        await topic.flushed()
        assert cursor.mark_delete == Position(ledger_id, 1)
        process.world.kill()
        again = await load(process, create=False)
        recovered = again.ledger.cursors["sub"]
        assert recovered.mark_delete == Position(ledger_id, 1)
        assert recovered.backlog() == 499_999
        assert recovered.is_acked(ledger_id, 777_777)
        assert not recovered.is_acked(ledger_id, 777_776)
        # The first durable change makes a new cursor ledger, with a whole snapshot.
        recovered.ack(ledger_id, 2)
        await again.flushed()
        third = await load_again(again.ctx)
        assert third.ledger.cursors["sub"].backlog() == 499_998
        assert third.ledger.cursors["sub"].mark_delete == Position(ledger_id, 3)

    simulated(scenario)


def test_acknowledgements_are_at_risk_until_they_are_on_disk() -> None:
    async def scenario(process: Process) -> None:
        topic = await load(process)
        cursor = await topic.ledger.create_cursor("sub", EARLIEST, {})
        reader = topic.ledger.open_non_durable_cursor("reader", EARLIEST)
        positions = await topic.publish_confirmed(8)
        assert cursor.acks_at_risk == 0
        for position in (positions[0], positions[2], positions[5]):
            cursor.ack(*position)
            reader.ack(*position)
        assert cursor.acks_at_risk == 3
        assert reader.acks_at_risk == 0, "what is never written cannot be lost"
        await topic.flushed()
        assert cursor.acks_at_risk == 0
        cursor.ack_cumulative(positions[3])
        assert cursor.acks_at_risk == 2
        await topic.ledger.reset_cursor(cursor, EARLIEST)
        assert cursor.acks_at_risk == 0
        cursor.ack(*positions[1])
        assert cursor.acks_at_risk == 1
        await topic.ledger.close()
        again = await load_again(topic.ctx)
        loaded = again.ledger.cursors["sub"]
        assert loaded.acks_at_risk == 0
        loaded.ack(*positions[4])
        assert loaded.acks_at_risk == 1
        await again.ledger.close()

    simulated(scenario)
