"""A subscription of a non-persistent topic: a message that no consumer can take now is dropped.

Nothing is stored or buffered: no acknowledgements, no redelivery, no backlog (Pulsar's concepts,
non-persistent topics).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace

from magnetar.broker.dispatch.eligibility import Code, reason
from magnetar.broker.message_drops import DROPPED_AT_SUBSCRIPTION, NonPersistentSubscriptionStats
from magnetar.broker.reason import Reason, in_words
from magnetar.broker.stats import TopicStats
from magnetar.broker.subscriptions.config import DispatchConfig
from magnetar.broker.subscriptions.consumers.consumer import Consumer
from magnetar.broker.subscriptions.membership import Membership, WithMembers
from magnetar.broker.subscriptions.types.failover import tell_active
from magnetar.broker.subscriptions.types.subscription_type import SubType
from magnetar.common.errors import MagnetarError, TransactionNotAllowed
from magnetar.common.naming.position import Position
from magnetar.common.naming.txn_id import TxnId
from magnetar.ledger.ledger_store import Run
from magnetar.ledger.managed_ledger.pending_acks import PendingAck


class NonPersistentSubscription(WithMembers):
    """Sends each published entry to a consumer with permits."""

    def __init__(
        self,
        name: str,
        topic: str,
        config: DispatchConfig,
        topic_stats: TopicStats,
        properties: dict[str, str] | None = None,
        *,
        durable: bool = True,
    ) -> None:
        super().__init__(Membership(name, topic, config))
        self.name = name
        self.durable = durable
        """True when it remains after its last consumer left; nothing of it is stored."""
        self.properties = properties or {}
        self.stats = NonPersistentSubscriptionStats()
        self._topic_stats = topic_stats

    @property
    def unacked_messages(self) -> int:
        return 0

    @property
    def blocked_on_unacked(self) -> bool:
        return False

    def backlog(self) -> int:
        return 0

    @property
    def delayed(self) -> int:
        """Always 0: messages are delivered at once or dropped."""
        return 0

    @property
    def in_replay(self) -> int:
        return 0

    @property
    def acks_at_risk(self) -> int:
        """Always 0: acknowledgements are not stored, and nothing is redelivered."""
        return 0

    @property
    def mark_deleted_ms(self) -> int:
        return 0

    def why_not_dispatching(self) -> str | None:
        """Explains in words why messages are dropped now; None when they are not."""
        found = in_words(self.reasons())
        if not self.consumers or found is None:
            return found
        return f"messages are dropped: {found}"

    def reasons(self) -> list[Reason]:
        """Explains why messages are dropped now; none of the reasons `stops` when some consumer gets them."""
        held = [consumer.held_back_by for consumer in self.consumers]
        if not held:
            return [reason(Code.NO_CONSUMER, "no consumer is connected: messages are dropped")]
        all_held = all(each is not None for each in held)
        return [replace(each, stops=all_held) for each in held if each is not None]

    def add_consumer(self, consumer: Consumer, sub_type: SubType.ValueType) -> None:
        before = self._members.announced
        self._members.add(consumer, sub_type)
        active = self._members.announced
        if active is not before:
            self._tell_active()
        elif active is not None:
            # Sent after the response to its Subscribe, which is written in this turn of the event loop.
            asyncio.get_running_loop().call_soon(consumer.tell_active, False)

    def remove_consumer(self, consumer: Consumer) -> None:
        before = self._members.announced
        self._members.remove(consumer)
        if self._members.announced is not before:
            self._tell_active()

    def _tell_active(self) -> None:
        # Sent after the response to a Subscribe. No delay is needed: nothing is redelivered.
        asyncio.get_running_loop().call_soon(lambda: tell_active(self.consumers, self._members.announced))

    def add_permits(self, consumer: Consumer, permits: int) -> None:
        consumer.permits += permits

    def wake(self) -> None:
        """Does nothing: no entry waits."""

    def publish(self, entries: Sequence[bytes], message_counts: Sequence[int] | None) -> None:
        """Delivers or drops each entry now."""
        dropped = 0
        choose = self._members.choose
        for index, entry in enumerate(entries):
            messages = 1 if message_counts is None else message_counts[index]
            choice = choose(entry)
            if choice is None:
                dropped += messages
                continue
            # Every message of a non-persistent topic has the id 0:0.
            run = Run([entry], message_counts=[messages], ledger_id=0, first_entry_id=0)
            choice[0].deliver(run, messages)
            self.stats.messages_out += messages
            self.stats.bytes_out += len(entry)
            self._topic_stats.messages_out += messages
            self._topic_stats.bytes_out += len(entry)
        if dropped:
            self.stats.drops.messages += dropped
            DROPPED_AT_SUBSCRIPTION.inc(dropped)

    def ack(self, ledger_id: int, entry_id: int, consumer: Consumer) -> None:
        """Does nothing: acknowledgements are not stored."""

    def ack_many(self, ledger_id: int, entry_ids: Sequence[int], consumer: Consumer) -> None:
        """Does nothing: acknowledgements are not stored."""

    def ack_batch(
        self, ledger_id: int, entry_id: int, acked_bits: int, batch_size: int, consumer: Consumer
    ) -> None:
        """Does nothing: acknowledgements are not stored."""

    def ack_cumulative(self, position: Position, consumer: Consumer) -> None:
        """Does nothing: acknowledgements are not stored."""

    def ack_in_transaction(
        self,
        txn: TxnId,
        acked: PendingAck,
        consumer: Consumer,
        done: Callable[[MagnetarError | None], object],
    ) -> None:
        """Refuses: acknowledgements are not stored."""
        raise TransactionNotAllowed("a non-persistent topic does not take part in transactions")

    def when_persisted(self, done: Callable[[MagnetarError | None], None]) -> None:
        done(None)

    def redeliver(self, consumer: Consumer, positions: Sequence[Position] | None, epoch: int | None) -> None:
        """Does nothing: nothing is redelivered."""
