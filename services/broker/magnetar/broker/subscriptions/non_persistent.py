"""A subscription of a non-persistent topic: whoever can take a message now gets it, else it is dropped.

Nothing is stored or buffered: no acknowledgements, no redelivery, no backlog (Pulsar's concepts,
non-persistent topics).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from magnetar.broker.dispatch.failover import FailoverDispatcher
from magnetar.broker.dispatch.key_shared.dispatcher import KeySharedDispatcher
from magnetar.broker.dispatch.shared import SharedDispatcher
from magnetar.broker.message_drops import DROPPED_AT_SUBSCRIPTION, NonPersistentSubscriptionStats
from magnetar.broker.stats import TopicStats
from magnetar.broker.subscriptions.config import DispatchConfig
from magnetar.broker.subscriptions.consumer import Consumer
from magnetar.broker.subscriptions.failover_delivery import tell_active
from magnetar.broker.subscriptions.membership import Membership, SubType, WithMembers
from magnetar.common.errors import MagnetarError
from magnetar.common.naming.position import Position
from magnetar.ledger.ledger_store import Run


class NonPersistentSubscription(WithMembers):
    """Hands each published entry to a consumer with permits."""

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
        """Whether it stays when its last consumer has left; nothing of it is stored."""
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
        """Nothing waits: messages are given out at once or dropped."""
        return 0

    @property
    def in_replay(self) -> int:
        return 0

    @property
    def acks_at_risk(self) -> int:
        """Nothing is kept of what is acknowledged, and nothing comes back."""
        return 0

    @property
    def mark_deleted_ms(self) -> int:
        return 0

    def why_not_dispatching(self) -> str | None:
        reasons = [consumer.held_back_by for consumer in self.consumers]
        if not reasons:
            return "no consumer is connected: messages are dropped"
        return "messages are dropped: " + "; ".join(filter(None, reasons)) if all(reasons) else None

    def add_consumer(self, consumer: Consumer, sub_type: SubType.ValueType) -> None:
        before = self._active
        self._members.add(consumer, sub_type)
        if self._active is not before:
            self._tell_active()
        elif self._active is not None:
            # Behind the answer to its Subscribe, which is written in this turn of the event loop.
            asyncio.get_running_loop().call_soon(consumer.tell_active, False)

    def remove_consumer(self, consumer: Consumer) -> None:
        before = self._active
        self._members.remove(consumer)
        if self._active is not before:
            self._tell_active()

    @property
    def _active(self) -> Consumer | None:
        dispatcher = self._members.dispatcher
        return dispatcher.active if isinstance(dispatcher, FailoverDispatcher) else None

    def _tell_active(self) -> None:
        # Behind the answer to a Subscribe. There is nothing to wait for: nothing is delivered again.
        asyncio.get_running_loop().call_soon(lambda: tell_active(self.consumers, self._active))

    def add_permits(self, consumer: Consumer, permits: int) -> None:
        consumer.permits += permits

    def wake(self) -> None:
        """Nothing waits here."""

    def publish(self, entries: Sequence[bytes], message_counts: Sequence[int] | None) -> None:
        """Deliver or drop each entry, now."""
        dropped = 0
        for index, entry in enumerate(entries):
            messages = 1 if message_counts is None else message_counts[index]
            dispatcher = self._members.dispatcher
            if isinstance(dispatcher, KeySharedDispatcher):
                choice = dispatcher.next_for(entry)
            else:
                choice = None if dispatcher is None else dispatcher.next()
            if choice is None:
                dropped += messages
                continue
            # Every message of a non-persistent topic has the id 0:0.
            run = Run([entry], message_counts=[messages], ledger_id=0, first_entry_id=0)
            choice[0].deliver(run, messages)
            if isinstance(dispatcher, SharedDispatcher):
                dispatcher.took()
            self.stats.messages_out += messages
            self.stats.bytes_out += len(entry)
            self._topic_stats.messages_out += messages
            self._topic_stats.bytes_out += len(entry)
        if dropped:
            self.stats.drops.messages += dropped
            DROPPED_AT_SUBSCRIPTION.inc(dropped)

    def ack(self, ledger_id: int, entry_id: int, consumer: Consumer) -> None:
        """Nothing to remember."""

    def ack_many(self, ledger_id: int, entry_ids: Sequence[int], consumer: Consumer) -> None:
        """Nothing to remember."""

    def ack_batch(
        self, ledger_id: int, entry_id: int, acked_bits: int, batch_size: int, consumer: Consumer
    ) -> None:
        """Nothing to remember."""

    def ack_cumulative(self, position: Position, consumer: Consumer) -> None:
        """Nothing to remember."""

    def when_persisted(self, done: Callable[[MagnetarError | None], None]) -> None:
        done(None)

    def redeliver(self, consumer: Consumer, positions: Sequence[Position] | None, epoch: int | None) -> None:
        """Nothing to deliver again."""
