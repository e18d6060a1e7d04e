"""Acknowledgements in transactions: pending until their transaction ends, by cursor.

Pure state, no I/O. A pending acknowledgement withholds its messages from all consumers; it is added to the
cursor's own state at commit, and forgotten at abort. Bits of batches mean "ACKED", as in `ack_state`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from magnetar.common.errors import TransactionConflict
from magnetar.common.naming.position import Position
from magnetar.common.naming.txn_id import TxnId
from magnetar.ledger.managed_ledger.ack_state import AckDelta, AckState
from pyroaring import BitMap

Entry = tuple[int, int]
"""Ledger id and entry id."""

_START = Position(-1, -1)


@dataclass(slots=True)
class PendingAck:
    """Acknowledgements of one transaction in one cursor: individual ones, a cumulative one, or both."""

    individual: dict[int, BitMap] = field(default_factory=dict)
    """Whole entries, by ledger."""
    batches: dict[Entry, tuple[int, int]] = field(default_factory=dict)
    """(bits of acknowledged messages, batch size) of entries that are acknowledged in part."""
    cumulative: Position | None = None
    """Every entry up to and including this one. If it ends inside a batch, this is the entry before, and
    `batches` has the bits of the batch.
    """

    @property
    def entries(self) -> int:
        """Number of individual entries and batches; a cumulative one counts as one."""
        whole = sum(map(len, self.individual.values()))
        return whole + len(self.batches) + (self.cumulative is not None)

    def add(self, more: PendingAck) -> None:
        """Adds acknowledgements of the same transaction and cursor. Takes over the bitmaps of `more`."""
        for ledger_id, entry_ids in more.individual.items():
            mine = self.individual.get(ledger_id)
            if mine is None:
                self.individual[ledger_id] = entry_ids
            else:
                mine |= entry_ids
        for entry, (bits, size) in more.batches.items():
            self.batches[entry] = (bits | self.batches.get(entry, (0, 0))[0], size)
        if more.cumulative is not None and more.cumulative > (self.cumulative or _START):
            self.cumulative = more.cumulative

    def drop_through(self, through: Position) -> bool:
        """Drops all at or below a position; returns whether nothing is left."""
        for ledger_id in [each for each in self.individual if each <= through.ledger_id]:
            entry_ids = self.individual[ledger_id]
            if ledger_id == through.ledger_id:
                entry_ids.remove_range(0, through.entry_id + 1)
            if ledger_id < through.ledger_id or not entry_ids:
                del self.individual[ledger_id]
        for entry in [each for each in self.batches if each <= through]:
            del self.batches[entry]
        if self.cumulative is not None and self.cumulative <= through:
            self.cumulative = None
        return not (self.individual or self.batches or self.cumulative)

    def delta(self) -> AckDelta:
        """Returns it as a part of an ack state; the bitmaps are shared."""
        delta = AckDelta(self.cumulative or _START, dict(self.individual))
        for (ledger_id, entry_id), batch in self.batches.items():
            delta.partial.setdefault(ledger_id, {})[entry_id] = batch
        return delta

    def apply(self, acks: AckState) -> None:
        """Acknowledges all of it. What is acknowledged already stays so."""
        if self.cumulative is not None:
            acks.ack_cumulative(self.cumulative)
        for ledger_id, entry_ids in self.individual.items():
            acks.ack_many(ledger_id, entry_ids)
        for (ledger_id, entry_id), (bits, size) in self.batches.items():
            acks.ack_batch(ledger_id, entry_id, bits, size)


def pending_of(delta: AckDelta, *, cumulative: bool) -> PendingAck:
    """Returns what `PendingAck.delta` was made of."""
    batches = {
        (ledger_id, entry_id): batch
        for ledger_id, entries in delta.partial.items()
        for entry_id, batch in entries.items()
    }
    return PendingAck(delta.acked, batches, delta.mark_delete if cumulative else None)


class CursorPending:
    """The pending acknowledgements of one cursor, of all transactions."""

    __slots__ = ("batches", "transactions", "withheld")

    def __init__(self) -> None:
        self.transactions: dict[TxnId, PendingAck] = {}
        """Acknowledgements by transaction; read-only."""
        self.withheld: dict[int, BitMap] = {}
        """Whole entries that are pending individually, by ledger; read-only."""
        self.batches: dict[Entry, int] = {}
        """Pending bits of batches, by entry; read-only."""

    @property
    def cumulative(self) -> tuple[TxnId, Position] | None:
        """The transaction with a pending cumulative acknowledgement, and up to where; None without one."""
        for txn, pending in self.transactions.items():
            if pending.cumulative is not None:
                return txn, pending.cumulative
        return None

    def holds(self, position: Position, batch_index: int = -1) -> bool:
        """Returns whether an entry, or one message of a batch, is pending."""
        cumulative = self.cumulative
        if cumulative is not None and position <= cumulative[1]:
            return True
        if position.entry_id in self.withheld.get(position.ledger_id, ()):
            return True
        bits = self.batches.get(position, 0)
        return bool(bits) if batch_index < 0 else bool(bits >> batch_index & 1)

    def check(self, txn: TxnId, pending: PendingAck, acks: AckState) -> None:
        """Raises TransactionConflict if one of the messages is acknowledged, or pending in another
        transaction. A repetition by the same transaction is no conflict.
        """
        mine = self.transactions.get(txn)
        if pending.cumulative is not None:
            self._check_cumulative(txn, mine, pending, acks)
        else:
            for ledger_id, entry_ids in pending.individual.items():
                self._check_entries(txn, mine, ledger_id, entry_ids, acks)
            for entry, (bits, _) in pending.batches.items():
                self._check_batch(txn, mine, entry, bits, acks)

    def _check_cumulative(
        self, txn: TxnId, mine: PendingAck | None, pending: PendingAck, acks: AckState
    ) -> None:
        cumulative = self.cumulative
        if cumulative is not None and cumulative[0] != txn:
            raise TransactionConflict(
                f"transaction {cumulative[0]} is about to acknowledge everything up to {cumulative[1]}"
            )
        end = _end_of(pending)
        if mine is not None and mine.cumulative is not None and end < _end_of(mine):
            raise TransactionConflict(
                f"transaction {txn} is about to acknowledge everything up to {mine.cumulative} already, "
                f"beyond {pending.cumulative}"
            )
        if end <= (*acks.mark_delete, _acked_after(pending, acks)):
            raise TransactionConflict(
                f"everything up to {pending.cumulative} is acknowledged: the mark-delete position is "
                f"{acks.mark_delete}"
            )

    def _check_entries(
        self, txn: TxnId, mine: PendingAck | None, ledger_id: int, entry_ids: BitMap, acks: AckState
    ) -> None:
        own = None if mine is None else mine.individual.get(ledger_id)
        new = entry_ids if own is None else entry_ids - own
        if not new:
            return
        for entry_id in acks.acked_among(ledger_id, new):
            raise TransactionConflict(f"{ledger_id}:{entry_id} is acknowledged")
        for entry_id in new & self.withheld.get(ledger_id, _NONE):
            raise TransactionConflict(f"{ledger_id}:{entry_id} is about to be acknowledged{self._by(txn)}")
        if self.batches:
            for (batch_ledger_id, entry_id), bits in self.batches.items():
                if batch_ledger_id == ledger_id and entry_id in new:
                    own_bits = 0 if mine is None else mine.batches.get((ledger_id, entry_id), (0, 0))[0]
                    if bits & ~own_bits:
                        raise TransactionConflict(
                            f"messages of {ledger_id}:{entry_id} are about to be acknowledged{self._by(txn)}"
                        )

    def _check_batch(
        self, txn: TxnId, mine: PendingAck | None, entry: Entry, bits: int, acks: AckState
    ) -> None:
        ledger_id, entry_id = entry
        own = 0
        if mine is not None:
            if entry_id in mine.individual.get(ledger_id, ()):
                return
            own = mine.batches.get(entry, (0, 0))[0]
        new = bits & ~own
        if new and (acks.is_acked(ledger_id, entry_id) or acks.batch_acked(ledger_id, entry_id) & new):
            raise TransactionConflict(f"messages of {ledger_id}:{entry_id} are acknowledged")
        if entry_id in self.withheld.get(ledger_id, ()) or self.batches.get(entry, 0) & new:
            raise TransactionConflict(
                f"messages of {ledger_id}:{entry_id} are about to be acknowledged{self._by(txn)}"
            )

    def _by(self, txn: TxnId) -> str:
        others = [str(other) for other in self.transactions if other != txn]
        return f" by transaction {others[0]}" if len(others) == 1 else " by another transaction"

    def add(self, txn: TxnId, pending: PendingAck) -> None:
        """Adds acknowledgements that `check` let pass. Copies what it keeps of bitmaps."""
        for ledger_id, entry_ids in pending.individual.items():
            withheld = self.withheld.get(ledger_id)
            if withheld is None:
                self.withheld[ledger_id] = entry_ids.copy()
            else:
                withheld |= entry_ids
        for entry, (bits, _) in pending.batches.items():
            self.batches[entry] = self.batches.get(entry, 0) | bits
        mine = self.transactions.get(txn)
        if mine is None:
            mine = self.transactions[txn] = PendingAck()
        copies = {ledger_id: entry_ids.copy() for ledger_id, entry_ids in pending.individual.items()}
        mine.add(PendingAck(copies, pending.batches, pending.cumulative))

    def take(self, txn: TxnId) -> PendingAck | None:
        """Removes the acknowledgements of a transaction, and returns them; None without any."""
        pending = self.transactions.pop(txn, None)
        if pending is None:
            return None
        for ledger_id, entry_ids in pending.individual.items():
            withheld = self.withheld.get(ledger_id)
            if withheld is not None:
                withheld -= entry_ids
                if not withheld:
                    del self.withheld[ledger_id]
        for entry, (bits, _) in pending.batches.items():
            left = self.batches.get(entry, 0) & ~bits
            if left:
                self.batches[entry] = left
            else:
                self.batches.pop(entry, None)
        return pending

    def drop_through(self, through: Position) -> list[TxnId]:
        """Drops all at or below a position; returns the transactions that have nothing left here."""
        gone = [txn for txn, pending in self.transactions.items() if pending.drop_through(through)]
        for txn in gone:
            del self.transactions[txn]
        whole = PendingAck(self.withheld, {entry: (bits, 0) for entry, bits in self.batches.items()})
        whole.drop_through(through)
        self.batches = {entry: bits for entry, (bits, _) in whole.batches.items()}
        return gone


_NONE = BitMap()


def _end_of(pending: PendingAck) -> tuple[int, int, int]:
    """Returns where a cumulative acknowledgement ends: its position, and the bits of the batch after it."""
    position = pending.cumulative or _START
    return (*position, max((bits for bits, _ in pending.batches.values()), default=0))


def _acked_after(pending: PendingAck, acks: AckState) -> int:
    """Returns the bits that are acknowledged of the batch in which a cumulative acknowledgement ends."""
    return max((acks.batch_acked(*entry) for entry in pending.batches), default=0)


class PendingAcks:
    """The pending acknowledgements of a topic, by cursor id; cursors without any are not there."""

    __slots__ = ("by_cursor", "cursors_of")

    def __init__(self) -> None:
        self.by_cursor: dict[int, CursorPending] = {}
        self.cursors_of: dict[TxnId, set[int]] = {}
        """Cursors in which a transaction has any."""

    def check(self, txn: TxnId, cursor_id: int, pending: PendingAck, acks: AckState) -> None:
        """See `CursorPending.check`."""
        (self.by_cursor.get(cursor_id) or CursorPending()).check(txn, pending, acks)

    def add(self, txn: TxnId, cursor_id: int, pending: PendingAck) -> None:
        """See `CursorPending.add`."""
        found = self.by_cursor.get(cursor_id)
        if found is None:
            found = self.by_cursor[cursor_id] = CursorPending()
        found.add(txn, pending)
        self.cursors_of.setdefault(txn, set()).add(cursor_id)

    def take(self, txn: TxnId) -> dict[int, PendingAck]:
        """Removes all acknowledgements of a transaction, and returns them by cursor."""
        taken: dict[int, PendingAck] = {}
        for cursor_id in self.cursors_of.pop(txn, ()):
            found = self.by_cursor[cursor_id]
            pending = found.take(txn)
            if pending is not None:
                taken[cursor_id] = pending
            if not found.transactions:
                del self.by_cursor[cursor_id]
        return taken

    def drop_through(self, cursor_id: int, through: Position) -> list[TxnId]:
        """Drops all of a cursor at or below a position; returns the transactions that have nothing left in
        any cursor.
        """
        found = self.by_cursor.get(cursor_id)
        if found is None:
            return []
        gone = found.drop_through(through)
        if not found.transactions:
            del self.by_cursor[cursor_id]
        return self._without(cursor_id, gone)

    def forget(self, cursor_id: int) -> list[TxnId]:
        """Drops all of a cursor; returns the transactions that have nothing left in any cursor."""
        found = self.by_cursor.pop(cursor_id, None)
        return [] if found is None else self._without(cursor_id, found.transactions)

    def _without(self, cursor_id: int, transactions: Iterable[TxnId]) -> list[TxnId]:
        gone = []
        for txn in transactions:
            cursors = self.cursors_of[txn]
            cursors.discard(cursor_id)
            if not cursors:
                del self.cursors_of[txn]
                gone.append(txn)
        return gone

    def everything(self) -> Iterable[tuple[int, Mapping[TxnId, PendingAck]]]:
        """Yields the acknowledgements by cursor and transaction."""
        for cursor_id, found in self.by_cursor.items():
            yield cursor_id, found.transactions
