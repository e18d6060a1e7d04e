"""Publishing in transactions: messages are stored at once, and delivered once theirs is committed."""

from __future__ import annotations

from functools import partial

from magnetar.broker.stats import TopicStats
from magnetar.broker.topics.publish.client_refusals import RefusedMessage
from magnetar.broker.topics.publish.deduplicated_publishing import DeduplicatedPublishing
from magnetar.broker.topics.publish.pending_publish import PendingPublish, run_in
from magnetar.broker.topics.publish.producer import Producer
from magnetar.broker.topics.publish.publish_gate import PublishGate, TerminatedGate
from magnetar.broker.topics.publish.refusals import Refusals
from magnetar.common.errors import NotAllowed, StorageError, TransactionNotAllowed
from magnetar.common.naming.txn_id import TxnId
from magnetar.common.runtime.clock import Clock
from magnetar.common.wire.error_codes import code_of
from magnetar.common.wire.events import SendRun
from magnetar.ledger.managed_ledger.managed_ledger import ManagedLedger


class TransactionalPublishing:
    """Appends the runs of transactions to one topic; created with the first one, beside the path of others.

    The managed ledger registers each transaction before it stores anything of it, and refuses those that have
    ended. Receipts are those of any run.
    """

    __slots__ = ("_clock", "_enabled", "_ledger", "_refusals", "_stats")

    def __init__(
        self, ledger: ManagedLedger, refusals: Refusals, stats: TopicStats, clock: Clock, *, enabled: bool
    ) -> None:
        """`enabled`: whether this broker serves transactions. The rest is the topic's; borrowed."""
        self._ledger = ledger
        self._refusals = refusals
        self._stats = stats
        self._clock = clock
        self._enabled = enabled
        if enabled:
            ledger.use_transactions()

    def publish(
        self,
        txn: TxnId,
        gate: PublishGate | TerminatedGate | None,
        deduplication: DeduplicatedPublishing | None,
        producer: Producer,
        sends: SendRun,
    ) -> None:
        """Publishes a run; receipts or errors go to the producer's client, now or later."""
        if not self._enabled:
            refuse_all(self._refusals, producer, sends, transactions_are_off())
            return
        if gate is not None:
            admitted = gate.admit(producer, sends)
            if not isinstance(admitted, SendRun):
                publish = partial(self.publish, txn, gate, deduplication)
                self._refusals.refuse_from(publish, producer, sends, admitted)
                return
        if deduplication is not None:
            deduplication.publish(producer, sends, txn)
        else:
            self._append(txn, producer, sends)

    def _append(self, txn: TxnId, producer: Producer, sends: SendRun) -> None:
        run = run_in(txn, sends)
        pending = PendingPublish(producer, sends, run.byte_length, self._clock.monotonic())
        try:
            self._ledger.append(run, pending)
        except TransactionNotAllowed as error:
            refuse_all(self._refusals, producer, sends, error)
            return
        except StorageError as error:
            self._refusals.refuse_for_storage(producer, sends, error)
            return
        producer.pending_runs += 1
        producer.peer.publish_pending(run.byte_length)
        self._stats.count_publish(run)
        producer.stats.count_publish(run)


def transactions_are_off() -> TransactionNotAllowed:
    """Returns the error of a broker that does not serve transactions."""
    return TransactionNotAllowed(
        "this broker does not serve transactions: set transactionCoordinatorEnabled=true"
    )


def refuse_all(refusals: Refusals, producer: Producer, sends: SendRun, error: NotAllowed) -> None:
    """Refuses all messages of a run: their transaction may not have them, now or later."""
    code, reason = code_of(error), str(error)
    messages = [
        RefusedMessage(sends.highest_sequence_id(index), code, reason) for index in range(len(sends.entries))
    ]
    refusals.refuse(producer, messages)
