"""Compaction of topics whose ledgers were offloaded, and views beside objects."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from magnetar.common.errors import StorageError
from magnetar.common.naming.position import EARLIEST, Position

from tests.simulation.power_loss import Process
from tests.unit.ledger.compacted.compacted_topic import CompactedTopic, read_view
from tests.unit.ledger.compacted.test_topic_compaction import check_ledgers, entries, view_of
from tests.unit.ledger.managed_ledger.harness import ledger_ids, load, simulated, until
from tests.unit.ledger.managed_ledger.offloading import AT_ONCE, Cold, offload, with_objects


async def take_away(topic: CompactedTopic, cold: Cold, ledgers: Sequence[int]) -> None:
    """Offloads these ledgers; storage lets them go."""
    for ledger_id in ledgers:
        await offload(topic.topic, cold, ledger_id)
    ledger = topic.topic.ledger
    ledger.offload = AT_ONCE
    await ledger.refresh_offload()
    while (due := ledger.due_to_leave()) is not None:
        assert await ledger.leave_bookies(await cold.verify(due))


async def read_on(topic: CompactedTopic, after: Position) -> dict[Position, bytes]:
    """Reads the topic's own entries after a position, as a reader does at the end of the view."""
    ledger = topic.topic.ledger
    found: dict[Position, bytes] = {}
    while (at := ledger.next_position(after)) is not None:
        for run in (await ledger.read(at, 7, 1 << 20)).runs:
            for number, data in enumerate(run.entries):
                after = Position(run.ledger_id, run.first_entry_id + number)
                found[after] = data
    return found


def test_a_view_that_ends_inside_an_offloaded_ledger_goes_on_with_its_objects() -> None:
    async def scenario(process: Process) -> None:
        topic = CompactedTopic(await load(process))
        cold = with_objects(topic.topic)
        await topic.topic.ledger.create_cursor("keeps", EARLIEST, {})
        await topic.publish(*entries(0, 35, 12))
        first, second, *_ = ledger_ids(topic.topic)
        middle = next(each.position for each in topic.history if each.position == (second, 4))
        await topic.compact(middle)
        await take_away(topic, cold, [first, second])
        await topic.load_again()
        await topic.check()
        assert topic.topic.ledger.compaction.horizon == middle
        reads = cold.reads
        later = {each.position: each.data for each in topic.history if each.position > middle}
        assert await read_on(topic, middle) == later
        assert cold.reads > reads
        reads = cold.reads
        await read_view(topic.topic)
        assert cold.reads == reads, "the view is read without the objects that it replaces"
        await topic.compact()
        await topic.check()

    simulated(scenario)


def test_a_view_outlives_the_objects_of_its_entries() -> None:
    async def scenario(process: Process) -> None:
        topic = CompactedTopic(await load(process))
        cold = with_objects(topic.topic)
        await topic.publish(*entries(0, 35, 12))
        await take_away(topic, cold, ledger_ids(topic.topic)[:2])
        await topic.compact()
        topic.topic.ledger.trim()
        await until(lambda: len(ledger_ids(topic.topic)) <= 1)
        cold.away = True
        await topic.check()
        await topic.publish(*entries(35, 5, 3))
        await topic.compact(rewrite=True)
        await topic.check()
        check_ledgers(process)

    simulated(scenario)


def test_a_run_whose_objects_are_away_leaves_the_old_view_and_goes_on_later() -> None:
    async def scenario(process: Process) -> None:
        topic = CompactedTopic(await load(process))
        cold = with_objects(topic.topic)
        await topic.publish(*entries(0, 12, 5))
        await topic.compact(topic.history[3].position)
        before = view_of(process)
        await topic.publish(*entries(12, 25, 5))
        await take_away(topic, cold, ledger_ids(topic.topic)[:2])
        cold.away = True
        with pytest.raises(StorageError, match="away"):
            await topic.compact()
        assert view_of(process) == before
        check_ledgers(process)
        cold.away = False
        await topic.compact()
        await topic.check()

    simulated(scenario)


def test_offloaded_ledgers_are_compacted_from_their_objects() -> None:
    async def scenario(process: Process) -> None:
        topic = CompactedTopic(await load(process))
        cold = with_objects(topic.topic)
        await topic.publish(*entries(0, 35, 12))
        for ledger_id in ledger_ids(topic.topic)[:2]:
            await offload(topic.topic, cold, ledger_id)
        ledger = topic.topic.ledger
        ledger.offload = AT_ONCE
        await ledger.refresh_offload()
        while (due := ledger.due_to_leave()) is not None:
            assert await ledger.leave_bookies(await cold.verify(due))
        reads = cold.key_reads
        await topic.compact()
        assert cold.key_reads > reads
        await topic.check()

    simulated(scenario)
