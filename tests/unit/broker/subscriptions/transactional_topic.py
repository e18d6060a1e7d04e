"""A topic in memory with entries in transactions, as far as a subscription needs them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from magnetar.broker.subscriptions.consumers.consumer import Consumer
from magnetar.common.errors import MagnetarError
from magnetar.common.naming.position import Position
from magnetar.common.naming.txn_id import Action, TxnId
from magnetar.ledger.ledger_store import RUN_TXN, Run
from magnetar.ledger.managed_ledger.cursor import Cursor
from magnetar.ledger.managed_ledger.pending_acks import CursorPending, PendingAck
from pyroaring import BitMap

from tests.unit.broker.subscriptions.serving import Serving, StoredTopic

A, B = TxnId(0, 0), TxnId(0, 1)


class TransactionalTopic(StoredTopic):
    """Entries are in the transaction that `txn` names when they are appended.

    Also stands for its transactions. Reading beyond the limit fails the test.
    """

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.transactions: Any = self
        self.txn: TxnId | None = None
        self.txns: list[TxnId | None] = []
        self.open: dict[TxnId, int] = {}
        """The first entry of each open transaction."""
        self.aborted: dict[int, BitMap] = {}
        self.examined = 0
        """Entries that were handed out, in any state."""
        self.asked = 0
        """Questions for the next position."""
        self.acks = CursorPending()
        """Pending acknowledgements of the one cursor."""
        self.failure: MagnetarError | None = None
        """The answer of storage to acknowledgements; None: durable."""

    def append(self, messages: int = 1, flags: int = 0, key: str | None = None) -> None:
        if self.txn is not None:
            self.open.setdefault(self.txn, len(self.counts))
            flags |= RUN_TXN
        self.txns.append(self.txn)
        super().append(messages, flags, key)

    def end(self, txn: TxnId, *, abort: bool) -> None:
        self.open.pop(txn, None)
        if abort:
            for number in [number for number, each in enumerate(self.txns) if each == txn]:
                position = self.position_of(number)
                self.aborted.setdefault(position.ledger_id, BitMap()).add(position.entry_id)

    # Acknowledgements

    def use_transactions(self) -> TransactionalTopic:
        return self

    def pending(self, cursor: Cursor) -> CursorPending | None:
        return self.acks if self.acks.transactions else None

    def ack(
        self, txn: TxnId, cursor: Cursor, asked: PendingAck, done: Callable[[MagnetarError | None], object]
    ) -> None:
        self.acks.check(txn, asked, cursor)
        self.acks.add(txn, asked)
        asyncio.get_running_loop().call_soon(done, self.failure)

    def settle_cursor(self, cursor: Cursor, through: Position) -> None:
        self.acks.drop_through(through)

    def is_aborted(self, ledger_id: int, entry_id: int) -> bool:
        return entry_id in self.aborted.get(ledger_id, ())

    @property
    def readable(self) -> int:
        """Number of the first entry that must not be read."""
        return min(self.open.values(), default=len(self.counts))

    def next_position(self, after: Position) -> Position | None:
        self.asked += 1
        found = super().next_position(after)
        return found if found is not None and self.number_of(found) < self.readable else None

    def _run(self, start: Position, entries_max: int) -> Run:
        first = self.number_of(start)
        assert first < self.readable, "an entry beyond the limit is read"
        same = 1
        while first + same < self.readable and self.txns[first + same] == self.txns[first]:
            same += 1
        run = super()._run(start, min(entries_max, same))
        run.txn = self.txns[first]
        self.examined += len(run.entries)
        return run


class TransactionalServing(Serving):
    """A subscription of a topic with transactions."""

    topic_type = TransactionalTopic
    topic: TransactionalTopic

    def publish_in(self, txn: TxnId | None, count: int = 1, messages: int = 1) -> None:
        self.topic.txn = txn
        self.publish(count, messages)
        self.topic.txn = None

    def end(self, txn: TxnId, *, abort: bool = False) -> None:
        def ended() -> None:
            self.topic.end(txn, abort=abort)
            acked = self.topic.acks.remove(txn)
            if acked is not None:
                if not abort:
                    acked.apply_to(self.cursor)
                self.subscription.transaction_ended(Action.ABORT if abort else Action.COMMIT, acked)
            self.subscription.read_limit_moved()

        self.do(ended)

    def ack_in(self, txn: TxnId, consumer: Consumer, *numbers: int) -> None:
        """Acknowledges whole entries in a transaction. Raises what the consumer would be answered."""
        acked = PendingAck()
        for number in numbers:
            position = self.topic.position_of(number)
            acked.individual.setdefault(position.ledger_id, BitMap()).add(position.entry_id)
        self._ack(txn, consumer, acked)

    def ack_bits_in(self, txn: TxnId, consumer: Consumer, number: int, bits: int, size: int) -> None:
        """Acknowledges some messages of a batch in a transaction."""
        self._ack(txn, consumer, PendingAck(batches={self.topic.position_of(number): (bits, size)}))

    def ack_cumulative_in(self, txn: TxnId, consumer: Consumer, number: int) -> None:
        self._ack(txn, consumer, PendingAck(cumulative=self.topic.position_of(number)))

    def ack_into_batch_in(self, txn: TxnId, consumer: Consumer, number: int, bits: int, size: int) -> None:
        """Acknowledges cumulatively up to the middle of a batch."""
        at = self.topic.position_of(number)
        before = Position(at.ledger_id, at.entry_id - 1)
        self._ack(txn, consumer, PendingAck(batches={at: (bits, size)}, cumulative=before))

    def _ack(self, txn: TxnId, consumer: Consumer, acked: PendingAck) -> None:
        told: list[MagnetarError | None] = []
        refused: list[MagnetarError] = []

        def ack() -> None:
            try:
                self.subscription.ack_in_transaction(txn, acked, consumer, told.append)
            except MagnetarError as error:
                refused.append(error)

        self.do(ack)
        if refused:
            assert told == []
            raise refused[0]
        assert told == [self.topic.failure]
