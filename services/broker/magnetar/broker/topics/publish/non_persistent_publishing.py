"""The publish path of a non-persistent topic: messages go to connected consumers at once, and are not stored.

Receipts are sent at once with the id 0:0. Messages that no consumer can take are dropped (Pulsar's concepts,
non-persistent topics).
"""

from __future__ import annotations

from collections.abc import Collection

from magnetar.broker.message_drops import NonPersistentTopicStats
from magnetar.broker.subscriptions.non_persistent_subscription import NonPersistentSubscription
from magnetar.broker.topics.publish.in_process_limit import InProcess
from magnetar.broker.topics.publish.pending_publish import part_of, run_of
from magnetar.broker.topics.publish.producer import Producer
from magnetar.broker.topics.publish.publish_gate import PublishGate, PublishLimits
from magnetar.broker.topics.publish.refusals import Refusals
from magnetar.broker.topics.publish.transactional_publishing import refuse_all
from magnetar.broker.topics.topic_state import TopicState
from magnetar.common.errors import TransactionNotAllowed
from magnetar.common.naming.txn_id import TxnId
from magnetar.common.wire.events import SendRun
from magnetar.common.wire.receipts import receipt


class NonPersistentPublishing:
    """Hands runs of entries to the subscriptions and answers their producers."""

    __slots__ = ("_in_process", "_limits", "_refusals", "_state", "_stats", "_subscriptions", "gate")

    def __init__(
        self,
        state: TopicState,
        subscriptions: Collection[NonPersistentSubscription],
        refusals: Refusals,
        limits: PublishLimits | None,
        stats: NonPersistentTopicStats,
        in_process: InProcess,
    ) -> None:
        """`limits`: None for a topic without publish limits. `subscriptions` (a live view), `refusals` and
        `stats` are those of the topic; borrowed.
        """
        self._state = state
        self._subscriptions = subscriptions
        self._refusals = refusals
        self._limits = limits
        self._stats = stats
        self._in_process = in_process
        self.gate: PublishGate | None = None if limits is None else limits.gate(state.policies)
        """Checks that messages have to pass; None without limits."""

    @property
    def times_rate_limited(self) -> int:
        """Number of times that reading a connection paused because of a publish rate, since the rate was
        set.
        """
        return 0 if self.gate is None else self.gate.times_limited

    @property
    def deduplicates(self) -> bool:
        """False: duplicates of messages that are not stored cannot be detected."""
        return False

    def last_sequence_id(self, producer_name: str) -> int:
        """-1: sequence ids are not kept."""
        return -1

    def apply_policies(self) -> None:
        """Applies the limits in force."""
        if self._limits is not None:
            self.gate = self._limits.gate(self._state.policies, self.gate)

    def publish(self, producer: Producer, sends: SendRun) -> None:
        if self.gate is not None:
            admitted = self.gate.admit(producer, sends)
            if not isinstance(admitted, SendRun):
                self._refusals.refuse_from(self.publish, producer, sends, admitted)
                return
        taken = self._in_process.take(producer.peer, len(sends.entries))
        if taken < len(sends.entries):
            self._publish_some(producer, sends, taken)
            return
        self._publish(producer, sends)

    def publish_in(self, txn: TxnId, producer: Producer, sends: SendRun) -> None:
        refuse_all(
            self._refusals,
            producer,
            sends,
            TransactionNotAllowed(
                f"topic {self._state.name} is non-persistent: it takes no messages in transactions"
            ),
        )

    def _publish_some(self, producer: Producer, sends: SendRun, taken: int) -> None:
        """Publishes the first `taken` entries and drops the others: the connection has too many in
        process.
        """
        part = part_of(sends, range(taken))
        if part is not None:
            self._publish(producer, part)
        counts = sends.message_counts
        dropped = len(sends.entries) - taken if counts is None else sum(counts[taken:])
        self._stats.count_drops(producer.name, dropped)
        for index in range(taken, len(sends.entries)):
            producer.peer.write(_receipt(producer.producer_id, sends, index, dropped=True))

    def _publish(self, producer: Producer, sends: SendRun) -> None:
        for subscription in self._subscriptions:
            subscription.publish(sends.entries, sends.message_counts)
        for index in range(len(sends.entries)):
            producer.peer.write(_receipt(producer.producer_id, sends, index))
        run = run_of(sends)
        self._stats.count_publish(run)
        producer.stats.count_publish(run)


def _receipt(producer_id: int, sends: SendRun, index: int, *, dropped: bool = False) -> bytes:
    highest = sends.highest_sequence_id(index) if sends.highest_varints is not None else 0
    where = -1 if dropped else 0
    return receipt(producer_id, sends.sequence_id(index), where, where, highest)
