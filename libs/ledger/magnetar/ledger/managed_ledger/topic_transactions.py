"""The transactions of a loaded topic: which are open, which entries were aborted, and what is pending."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from magnetar.common.errors import MagnetarError
from magnetar.common.naming.position import Position
from magnetar.common.naming.txn_id import Action, TxnId
from magnetar.ledger.managed_ledger.cursor import Cursor
from magnetar.ledger.managed_ledger.pending_acks import CursorPending, PendingAck
from magnetar.ledger.managed_ledger.transaction_state import OpenTransaction
from pyroaring import BitMap

Done = Callable[[MagnetarError | None], None]

Ended = Callable[[TxnId, Action, Sequence[tuple[Cursor, PendingAck]]], None]
"""Called with a transaction that has ended, and its acknowledgements by cursor: they are in the cursors' state
after a commit, and given back after an abort.
"""


def ignore_end(txn: TxnId, action: Action, acks: Sequence[tuple[Cursor, PendingAck]]) -> None:
    """Does nothing about the end of a transaction."""


class TopicTransactions:
    """The transactions of one loaded topic, made with the first one."""

    @property
    def open(self) -> Mapping[TxnId, OpenTransaction]:
        """Transactions with messages or acknowledgements here that have not ended here."""
        raise NotImplementedError

    @property
    def aborted(self) -> Mapping[int, BitMap]:
        """Entries of aborted transactions, by ledger; read-only."""
        raise NotImplementedError

    @property
    def low_watermarks(self) -> Mapping[int, int]:
        """By coordinator, the number up to which all of its transactions are known to be over."""
        raise NotImplementedError

    @property
    def ended(self) -> Mapping[Action, int]:
        """Number of transactions that ended here since the load, of those that had anything here."""
        raise NotImplementedError

    def outcome(self, txn: TxnId) -> Action | None:
        """Returns how a transaction ended here, while that is remembered."""
        raise NotImplementedError

    def accept(self, txn: TxnId) -> None:
        """Registers a run of a transaction that is about to be appended: nothing after it is readable from
        here on. `ManagedLedger.append` calls this. Raises TransactionNotAllowed if the transaction is over.
        """
        raise NotImplementedError

    def is_aborted(self, ledger_id: int, entry_id: int) -> bool:
        """Returns whether an entry belongs to an aborted transaction."""
        raise NotImplementedError

    def last_readable(self) -> Position:
        """Returns the last entry that a reader gets: up to the read limit, and not aborted. Its entry id is
        -1 without one.
        """
        raise NotImplementedError

    def end(self, txn: TxnId, action: Action, low_watermark: int, done: Done) -> None:
        """Ends a transaction here: its messages, and its acknowledgements in all cursors. Idempotent.

        `done` is called, never from inside, once the outcome is durable and applied, or with an error that
        may pass; InvalidTxnStatus if the other action is recorded. `low_watermark`: every lower or equal
        number of its coordinator is over; -1: not known.
        """
        raise NotImplementedError

    def ack(self, txn: TxnId, cursor: Cursor, pending: PendingAck, done: Done) -> None:
        """Adds acknowledgements that take effect when the transaction is committed. Takes over `pending`.

        `done` is called, never from inside, once they are durable. After an error they may be durable or
        not, so they stay pending until the transaction ends; repeat the call or abort. Raises
        TransactionConflict if messages are acknowledged, or pending in another transaction;
        TransactionNotAllowed if the transaction is over, or the cursor is not durable.
        """
        raise NotImplementedError

    def pending(self, cursor: Cursor) -> CursorPending | None:
        """Returns the pending acknowledgements of a cursor; None without any. Valid until the next change."""
        raise NotImplementedError

    def settle_cursor(self, cursor: Cursor, through: Position) -> None:
        """Drops pending acknowledgements at or below a position, which the cursor has passed otherwise."""
        raise NotImplementedError

    def forget_cursor(self, cursor: Cursor) -> None:
        """Drops the pending acknowledgements of a deleted cursor."""
        raise NotImplementedError
