"""The managed ledger's guards are removed in turn; its suites must notice within the stated number of seeds.

The style is that of test_mutations: a mutation patches one function for one test.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from magnetar.common.metadata.store import ANY_VERSION, Delete, Op, Put
from magnetar.common.metadata.values import encode
from magnetar.common.naming.position import Position
from magnetar.ledger.ledger_store import ClosedLedger
from magnetar.ledger.managed_ledger import (
    appender,
    cursor_loader,
    directory,
    intents,
    new_record_ledger,
    open_ledger,
    takeover,
    trimming,
)
from magnetar.ledger.managed_ledger import cursor_ledger_pb2 as pb
from magnetar.ledger.managed_ledger.ack_state import AckState
from magnetar.ledger.managed_ledger.appender import Appender
from magnetar.ledger.managed_ledger.cursor_ledger import CursorLedger
from magnetar.ledger.managed_ledger.cursor_loader import CursorLoader
from magnetar.ledger.managed_ledger.new_record_ledger import NewRecordLedger
from magnetar.ledger.managed_ledger.open_ledger import OpenLedger
from magnetar.ledger.managed_ledger.topic_cursors import TopicCursors
from magnetar.ledger.managed_ledger.topic_head import TopicHeadKey

from tests.simulation.managed_ledger_workload import ManagedLedgerWorkload
from tests.simulation.mutants import Mutation, Patch, Suite, assert_noticed, noticed
from tests.simulation.power_loss import cut_everywhere
from tests.unit.ledger.managed_ledger import (
    test_cursor_records,
    test_cursors,
    test_failed_ledgers,
    test_ownership_and_failures,
)

# --- the suites ---


def power_loss(seed: int) -> None:
    cut_everywhere(ManagedLedgerWorkload(seed), seed)


def former_owners(seed: int) -> None:
    test_ownership_and_failures.former_owner_without_an_open_ledger(seed)
    test_ownership_and_failures.former_owner_without_a_cursor_ledger(seed)
    test_ownership_and_failures.former_owner_with_only_a_cursor_ledger(seed)


def records(_seed: int) -> None:
    test_cursor_records.test_half_a_snapshot_is_ignored()
    test_cursor_records.test_a_missing_change_is_noticed()
    for at in range(8):
        test_cursor_records.test_a_flipped_bit_is_refused_unless_a_later_snapshot_covers_it(at)


def deletion(_seed: int) -> None:
    test_ownership_and_failures.test_a_deletion_that_was_cut_short_is_finished()


def trims(_seed: int) -> None:
    test_cursors.test_ledgers_go_once_every_durable_cursor_is_past_them_on_disk()


def failed_ledgers(_seed: int) -> None:
    test_failed_ledgers.test_runs_in_the_next_ledger_do_not_overtake_those_that_a_failed_one_loses()
    test_failed_ledgers.test_new_runs_do_not_overtake_those_that_a_failed_ledger_loses()
    test_failed_ledgers.test_updates_of_a_failed_cursor_ledger_are_confirmed_by_the_next()


def crashes_with_two_open_ledgers(_seed: int) -> None:
    for first_ends, damaged, expected in test_failed_ledgers.ENDS:
        test_failed_ledgers.test_after_a_crash_the_next_ledger_counts_only_if_it_follows(
            first_ends, damaged, expected
        )


# --- ownership ---


def no_owner_guard(patch: Patch) -> None:
    """Neither the epoch in the head nor its version stops a former owner."""

    def put(self: TopicHeadKey, head: Any) -> Put:
        return Put(self.key, encode(head), ANY_VERSION)

    async def sync(self: TopicHeadKey) -> None:
        self._expected = None

    patch.setattr(TopicHeadKey, "put", put)
    patch.setattr(TopicHeadKey, "sync", sync)


def no_fence_of_the_cursor_ledger(patch: Patch) -> None:
    """A takeover reads the former owner's cursor ledger as it is."""
    load = takeover._read_cursor_ledger

    async def mutant(ctx: Any, name: str, ref: Any, spans: Any) -> Any:
        class Unfenced:
            async def recover(self, ref: Any) -> Any:
                reader = await ctx.ledgers.open(ref)
                return reader, ClosedLedger(ref, reader.last_confirmed, 0)

        unfenced: Any = _With(ctx, ledgers=Unfenced())
        return await load(unfenced, name, ref, spans)

    patch.setattr(takeover, "_read_cursor_ledger", mutant)


class _With:
    """An object with some attributes replaced."""

    def __init__(self, original: Any, **changes: Any) -> None:
        self.__dict__.update(changes)
        self._original = original

    def __getattr__(self, name: str) -> Any:
        return getattr(self._original, name)


# --- cursors ---


def half_snapshots_count(patch: Patch) -> None:
    apply = CursorLoader._apply_chunk

    def mutant(self: CursorLoader, chunk: Any) -> None:
        apply(self, chunk)
        assert self._half is not None
        self._cursors = self._half.cursors
        self._damage = None

    patch.setattr(CursorLoader, "_apply_chunk", mutant)


def the_number_of_chunks_is_not_compared(patch: Patch) -> None:
    end = CursorLoader._apply_end

    def mutant(self: CursorLoader, record: Any) -> None:
        if self._half is not None:
            self._half.broken = False
            record.chunks, record.cursors = self._half.chunks, len(self._half.cursors)
        end(self, record)

    patch.setattr(CursorLoader, "_apply_end", mutant)


def gaps_in_changes_are_not_noticed(patch: Patch) -> None:
    apply = CursorLoader._apply_change

    def mutant(self: CursorLoader, change: Any) -> None:
        cursor = (self._cursors or {}).get(change.cursor_id)
        if cursor is not None:
            cursor.sequence = change.sequence - 1
        apply(self, change)

    patch.setattr(CursorLoader, "_apply_change", mutant)


def no_checksum_of_records(patch: Patch) -> None:
    def decode(data: bytes) -> Any:
        return pb.Entry.FromString(data[8:])

    patch.setattr(cursor_loader, "decode_entry", decode)


def the_head_names_an_unconfirmed_snapshot(patch: Patch) -> None:
    append = NewRecordLedger.append

    async def mutant(self: Any, entries: list[bytes]) -> None:
        task = asyncio.ensure_future(append(self, entries))
        task.add_done_callback(lambda task: task.cancelled() or task.exception())
        await asyncio.sleep(0)

    patch.setattr(NewRecordLedger, "append", mutant)


def flushes_are_confirmed_when_appended(patch: Patch) -> None:
    append = CursorLedger._append

    def mutant(self: CursorLedger) -> None:
        append(self)
        if self._flush is not None and self._flush.last_entry_id >= 0:
            asyncio.get_running_loop().call_soon(self._flushed, self._flush)

    patch.setattr(CursorLedger, "_append", mutant)


def changes_of_a_failed_flush_are_forgotten(patch: Patch) -> None:
    failed = CursorLedger._on_failed

    def mutant(self: CursorLedger, writer: Any, error: Any) -> None:
        failed(self, writer, error)
        self._behind = False
        self.roll_wanted = False

    patch.setattr(CursorLedger, "_on_failed", mutant)


def recovered_acks_are_not_cut_at_existing_entries(patch: Patch) -> None:
    patch.setattr(AckState, "settle", lambda self: self._advance())


# --- trimming and deleting ---


def ledgers_are_trimmed_by_what_is_in_memory(patch: Patch) -> None:
    def needed(self: TopicCursors) -> Iterator[tuple[str, Position]]:
        return ((cursor.name, cursor.mark_delete) for cursor in self.durable())

    patch.setattr(TopicCursors, "needed", needed)


def ledgers_are_trimmed_whoever_needs_them(patch: Patch) -> None:
    def trimmable(spans: Sequence[Any], *_: Any) -> int:
        return sum(span.closed for span in spans)

    patch.setattr(trimming, "trimmable", trimmable)


def ledgers_are_deleted_before_they_are_off_the_list(patch: Patch) -> None:
    take_off_list = trimming.take_off_list

    async def mutant(ctx: Any, head: Any, creation_id: int, doomed: Any, *where: Any, **at: Any) -> None:
        for span in doomed:
            await ctx.ledgers.delete(span.ref)
        await take_off_list(ctx, head, creation_id, doomed, *where, **at)

    patch.setattr(trimming, "take_off_list", mutant)


def _no_intent(ctx: Any, ref: Any, **_: Any) -> Op:
    return Put(f"{ctx.keys.root}nobody-looks-here/{ref.id}", b"")


def trimming_without_intents(patch: Patch) -> None:
    patch.setattr(trimming, "delete_ledger_intent", _no_intent)


def closing_empty_ledgers_without_intents(patch: Patch) -> None:
    patch.setattr(open_ledger, "delete_ledger_intent", _no_intent)


def cursor_ledgers_replaced_without_intents(patch: Patch) -> None:
    intent = intents.delete_ledger_intent

    def mutant(ctx: Any, ref: Any, **expected: Any) -> Op:
        # The new ledger's own intent stays: its key is what the head's transaction is guarded by.
        return intent(ctx, ref, **expected) if expected else _no_intent(ctx, ref)

    patch.setattr(new_record_ledger, "delete_ledger_intent", mutant)


def topics_deleted_without_an_intent(patch: Patch) -> None:
    patch.setattr(directory, "delete_topic_intent_id", lambda creation_id: "")
    patch.setattr(directory, "Put", lambda key, value: Delete(f"{key}-nothing"))


# --- order ---


def lost_runs_are_overtaken(patch: Patch) -> None:
    """Runs in a later ledger stay there when the one before loses some."""
    ops = open_ledger.closing_ops

    def mutant(ctx: Any, head: Any, creation_id: int, span: Any, closed: Any, given_up: Any = ()) -> Any:
        del given_up[:]
        return ops(ctx, head, creation_id, span, closed)

    patch.setattr(appender, "closing_ops", mutant)


def new_runs_overtake_lost_ones(patch: Patch) -> None:
    failed = Appender._failed

    def mutant(self: Appender, ledger: OpenLedger, error: Any, last_confirmed: int) -> None:
        current = self.current
        failed(self, ledger, error, last_confirmed)
        if current is not ledger:
            self.current = current

    patch.setattr(Appender, "_failed", mutant)


def a_cut_off_ledger_is_kept(patch: Patch) -> None:
    async def kept(*_: Any) -> bool:
        return False

    patch.setattr(takeover, "_is_cut_off", kept)


def a_damaged_end_cuts_the_next_ledger_off(patch: Patch) -> None:
    """An index that is only guessed decides what belongs to the topic."""
    index_after = takeover._index_after

    async def mutant(reader: Any, entries: int) -> tuple[int, bool]:
        index, exact = await index_after(reader, entries)
        return (index if exact else index - 1), True

    patch.setattr(takeover, "_index_after", mutant)


def what_a_failed_ledger_lost_is_not_written_again(patch: Patch) -> None:
    def forget(self: Appender, ledger: OpenLedger) -> None:
        assert self._pending is not None
        self._pending.clear()

    patch.setattr(Appender, "_requeue", forget)


MUTATIONS = [
    noticed(no_owner_guard, former_owners, 1),
    noticed(no_fence_of_the_cursor_ledger, former_owners, 1),
    noticed(half_snapshots_count, records, 1),
    noticed(the_number_of_chunks_is_not_compared, records, 1),
    noticed(gaps_in_changes_are_not_noticed, records, 1),
    noticed(no_checksum_of_records, records, 1),
    noticed(the_head_names_an_unconfirmed_snapshot, power_loss, 4),
    noticed(flushes_are_confirmed_when_appended, power_loss, 4),
    noticed(changes_of_a_failed_flush_are_forgotten, failed_ledgers, 1),
    noticed(recovered_acks_are_not_cut_at_existing_entries, power_loss, 4),
    noticed(ledgers_are_trimmed_by_what_is_in_memory, trims, 1),
    noticed(ledgers_are_trimmed_whoever_needs_them, power_loss, 4),
    noticed(ledgers_are_deleted_before_they_are_off_the_list, power_loss, 4),
    noticed(trimming_without_intents, power_loss, 4),
    noticed(closing_empty_ledgers_without_intents, power_loss, 4),
    noticed(cursor_ledgers_replaced_without_intents, power_loss, 4),
    noticed(topics_deleted_without_an_intent, deletion, 1),
    noticed(lost_runs_are_overtaken, failed_ledgers, 1),
    noticed(new_runs_overtake_lost_ones, failed_ledgers, 1),
    noticed(a_cut_off_ledger_is_kept, crashes_with_two_open_ledgers, 1),
    noticed(a_damaged_end_cuts_the_next_ledger_off, crashes_with_two_open_ledgers, 1),
    noticed(what_a_failed_ledger_lost_is_not_written_again, failed_ledgers, 1),
]


@pytest.mark.nightly
@pytest.mark.parametrize(("mutation", "suite", "seeds"), MUTATIONS)
def test_the_suite_catches(mutation: Mutation, suite: Suite, seeds: range, monkeypatch: Patch) -> None:
    assert_noticed(mutation, suite, seeds, monkeypatch)
