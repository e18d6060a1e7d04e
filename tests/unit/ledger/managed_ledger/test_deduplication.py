"""Deduplication's records: on disk with the cursors, over rolls and restarts, and holding trimming back."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest
from magnetar.common.errors import DataCorruption, StorageError
from magnetar.common.naming.position import EARLIEST, LATEST, Position
from magnetar.ledger.managed_ledger import DeduplicationSnapshot, ProducerSequence
from magnetar.ledger.managed_ledger.ack_state import AckDelta
from magnetar.ledger.managed_ledger.cursor_loader import CursorLoader
from magnetar.ledger.managed_ledger.cursor_records import (
    ENTRY_BYTES_MAX,
    CursorSnapshot,
    change_entries,
    create_change,
    snapshot_entries,
)
from magnetar.ledger.managed_ledger.deduplication import DeduplicationRecord, deduplication_entries
from magnetar.ledger.managed_ledger.ledger_list import LedgerSpans

from tests.simulation.power_loss import Process
from tests.unit.ledger.managed_ledger.harness import (
    ROLL_AT_10,
    Topic,
    context,
    ledger_ids,
    load,
    load_again,
    simulated,
    until,
)

GOLDEN = Path(__file__).parents[3] / "golden" / "cursor" / "v1"

A = DeduplicationSnapshot(Position(3, 4), {"a": ProducerSequence(7, 1_000), "ü": ProducerSequence(2**63, 5)})
B = DeduplicationSnapshot(Position(3, 9), {"a": ProducerSequence(9, 2_000)})
MANY = DeduplicationSnapshot(
    Position(8, 1),
    {f"producer-{number:08}" * 3: ProducerSequence(number, number) for number in range(10_000)},
)
GONE = DeduplicationRecord(Position(3, 4), None).take()[0]


def loaded(entries: list[bytes]) -> DeduplicationSnapshot | None:
    loader = CursorLoader("topic", 1, LedgerSpans())
    for entry_id, data in enumerate(entries):
        loader.feed(entry_id, data)
    loader.finish()
    return loader.deduplication


def whole(snapshot: DeduplicationSnapshot | None, cursors: int = 0, snapshot_id: int = 1) -> list[bytes]:
    """A snapshot of a cursor ledger."""
    kept = [CursorSnapshot(number, 1, f"sub-{number}", {}) for number in range(1, cursors + 1)]
    return snapshot_entries(
        kept,
        snapshot_id=snapshot_id,
        next_cursor_id=cursors + 1,
        deduplication=[] if snapshot is None else deduplication_entries(snapshot, snapshot_id),
    )


@pytest.mark.parametrize("cursors", [0, 3])
def test_the_state_comes_back_from_snapshots_and_from_changes(cursors: int) -> None:
    assert loaded(whole(None, cursors)) is None
    assert loaded(whole(A, cursors)) == A
    assert loaded([*whole(None, cursors), *deduplication_entries(A)]) == A
    assert loaded([*whole(A, cursors), *deduplication_entries(B)]) == B
    assert loaded([*whole(A, cursors), *deduplication_entries(B), *whole(A, cursors, 2)]) == A
    assert loaded([*whole(A, cursors), *whole(None, cursors, 2)]) is None
    assert loaded([*whole(A, cursors), *GONE]) is None


def test_ten_thousand_producers_are_cut_into_bounded_entries_and_come_back() -> None:
    entries = deduplication_entries(MANY)
    assert len(entries) > 3
    assert max(map(len, entries)) < 2 * ENTRY_BYTES_MAX
    assert loaded([*whole(A), *entries]) == MANY
    assert loaded(whole(MANY)) == MANY


def test_half_a_state_is_ignored() -> None:
    entries = deduplication_entries(MANY)
    assert loaded([*whole(A), *entries[:-1]]) == A
    change = change_entries([create_change(CursorSnapshot(1, 1, "s", {}, AckDelta(EARLIEST)))])
    assert loaded([*whole(A), *entries[:2], *change, *entries]) == MANY
    snapshot = whole(MANY, snapshot_id=2)
    for at in range(len(snapshot) - 1):
        with pytest.raises(DataCorruption):
            loaded([*whole(A), *snapshot[:at], b"damaged", *snapshot[at + 1 :]])
    assert loaded([*whole(A), *snapshot[:-2], snapshot[-1]]) == A


def test_a_missing_chunk_is_noticed() -> None:
    entries = deduplication_entries(MANY)
    with pytest.raises(DataCorruption, match="chunk 2"):
        loaded([*whole(A), entries[0], *entries[2:]])
    assert loaded([*whole(A), entries[0], *entries[2:], *whole(B, snapshot_id=2)]) == B


def test_version_1_is_written_and_read_as_in_the_golden_file() -> None:
    golden = (GOLDEN / "deduplication-0.bin").read_bytes()
    assert deduplication_entries(A) == [golden], "the format changed: add a version"
    assert loaded([*whole(B), golden]) == A


# On a topic


class State:
    """What a broker would keep: everything that is confirmed is counted in."""

    def __init__(self, topic: Topic) -> None:
        self.topic = topic
        self.producers: dict[str, ProducerSequence] = {}

    def snapshot(self) -> DeduplicationSnapshot:
        return DeduplicationSnapshot(self.topic.ledger.last_confirmed, dict(self.producers))

    async def keep(self) -> None:
        await self.topic.ledger.deduplication.keep(self.snapshot, self.topic.ledger.flush_cursors)

    async def save(self, **producers: int) -> None:
        self.producers |= {name: ProducerSequence(number, 0) for name, number in producers.items()}
        self.topic.ledger.deduplication.save()
        await self.topic.flushed()


async def kept(topic: Topic) -> State:
    state = State(topic)
    await state.keep()
    return state


async def publish_four_ledgers(topic: Topic) -> None:
    for _ in range(4):
        await topic.publish_confirmed(10)
        await asyncio.sleep(0.1)


def test_a_saved_state_is_there_after_a_crash_and_the_first_one_when_keep_returns() -> None:
    async def scenario(process: Process) -> None:
        topic = await load(process)
        assert topic.ledger.deduplication.loaded is None
        state = await kept(topic)
        process.world.kill()
        topic = await load(process, create=False)
        assert topic.ledger.deduplication.loaded == DeduplicationSnapshot(EARLIEST)
        state = await kept(topic)
        positions = await topic.publish_confirmed(3)
        await state.save(a=5, b=6)
        expected = state.snapshot()
        assert expected.position == positions[-1]
        process.world.kill()
        topic = await load(process, create=False)
        assert topic.ledger.deduplication.loaded == expected

    simulated(scenario)


def test_the_state_is_written_within_the_flush_interval_and_at_close() -> None:
    async def scenario(process: Process) -> None:
        topic = await load(process)
        state = await kept(topic)
        await topic.publish_confirmed(3)
        state.producers["a"] = ProducerSequence(1, 0)
        topic.ledger.deduplication.save()
        await asyncio.sleep(ROLL_AT_10.cursor_flush_interval_s + 0.2)
        expected = state.snapshot()
        process.world.kill()
        topic = await load(process, create=False)
        assert topic.ledger.deduplication.loaded == expected
        state = await kept(topic)
        state.producers["a"] = ProducerSequence(2, 0)
        topic.ledger.deduplication.save()
        await topic.ledger.close()
        topic = await load_again(topic.ctx)
        assert topic.ledger.deduplication.loaded == state.snapshot()

    simulated(scenario)


def test_the_state_is_part_of_every_snapshot_of_the_cursor_ledger() -> None:
    config = replace(ROLL_AT_10, cursor_ledger_entries_max=5)

    async def scenario(process: Process) -> None:
        topic = await load(process, config)
        state = await kept(topic)
        await topic.publish_confirmed(2)
        await state.save(a=1)
        cursor = await topic.ledger.create_cursor("sub", EARLIEST, {})
        before = topic.ledger._head.decode().cursor_ledger.id
        for _ in range(30):
            cursor.count_redelivery(*topic.ledger.last_confirmed)
            await topic.flushed()
        await until(lambda: topic.ledger._head.decode().cursor_ledger.id != before)
        expected = state.snapshot()
        process.world.kill()
        topic = await load(process, config, create=False)
        assert topic.ledger.deduplication.loaded == expected
        assert "sub" in topic.ledger.cursors

    simulated(scenario)


def test_trimming_never_passes_the_snapshot_that_is_on_disk_and_it_is_no_backlog() -> None:
    async def scenario(process: Process) -> None:
        topic = await load(process)
        await kept(topic)
        await publish_four_ledgers(topic)
        await asyncio.sleep(1)
        ids = ledger_ids(topic)
        assert len(ids) >= 3, "nothing goes although there is no subscription"
        assert topic.ledger.first_position() == Position(ids[0], -1)
        topic.ledger.deduplication.save()
        topic.ledger.trim()
        assert ledger_ids(topic) == ids, "a snapshot that is not on disk yet lets nothing go"
        await topic.flushed()
        await until(lambda: not ledger_ids(topic))
        cursor = await topic.ledger.create_cursor("sub", LATEST, {})
        assert cursor.backlog() == 0
        assert list(topic.ledger.cursors) == ["sub"]

    simulated(scenario)


def test_trimming_is_held_back_after_a_restart_until_the_next_snapshot() -> None:
    async def scenario(process: Process) -> None:
        topic = await load(process)
        await kept(topic)
        await publish_four_ledgers(topic)
        process.world.kill()
        topic = await load(process, create=False)
        ids = ledger_ids(topic)
        topic.ledger.trim()
        await asyncio.sleep(1)
        assert ledger_ids(topic) == ids
        assert await topic.read_all(EARLIEST) != []
        state = await kept(topic)
        await state.save(a=1)
        await until(lambda: not ledger_ids(topic))

    simulated(scenario)


def test_a_dropped_state_is_gone_for_good_and_holds_nothing_back() -> None:
    async def scenario(process: Process) -> None:
        topic = await load(process)
        await kept(topic)
        await publish_four_ledgers(topic)
        process.world.kill()
        topic = await load(process, create=False)
        topic.ledger.deduplication.drop()
        assert ledger_ids(topic), "not before it is on disk"
        await topic.flushed()
        await until(lambda: not ledger_ids(topic))
        process.world.kill()
        topic = await load(process, create=False)
        assert topic.ledger.deduplication.loaded is None
        topic.ledger.deduplication.drop()
        state = await kept(topic)
        await state.save(a=3)
        await topic.ledger.close()
        topic = await load_again(context(process, topic.ctx.ledgers, ROLL_AT_10))  # type: ignore[arg-type]
        assert topic.ledger.deduplication.loaded == state.snapshot()

    simulated(scenario)


def test_keeping_fails_when_the_topic_is_lost() -> None:
    async def scenario(process: Process) -> None:
        topic = await load(process)
        await topic.ledger.close()
        with pytest.raises(StorageError):
            await State(topic).keep()

    simulated(scenario)
