"""Takeover of a topic: fences the former owner, closes its open ledgers and rebuilds the topic's state.

The owner epoch in the head is raised by compare-and-set, so the former owner's metadata writes fail from then
on; then every open ledger is recovered (fenced and closed), in order, each with its topic-ledger key and the
head in one transaction; then the cursor ledger. Only then is the topic served (storage contract, section 4).
A cleanly closed topic costs one metadata write.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from magnetar.common.errors import (
    CursorLedgerMissing,
    EntryUnreadable,
    NoSuchLedger,
    OwnershipLost,
    TopicNotFound,
    UnknownOutcome,
    VersionMismatch,
)
from magnetar.common.metadata.store import ABSENT, Op, Put
from magnetar.common.metadata.values import TopicHead, TopicLedger, decode, encode
from magnetar.common.naming.position import Position
from magnetar.common.naming.topic_name import TopicName
from magnetar.common.obs.logs import get_logger
from magnetar.ledger.cold.cold_reader import ObjectsDamaged
from magnetar.ledger.compacted.view import View
from magnetar.ledger.ledger_store import ClosedLedger, LedgerReader, LedgerRef, Run
from magnetar.ledger.managed_ledger.context import Guards, ManagedLedgerContext, no_guards
from magnetar.ledger.managed_ledger.cursor import Cursor
from magnetar.ledger.managed_ledger.cursor_loader import CursorLoader
from magnetar.ledger.managed_ledger.deduplication import DeduplicationSnapshot
from magnetar.ledger.managed_ledger.delayed_index import DelayedIndex
from magnetar.ledger.managed_ledger.intents import finish_quietly
from magnetar.ledger.managed_ledger.ledger_list import LedgerSpan, LedgerSpans
from magnetar.ledger.managed_ledger.offload_progress import note
from magnetar.ledger.managed_ledger.open_ledger import closing_ops
from magnetar.ledger.managed_ledger.record_replay import replay_records
from magnetar.ledger.managed_ledger.span_reads import SpanReads
from magnetar.ledger.managed_ledger.topic_head import TopicHeadKey, read_ref
from magnetar.ledger.managed_ledger.transaction_scan import scan_transactions
from magnetar.ledger.managed_ledger.transaction_state import TransactionState
from magnetar.ledger.managed_ledger.view_record import load_view

log = get_logger(__name__)

_ATTEMPTS_MAX = 5


@dataclass(slots=True)
class TakenOver:
    """A topic's state after its takeover; nothing of it is open."""

    head: TopicHeadKey
    spans: LedgerSpans
    cursors: dict[str, Cursor]
    next_cursor_id: int
    next_index: int
    last_position: Position
    deduplication: DeduplicationSnapshot | None = None
    delayed: DelayedIndex | None = None
    view: View | None = None
    transactions: TransactionState | None = None


async def take_over(
    ctx: ManagedLedgerContext,
    name: str,
    *,
    create: bool,
    properties: dict[str, str],
    guards: Guards = no_guards,
) -> TakenOver:
    """Takes over a topic; `guards` must hold if this creates it.

    Raises errors of the guards, TopicNotFound, OwnershipLost if another owner took over meanwhile,
    CursorLedgerMissing, DataCorruption, and errors of storage and metadata; a retry is safe.
    """
    head, created = await _claim(ctx, name, create=create, properties=properties, guards=guards)
    value = head.decode()
    spans = LedgerSpans() if created else await _closed_ledgers(ctx, value.creation_id)
    refs = [read_ref(ref) for ref in value.open_ledgers]
    if len(refs) == 2 and await _is_cut_off(ctx, name, value, spans, *refs):
        log.warning(
            "ledger given up: what came before it is lost, unconfirmed", topic=name, ledger=refs[1].id
        )
        await _recover(ctx, head, refs[0], spans, name, given_up=refs[1:])
    else:
        for ref in refs:
            await _recover(ctx, head, ref, spans, name)
    value = head.decode()
    reads = SpanReads(ctx, name, value.creation_id)
    next_index, _ = await _next_index(reads, value, spans)
    cursors: dict[str, Cursor] = {}
    next_cursor_id = 1
    deduplication: DeduplicationSnapshot | None = None
    delayed: DelayedIndex | None = None
    transactions: TransactionState | None = None
    if value.HasField("cursor_ledger"):
        loader = await _read_cursor_ledger(ctx, name, read_ref(value.cursor_ledger), spans)
        cursors, next_cursor_id = loader.finish()
        deduplication, delayed = loader.deduplication, loader.delayed
        transactions = loader.transactions
        if transactions is not None:
            await scan_transactions(reads, spans, transactions)
    last = Position(value.last_ledger_id or -1, value.last_entry_id if value.last_ledger_id else -1)
    if spans.spans:
        last = max(last, spans.spans[-1].last_position)
    view = await load_view(ctx, name, value)
    return TakenOver(
        head,
        spans,
        cursors,
        next_cursor_id,
        next_index,
        last,
        deduplication=deduplication,
        delayed=delayed,
        view=view,
        transactions=transactions,
    )


async def _claim(
    ctx: ManagedLedgerContext, name: str, *, create: bool, properties: dict[str, str], guards: Guards
) -> tuple[TopicHeadKey, bool]:
    """Raises the owner epoch, or creates the head; returns whether this created it."""
    key = ctx.keys.topic_head(TopicName.parse(name))
    for _ in range(_ATTEMPTS_MAX):
        found = await ctx.metadata.get(key)
        if found is None and not create:
            raise TopicNotFound(f"topic {name} does not exist")
        try:
            if found is None:
                return await _create(ctx, key, properties, guards), True
            value = decode(TopicHead, found.value)
            value.owner_epoch += 1
            data = encode(value)
            version = await ctx.metadata.put(key, data, found.version)
            return TopicHeadKey(ctx.metadata, key, data, version), False
        except (VersionMismatch, UnknownOutcome) as error:
            log.info("taking a topic over again", topic=name, error=str(error))
    raise OwnershipLost(f"topic {name} is being taken over by others as well")


async def _create(
    ctx: ManagedLedgerContext, key: str, properties: dict[str, str], guards: Guards
) -> TopicHeadKey:
    checks = await guards()
    value = TopicHead(owner_epoch=1, properties=properties, created_ms=ctx.clock.wall_ms())

    def ops_for(creation_id: int) -> Sequence[Op]:
        value.creation_id = creation_id
        return [Put(key, encode(value), ABSENT), *checks]

    _, version = await ctx.creation_ids.commit(ops_for)
    return TopicHeadKey(ctx.metadata, key, encode(value), version)


async def _closed_ledgers(ctx: ManagedLedgerContext, creation_id: int) -> LedgerSpans:
    spans = LedgerSpans()
    for item in (await ctx.metadata.children(ctx.keys.topic_ledgers_prefix(creation_id))).items:
        value = decode(TopicLedger, item.value)
        span = LedgerSpan(
            read_ref(value.ref),
            entries=value.entries,
            byte_length=value.byte_length,
            first_index=value.first_index,
            messages=value.messages or -1,
            opened_ms=value.opened_ms,
            closed_ms=value.closed_ms,
            max_publish_time_ms=value.max_publish_time_ms,
            closed=True,
        )
        note(span, value, item.version)
        spans.add(span)
    return spans


async def _recover(
    ctx: ManagedLedgerContext,
    head: TopicHeadKey,
    ref: LedgerRef,
    spans: LedgerSpans,
    name: str,
    given_up: Sequence[LedgerRef] = (),
) -> None:
    """Fences and closes one open ledger of the former owner, and adds it to the list."""
    await head.sync()
    creation_id = head.decode().creation_id
    span = LedgerSpan(ref, messages=-1, closed=True)
    put: Put | None = None

    def with_ops(closed: ClosedLedger) -> Sequence[Op]:
        nonlocal put
        put, ops = closing_ops(ctx, head, creation_id, span, closed, given_up)
        return ops

    try:
        reader, closed = await ctx.ledgers.recover(ref, with_ops)
    except VersionMismatch as error:
        raise head.explain(error) from error
    assert put is not None, "the ledger was closed together with the head"
    head.written(put)
    await head.sync()
    log.info("ledger recovered", topic=name, ledger=ref.id, last_entry=closed.last_entry_id)
    for gone in [*given_up, *([ref] if closed.last_entry_id < 0 else [])]:
        await finish_quietly(ctx, gone)
    if closed.last_entry_id >= 0:
        span.entries = closed.last_entry_id + 1
        span.byte_length = closed.byte_length
        span.reader = reader
        spans.add(span)


async def _is_cut_off(
    ctx: ManagedLedgerContext,
    name: str,
    head: TopicHead,
    spans: LedgerSpans,
    first: LedgerRef,
    second: LedgerRef,
) -> bool:
    """Returns True if the second of two open ledgers has runs, but the first one's end before them is lost.

    Two ledgers are open while the first one's last runs are in flight, and the second one's runs are
    confirmed only after those. So a gap in message indexes between them proves that nothing in the second was
    confirmed, and it is given up: its producers resend everything, in order. Damaged entries prove nothing.
    """
    first_reader, first_closed = await ctx.ledgers.recover(first)
    second_reader, second_closed = await ctx.ledgers.recover(second)
    if second_closed.last_entry_id < 0:
        return False
    if first_closed.last_entry_id < 0:
        if ctx.restored.holds:
            return False  # it may have been deleted as unused since the backup
        expected, exact = await _next_index(SpanReads(ctx, name, head.creation_id), head, spans)
    else:
        expected, exact = await _index_after(_of(first_reader), first_closed.last_entry_id + 1)
    try:
        return exact and (await second_reader.read(0, 0, 1))[0].first_index > expected
    except EntryUnreadable:
        return False


async def _next_index(reads: SpanReads, head: TopicHead, spans: LedgerSpans) -> tuple[int, bool]:
    """Returns (index of the topic's next message, whether it is certain)."""
    if not spans.spans:
        return head.next_index, True
    last = spans.spans[-1]
    if last.messages >= 0:
        return last.first_index + last.messages, True
    index, exact = await _index_after(lambda entry_id: reads.read(last, entry_id, entry_id, 1), last.entries)
    return max(head.next_index, index), exact


ReadEntry = Callable[[int], Awaitable[list[Run]]]


def _of(reader: LedgerReader) -> ReadEntry:
    return lambda entry_id: reader.read(entry_id, entry_id, 1)


async def _index_after(read: ReadEntry, entries: int) -> tuple[int, bool]:
    """Returns the index after a ledger's last message; unreadable entries at its end count as one message
    each.
    """
    for skipped in range(entries):
        try:
            run = (await read(entries - 1 - skipped))[0]
        except ObjectsDamaged:
            raise  # it may come back
        except EntryUnreadable:
            continue
        return run.first_index + run.messages + skipped, not skipped
    return entries, False


async def _read_cursor_ledger(
    ctx: ManagedLedgerContext, name: str, ref: LedgerRef, spans: LedgerSpans
) -> CursorLoader:
    try:
        reader, closed = await ctx.ledgers.recover(ref)
    except NoSuchLedger as error:
        raise CursorLedgerMissing(
            f"cursor ledger {ref.id} of {name} is gone: {error}. The topic is not loaded rather than read "
            "from 'earliest'; restore the ledger, or delete the topic"
        ) from error
    loader = CursorLoader(name, ref.id, spans, ctx.clock.wall_ms())
    await replay_records(reader, closed, loader.feed, loader.damaged)
    return loader
