"""Pending acknowledgements: what open transactions acknowledge in one cursor. Pure state, no I/O.

A message that a transaction acknowledges is withheld from everyone until that transaction ends: a commit
acknowledges it, an abort frees it. Of two transactions that acknowledge the same message the second one gets
TransactionConflict. A transaction may repeat what it acknowledged.

One transaction at a time may acknowledge cumulatively, and withholds nothing by that. Others may acknowledge
single messages beside it: what a committed cumulative acknowledgement covers is settled by it. Only the batch
in whose middle it ends, its tail, has single messages, which may not be those of another transaction.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from magnetar.common.errors import TransactionConflict
from magnetar.common.naming.position import EARLIEST, Position
from magnetar.common.naming.txn_id import TxnId
from magnetar.ledger.managed_ledger.ack_state import AckDelta, AckState
from pyroaring import BitMap


@dataclass(slots=True)
class PendingAck:
    """Acknowledgements of one transaction in one cursor; not changed once handed over."""

    individual: dict[int, BitMap] = field(default_factory=dict)
    """Whole entries by ledger."""
    batches: dict[tuple[int, int], tuple[int, int]] = field(default_factory=dict)
    """(bits of acknowledged messages, batch size) by entry."""
    cumulative: Position | None = None
    """Everything up to this position; `batches` may have messages of the entry after it."""

    def is_empty(self) -> bool:
        return not (self.individual or self.batches) and self.cumulative is None

    @property
    def tail(self) -> tuple[tuple[int, int], int] | None:
        """The entry after the cumulative position and the bits acknowledged of it, if there are any."""
        if self.cumulative is None:
            return None
        at = self.cumulative.ledger_id, self.cumulative.entry_id + 1
        acked = self.batches.get(at)
        return None if acked is None else (at, acked[0])

    def merge(self, other: PendingAck) -> None:
        """Adds what `other` acknowledges.

        A higher cumulative position replaces what was acknowledged in the middle of batches below it.
        """
        if other.cumulative is not None:
            for at in [at for at in self.batches if at <= other.cumulative]:
                del self.batches[at]
        for ledger_id, entry_ids in other.individual.items():
            known = self.individual.get(ledger_id)
            self.individual[ledger_id] = entry_ids.copy() if known is None else known | entry_ids
        for at, (bits, size) in other.batches.items():
            self.batches[at] = self.batches.get(at, (0, size))[0] | bits, size
        if other.cumulative is not None:
            self.cumulative = max(self.cumulative or EARLIEST, other.cumulative)

    def drop_through(self, position: Position) -> None:
        """Removes what is at or below a position."""
        for ledger_id in [known for known in self.individual if known <= position.ledger_id]:
            if ledger_id < position.ledger_id:
                del self.individual[ledger_id]
                continue
            left = self.individual[ledger_id].copy()
            left.remove_range(0, position.entry_id + 1)
            if left:
                self.individual[ledger_id] = left
            else:
                del self.individual[ledger_id]
        for at in [at for at in self.batches if at <= position]:
            del self.batches[at]
        if self.cumulative is not None and self.cumulative <= position:
            self.cumulative = None

    def apply_to(self, acks: AckState) -> None:
        """Acknowledges it in a cursor that is loaded; entries that no longer exist are left out."""
        if self.cumulative is not None:
            acks.ack_cumulative(self.cumulative)
        for ledger_id, entry_ids in self.individual.items():
            acks.ack_many(ledger_id, list(entry_ids))
        for (ledger_id, entry_id), (bits, size) in self.batches.items():
            acks.ack_batch(ledger_id, entry_id, bits, size)

    def delta(self) -> AckDelta:
        """Returns it as a part of a cursor's state; without a cumulative one the position is EARLIEST."""
        partial: dict[int, dict[int, tuple[int, int]]] = {}
        for (ledger_id, entry_id), acked in self.batches.items():
            partial.setdefault(ledger_id, {})[entry_id] = acked
        return AckDelta(self.cumulative or EARLIEST, self.individual, partial)

    @classmethod
    def of_delta(cls, delta: AckDelta, *, cumulative: bool) -> PendingAck:
        """Returns what `delta` was made of."""
        batches = {
            (ledger_id, entry_id): acked
            for ledger_id, entries in delta.partial.items()
            for entry_id, acked in entries.items()
        }
        return cls(delta.acked, batches, delta.mark_delete if cumulative else None)


class CursorPending:
    """The pending acknowledgements of one cursor."""

    __slots__ = ("_batches", "_cumulative", "_transactions", "_withheld")

    def __init__(self) -> None:
        self._transactions: dict[TxnId, PendingAck] = {}
        self._withheld: dict[int, BitMap] = {}
        self._batches: dict[tuple[int, int], int] = {}
        self._cumulative: tuple[TxnId, Position] | None = None

    @property
    def transactions(self) -> Mapping[TxnId, PendingAck]:
        """Acknowledgements by transaction."""
        return self._transactions

    @property
    def withheld(self) -> Mapping[int, BitMap]:
        """Whole entries that transactions acknowledge one by one, by ledger."""
        return self._withheld

    @property
    def batches(self) -> Mapping[tuple[int, int], int]:
        """Bits of the messages that transactions acknowledge, by entry."""
        return self._batches

    @property
    def cumulative(self) -> tuple[TxnId, Position] | None:
        """The transaction that acknowledges cumulatively, and up to where."""
        return self._cumulative

    def holds(self, position: Position, batch_index: int = -1) -> bool:
        """Returns whether an entry, or one message of a batch, is acknowledged by a transaction."""
        if self._cumulative is not None and position <= self._cumulative[1]:
            return True
        if position.entry_id in self._withheld.get(position.ledger_id, ()):
            return True
        bits = self._batches.get(position, 0) | self._tail_bits(position)
        return bool(bits if batch_index < 0 else bits >> batch_index & 1)

    def check(self, txn: TxnId, asked: PendingAck, acks: AckState) -> None:
        """Raises TransactionConflict if the transaction may not acknowledge all of it. `acks`: the cursor."""
        if asked.cumulative is not None:
            self._check_cumulative(txn, asked, acks)
            return
        own = self._transactions.get(txn) or PendingAck()
        for ledger_id, entry_ids in asked.individual.items():
            fresh = entry_ids - own.individual.get(ledger_id, BitMap())
            self._check_entries(txn, ledger_id, fresh, own, acks)
        for at, (bits, _) in asked.batches.items():
            mine = own.batches.get(at, (0, 0))[0]
            if at[1] in own.individual.get(at[0], ()):
                continue
            fresh_bits = bits & ~mine
            if fresh_bits and self._taken(at, fresh_bits, acks):
                raise _conflict(txn, Position(*at))

    def _check_entries(
        self, txn: TxnId, ledger_id: int, entry_ids: BitMap, own: PendingAck, acks: AckState
    ) -> None:
        taken = entry_ids & self._withheld.get(ledger_id, BitMap())
        if taken:
            raise _conflict(txn, Position(ledger_id, taken.min()))
        acked = acks.acked_among(ledger_id, entry_ids)
        if acked:
            raise _conflict(txn, Position(ledger_id, acked.min()))
        if not self._batches and self._cumulative is None:
            return
        for entry_id in entry_ids:
            at = ledger_id, entry_id
            bits = self._batches.get(at, 0) | self._tail_bits(at)
            if bits & ~own.batches.get(at, (0, 0))[0]:
                raise _conflict(txn, Position(*at))

    def _tail_bits(self, at: tuple[int, int]) -> int:
        """Returns what of a batch is acknowledged by the cumulative acknowledgement that ends in it."""
        if self._cumulative is None:
            return 0
        tail = self._transactions[self._cumulative[0]].tail
        return tail[1] if tail is not None and tail[0] == at else 0

    def _taken(self, at: tuple[int, int], bits: int, acks: AckState) -> bool:
        return bool(
            acks.is_acked(*at)
            or acks.batch_acked(*at) & bits
            or (self._batches.get(at, 0) | self._tail_bits(at)) & bits
            or at[1] in self._withheld.get(at[0], ())
        )

    def _check_cumulative(self, txn: TxnId, asked: PendingAck, acks: AckState) -> None:
        own = None
        if self._cumulative is not None:
            holder, own = self._cumulative
            if holder != txn:
                raise TransactionConflict(
                    f"transaction {txn} cannot acknowledge cumulatively up to {asked.cumulative}: "
                    f"transaction {holder} does so up to {own}; commit or abort that one first"
                )
            if _end_of(asked) < _end_of(self._transactions[txn]):
                raise TransactionConflict(
                    f"transaction {txn} acknowledges cumulatively up to {own} already, beyond "
                    f"{asked.cumulative}"
                )
        mine = self._transactions.get(txn) or PendingAck()
        for at, (bits, _) in asked.batches.items():
            others = self._batches.get(at, 0) & ~mine.batches.get(at, (0, 0))[0]
            whole = at[1] in self._withheld.get(at[0], ()) and at[1] not in mine.individual.get(at[0], ())
            if bits & others or whole:
                raise _conflict(txn, Position(*at))
        acked = max((acks.batch_acked(*at) for at in asked.batches), default=0)
        if own is None and _end_of(asked) <= (acks.mark_delete, acked):
            raise TransactionConflict(
                f"transaction {txn} cannot acknowledge up to {asked.cumulative}: everything up to "
                f"{acks.mark_delete} is acknowledged already"
            )

    def add(self, txn: TxnId, asked: PendingAck) -> None:
        """Adds acknowledgements that were checked, or replayed."""
        own = self._transactions.setdefault(txn, PendingAck())
        own.merge(asked)
        if asked.cumulative is not None:
            self._rebuild()
            return
        for ledger_id, entry_ids in asked.individual.items():
            self._withheld.setdefault(ledger_id, BitMap()).update(entry_ids)
        tail = own.tail
        for at, (bits, _) in asked.batches.items():
            if tail is None or at != tail[0]:
                self._batches[at] = self._batches.get(at, 0) | bits

    def remove(self, txn: TxnId) -> PendingAck | None:
        """Removes a transaction; returns what it acknowledges, None if that is nothing."""
        removed = self._transactions.pop(txn, None)
        if removed is None:
            return None
        # No two transactions have the same message, so what this one had is free now.
        for ledger_id, entry_ids in removed.individual.items():
            withheld = self._withheld[ledger_id]
            withheld -= entry_ids
            if not withheld:
                del self._withheld[ledger_id]
        for at, (bits, _) in removed.batches.items():
            if left := self._batches.get(at, 0) & ~bits:
                self._batches[at] = left
            else:
                self._batches.pop(at, None)
        if removed.cumulative is not None:
            self._cumulative = None
        return removed

    def drop_through(self, position: Position) -> None:
        """Removes what is at or below a position, to which the cursor moved."""
        for txn, pending in list(self._transactions.items()):
            pending.drop_through(position)
            if pending.is_empty():
                del self._transactions[txn]
        self._rebuild()

    def _rebuild(self) -> None:
        self._withheld, self._batches, self._cumulative = {}, {}, None
        for txn, pending in self._transactions.items():
            for ledger_id, entry_ids in pending.individual.items():
                self._withheld.setdefault(ledger_id, BitMap()).update(entry_ids)
            tail = pending.tail
            for at, (bits, _) in pending.batches.items():
                if tail is None or at != tail[0]:
                    self._batches[at] = self._batches.get(at, 0) | bits
            if pending.cumulative is not None:
                self._cumulative = txn, pending.cumulative


def _end_of(pending: PendingAck) -> tuple[Position, int]:
    """Returns where a cumulative acknowledgement ends: the entry, and the bits of the batch after it."""
    tail = pending.tail
    return pending.cumulative or EARLIEST, 0 if tail is None else tail[1]


def _conflict(txn: TxnId, position: Position) -> TransactionConflict:
    return TransactionConflict(
        f"transaction {txn} cannot acknowledge {position}: it is acknowledged already, or another open "
        "transaction acknowledges it"
    )
