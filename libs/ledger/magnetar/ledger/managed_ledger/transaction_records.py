"""The records of a topic's transactions in its cursor ledger: acknowledgements, outcomes, progress."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from google.protobuf.message import Message
from magnetar.common.errors import DataCorruption
from magnetar.common.naming.position import Position
from magnetar.common.naming.txn_id import Action, TxnId
from magnetar.ledger.managed_ledger import cursor_ledger_pb2 as pb
from magnetar.ledger.managed_ledger.cursor_records import (
    ENTRY_BYTES_MAX,
    ack_changes,
    acked_entries,
    encode_entry,
    position_message,
    read_acks,
    read_bitmap,
    read_position,
)
from magnetar.ledger.managed_ledger.pending_acks import PendingAck
from magnetar.ledger.managed_ledger.transaction_state import TransactionState
from pyroaring import BitMap

_ACTIONS: Final = {Action.COMMIT: pb.COMMIT, Action.ABORT: pb.ABORT}
_READ_ACTIONS: Final = {value: action for action, value in _ACTIONS.items()}
_Item = tuple[str, Message, int]
"""(field of a chunk, message to append there, its approximate size in bytes)."""

_ITEM_BYTES: Final = 24
"""Approximate bytes of an outcome, an open transaction, or a low watermark."""


def pending_ack_changes(cursor_id: int, sequence: int, txn: TxnId, pending: PendingAck) -> list[pb.Change]:
    """Encodes acknowledgements as one or more changes of the cursor, numbered from this sequence."""
    return [
        pb.Change(cursor_id=cursor_id, sequence=sequence + number, pending_ack=part)
        for number, part in enumerate(_pending_parts(txn, pending))
    ]


def _pending_parts(txn: TxnId, pending: PendingAck) -> list[pb.PendingAck]:
    return [
        pb.PendingAck(txn=_txn(txn), cumulative=pending.cumulative is not None, acks=change.acks)
        for change in ack_changes(0, 0, pending.delta())
    ]


def outcome_change(txn: TxnId, action: Action, low_watermark: int) -> pb.Change:
    """Encodes the outcome of a transaction."""
    return pb.Change(transaction_outcome=_outcome(txn, action, low_watermark))


def _outcome(txn: TxnId, action: Action, low_watermark: int = -1) -> pb.TransactionOutcome:
    return pb.TransactionOutcome(txn=_txn(txn), action=_ACTIONS[action], low_watermark=low_watermark + 1)


def read_outcome(record: pb.TransactionOutcome) -> tuple[TxnId, Action, int]:
    """Returns (transaction, action, low watermark of its coordinator, -1 if not known)."""
    return read_txn(record.txn), _READ_ACTIONS[record.action], record.low_watermark - 1


def read_pending(record: pb.PendingAck) -> tuple[TxnId, PendingAck]:
    """Returns a transaction and what it acknowledges. Raises DataCorruption."""
    return read_txn(record.txn), PendingAck.of_delta(read_acks(record.acks), cumulative=record.cumulative)


def read_txn(txn: pb.TxnId) -> TxnId:
    return TxnId(txn.most, txn.least)


def _txn(txn: TxnId) -> pb.TxnId:
    return pb.TxnId(most=txn.most, least=txn.least)


def progress_entries(scan_from: Position, aborted: Mapping[int, BitMap]) -> list[bytes]:
    """Encodes a change: a new position to scan from, and the aborted entries that it passes."""
    return _encode(_cut(scan_from, _aborted_items(aborted)), 0)


def snapshot_entries(
    state: TransactionState,
    scan_from: Position,
    complete_to: Position,
    unwritten: Mapping[TxnId, Action],
    snapshot_id: int,
) -> list[bytes]:
    """Encodes everything that is known, for the snapshot of a new cursor ledger.

    `unwritten`: outcomes that were handed over and are not confirmed, so that the state lacks them.
    """

    def items() -> Iterator[_Item]:
        yield from _aborted_items(state.aborted)
        for coordinator, low_watermark in state.low_watermarks.items():
            below = pb.LowWatermark(coordinator=coordinator, below=low_watermark + 1)
            yield "low_watermarks", below, _ITEM_BYTES
        for coordinator, high, action, numbers in state.outcomes.numbers():
            for piece in acked_entries(high, numbers):
                settled = pb.SettledNumbers(
                    coordinator=coordinator, high=high, action=_ACTIONS[action], numbers=piece.entry_ids
                )
                yield "settled", settled, settled.ByteSize()
        for txn, action in unwritten.items():
            outcome = _outcome(txn, action)
            yield "outcomes", outcome, _ITEM_BYTES
        for txn, opened in state.open.items():
            if txn not in unwritten:
                known = pb.OpenTransaction(txn=_txn(txn), began_ms=opened.began_ms)
                yield "open", known, _ITEM_BYTES
        for cursor_id, cursor in state.pending.items():
            for txn, pending in cursor.transactions.items():
                for part in _pending_parts(txn, pending):
                    ack = pb.CursorPendingAck(cursor_id=cursor_id, pending_ack=part)
                    yield "pending", ack, ack.ByteSize()

    chunks = _cut(scan_from, items())
    for chunk in chunks:
        chunk.complete_to.CopyFrom(position_message(complete_to))
    return _encode(chunks, snapshot_id)


def _aborted_items(
    aborted: Mapping[int, BitMap],
) -> Iterator[_Item]:
    for ledger_id, entry_ids in aborted.items():
        for piece in acked_entries(ledger_id, entry_ids):
            yield "aborted", piece, piece.ByteSize()


def _cut(scan_from: Position, items: Iterator[_Item]) -> list[pb.TransactionChunk]:
    position = position_message(scan_from)
    chunks = [pb.TransactionChunk(scan_from=position)]
    size = 0
    for name, item, item_bytes in items:
        if size >= ENTRY_BYTES_MAX // 2:
            chunks.append(pb.TransactionChunk(scan_from=position))
            size = 0
        getattr(chunks[-1], name).append(item)
        size += item_bytes
    return chunks


def _encode(chunks: list[pb.TransactionChunk], snapshot_id: int) -> list[bytes]:
    for index, chunk in enumerate(chunks):
        chunk.index, chunk.chunks, chunk.snapshot_id = index, len(chunks), snapshot_id
    return [encode_entry(pb.Entry(transaction_chunk=chunk)) for chunk in chunks]


@dataclass(slots=True)
class TransactionLoader:
    """Joins the chunks of one change or snapshot and applies them to a state; half of one is ignored."""

    state: TransactionState
    _chunks: list[pb.TransactionChunk] = field(default_factory=list)

    def feed(self, chunk: pb.TransactionChunk) -> bool:
        """Adds the next chunk; returns whether the state has all of them now. Raises DataCorruption."""
        if chunk.index == 0:
            self._chunks = []
        if chunk.index != len(self._chunks) or chunk.index >= chunk.chunks:
            raise DataCorruption(f"chunk {chunk.index} of transactions where {len(self._chunks)} was next")
        self._chunks.append(chunk)
        if len(self._chunks) < chunk.chunks:
            return False
        for each in self._chunks:
            _apply(self.state, each)
        self._chunks = []
        return True


def _apply(state: TransactionState, chunk: pb.TransactionChunk) -> None:
    state.scan_from = max(state.scan_from, read_position(chunk.scan_from))
    if chunk.HasField("complete_to"):
        state.complete_to = read_position(chunk.complete_to)
    for aborted in chunk.aborted:
        state.add_aborted(aborted.ledger_id, read_bitmap(aborted.entry_ids))
    for each in chunk.low_watermarks:
        state.raise_low_watermark(each.coordinator, each.below - 1)
    for known in chunk.open:
        state.begin(read_txn(known.txn), known.began_ms)
    for ack in chunk.pending:
        txn, pending = read_pending(ack.pending_ack)
        state.cursor(ack.cursor_id).add(txn, pending)
    for each_set in chunk.settled:
        numbers = read_bitmap(each_set.numbers)
        action = _READ_ACTIONS[each_set.action]
        state.outcomes.add_numbers(each_set.coordinator, each_set.high, action, numbers)
    for outcome in chunk.outcomes:
        state.note_outcome(*read_outcome(outcome)[:2])
