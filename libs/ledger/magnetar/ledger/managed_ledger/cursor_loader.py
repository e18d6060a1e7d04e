"""Rebuilds a topic's cursors from its cursor ledger.

A complete snapshot replaces everything before it; change records apply on top. Every cursor's change sequence
must have no gap. Unreadable entries make the load fail unless a later complete snapshot covers them: a cursor
is never guessed, and data loss never makes it start at 'earliest'.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from magnetar.common.errors import CursorLedgerMissing, DataCorruption, UnsupportedFormat
from magnetar.common.naming.position import Position
from magnetar.common.naming.txn_id import Action
from magnetar.common.obs.logs import get_logger
from magnetar.ledger.managed_ledger import cursor_ledger_pb2 as pb
from magnetar.ledger.managed_ledger.cursor import Cursor
from magnetar.ledger.managed_ledger.cursor_records import decode_entry, read_acks, read_position
from magnetar.ledger.managed_ledger.deduplication import DeduplicationLoader, DeduplicationSnapshot
from magnetar.ledger.managed_ledger.delayed_chunks import chunk_content
from magnetar.ledger.managed_ledger.delayed_index import DelayedIndex
from magnetar.ledger.managed_ledger.ledger_list import LedgerSpans
from magnetar.ledger.managed_ledger.pending_acks import PendingAck
from magnetar.ledger.managed_ledger.transaction_records import (
    TransactionLoader,
    read_outcome,
    read_pending,
)
from magnetar.ledger.managed_ledger.transaction_state import TransactionState

log = get_logger(__name__)

_START = Position(-1, -1)


@dataclass(slots=True)
class _HalfSnapshot:
    snapshot_id: int
    chunks: int = 0
    cursors: dict[int, Cursor] = field(default_factory=dict)
    deduplication_chunks: int = 0
    deduplication: DeduplicationSnapshot | None = None
    deduplication_loader: DeduplicationLoader = field(default_factory=DeduplicationLoader)
    transaction_chunks: int = 0
    transactions: TransactionLoader = field(default_factory=lambda: TransactionLoader(TransactionState()))
    broken: bool = False


class CursorLoader:
    """Receives every entry of a cursor ledger in order, then `finish`.

    `deduplication` is the last complete deduplication snapshot; None without one. `delayed` is the index of
    entries not due at `now_ms`, None without any; its records may be damaged.
    """

    def __init__(self, topic: str, ledger_id: int, spans: LedgerSpans, now_ms: int = 0) -> None:
        self._where = f"cursor ledger {ledger_id} of {topic}"
        self._spans = spans
        self._cursors: dict[int, Cursor] | None = None
        self._next_cursor_id = 1
        self._half: _HalfSnapshot | None = None
        self._deduplication_loader = DeduplicationLoader()
        self.deduplication: DeduplicationSnapshot | None = None
        self.delayed: DelayedIndex | None = None
        self._transactions: TransactionLoader | None = None
        self._now_ms = now_ms
        self._chunks_until = 0
        self._damage: DataCorruption | None = None

    @property
    def transactions(self) -> TransactionState | None:
        """The state of transactions by the records, None without any; its entries are to be scanned."""
        return None if self._transactions is None else self._transactions.state

    def feed(self, entry_id: int, data: bytes) -> None:
        """Applies the next entry. Raises UnsupportedFormat for an entry of a later release."""
        try:
            entry = decode_entry(data)
            if entry.HasField("delayed_chunk"):
                self._restore_chunk(entry_id, len(data), entry.delayed_chunk)
            elif entry.HasField("delayed_chunks_ahead"):
                self._chunks_until = entry_id + 1 + entry.delayed_chunks_ahead.chunks
            else:
                self._apply(entry)
        except DataCorruption as error:
            self.damaged(entry_id, str(error))

    def damaged(self, entry_id: int, reason: str) -> None:
        """Records an unreadable entry: fatal, unless a later complete snapshot covers it.

        A damaged record of the delayed index only costs reading its entries again.
        """
        if entry_id < self._chunks_until:
            log.warning("a record of delayed entries is damaged", where=self._where, entry=entry_id)
            return
        self._half = None
        if self._damage is None:
            self._damage = DataCorruption(f"{self._where}: entry {entry_id} is damaged: {reason}")

    def finish(self) -> tuple[dict[str, Cursor], int]:
        """Returns (cursors by name, next cursor id).

        Raises DataCorruption if an unreadable entry is not covered; CursorLedgerMissing without a complete
        snapshot (the head names a cursor ledger only once its snapshot is confirmed).
        """
        if self._damage is not None:
            raise self._damage
        if self._cursors is None:
            raise CursorLedgerMissing(
                f"{self._where} has no complete snapshot: its cursors are unknown. If metadata was restored "
                "from a copy, `magnetar admin metadata forget-subscriptions` has the topic load without them"
            )
        for cursor in self._cursors.values():
            cursor.settle()
            cursor.durable_mark = cursor.mark_delete
            cursor.durable_acked = cursor.acked_entries
        return {cursor.name: cursor for cursor in self._cursors.values()}, self._next_cursor_id

    def _apply(self, entry: pb.Entry) -> None:
        kind = entry.WhichOneof("record")
        if kind == "changes":
            self._half = None
            if self._damage is None:
                for change in entry.changes.changes:
                    self._apply_change(change)
        elif kind == "snapshot_chunk":
            self._apply_chunk(entry.snapshot_chunk)
        elif kind == "snapshot_end":
            self._apply_end(entry.snapshot_end)
        elif kind == "deduplication_chunk":
            self._apply_deduplication(entry.deduplication_chunk)
        elif kind == "transaction_chunk":
            self._apply_transactions(entry.transaction_chunk)
        else:
            raise UnsupportedFormat(
                f"{self._where} holds a record of a kind that this release does not know; run the release "
                "that wrote it, or a newer one"
            )

    def _restore_chunk(self, entry_id: int, byte_length: int, chunk: pb.DelayedChunk) -> None:
        content = chunk_content(chunk)
        if self.delayed is None:
            self.delayed = DelayedIndex()
        self.delayed.restore(entry_id, byte_length, content, self._now_ms, self._spans.by_id)

    def _apply_chunk(self, chunk: pb.SnapshotChunk) -> None:
        half = self._half_of(chunk.snapshot_id)
        half.broken = half.broken or chunk.index != half.chunks
        half.chunks += 1
        for part in chunk.parts:
            cursor = half.cursors.get(part.cursor_id)
            if cursor is None:
                half.broken = half.broken or not part.name
                cursor = half.cursors[part.cursor_id] = self._cursor(
                    part.cursor_id, part.sequence, part.name, dict(part.properties), _START
                )
            cursor.apply(read_acks(part.acks))

    def _apply_deduplication(self, chunk: pb.DeduplicationChunk) -> None:
        if chunk.snapshot_id:
            half = self._half_of(chunk.snapshot_id)
            half.deduplication_chunks += 1
            half.deduplication = half.deduplication_loader.feed(chunk)
        elif self._damage is None:
            if not chunk.chunks:
                self.deduplication = None
            else:
                self.deduplication = self._deduplication_loader.feed(chunk) or self.deduplication

    def _apply_transactions(self, chunk: pb.TransactionChunk) -> None:
        if chunk.snapshot_id:
            half = self._half_of(chunk.snapshot_id)
            half.transaction_chunks += 1
            half.transactions.feed(chunk)
        elif self._damage is None:
            self._known_transactions().feed(chunk)

    def _known_transactions(self) -> TransactionLoader:
        if self._transactions is None:
            self._transactions = TransactionLoader(TransactionState())
        return self._transactions

    def _half_of(self, snapshot_id: int) -> _HalfSnapshot:
        if self._half is None or self._half.snapshot_id != snapshot_id:
            self._half = _HalfSnapshot(snapshot_id)
        return self._half

    def _apply_end(self, end: pb.SnapshotEnd) -> None:
        half, self._half = self._half or _HalfSnapshot(end.snapshot_id), None
        whole = (
            half.snapshot_id,
            half.chunks,
            len(half.cursors),
            half.deduplication_chunks,
            half.transaction_chunks,
        ) == (end.snapshot_id, end.chunks, end.cursors, end.deduplication_chunks, end.transaction_chunks)
        if half.broken or not whole or (half.deduplication is None) == bool(end.deduplication_chunks):
            return
        self.deduplication = half.deduplication
        self._cursors = half.cursors
        self._next_cursor_id = end.next_cursor_id
        self._damage = None
        self._transactions = half.transactions if half.transaction_chunks else None
        if self._transactions is not None:
            for action, acks in self._transactions.state.unapplied():
                self._settle(action, acks)

    def _settle(self, action: Action, acks: dict[int, PendingAck]) -> None:
        """Acknowledges what a committed transaction acknowledged."""
        if action is Action.COMMIT and self._cursors is not None:
            for cursor_id, pending in acks.items():
                if (cursor := self._cursors.get(cursor_id)) is not None:
                    cursor.apply(pending.delta())

    def _apply_change(self, change: pb.Change) -> None:
        cursors = self._cursors
        if cursors is None:
            # The cursor is unknown: either a later snapshot contains it, or `finish` raises.
            return
        kind = change.WhichOneof("change")
        if kind == "transaction_outcome":
            txn, action, low_watermark = read_outcome(change.transaction_outcome)
            state = self._known_transactions().state
            state.raise_low_watermark(txn.most, low_watermark)
            self._settle(action, state.settle(txn, action))
            return
        if kind == "create":
            if change.cursor_id in cursors or change.cursor_id < self._next_cursor_id:
                raise DataCorruption(f"cursor id {change.cursor_id} is created a second time")
            create = change.create
            mark_delete = read_position(create.mark_delete)
            cursors[change.cursor_id] = self._cursor(
                change.cursor_id, change.sequence, create.name, dict(create.properties), mark_delete
            )
            self._next_cursor_id = change.cursor_id + 1
            return
        cursor = cursors.get(change.cursor_id)
        if cursor is None:
            raise DataCorruption(f"a change of cursor id {change.cursor_id}, which does not exist")
        if change.sequence != cursor.sequence + 1:
            raise DataCorruption(
                f"changes of cursor {cursor.name!r} are missing: {change.sequence} follows {cursor.sequence}"
            )
        cursor.sequence = change.sequence
        if kind == "acks":
            cursor.apply(read_acks(change.acks))
        elif kind == "reset":
            mark_delete = read_position(change.reset.mark_delete)
            cursor.replace(mark_delete)
            if self._transactions is not None:
                self._transactions.state.drop_acks(cursor.cursor_id, mark_delete)
        elif kind == "pending_ack":
            txn, pending = read_pending(change.pending_ack)
            state = self._known_transactions().state
            state.begin(txn, 0)
            state.cursor(cursor.cursor_id).add(txn, pending)
        elif kind == "properties":
            cursor.properties = dict(change.properties.properties)
        elif kind == "delete":
            del cursors[change.cursor_id]
            if self._transactions is not None:
                self._transactions.state.forget_cursor(change.cursor_id)
        else:
            raise UnsupportedFormat(
                f"{self._where} holds a change that this release does not know; run the release that wrote "
                "it, or a newer one"
            )

    def _cursor(
        self, cursor_id: int, sequence: int, name: str, properties: dict[str, str], mark_delete: Position
    ) -> Cursor:
        return Cursor(
            name,
            self._spans,
            mark_delete,
            durable=True,
            cursor_id=cursor_id,
            sequence=sequence,
            properties=properties,
        )
