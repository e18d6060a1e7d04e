from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace

from magnetar.common.naming.position import EARLIEST, Position
from magnetar.ledger.managed_ledger.delayed_index import HEAP_ENTRIES_MAX
from magnetar.ledger.managed_ledger.topic_delays import TopicDelays
from magnetar.sim.loop import SimLoop
from pyroaring import BitMap

from tests.simulation.power_loss import Process
from tests.unit.ledger.managed_ledger.harness import ROLL_AT_10, Topic, load, load_again, simulated, until

ONE_LEDGER = replace(ROLL_AT_10, ledger_entries_max=100_000)


class Subscription:
    """Writes down what it is told, and when."""

    def __init__(self, topic: Topic) -> None:
        self.clock = topic.ctx.clock
        self.due: list[tuple[int, int]] = []
        self.due_ms: list[int] = []
        self.forgotten: dict[int, list[int]] = {}
        self.delays = topic.ledger.delayed_entries()
        self.delays.listen(self)

    def on_due(self, entries: Sequence[tuple[int, int]]) -> None:
        self.due += entries
        self.due_ms += [self.clock.wall_ms()] * len(entries)

    def on_forgotten(self, entries: Mapping[int, BitMap]) -> None:
        self.forgotten = {ledger_id: list(ids) for ledger_id, ids in entries.items()}


async def with_cursor(process: Process, entries: int = 10) -> tuple[Topic, int, int]:
    """A topic with a subscription and one ledger; (topic, that ledger's id, the present time)."""
    topic = await load(process, ONE_LEDGER)
    await topic.ledger.create_cursor("sub", EARLIEST, {})
    positions = await topic.publish_confirmed(entries)
    return topic, positions[0].ledger_id, topic.ctx.clock.wall_ms()


def hold_many(delays: TopicDelays, count: int, ledger_id: int, first_ms: int) -> None:
    for entry_id in range(count):
        delays.hold(first_ms + entry_id, ledger_id, entry_id)
    delays.settle()
    while delays._unencoded:
        delays.settle()


def test_a_topic_without_delayed_entries_has_none_of_it() -> None:
    async def scenario(process: Process) -> None:
        topic, *_ = await with_cursor(process)
        assert topic.ledger.delays is None
        await topic.ledger.close()
        topic = await load_again(topic.ctx)
        assert topic.ledger.delays is None

    simulated(scenario)


def test_every_subscription_is_told_at_the_time_of_each_entry_and_never_before() -> None:
    async def scenario(process: Process) -> None:
        topic, ledger_id, now = await with_cursor(process)
        one, other = Subscription(topic), Subscription(topic)
        times = {0: now + 5_000, 1: now + 1_503, 2: now + 1_500, 3: now + 60_000}
        for entry_id, time_ms in times.items():
            one.delays.hold(time_ms, ledger_id, entry_id)
        one.delays.hold(times[2], ledger_id, 2)
        await asyncio.sleep(61)
        assert one.due == other.due == [(ledger_id, entry_id) for entry_id in (2, 1, 0, 3)]
        for (_, entry_id), told_ms in zip(one.due, one.due_ms, strict=True):
            assert 0 <= told_ms - times[entry_id] <= 2, "to the millisecond"

    simulated(scenario)


def test_a_step_of_the_wall_clock_is_noticed_within_a_tick() -> None:
    async def scenario(process: Process) -> None:
        topic, ledger_id, now = await with_cursor(process)
        sub = Subscription(topic)
        sub.delays.hold(now + 3_600_000, ledger_id, 0)
        steps = [0]
        sub.delays.now_ms = lambda: topic.ctx.clock.wall_ms() + steps[0]
        await asyncio.sleep(5)
        steps[0] = 3_600_000
        await asyncio.sleep(1.1)
        assert sub.due == [(ledger_id, 0)]

    simulated(scenario)


def test_removed_listener_is_not_called() -> None:
    async def scenario(process: Process) -> None:
        topic, ledger_id, now = await with_cursor(process)
        sub = Subscription(topic)
        sub.delays.hold(now + 100, ledger_id, 0)
        sub.delays.unlisten(sub)
        await asyncio.sleep(1)
        assert sub.due == []
        assert not sub.delays.index

    simulated(scenario)


def test_the_index_is_there_after_a_clean_stop_without_reading_an_entry() -> None:
    async def scenario(process: Process) -> None:
        topic, ledger_id, now = await with_cursor(process)
        delays = topic.ledger.delayed_entries()
        for entry_id in range(10):
            delays.hold(now + 60_000 + entry_id, ledger_id, entry_id)
        await topic.ledger.close()
        topic = await load_again(topic.ctx)
        assert topic.ledger.delays is not None
        assert list(topic.ledger.delays.index.entries_of(ledger_id) or ()) == list(range(10))
        sub = Subscription(topic)
        await asyncio.sleep(58)
        assert sub.due == []
        await asyncio.sleep(5)
        assert sub.due == [(ledger_id, entry_id) for entry_id in range(10)]
        assert min(sub.due_ms) >= now + 60_000

    simulated(scenario)


def test_after_a_crash_what_was_written_is_known_and_the_rest_is_read_again() -> None:
    async def scenario(process: Process) -> None:
        count = HEAP_ENTRIES_MAX + 100
        topic, ledger_id, now = await with_cursor(process, count)
        delays = topic.ledger.delayed_entries()
        hold_many(delays, HEAP_ENTRIES_MAX, ledger_id, now + 3_600_000)
        await until(lambda: all(chunk.entry_id >= 0 for chunk in delays.index.chunks()))
        for entry_id in range(HEAP_ENTRIES_MAX, count):
            delays.hold(now + 7_200_000, ledger_id, entry_id)
        process.world.kill()
        topic = await load(process, ONE_LEDGER, create=False)
        assert topic.ledger.delays is not None
        known = topic.ledger.delays.index.entries_of(ledger_id) or BitMap()
        assert known == BitMap(range(HEAP_ENTRIES_MAX))
        assert topic.ledger.delays.index.byte_size < 20_000, "by chunks, not by entries"

    simulated(scenario)


def test_more_entries_due_at_one_instant_than_fit_memory_all_come_in_order() -> None:
    async def scenario(process: Process) -> None:
        topic, ledger_id, now = await with_cursor(process)
        sub, count, due_ms = Subscription(topic), 4 * HEAP_ENTRIES_MAX, now + 20_000
        for entry_id in range(count):
            sub.delays.hold(due_ms, ledger_id, entry_id)
            if entry_id % 1_000 == 0:
                sub.delays.settle()
                await asyncio.sleep(0)
        await until(lambda: topic.ctx.clock.wall_ms() >= due_ms - 100)
        assert sub.delays.index.byte_size < 2 * 56 * HEAP_ENTRIES_MAX, "not all of them"
        await until(lambda: len(sub.due) >= count)
        assert sub.due == [(ledger_id, entry_id) for entry_id in range(count)]
        assert sub.due_ms[0] >= due_ms
        assert sub.due_ms[-1] < due_ms + 2_000

    simulated(scenario)


def test_chunks_move_along_when_the_cursor_ledger_rolls_and_come_back_in_time() -> None:
    config = replace(ONE_LEDGER, cursor_ledger_entries_max=30)

    async def scenario(process: Process) -> None:
        topic = await load(process, config)
        cursor = await topic.ledger.create_cursor("sub", EARLIEST, {})
        (first, *_) = await topic.publish_confirmed(HEAP_ENTRIES_MAX)
        now = topic.ctx.clock.wall_ms()
        sub = Subscription(topic)
        hold_many(sub.delays, HEAP_ENTRIES_MAX, first.ledger_id, now + 3_600_000)
        await until(lambda: all(chunk.entry_id >= 0 for chunk in sub.delays.index.chunks()))
        before = topic.ledger._head.decode().cursor_ledger.id
        for _ in range(60):
            cursor.count_redelivery(*topic.ledger.last_confirmed)
            await topic.flushed()
        await until(lambda: topic.ledger._head.decode().cursor_ledger.id != before)
        assert topic.ledger._head.decode().cursor_ledger.id < before + 20, "and does not roll for its chunks"
        assert all(chunk.entry_id >= 0 for chunk in sub.delays.index.chunks())
        process.world.kill()
        topic = await load(process, config, create=False)
        # The first durable change after a takeover makes a new cursor ledger as well.
        await topic.ledger.create_cursor("other", EARLIEST, {})
        sub = Subscription(topic)
        assert sub.delays.index.count == HEAP_ENTRIES_MAX
        await asyncio.sleep(3_600 + 20)
        assert sub.due == [(first.ledger_id, entry_id) for entry_id in range(HEAP_ENTRIES_MAX)]
        lateness = [told - (now + 3_600_000 + n) for n, told in enumerate(sub.due_ms)]
        assert min(lateness) >= 0
        assert max(lateness) <= 10
        assert sub.forgotten == {}

    simulated(scenario)


def test_a_lost_record_costs_reading_and_nothing_else() -> None:
    async def scenario(process: Process) -> None:
        topic, ledger_id, now = await with_cursor(process)
        sub = Subscription(topic)
        for entry_id in range(10):
            sub.delays.hold(now + 60_000, ledger_id, entry_id)
        sub.delays._unencoded += sub.delays.index.seal(now, everything=True)
        sub.delays.settle()
        await topic.flushed()
        (chunk,) = sub.delays.index.chunks()
        chunk.entry_id = 10_000
        sub.delays.hold(now + 90_000, ledger_id, 3)
        await asyncio.sleep(70)
        assert sub.due == []
        assert sub.forgotten == {ledger_id: list(range(10))}
        assert not sub.delays.index
        sub.delays.hold(now + 100_000, ledger_id, 5)
        await asyncio.sleep(40)
        assert sub.due == [(ledger_id, 5)]
        cursor = topic.ledger.cursors["sub"]
        assert cursor.backlog() == 10

    simulated(scenario)


def test_chunks_that_cannot_be_copied_do_not_keep_the_cursors_from_going_on() -> None:
    async def scenario(process: Process) -> None:
        topic, ledger_id, now = await with_cursor(process)
        sub = Subscription(topic)
        sub.delays.hold(now + 600_000, ledger_id, 4)
        await topic.ledger.close()
        topic = await load_again(topic.ctx)
        sub = Subscription(topic)
        (chunk,) = sub.delays.index.chunks()
        chunk.entry_id = 10_000
        cursor = topic.ledger.cursors["sub"]
        assert cursor.ack(ledger_id, 0)
        await topic.flushed()
        assert sub.forgotten == {ledger_id: [4]}
        await topic.ledger.close()
        topic = await load_again(topic.ctx)
        assert topic.ledger.cursors["sub"].mark_delete == Position(ledger_id, 0)

    simulated(scenario)


def test_a_close_writes_the_index_down_also_while_a_flush_is_under_way() -> None:
    async def scenario(process: Process) -> None:
        topic, ledger_id, now = await with_cursor(process)
        topic.ledger.delayed_entries().hold(now + 600_000, ledger_id, 7)
        topic.ledger.cursors["sub"].ack(ledger_id, 0)
        topic.ledger.flush_cursors()
        await topic.ledger.close()
        topic = await load_again(topic.ctx)
        assert topic.ledger.delays is not None
        assert list(topic.ledger.delays.index.entries_of(ledger_id) or ()) == [7]

    simulated(scenario)


def test_the_index_forgets_ledgers_that_are_trimmed() -> None:
    async def scenario(process: Process) -> None:
        topic = await load(process)
        cursor = await topic.ledger.create_cursor("sub", EARLIEST, {})
        positions = await topic.publish_confirmed(10)
        await asyncio.sleep(0.5)
        positions += await topic.publish_confirmed(3)
        sub = Subscription(topic)
        for position in positions:
            sub.delays.hold(topic.ctx.clock.wall_ms() + 60_000, *position)
        first, last = positions[0].ledger_id, positions[-1].ledger_id
        assert sub.delays.index.ledger_ids == [first, last]
        cursor.ack_cumulative(Position(last, 0))
        await topic.flushed()
        await until(lambda: sub.delays.index.ledger_ids == [last])
        assert sub.delays.index.count == 3

    simulated(scenario)


def test_nothing_goes_on_after_a_close() -> None:
    async def scenario(process: Process) -> None:
        topic, ledger_id, now = await with_cursor(process)
        sub = Subscription(topic)
        sub.delays.hold(now + 500, ledger_id, 4)
        await topic.ledger.close()
        loop = asyncio.get_running_loop()
        assert isinstance(loop, SimLoop)
        await asyncio.sleep(5)
        assert sub.due == []

    simulated(scenario)
