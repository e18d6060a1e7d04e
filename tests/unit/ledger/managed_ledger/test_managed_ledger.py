"""What a topic sees of its managed ledger: publishing, reading, cursors, rolls, trims, owners, failures."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest
from magnetar.common.errors import (
    Backpressure,
    CursorLedgerMissing,
    LedgerClosed,
    LogFailed,
    LogFull,
    OwnershipLost,
    StorageError,
    SubscriptionNotFound,
    TopicNotFound,
)
from magnetar.common.metadata.values import Counter, TopicHead, decode
from magnetar.common.naming.position import EARLIEST, LATEST, Position
from magnetar.ledger.ledger_store import LedgerRef, Run
from magnetar.ledger.managed_ledger import (
    delete_managed_ledger,
    finish_intents,
    list_managed_ledgers,
    managed_ledger_exists,
)
from magnetar.sim.loop import SimLoop, run

from tests.simulation.power_loss import KEYS, Process, World
from tests.unit.ledger.managed_ledger.harness import (
    ROLL_AT_10,
    TOPIC,
    Topic,
    load,
    load_again,
    until,
)

HEAD = "topic-heads"


def simulated(scenario: Callable[[Process], Awaitable[None]], seed: int = 0) -> World:
    """Run a scenario in one process of a fresh world; returns the world."""
    world = World.new()

    async def main(loop: SimLoop) -> None:
        await scenario(Process(loop, world))

    loop = SimLoop(seed)
    run(loop, main(loop))
    return world


def keys_of(world: World, family: str) -> list[str]:
    return [key for key in world.metadata.dump() if f"/{family}/" in key]


def head_of(world: World) -> TopicHead:
    (key,) = keys_of(world, HEAD)
    return decode(TopicHead, world.metadata.dump()[key])


def ledger_ids(topic: Topic) -> list[int]:
    return [span.ref.id for span in topic.ledger._spans.spans]


def test_what_is_published_is_confirmed_in_order_and_read_back() -> None:
    async def scenario(process: Process) -> None:
        topic = await load(process)
        assert topic.ledger.last_confirmed == topic.ledger.first_position() == Position(-1, -1)
        for count in (1, 3, 1, 20, 2):
            topic.publish(count)
        await topic.published_all()
        assert [data for _, data in topic.listener.confirmed] == [b"%d" % number for number in range(27)]
        assert topic.listener.contexts == [1, 4, 5, 25, 27]
        assert await topic.read_all() == topic.listener.confirmed
        assert topic.ledger.last_confirmed == topic.listener.confirmed[-1][0] == topic.ledger.read_limit()
        assert topic.ledger.entries == 27
        assert topic.ledger.storage_bytes == sum(len(data) for _, data in topic.listener.confirmed)

    simulated(scenario)


def test_message_indexes_and_publish_times_go_on_across_ledgers_and_owners() -> None:
    async def scenario(process: Process) -> None:
        topic = await load(process)
        first = topic.publish(2, counts=[3, 4])
        assert (first.first_index, topic.ledger.next_index) == (0, 7)
        for _ in range(3):
            await topic.publish_confirmed(9)
        again = await load_again(topic.ctx)
        assert again.ledger.next_index == 7 + 27
        run = again.publish()
        await again.published_all()
        assert run.first_index == 34
        await again.ledger.close()
        third = await load_again(topic.ctx)
        assert third.ledger.next_index == 35
        process.clock.wall_offset_ms -= 3_600_000
        times = [run.publish_time_ms]
        for _ in range(2):
            times.append(third.publish().publish_time_ms)
            process.clock.wall_offset_ms -= 1_000
        assert times[1] == times[2]

    simulated(scenario)


def test_message_indexes_go_on_after_every_ledger_was_trimmed() -> None:
    async def scenario(process: Process) -> None:
        topic = await load(process)
        await topic.publish_confirmed(30)
        await until(lambda: not ledger_ids(topic))
        last = topic.ledger.last_confirmed
        await topic.ledger.close()
        again = await load_again(topic.ctx)
        assert again.ledger.next_index == 30
        assert again.ledger.last_confirmed == last
        assert again.ledger.next_position(EARLIEST) is None

    simulated(scenario)


def test_a_topic_that_does_not_exist_is_not_made_unless_asked() -> None:
    async def scenario(process: Process) -> None:
        with pytest.raises(TopicNotFound):
            await load(process, create=False)
        assert not process.world.metadata.dump()

    simulated(scenario)


def test_an_idle_topic_costs_one_key_and_its_load_one_write() -> None:
    async def scenario(process: Process) -> None:
        topic = await load(process)
        await topic.ledger.close()
        assert [key for key in process.world.metadata.dump() if "/counters/" not in key] == keys_of(
            process.world, HEAD
        )
        revision = process.world.metadata.revision
        again = await load_again(topic.ctx)
        assert again.ledger.properties == {"made": "here"}
        assert process.world.metadata.revision == revision + 1
        await again.ledger.close()
        assert process.world.metadata.revision == revision + 1

    simulated(scenario)


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


def test_a_full_ledger_rolls_without_a_pause_and_keeps_order() -> None:
    async def scenario(process: Process) -> None:
        topic = await load(process)
        await topic.ledger.create_cursor("sub", EARLIEST, {})
        for _ in range(60):
            topic.publish(1)
            await asyncio.sleep(0.0005)
        await topic.published_all()
        await until(lambda: len(topic.ledger._appender.ledgers) == 1)
        assert len(ledger_ids(topic)) >= 3
        assert [data for _, data in topic.listener.confirmed] == [b"%d" % number for number in range(60)]
        assert await topic.read_all() == topic.listener.confirmed
        assert [span.closed for span in topic.ledger._spans.spans][:-1] == [True] * (
            len(ledger_ids(topic)) - 1
        )
        await topic.ledger.close()
        again = await load_again(topic.ctx)
        assert await again.read_all() == topic.listener.confirmed
        assert again.ledger.cursors["sub"].backlog() == 60

    simulated(scenario)


def test_a_ledger_with_entries_rolls_at_its_maximum_age_and_an_empty_one_does_not_come() -> None:
    async def scenario(process: Process) -> None:
        topic = await load(process, replace(ROLL_AT_10, ledger_age_max_minutes=1))
        await topic.ledger.create_cursor("sub", EARLIEST, {})
        await topic.publish_confirmed(1)
        await asyncio.sleep(200)
        assert [span.closed for span in topic.ledger._spans.spans] == [True]
        assert not head_of(process.world).open_ledgers
        await topic.publish_confirmed(1)
        assert len(ledger_ids(topic)) == 2

    simulated(scenario)


def test_a_ledger_below_its_minimum_age_does_not_roll() -> None:
    async def scenario(process: Process) -> None:
        topic = await load(process, replace(ROLL_AT_10, ledger_age_min_minutes=1))
        await topic.ledger.create_cursor("sub", EARLIEST, {})
        await topic.publish_confirmed(1, runs=50)
        await asyncio.sleep(10)
        await topic.publish_confirmed(1)
        assert len(ledger_ids(topic)) == 1
        await asyncio.sleep(55)
        await topic.publish_confirmed(1)
        assert len(ledger_ids(topic)) == 2

    simulated(scenario)


def test_runs_that_wait_for_a_ledger_are_bounded() -> None:
    async def scenario(process: Process) -> None:
        topic = await load(process, replace(ROLL_AT_10, queued_bytes_max=1_000))
        taken = 0
        with suppress(Backpressure):
            while taken < 100:
                topic.publish(1, size=99)
                taken += 1
        assert 5 < taken < 12
        topic.published = taken
        await topic.published_all()
        topic.publish(1)
        await topic.published_all()

    simulated(scenario)


def test_next_position_and_entries_between_step_over_ends_of_ledgers() -> None:
    async def scenario(process: Process) -> None:
        topic = await load(process)
        await topic.ledger.create_cursor("sub", EARLIEST, {})
        positions = []
        for _ in range(4):
            positions += await topic.publish_confirmed(11)
            await asyncio.sleep(0.05)
        ledger = topic.ledger
        assert len(ledger_ids(topic)) == 4
        walked = [ledger.next_position(EARLIEST)]
        while walked[-1] is not None:
            walked.append(ledger.next_position(walked[-1]))
        assert walked == [*positions, None]
        for start, end in ((0, 43), (10, 11), (3, 3), (10, 25), (43, 0)):
            assert ledger.entries_between(positions[start], positions[end]) == max(0, end - start)
        assert ledger.entries_between(EARLIEST, LATEST) == 44
        ledger.max_read_position = positions[20]
        assert ledger.read_limit() == positions[20]
        assert ledger.next_position(positions[20]) is None
        assert len(await topic.read_all()) == 21
        cached = ledger.read_cached(positions[11], 100, 10_000)
        assert cached is not None
        assert cached.last_entry_id == positions[20].entry_id
        assert ledger.read_cached(positions[21], 100, 10_000) is None

    simulated(scenario)


def test_the_tail_is_read_from_memory_and_only_when_somebody_may_read_it() -> None:
    async def scenario(process: Process) -> None:
        topic = await load(process)
        nobody = await topic.publish_confirmed(3)
        assert topic.ledger.read_cached(nobody[0], 10, 1_000) is None
        topic.ledger.open_non_durable_cursor("reader", LATEST)
        run = topic.publish(4)
        await topic.published_all()
        start = Position(run.ledger_id, run.first_entry_id)
        assert topic.ledger.read_cached(start, 10, 1_000) is run
        part = topic.ledger.read_cached(Position(run.ledger_id, run.first_entry_id + 1), 2, 1_000)
        assert part is not None
        assert part.entries == run.entries[1:3]
        assert part.entries[0] is run.entries[1]
        assert part.first_index == run.first_index + 1
        one = topic.ledger.read_cached(start, 10, 0)
        assert one is not None
        assert len(one.entries) == 1
        assert topic.ctx.cache.bytes > 0
        await topic.ledger.close()
        assert topic.ctx.cache.bytes == 0

    simulated(scenario)


def test_a_position_is_found_by_publish_time() -> None:
    async def scenario(process: Process) -> None:
        topic = await load(process)
        await topic.ledger.create_cursor("sub", EARLIEST, {})
        published: list[tuple[int, Position]] = []
        for _ in range(9):
            run = topic.publish(3)
            await topic.published_all()
            published += [
                (run.publish_time_ms, Position(run.ledger_id, run.first_entry_id + n)) for n in range(3)
            ]
            await asyncio.sleep(1)
        for topic_now in (topic, await load_again(topic.ctx)):
            for time_ms in sorted({time for time, _ in published}):
                for wanted in (time_ms, time_ms - 1, time_ms - 500):
                    before = await topic_now.ledger.find_before_publish_time(wanted)
                    first = min(position for time, position in published if time >= wanted)
                    assert topic_now.ledger.next_position(before) == first
            latest = await topic_now.ledger.find_before_publish_time(1 << 50)
            assert latest == topic_now.ledger.last_confirmed

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


def test_acknowledgements_that_nobody_waits_for_are_on_disk_within_the_flush_interval() -> None:
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
        await until(lambda: len(told) == 50)
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


def test_a_former_owner_is_told_and_can_neither_confirm_nor_flush() -> None:
    async def scenario(process: Process) -> None:
        first = await load(process)
        cursor = await first.ledger.create_cursor("sub", EARLIEST, {})
        positions = await first.publish_confirmed(5)
        second = await load_again(first.ctx)
        confirmed = len(first.listener.confirmed)
        told: list[StorageError | None] = []
        cursor.ack(*positions[0])
        first.ledger.flush_cursors(told.append)
        with suppress(OwnershipLost):
            first.publish(1)
        await until(lambda: first.listener.lost and told)
        assert isinstance(first.listener.lost[0], OwnershipLost)
        assert isinstance(told[0], StorageError)
        assert len(first.listener.confirmed) == confirmed
        with pytest.raises(OwnershipLost):
            first.publish(1)
        with pytest.raises(OwnershipLost):
            await first.ledger.create_cursor("other", EARLIEST, {})
        await first.ledger.close()
        assert not second.ledger.cursors["sub"].is_acked(*positions[0])
        assert await second.publish_confirmed(3)
        assert not second.listener.lost

    simulated(scenario)


def former_owner_without_an_open_ledger(seed: int) -> None:
    """A former owner that had nothing open makes a ledger: only the head's guard is in its way."""

    async def scenario(process: Process) -> None:
        first = await load(process)
        second = await load_again(first.ctx)
        before = await second.publish_confirmed(3)
        first.publish(1)
        await until(lambda: first.listener.lost)
        assert not first.listener.confirmed
        after = await second.publish_confirmed(3)
        assert {position.ledger_id for position in before} == {position.ledger_id for position in after}
        third = await load_again(first.ctx)
        assert await third.read_all() == second.listener.confirmed

    simulated(scenario, seed)


def test_a_former_owner_without_an_open_ledger_cannot_make_one() -> None:
    former_owner_without_an_open_ledger(0)


def former_owner_without_a_cursor_ledger(seed: int) -> None:
    """The same of a subscription: the new owner would never hear of it."""

    async def scenario(process: Process) -> None:
        first = await load(process)
        second = await load_again(first.ctx)
        with pytest.raises(OwnershipLost):
            await first.ledger.create_cursor("lost", EARLIEST, {})
        await second.ledger.create_cursor("sub", EARLIEST, {})
        third = await load_again(first.ctx)
        assert list(third.ledger.cursors) == ["sub"]

    simulated(scenario, seed)


def test_a_former_owner_cannot_create_a_subscription() -> None:
    former_owner_without_a_cursor_ledger(0)


def test_what_a_failed_sync_took_is_written_again_in_order_with_new_ids() -> None:
    async def scenario(process: Process) -> None:
        topic = await load(process, replace(ROLL_AT_10, ledger_entries_max=1_000))
        cursor = await topic.ledger.create_cursor("sub", EARLIEST, {})
        await topic.publish_confirmed(3)
        disk = process.world.disk
        disk.faults.sync_errors = set(range(disk.operations, disk.operations + 4))
        for _ in range(5):
            topic.publish(2)
        await topic.published_all()
        assert [data for _, data in topic.listener.confirmed] == [b"%d" % number for number in range(13)]
        assert len(ledger_ids(topic)) == 2
        assert await topic.read_all() == topic.listener.confirmed
        assert topic.listener.contexts == [3, 5, 7, 9, 11, 13]
        cursor.ack_cumulative(topic.ledger.last_confirmed)
        await topic.flushed()
        assert not topic.listener.lost

    simulated(scenario)


def test_a_full_disk_refuses_publishes_at_once_and_takes_them_again_when_there_is_room() -> None:
    async def scenario(process: Process) -> None:
        topic = await load(process)
        await topic.publish_confirmed(1)
        disk = process.world.disk
        room = disk.capacity
        disk.capacity -= disk.free_bytes() - process.config.reserve_bytes + 1
        refused = 0
        for _ in range(50):
            try:
                topic.ledger.append(Run([b"x"]), None)
            except LogFull:
                refused += 1
            await asyncio.sleep(0.01)
        assert refused > 40
        disk.capacity = room
        await asyncio.sleep(2)
        before = len(topic.listener.confirmed)
        topic.ledger.append(Run([b"x"]), None)
        await until(lambda: len(topic.listener.confirmed) > before)

    simulated(scenario)


def test_a_disk_that_fails_for_long_costs_few_ledgers_and_no_order() -> None:
    async def scenario(process: Process) -> None:
        topic = await load(process)
        await topic.publish_confirmed(1)
        disk = process.world.disk
        disk.faults.sync_errors = set(range(disk.operations, disk.operations + 100_000))
        taken = 0
        for _ in range(3_000):
            with suppress(LogFailed):
                topic.ledger.append(Run([b"%d" % taken]), None)
                taken += 1
            await asyncio.sleep(0.01)
        assert len(keys_of(process.world, "ledgers")) < 20
        disk.faults.sync_errors = set()
        await until(lambda: len(topic.listener.confirmed) == 1 + taken)
        assert [data for _, data in topic.listener.confirmed[1:]] == [b"%d" % n for n in range(taken)]
        assert not topic.listener.lost

    simulated(scenario)


def test_without_any_room_publishes_are_refused_and_few_ledgers_are_made() -> None:
    async def scenario(process: Process) -> None:
        topic = await load(process)
        await topic.ledger.create_cursor("sub", EARLIEST, {})
        await topic.publish_confirmed(1)
        disk = process.world.disk
        room, disk.capacity = disk.capacity, 0
        taken = refused = 0
        for _ in range(3_000):
            try:
                topic.ledger.append(Run([b"%d" % taken + bytes(1_000)]), None)
                taken += 1
            except (LogFailed, LogFull):
                refused += 1
            await asyncio.sleep(0.01)
        assert refused > 2_000
        assert decode(Counter, process.world.metadata.dump()[KEYS.ledger_id_counter]).next < 25
        disk.capacity = room
        await until(lambda: len(topic.listener.confirmed) == 1 + taken)
        assert [data.rstrip(b"\0") for _, data in topic.listener.confirmed[1:]] == [
            b"%d" % number for number in range(taken)
        ]
        assert await topic.read_all() == topic.listener.confirmed

    simulated(scenario)


def test_a_closed_managed_ledger_takes_nothing_and_leaves_nothing_open() -> None:
    async def scenario(process: Process) -> None:
        topic = await load(process)
        cursor = await topic.ledger.create_cursor("sub", EARLIEST, {})
        await topic.publish_confirmed(3)
        for _ in range(10):
            topic.publish(1)
        cursor.ack_cumulative(topic.ledger.last_confirmed)
        await topic.ledger.close()
        await topic.ledger.close()
        assert len(topic.listener.confirmed) == 13
        assert not topic.listener.lost
        with pytest.raises(LedgerClosed):
            topic.publish(1)
        with pytest.raises(LedgerClosed):
            await topic.ledger.create_cursor("other", EARLIEST, {})
        assert not head_of(process.world).open_ledgers
        process.world.kill()
        again = await load(process, create=False)
        assert again.ledger.cursors["sub"].backlog() == 10

    simulated(scenario)


def test_a_deleted_topic_leaves_no_key_and_can_be_made_again() -> None:
    async def scenario(process: Process) -> None:
        topic = await load(process)
        await topic.ledger.create_cursor("sub", EARLIEST, {})
        await topic.publish_confirmed(25)
        assert await managed_ledger_exists(topic.ctx, TOPIC)
        assert [str(name) for name in await list_managed_ledgers(topic.ctx)] == [TOPIC]
        await topic.ledger.close()
        await delete_managed_ledger(topic.ctx, TOPIC)
        await delete_managed_ledger(topic.ctx, TOPIC)
        assert not await managed_ledger_exists(topic.ctx, TOPIC)
        assert {key for key in process.world.metadata.dump() if "/counters/" not in key} == set()
        again = await load_again(topic.ctx, create=True)
        assert again.ledger.creation_id > topic.ledger.creation_id
        assert not again.ledger.cursors
        assert again.ledger.next_position(EARLIEST) is None

    simulated(scenario)


def test_the_topic_epoch_and_properties_are_kept() -> None:
    async def scenario(process: Process) -> None:
        topic = await load(process)
        assert topic.ledger.topic_epoch == 0
        epochs = await asyncio.gather(*(topic.ledger.raise_topic_epoch() for _ in range(2)))
        assert list(epochs) == [1, 2]
        await topic.ledger.update_properties({"new": "one"})
        await topic.publish_confirmed(11)
        again = await load_again(topic.ctx)
        assert again.ledger.topic_epoch == 2
        assert again.ledger.properties == {"new": "one"}
        assert await finish_intents(topic.ctx) == 0

    simulated(scenario)


class _CutShort:
    """Metadata and ledgers of a process that dies after some writes."""

    def __init__(self, original: object, writes_left: list[int]) -> None:
        self._original = original
        self._writes_left = writes_left

    def __getattr__(self, name: str) -> Any:
        call = getattr(self._original, name)
        if name not in ("commit", "put", "delete"):
            return call

        async def counted(*args: Any, **named: Any) -> Any:
            if self._writes_left[0] == 0:
                raise ConnectionError("the process died")
            self._writes_left[0] -= 1
            return await call(*args, **named)

        return counted


def test_a_deletion_that_was_cut_short_is_finished() -> None:
    outcomes: list[str] = []

    async def scenario(process: Process) -> None:
        topic = await load(process)
        await topic.ledger.create_cursor("sub", EARLIEST, {})
        for _ in range(3):
            await topic.publish_confirmed(11)
        await topic.ledger.close()
        ctx, writes_left = topic.ctx, [len(outcomes)]
        dying = replace(
            ctx,
            metadata=_CutShort(ctx.metadata, writes_left),
            ledgers=_CutShort(ctx.ledgers, writes_left),
        )
        try:
            await delete_managed_ledger(dying, TOPIC)
            outcomes.append("done")
        except ConnectionError:
            outcomes.append("cut")
        if await managed_ledger_exists(ctx, TOPIC):
            again = await load_again(ctx)
            assert await again.read_all() == topic.listener.confirmed
            return
        await finish_intents(ctx)
        assert {key for key in process.world.metadata.dump() if "/counters/" not in key} == set()

    while not outcomes or outcomes[-1] == "cut":
        simulated(scenario)
    assert len(outcomes) > 4, "the deletion takes several writes"
