"""What a topic sees of its managed ledger: publishing, rolls, reading, its head."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import replace
from typing import cast

import pytest
from magnetar.common.errors import (
    Backpressure,
    LedgerClosed,
    TopicNotFound,
    TopicTerminated,
)
from magnetar.common.metadata.values import TERMINATED
from magnetar.common.naming.position import EARLIEST, LATEST, Position
from magnetar.ledger.ledger_store import LedgerWriter
from magnetar.ledger.managed_ledger import (
    finish_intents,
)

from tests.simulation.power_loss import Process
from tests.unit.ledger.managed_ledger.harness import (
    HEAD,
    ROLL_AT_10,
    head_of,
    keys_of,
    ledger_ids,
    load,
    load_again,
    simulated,
    until,
)


def test_published_entries_are_confirmed_in_order_and_read_back() -> None:
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


def test_tail_is_cached_only_with_active_cursors() -> None:
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


def test_terminated_topic_refuses_entries_under_any_owner() -> None:
    async def scenario(process: Process) -> None:
        topic = await load(process)
        await topic.publish_confirmed(3)
        topic.publish()
        topic.ledger.seal()
        with pytest.raises(TopicTerminated):
            topic.publish()
        await until(lambda: len(topic.listener.confirmed) == 4)
        last = await topic.ledger.terminate()
        assert last == topic.listener.confirmed[-1][0]
        assert await topic.ledger.terminate() == last
        assert topic.ledger.terminated
        for _ in range(2):
            process.world.kill()
            topic = await load(process, create=False)
            assert topic.ledger.terminated
            with pytest.raises(TopicTerminated):
                topic.publish()
            assert topic.ledger.last_confirmed == last
            assert len(await topic.read_all()) == 4
        head = head_of(process.world)
        assert (head.terminated.last_ledger_id, head.terminated.last_entry_id) == last
        assert head.format.incompatible_features == TERMINATED
        await topic.ledger.create_cursor("still", last, {})
        await topic.ledger.close()

    simulated(scenario)


def test_a_topic_that_is_only_sealed_is_not_terminated() -> None:
    async def scenario(process: Process) -> None:
        topic = await load(process)
        topic.ledger.seal()
        process.world.kill()
        again = await load(process, create=False)
        await again.publish_confirmed(1)

    simulated(scenario)


def test_the_topic_epoch_and_properties_are_kept() -> None:
    async def scenario(process: Process) -> None:
        topic = await load(process)
        assert topic.ledger.topic_epoch == 0
        epochs = await asyncio.gather(*(topic.ledger.raise_topic_epoch() for _ in range(2)))
        assert list(epochs) == [1, 2]
        await topic.ledger.change_properties(lambda _: {"new": "one"})
        await topic.publish_confirmed(11)
        again = await load_again(topic.ctx)
        assert again.ledger.topic_epoch == 2
        assert again.ledger.properties == {"new": "one"}
        assert await finish_intents(topic.ctx) == 0

    simulated(scenario)


def test_all_who_close_it_at_once_return() -> None:
    async def scenario(process: Process) -> None:
        topic = await load(process)
        await topic.publish_confirmed()
        topic.publish(3)
        async with asyncio.timeout(5):
            await asyncio.gather(topic.ledger.close(), topic.ledger.close(), topic.ledger.close())
        assert len(topic.listener.confirmed) == 4

    simulated(scenario)


def test_close_completes_with_acknowledgments_in_flight() -> None:
    """Their flush is confirmed, and there is nothing left to write for whoever came meanwhile."""

    async def scenario(process: Process) -> None:
        topic = await load(process)
        cursor = await topic.ledger.create_cursor("s", EARLIEST, {})
        for turns in range(30):
            [position] = await topic.publish_confirmed()
            cursor.ack(*position)
            first = asyncio.create_task(topic.flushed())
            await asyncio.sleep(0)
            second = asyncio.create_task(topic.flushed())
            for _ in range(turns):
                await asyncio.sleep(0)
            async with asyncio.timeout(5):
                await asyncio.gather(first, second, *(topic.ledger.close() for _ in range(3)))
            topic = await load_again(topic.ctx)
            cursor = topic.ledger.cursors["s"]

    simulated(scenario)


def test_concurrent_closes_both_return() -> None:
    async def scenario(process: Process) -> None:
        topic = await load(process)
        writer = _SlowToClose()
        topic.ledger._cursor_ledger.writer = cast("LedgerWriter", writer)
        first = asyncio.create_task(topic.ledger.close())
        await until(lambda: writer.closing)
        second = asyncio.create_task(topic.ledger.close())
        writer.closed.set()
        async with asyncio.timeout(5):
            await asyncio.gather(first, second)

    simulated(scenario)


class _SlowToClose:
    """A writer that is closed when the test says so."""

    def __init__(self) -> None:
        self.closing = False
        self.closed = asyncio.Event()

    async def close(self) -> None:
        self.closing = True
        await self.closed.wait()
