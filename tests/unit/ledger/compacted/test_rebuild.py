"""Damaged segments are made anew from the topic's own entries, where it still has them."""

from __future__ import annotations

import asyncio

import pytest
from magnetar.common.errors import EntryUnreadable, LedgerError
from magnetar.common.naming.position import EARLIEST, Position
from magnetar.ledger.compacted import page as pages
from magnetar.ledger.compacted.rebuild import REBUILT
from magnetar.ledger.compacted.view import View
from magnetar.ledger.ledger_store import LedgerReader, LedgerRef, Run
from magnetar.ledger.managed_ledger.context import ReadResult
from magnetar.ledger.managed_ledger.storage_reads import TailReads

from tests.simulation.compaction_workload import CompactionChecker
from tests.simulation.power_loss import KEYS, Process
from tests.unit.ledger.compacted.compacted_topic import CompactedTopic, read_view
from tests.unit.ledger.compacted.history import Chunk, Entry, batch, chunk, single
from tests.unit.ledger.managed_ledger.harness import load, simulated


class DamagedReader:
    """A reader of a ledger whose only copy of one page is damaged."""

    copies = 1

    def __init__(self, reader: LedgerReader, damaged: int) -> None:
        self.reader = reader
        self.damaged = damaged

    @property
    def ref(self) -> LedgerRef:
        return self.reader.ref

    @property
    def last_confirmed(self) -> int:
        return self.reader.last_confirmed

    async def read(self, first: int, last: int, max_bytes: int) -> list[Run]:
        if first == self.damaged:
            raise EntryUnreadable("a flipped bit")
        return await self.reader.read(first, last, max_bytes)


@pytest.fixture(autouse=True)
def small_pages_and_segments_that_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pages, "PAGE_BYTES_MAX", 300)
    monkeypatch.setattr("magnetar.ledger.compacted.merge_plan.SMALL_BYTES", 1)


def entries(first: int, count: int, keys: int) -> list[Entry]:
    return [single(number, f"key-{number % keys}", b"%d" % number) for number in range(first, first + count)]


async def kept_topic(process: Process) -> CompactedTopic:
    """A topic of which a subscription keeps all entries, with a view of three segments."""
    topic = CompactedTopic(await load(process))
    await topic.topic.ledger.create_cursor("keeps", EARLIEST, {})
    await topic.publish(*entries(0, 40, 30))
    await topic.compact()
    await topic.publish(
        *[single(50 + at, f"second-{at}", b"2") for at in range(12)], single(70, "key-3", b"")
    )
    await topic.compact()
    await topic.publish(batch(80, [("key-5", b"3"), ("third", b"3"), ("second-1", b"")]))
    await topic.compact()
    assert len(view_of(topic).segments) == 3
    return topic


def view_of(topic: CompactedTopic) -> View:
    view = topic.topic.ledger.compaction._view
    assert view is not None
    return view


async def damage(topic: CompactedTopic, number: int, page_id: int = 0) -> None:
    segment = view_of(topic).segments[number]
    segment.reader = DamagedReader(await view_of(topic).reader(segment), page_id)
    view_of(topic).cache.clear()


async def hole(topic: CompactedTopic) -> list[Position]:
    compaction = topic.topic.ledger.compaction
    return (await compaction.read(EARLIEST, 1000, 1 << 20)).unreadable


@pytest.mark.parametrize("number", [0, 1, 2])
def test_the_next_run_rebuilds_a_page_that_a_reader_found_damaged(number: int) -> None:
    async def scenario(process: Process) -> None:
        topic = await kept_topic(process)
        whole = await read_view(topic.topic)
        earlier = [segment.ref for segment in view_of(topic).segments[:number]]
        horizon = topic.topic.ledger.compaction.horizon
        await damage(topic, number)
        assert len(await hole(topic)) == 1
        assert topic.topic.ledger.compaction.figures.damaged == 1
        rebuilt = REBUILT._value.get()
        result = await topic.compact()
        assert result.figures.damaged == 0
        assert result.did_anything
        assert result.removed_messages == 0
        assert REBUILT._value.get() == rebuilt + 1
        assert topic.topic.ledger.compaction.horizon == horizon
        assert {at: run.entries for at, run in (await read_view(topic.topic)).items()} == {
            at: run.entries for at, run in whole.items()
        }
        await topic.check()
        assert [segment.ref for segment in view_of(topic).segments[:number]] == earlier, "these were sound"
        assert not (await topic.compact()).did_anything
        CompactionChecker().check_ledgers(process.world.metadata)

    simulated(scenario)


def test_new_entries_and_damaged_ones_are_compacted_together() -> None:
    async def scenario(process: Process) -> None:
        topic = await kept_topic(process)
        await damage(topic, 1)
        assert await hole(topic)
        await topic.publish(single(90, "second-4", b"new"), single(91, "key-7", b""))
        await topic.compact()
        await topic.check()

    simulated(scenario)


def test_a_segment_that_is_lost_is_rebuilt_too() -> None:
    async def scenario(process: Process) -> None:
        topic = await kept_topic(process)
        lost = view_of(topic).segments[1].ref
        await process.metadata.delete(KEYS.ledger(lost.id))
        await topic.load_again()
        with pytest.raises(LedgerError):
            await read_view(topic.topic)
        await topic.compact()
        await topic.check()
        assert lost not in [segment.ref for segment in view_of(topic).segments]

    simulated(scenario)


def test_a_damaged_segment_stays_as_it_is_where_the_topic_was_trimmed() -> None:
    async def scenario(process: Process) -> None:
        topic = await kept_topic(process)
        await damage(topic, 0)
        assert await hole(topic)
        await topic.topic.ledger.delete_cursor("keeps")
        topic.topic.ledger.trim()
        await asyncio.sleep(1)
        damaged = view_of(topic).segments[0].ref
        assert topic.topic.ledger.first_position() > view_of(topic).segments[0].first
        await topic.publish(single(90, "new", b"1"))
        await topic.compact()
        assert view_of(topic).segments[0].ref == damaged, "what is sound in it is not given up"
        assert len(await hole(topic)) == 1

    simulated(scenario)


def test_nothing_is_trimmed_that_a_rebuild_still_reads() -> None:
    async def scenario(process: Process) -> None:
        topic = await kept_topic(process)
        await damage(topic, 0)
        assert await hole(topic)
        compaction = topic.topic.ledger.compaction
        run = asyncio.create_task(topic.compact())
        await asyncio.sleep(0)
        held = compaction.holds_back(None)
        assert held is not None
        assert held < view_of(topic).segments[0].first
        await topic.topic.ledger.delete_cursor("keeps")
        topic.topic.ledger.trim()
        await run
        await topic.check()
        assert compaction.holds_back(None) == compaction.horizon

    simulated(scenario)


def test_a_topic_that_lacks_an_entry_keeps_the_damaged_view(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(process: Process) -> None:
        topic = await kept_topic(process)
        whole = await read_view(topic.topic)
        await damage(topic, 1)
        (lost,) = await hole(topic)
        read = TailReads.read

        async def unreadable(
            self: TailReads, start: Position, limit: Position, entries_max: int, bytes_max: int
        ) -> ReadResult:
            found = await read(self, start, limit, entries_max, bytes_max)
            found.unreadable.append(start)
            return found

        monkeypatch.setattr(TailReads, "read", unreadable)
        assert not (await topic.compact()).did_anything
        found = await topic.topic.ledger.compaction.read(EARLIEST, 1000, 1 << 20)
        assert found.unreadable == [lost]
        assert sum(len(run.entries) for run in found.runs) < len(whole)

    simulated(scenario)


def test_a_message_whose_first_chunk_is_in_an_earlier_segment_is_not_given_up() -> None:
    async def scenario(process: Process) -> None:
        topic = CompactedTopic(await load(process))
        await topic.topic.ledger.create_cursor("keeps", EARLIEST, {})
        await topic.publish(chunk(1, "big", b"first half", Chunk("u", 0, 2)), *entries(2, 5, 5))
        await topic.compact()
        await topic.publish(chunk(9, "big", b"second half", Chunk("u", 1, 2)), *entries(10, 5, 5))
        await topic.compact()
        assert len(view_of(topic).segments) == 2
        whole = await read_view(topic.topic)
        await damage(topic, 1)
        assert await hole(topic)
        assert not (await topic.compact()).did_anything
        view_of(topic).segments[1].reader = None
        assert (await read_view(topic.topic)).keys() == whole.keys()

    simulated(scenario)


def test_a_merge_that_finds_damage_fails_once_and_the_next_run_rebuilds() -> None:
    async def scenario(process: Process) -> None:
        topic = await kept_topic(process)
        await damage(topic, 1)
        with pytest.raises(EntryUnreadable):
            await topic.compact(rewrite=True)
        await topic.compact(rewrite=True)
        await topic.check()
        assert len(view_of(topic).segments) == 1

    simulated(scenario)
