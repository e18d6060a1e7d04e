"""A topic's compaction beside what else happens to a topic: trimming, takeover, deletion, damage."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

import pytest
from magnetar.common.errors import (
    CompactionRunning,
    DataCorruption,
    EntryUnreadable,
    LedgerClosed,
    LogFailed,
    MetadataError,
    NoSuchLedger,
    OwnershipLost,
    StorageError,
)
from magnetar.common.metadata import metadata_pb2
from magnetar.common.metadata.store import Op, Put, Versioned
from magnetar.common.metadata.values import COMPACTED, CompactedView, decode
from magnetar.common.naming.position import EARLIEST, Position
from magnetar.ledger.compacted import page as pages
from magnetar.ledger.compacted.figures import CompactionProgress
from magnetar.ledger.compacted.segment import SegmentIndex, read_index
from magnetar.ledger.ledger_store import LedgerReader, LedgerRef, Run
from magnetar.ledger.managed_ledger import compaction_run, delete_managed_ledger, finish_intents
from magnetar.ledger.managed_ledger.lost_segments import LostSegment, lost_segments
from magnetar.ledger.managed_ledger.page_ledger import KEEP_INTERVAL_S, PageLedger

from tests.simulation.compaction_workload import CompactionChecker
from tests.simulation.power_loss import KEYS, Process
from tests.unit.ledger.compacted.compacted_topic import CompactedTopic, read_view, settings
from tests.unit.ledger.compacted.history import Entry, batch, single
from tests.unit.ledger.managed_ledger.harness import (
    TOPIC,
    head_of,
    keys_of,
    ledger_ids,
    load,
    simulated,
    until,
)


def entries(first: int, count: int, keys: int, size: int = 0) -> list[Entry]:
    return [
        single(number, f"key-{number % keys}", b"%d" % number + bytes(size))
        for number in range(first, first + count)
    ]


async def compacted(process: Process, count: int = 30, keys: int = 4) -> CompactedTopic:
    """A topic with a view of its first entries."""
    topic = CompactedTopic(await load(process))
    await topic.publish(*entries(0, count, keys))
    await topic.compact()
    return topic


def view_of(process: Process) -> CompactedView:
    (key,) = keys_of(process.world, "compacted-views")
    return decode(CompactedView, process.world.metadata.dump()[key])


def ledger_ref(ref: metadata_pb2.LedgerRef) -> LedgerRef:
    return LedgerRef(ref.id, ref.key)


def check_ledgers(process: Process) -> None:
    CompactionChecker().check_ledgers(process.world.metadata)


def test_trimming_stops_at_the_horizon_and_the_view_outlives_what_was_trimmed() -> None:
    async def scenario(process: Process) -> None:
        topic = CompactedTopic(await load(process))
        await topic.publish(*entries(0, 35, 4))
        topic.topic.ledger.trim()
        await asyncio.sleep(1)
        assert len(ledger_ids(topic.topic)) == 4, "without a view everything is held"
        await topic.compact(topic.history[22].position)
        await until(lambda: len(ledger_ids(topic.topic)) == 2)
        await topic.check()
        await topic.load_again()
        await topic.check()
        topic.topic.ledger.compaction.hold(False)
        await until(lambda: not ledger_ids(topic.topic))
        await topic.check()

    simulated(scenario)


def test_a_topic_with_a_view_is_held_until_told_otherwise() -> None:
    async def scenario(process: Process) -> None:
        topic = await compacted(process)
        await topic.publish(*entries(30, 30, 4))
        await topic.load_again()
        compaction = topic.topic.ledger.compaction
        assert compaction.held
        topic.topic.ledger.trim()
        await asyncio.sleep(1)
        assert topic.topic.ledger.first_position() <= Position(*topic.history[30].position)

    simulated(scenario)


def test_nothing_is_trimmed_under_a_run_without_a_hold() -> None:
    async def scenario(process: Process) -> None:
        topic = CompactedTopic(await load(process))
        await topic.publish(*entries(0, 35, 4))
        run = asyncio.create_task(topic.compact())
        await asyncio.sleep(0)
        assert topic.topic.ledger.compaction.running
        topic.topic.ledger.compaction.hold(False)
        topic.topic.ledger.trim()
        await run
        await topic.check()

    simulated(scenario)


def test_only_one_run_at_a_time() -> None:
    async def scenario(process: Process) -> None:
        topic = await compacted(process)
        await topic.publish(*entries(30, 3, 2))
        run = asyncio.create_task(topic.compact())
        await asyncio.sleep(0)
        with pytest.raises(CompactionRunning):
            await topic.compact()
        with pytest.raises(CompactionRunning):
            await topic.topic.ledger.compaction.remove()
        await run
        await topic.check()

    simulated(scenario)


def test_a_removed_view_leaves_nothing_and_can_be_made_again() -> None:
    async def scenario(process: Process) -> None:
        topic = await compacted(process)
        compaction = topic.topic.ledger.compaction
        assert head_of(process.world).format.incompatible_features & COMPACTED
        await compaction.remove()
        await compaction.remove()
        assert (compaction.horizon, compaction.view_end, compaction.held) == (None, None, False)
        assert compaction.figures.ledger_id == -1
        assert not keys_of(process.world, "compacted-views")
        assert not keys_of(process.world, "intents")
        assert not head_of(process.world).format.incompatible_features & COMPACTED
        result = await compaction.read(EARLIEST, 10, 10)
        assert not result.runs
        assert await compaction.first_at_time(0) is None
        await topic.load_again()
        assert topic.topic.ledger.compaction.horizon is None
        await topic.publish(single(100, "key-1", b"new"))
        topic.history = topic.history[-1:]
        await topic.compact()
        check_ledgers(process)

    simulated(scenario)


def test_a_deleted_topic_takes_its_view_with_it() -> None:
    async def scenario(process: Process) -> None:
        topic = await compacted(process)
        await topic.topic.ledger.close()
        await delete_managed_ledger(topic.topic.ctx, TOPIC)
        for family in ("compacted-views", "ledgers", "intents", "topic-heads"):
            assert not keys_of(process.world, family), family

    simulated(scenario)


def test_a_topic_whose_view_is_lost_is_not_loaded_with_an_empty_one_and_can_be_deleted() -> None:
    async def scenario(process: Process) -> None:
        topic = await compacted(process)
        (key,) = keys_of(process.world, "compacted-views")
        await process.metadata.delete(key)
        with pytest.raises(DataCorruption, match="compacted view"):
            await topic.load_again()
        await delete_managed_ledger(topic.topic.ctx, TOPIC)
        assert not keys_of(process.world, "topic-heads")

    simulated(scenario)


def test_a_former_owner_names_no_view_and_its_ledgers_are_cleaned_up() -> None:
    async def scenario(process: Process) -> None:
        topic = await compacted(process)
        await topic.publish(*entries(30, 30, 4))
        former = topic.topic
        run = asyncio.create_task(topic.compact())
        await asyncio.sleep(0)
        await topic.load_again()
        with pytest.raises((OwnershipLost, LogFailed, MetadataError)):
            await run
        assert former.ledger.compaction.horizon == topic.topic.ledger.compaction.horizon
        await topic.compact()
        await topic.check()
        await asyncio.sleep(1)
        await finish_intents(topic.topic.ctx)
        check_ledgers(process)
        assert not keys_of(process.world, "intents")

    simulated(scenario)


@pytest.mark.parametrize("applied", [True, False])
def test_a_lost_answer_to_the_naming_leaves_either_view(applied: bool) -> None:
    async def scenario(process: Process) -> None:
        topic = await compacted(process)
        await topic.publish(*entries(30, 30, 4))
        metadata, commit = process.metadata, process.metadata.commit

        async def losing(ops: Sequence[Op]) -> int:
            if any(isinstance(op, Put) and "compacted-views" in op.key for op in ops):
                metadata.commit = commit  # type: ignore[method-assign]
                metadata.lose_next_outcome(applied=applied)
            return await commit(ops)

        metadata.commit = losing  # type: ignore[method-assign]
        if applied:
            await topic.compact()
        else:
            with pytest.raises(MetadataError, match="no effect"):
                await topic.compact()
        await topic.check()
        check_ledgers(process)
        assert not keys_of(process.world, "intents")
        await topic.compact()
        await topic.check()

    simulated(scenario)


def test_a_naming_whose_outcome_stays_unknown_deletes_no_ledger_in_use() -> None:
    """The answer is lost, and metadata cannot be asked what became of the view."""

    async def scenario(process: Process) -> None:
        topic = await compacted(process)
        await topic.publish(*entries(30, 30, 4))
        metadata, commit, get = process.metadata, process.metadata.commit, process.metadata.get

        async def away(key: str) -> Versioned | None:
            if "topic-heads" not in key:
                return await get(key)
            metadata.get = get  # type: ignore[method-assign]
            raise MetadataError("the metadata store cannot be reached")

        async def losing(ops: Sequence[Op]) -> int:
            if any(isinstance(op, Put) and "compacted-views" in op.key for op in ops):
                metadata.commit = commit  # type: ignore[method-assign]
                metadata.get = away  # type: ignore[method-assign]
                metadata.lose_next_outcome(applied=True)
            return await commit(ops)

        metadata.commit = losing  # type: ignore[method-assign]
        with pytest.raises(MetadataError, match="cannot be reached"):
            await topic.compact(rewrite=True)
        await asyncio.sleep(1)
        await topic.load_again()
        await topic.check()
        check_ledgers(process)

    simulated(scenario)


def test_a_cancelled_run_leaves_the_old_view_and_no_ledger() -> None:
    async def scenario(process: Process) -> None:
        topic = await compacted(process)
        for ticks in range(0, 60, 3):
            before = len(topic.history)
            await topic.publish(*entries(before, 10, 4))
            run = asyncio.create_task(topic.compact())
            for _ in range(ticks):
                await asyncio.sleep(0)
            await asyncio.sleep(ticks / 10_000)
            run.cancel()
            await asyncio.wait([run])
            await topic.check()
            await asyncio.sleep(0.1)
            check_ledgers(process)
        await topic.compact()
        await topic.check()
        assert not keys_of(process.world, "intents")

    simulated(scenario)


def test_a_run_stops_when_the_topic_closes() -> None:
    async def scenario(process: Process) -> None:
        topic = await compacted(process)
        await topic.publish(*entries(30, 30, 4))
        run = asyncio.create_task(topic.compact())
        await asyncio.sleep(0.0001)
        await topic.topic.ledger.close()
        with pytest.raises(StorageError):
            await run
        with pytest.raises((LedgerClosed, StorageError)):
            await topic.compact()
        await topic.load_again()
        await topic.check()

    simulated(scenario)


def test_a_ledger_that_was_cleaned_up_in_the_making_fails_the_run() -> None:
    async def scenario(process: Process) -> None:
        topic = await compacted(process)
        await topic.publish(*entries(30, 30, 4))

        async def slow(reader: LedgerReader) -> SegmentIndex:
            index = await read_index(reader)
            await finish_intents(topic.topic.ctx)
            return index

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(compaction_run, "read_index", slow)
            with pytest.raises(LogFailed, match="cleaned up"):
                await topic.compact()
        await topic.check()
        await topic.compact()
        await topic.check()

    simulated(scenario)


def test_a_long_run_keeps_its_ledgers_from_being_cleaned_up() -> None:
    async def scenario(process: Process) -> None:
        topic = await compacted(process)
        await topic.publish(*entries(30, 30, 4))
        close = PageLedger.close

        async def slow(self: PageLedger) -> None:
            for _ in range(10):
                await asyncio.sleep(KEEP_INTERVAL_S)
                await self.keep()
                await finish_intents(topic.topic.ctx, age_min_ms=60_000)
            await close(self)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(PageLedger, "close", slow)
            await topic.compact()
        await topic.check()

    simulated(scenario)


def test_a_segment_that_is_lost_is_an_error_and_never_an_empty_view() -> None:
    async def scenario(process: Process) -> None:
        topic = await compacted(process, 30, 25)
        await asyncio.sleep(1)  # all of it is trimmed
        ref = view_of(process).segments[0].ref
        await process.metadata.delete(KEYS.ledger(ref.id))
        await topic.load_again()
        with pytest.raises(NoSuchLedger):
            await read_view(topic.topic)
        await topic.publish(single(99, "new", b"new"))
        with pytest.raises(NoSuchLedger):
            await topic.compact(rewrite=True)

    simulated(scenario)


def test_lost_segments_are_named_with_their_topic() -> None:
    async def scenario(process: Process) -> None:
        topic = await compacted(process)
        assert await lost_segments(process.metadata, KEYS) == []
        (segment,) = view_of(process).segments
        await process.metadata.delete(KEYS.ledger(segment.ref.id))
        first, last = topic.history[26].position, topic.history[29].position
        found = await lost_segments(process.metadata, KEYS)
        assert found == [LostSegment(TOPIC, segment.ref.id, first, last, 4)]

    simulated(scenario)


def test_a_view_replaced_while_segments_are_looked_for_is_not_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(process: Process) -> None:
        topic = await compacted(process)
        listing = await process.metadata.children(KEYS.compacted_views_prefix)
        await topic.publish(single(99, "new", b"new"))
        await topic.compact(rewrite=True)

        async def earlier(prefix: str) -> object:
            assert prefix == KEYS.compacted_views_prefix
            return listing

        monkeypatch.setattr(process.metadata, "children", earlier)
        assert await lost_segments(process.metadata, KEYS) == []

    simulated(scenario)


def test_a_view_that_another_owner_replaced_ends_the_former_owner() -> None:
    async def scenario(process: Process) -> None:
        topic = await compacted(process)
        await topic.load_again()
        former = topic.topic  # without an open ledger, so nothing tells it of the takeover
        await topic.load_again()
        await topic.publish(*entries(30, 30, 4))
        await topic.compact(rewrite=True)
        assert not former.listener.lost
        with pytest.raises(NoSuchLedger):
            await read_view(former)
        await until(lambda: former.listener.lost)
        await topic.check()

    simulated(scenario)


@pytest.mark.parametrize("copies", [1, 3])
def test_a_damaged_page_is_a_hole_only_where_it_is_the_only_copy(
    copies: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pages, "PAGE_BYTES_MAX", 300)

    async def scenario(process: Process) -> None:
        topic = await compacted(process, 40, 30)
        whole = await read_view(topic.topic)
        await topic.load_again()
        view = topic.topic.ledger.compaction._view
        assert view is not None
        (segment,) = view.segments
        segment.reader = reader = DamagedReader(await view.reader(segment), 2, copies)
        view.cache.clear()
        if copies > 1:
            with pytest.raises(EntryUnreadable):
                await read_view(topic.topic)
            return
        result = await topic.topic.ledger.compaction.read(EARLIEST, 1000, 1 << 20)
        assert len(result.unreadable) == 1
        found = {
            Position(run.ledger_id, run.first_entry_id + number)
            for run in result.runs
            for number in range(len(run.entries))
        }
        assert found < set(whole)
        assert result.unreadable[0] not in found
        assert max(found) == max(whole), "what follows the hole is read"
        assert reader.refused

    simulated(scenario)


@dataclass
class DamagedReader:
    """A reader of a ledger with one damaged entry."""

    reader: LedgerReader
    damaged: int
    copies: int
    refused: int = 0

    @property
    def ref(self) -> LedgerRef:
        return self.reader.ref

    @property
    def last_confirmed(self) -> int:
        return self.reader.last_confirmed

    async def read(self, first: int, last: int, max_bytes: int) -> list[Run]:
        if first == self.damaged:
            self.refused += 1
            raise EntryUnreadable("a flipped bit")
        return await self.reader.read(first, last, max_bytes)


def test_reads_are_limited_and_go_on_by_position() -> None:
    async def scenario(process: Process) -> None:
        topic = await compacted(process, 30, 20)
        compaction = topic.topic.ledger.compaction
        assert compaction.horizon is not None
        result = await compaction.read(EARLIEST, 3, 1 << 20)
        assert sum(len(run.entries) for run in result.runs) == 3
        following = await compaction.read(result.next, 1000, 1)
        assert sum(len(run.entries) for run in following.runs) == 1
        assert following.runs[0].first_entry_id == result.next.entry_id
        end = Position(compaction.horizon.ledger_id, compaction.horizon.entry_id + 1)
        assert (await compaction.read(result.next, 1000, 1 << 20)).next == end
        assert (await compaction.read(end, 1000, 1 << 20)).runs == []
        assert (await read_view(topic.topic, 2)).keys() == (await read_view(topic.topic)).keys()

    simulated(scenario)


def test_a_position_is_found_by_publish_time() -> None:
    async def scenario(process: Process) -> None:
        topic = CompactedTopic(await load(process))
        times = []
        for number in range(6):
            await asyncio.sleep(1)
            times.append(process.clock.wall_ms())
            entry = single(number, f"key-{number % 4}", b"1")
            run = entry.run()
            run.publish_time_ms = times[-1]
            topic.topic.published += 1
            topic.topic.ledger.append(run, None)
            await topic.topic.published_all()
            entry.position = topic.topic.listener.confirmed[-1][0]
            topic.history.append(entry)
        await topic.compact()
        compaction = topic.topic.ledger.compaction
        assert await compaction.first_at_time(0) == topic.history[2].position
        assert await compaction.first_at_time(times[3] + 1) == topic.history[4].position
        assert await compaction.first_at_time(times[5] + 5_000) is None

    simulated(scenario)


def test_a_run_reports_what_it_did() -> None:
    async def scenario(process: Process) -> None:
        topic = CompactedTopic(await load(process))
        await topic.publish(*entries(0, 40, 8, 200))
        progress = CompactionProgress()
        compaction = topic.topic.ledger.compaction
        result = await compaction.run(topic.topic.ledger.read_limit(), settings(), progress)
        assert (result.entries_read, result.removed_messages, result.did_anything) == (40, 32, True)
        assert result.figures.entries == 8
        assert result.figures.byte_length == sum(len(entry.data) for entry in topic.history[-8:])
        assert result.bytes_written >= result.figures.byte_length
        assert progress.parts == 1
        assert compaction.figures == result.figures
        assert result.figures.ledger_id == view_of(process).segments[-1].ref.id
        (segment,) = view_of(process).segments
        pages_written = (await topic.topic.ctx.ledgers.open(ledger_ref(segment.ref))).last_confirmed + 1
        assert sum(progress.writes.counts) == pages_written > 3
        assert progress.writes.total_ms >= 0

    simulated(scenario)


def test_throttled_runs_take_their_time() -> None:
    async def scenario(process: Process) -> None:
        topic = CompactedTopic(await load(process))
        await topic.publish(*entries(0, 40, 8, 1_000))
        slow = settings(bytes_per_second=10_000)
        result = await topic.topic.ledger.compaction.run(topic.topic.ledger.read_limit(), slow)
        assert result.duration_s >= (result.bytes_read + result.bytes_written) / 10_000 * 0.9
        await topic.check()

    simulated(scenario)


def test_large_dead_sets_have_a_ledger_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compaction_run, "DEAD_SETS_BYTES_MAX", 40)
    monkeypatch.setattr(pages, "PAGE_BYTES_MAX", 500)
    monkeypatch.setattr("magnetar.ledger.compacted.merge_plan.SMALL_BYTES", 1)

    async def scenario(process: Process) -> None:
        topic = CompactedTopic(await load(process))
        await topic.publish(*entries(0, 150, 150, 20))
        await topic.compact()
        for step in (5, 4):
            await topic.publish(*[single(n, f"key-{n}", b"2") for n in range(0, 150, step)])
            await topic.compact()
            await topic.check()
        assert view_of(process).HasField("dead_sets")
        await topic.load_again()
        await topic.check()
        await topic.compact(rewrite=True)
        await topic.publish(single(999, "key-0", b"1"))
        await topic.compact(rewrite=True)
        await topic.check()
        assert not view_of(process).HasField("dead_sets")
        check_ledgers(process)

    simulated(scenario)


def test_a_terminated_topic_is_compacted() -> None:
    async def scenario(process: Process) -> None:
        topic = CompactedTopic(await load(process))
        await topic.publish(batch(1, [("a", b"1"), ("b", b"1")]), single(2, "a", b"2"))
        topic.topic.ledger.seal()
        await topic.topic.ledger.terminate()
        await topic.compact()
        await topic.check()
        await topic.load_again()
        assert topic.topic.ledger.terminated
        await topic.check()

    simulated(scenario)
