"""Messages that open transactions acknowledge in a subscription: withheld from every consumer until the end.

Whole entries are not delivered. Of a batch only the other messages are, which the ack set says. Cumulative
acknowledgements withhold nothing: a consumer that asks for a redelivery before the commit gets the messages
again, in order.
"""

from __future__ import annotations

from collections.abc import Sequence

from magnetar.ledger.ledger_store import Run
from magnetar.ledger.managed_ledger.cursor import Cursor
from magnetar.ledger.managed_ledger.pending_acks import CursorPending
from magnetar.ledger.managed_ledger.topic_transactions import TopicTransactions
from pyroaring import BitMap


class WithheldAcks:
    """Reads what is pending in one cursor. Implements entry_gate.EntryGate; has no state of its own."""

    __slots__ = ("_cursor", "_transactions")

    def __init__(self, transactions: TopicTransactions, cursor: Cursor) -> None:
        self._transactions = transactions
        self._cursor = cursor

    @property
    def _pending(self) -> CursorPending | None:
        return self._transactions.pending(self._cursor)

    @property
    def present(self) -> bool:
        """Whether anything is withheld now."""
        pending = self._pending
        return pending is not None and bool(pending.withheld or pending.batches)

    @property
    def entries(self) -> int:
        """Whole entries that are withheld."""
        pending = self._pending
        return 0 if pending is None else sum(map(len, pending.withheld.values()))

    def bits(self, ledger_id: int, entry_id: int) -> int:
        """Returns the withheld messages of a batch as bits; 0 without any."""
        pending = self._pending
        return 0 if pending is None else pending.batches.get((ledger_id, entry_id), 0)

    def withholds(self, ledger_id: int, entry_id: int, messages: int) -> bool:
        """Whether nothing of an entry with so many messages may be delivered."""
        pending = self._pending
        return pending is not None and self._withholds(pending, ledger_id, entry_id, messages)

    def _withholds(self, pending: CursorPending, ledger_id: int, entry_id: int, messages: int) -> bool:
        if entry_id in pending.withheld.get(ledger_id, ()):
            return True
        bits = pending.batches.get((ledger_id, entry_id), 0)
        if not bits:
            return False
        whole = (1 << messages) - 1
        return (bits | self._cursor.batch_acked(ledger_id, entry_id)) & whole == whole

    def hold(self, run: Run) -> Sequence[Run]:
        pending = self._pending
        if pending is None or not self._concerns(pending, run):
            return [run]
        parts: list[Run] = []
        start: int | None = None
        counts = run.message_counts
        for index in range(len(run.entries)):
            entry_id = run.first_entry_id + index
            if not self._withholds(pending, run.ledger_id, entry_id, 1 if counts is None else counts[index]):
                start = entry_id if start is None else start
            elif start is not None:
                parts.append(run.slice(start, entry_id - 1))
                start = None
        if start is not None:
            parts.append(run.slice(start, run.last_entry_id))
        return parts

    @staticmethod
    def _concerns(pending: CursorPending, run: Run) -> bool:
        whole = pending.withheld.get(run.ledger_id)
        if whole is not None and whole.range_cardinality(run.first_entry_id, run.last_entry_id + 1):
            return True
        # Never longer than the run: thousands of batches may be pending, anywhere in the topic.
        if len(pending.batches) > len(run.entries):
            ids = range(run.first_entry_id, run.last_entry_id + 1)
            return any((run.ledger_id, entry_id) in pending.batches for entry_id in ids)
        return any(
            ledger_id == run.ledger_id and run.first_entry_id <= entry_id <= run.last_entry_id
            for ledger_id, entry_id in pending.batches
        )

    def kept(self, ledger_id: int) -> BitMap | None:
        pending = self._pending
        return None if pending is None else pending.withheld.get(ledger_id)

    def clear(self) -> None:
        """Does nothing: the transactions of the topic have the state."""
