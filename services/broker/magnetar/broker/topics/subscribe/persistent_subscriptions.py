"""The subscriptions of a persistent topic, each over a cursor of its managed ledger."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence

from magnetar.broker.byte_budget import ByteBudget
from magnetar.broker.client_endings import EndCode
from magnetar.broker.latencies import SAMPLER
from magnetar.broker.stats import TopicStats
from magnetar.broker.subscriptions.config import DispatchConfig
from magnetar.broker.subscriptions.consumers.consumer import Consumer
from magnetar.broker.subscriptions.entries.compacted_source import BEFORE_VIEW
from magnetar.broker.subscriptions.filters.delay_gate import delay_tick_ms
from magnetar.broker.subscriptions.limits.broker_unacked_limit import BrokerUnackedLimit
from magnetar.broker.subscriptions.limits.dispatch_rate import DispatchLimit
from magnetar.broker.subscriptions.subscription import Subscription
from magnetar.broker.subscriptions.types.table import TYPES, check_allowed
from magnetar.broker.task_spawner import Spawn
from magnetar.broker.tenure import Tenure
from magnetar.broker.topics.compaction_state import COMPACTION_SUBSCRIPTION
from magnetar.broker.topics.stored_entries import messages_of
from magnetar.broker.topics.subscribe.any_subscription import AnySubscription, close_consumers
from magnetar.broker.topics.subscribe.consumer_limits import (
    check_one_more_consumer,
    check_one_more_subscription,
)
from magnetar.broker.topics.subscribe.dispatch_rates import DispatchRates
from magnetar.broker.topics.subscribe.holder_liveness import holders_are_gone
from magnetar.broker.topics.subscribe.subscribe_rate import SubscribeRate
from magnetar.broker.topics.subscribe.subscribe_request import SubscribeRequest
from magnetar.broker.topics.subscribe.topic_subscriptions import TopicSubscriptions
from magnetar.broker.topics.topic_state import TopicState
from magnetar.common.errors import (
    ConsumerAssignFailed,
    ConsumerBusy,
    NotAllowed,
    SubscriptionNotFound,
    TooManyConsumers,
    UnsubscribeRefused,
)
from magnetar.common.naming.position import Position
from magnetar.common.runtime.clock import Clock
from magnetar.common.wire.ack_set import words_to_acked_bits
from magnetar.ledger.ledger_store import Run
from magnetar.ledger.managed_ledger.cursor import Cursor
from magnetar.ledger.managed_ledger.managed_ledger import ManagedLedger


class PersistentSubscriptions(TopicSubscriptions[Subscription]):
    """Creates and deletes subscriptions with their cursors, one at a time, and connects consumers to them."""

    __slots__ = (
        "_broker_unacked",
        "_budget",
        "_clock",
        "_config",
        "_dispatch_limit",
        "_dispatch_rates",
        "_ledger",
        "_lock",
        "_spawn",
        "_stats",
        "_subscribe_rate",
        "_tenure",
    )

    def __init__(
        self,
        state: TopicState,
        ledger: ManagedLedger,
        config: DispatchConfig,
        budget: ByteBudget,
        stats: TopicStats,
        clock: Clock,
        spawn: Spawn,
        broker_unacked: BrokerUnackedLimit | None,
        dispatch_rates: DispatchRates | None,
        tenure: Tenure | None,
    ) -> None:
        """Opens a subscription for each cursor of the ledger. `ledger` and `stats` are those of the topic;
        borrowed. `tenure`: None where there is no other broker that may own the topic.
        """
        super().__init__(state)
        self._ledger = ledger
        self._config = config
        self._budget = budget
        self._stats = stats
        self._clock = clock
        self._spawn = spawn
        self._broker_unacked = broker_unacked
        self._dispatch_rates = dispatch_rates
        self._dispatch_limit: DispatchLimit | None = None
        self._subscribe_rate: SubscribeRate | None = None
        self._tenure = tenure
        self._lock = asyncio.Lock()
        for cursor in ledger.cursors.values():
            self._add(cursor)

    def apply_policies(self) -> None:
        """Applies the limits in force to all subscriptions."""
        policies = self._state.policies
        self._limit_dispatch(self._by_name.values())
        for subscription in self._by_name.values():
            subscription.limit_unacked(
                policies.max_unacked_per_subscription, policies.max_unacked_per_consumer
            )
            subscription.delay_delivery(delay_tick_ms(policies))

    def wake(self, confirmed: Run) -> None:
        """Lets all subscriptions dispatch again: the topic has new entries, `confirmed` first."""
        if self._by_name:
            now = self._clock.monotonic()
            if SAMPLER.due(now):
                SAMPLER.follow(confirmed, self._by_name.values(), now, self._clock)
            for subscription in self._by_name.values():
                subscription.wake()

    def read_limit_moved(self) -> None:
        """Lets all subscriptions deliver what a transaction held back until its end."""
        for subscription in self._by_name.values():
            subscription.read_limit_moved()

    async def subscribe(self, request: SubscribeRequest) -> tuple[AnySubscription, Consumer]:
        check_allowed(request.type, self._state.policies.subscription_types)
        _check_not_reserved(request.subscription)
        if self._state.policies.subscribes_per_consumer:
            self._subscribe_rate = self._subscribe_rate or SubscribeRate()
            self._subscribe_rate.check(request, self._state.policies, self._clock.monotonic())
        try:
            return await self._connect(request)
        except TooManyConsumers:
            raise
        except (ConsumerBusy, ConsumerAssignFailed) as refusal:
            if not await holders_are_gone(self._by_name.get(request.subscription), request, refusal):
                raise
        return await self._connect(request)

    async def _connect(self, request: SubscribeRequest) -> tuple[AnySubscription, Consumer]:
        async with self._lock:
            self._state.check_open()
            check_one_more_consumer(
                self._state.policies, self._state.name, self._by_name, request.subscription, request.peer
            )
            subscription = self._by_name.get(request.subscription)
            new = subscription is None
            if subscription is None:
                subscription = await self._create(request)
            elif subscription.cursor.durable != request.durable:
                kind = "Durable" if subscription.cursor.durable else "NonDurable"
                raise NotAllowed(f"{kind} subscription with the same name already exists.")
            elif request.properties and not subscription.properties:
                await self._ledger.describe_cursor(subscription.cursor, request.properties)
            self._state.check_open()
            consumer = Consumer(
                request.options,
                request.peer,
                partition=self._state.name.partition_index,
                unacked_max=self._state.policies.max_unacked_per_consumer,
                clock=self._clock,
                sends_entry_metadata=request.sends_entry_metadata,
            )
            if TYPES[request.type].individual:
                consumer.epoch = None
            try:
                subscription.add_consumer(consumer, request.type)
            except ConsumerAssignFailed:
                if new:
                    await self._delete(subscription)  # as if the consumer had never connected
                raise
            return subscription, consumer

    async def _create(self, request: SubscribeRequest) -> Subscription:
        if request.durable and not self._state.policies.auto_subscription_creation:
            raise SubscriptionNotFound(
                f"subscription {request.subscription!r} does not exist on {self._state.name} and "
                "allowAutoSubscriptionCreation is off; create it first"
            )
        check_one_more_subscription(self._state.policies, self._state.name, len(self._by_name))
        position = await self._start_position(request)
        name, compacted = request.subscription, request.read_compacted
        if request.durable:
            cursor = await self._ledger.create_cursor(
                name, position, request.properties, reads_view=compacted
            )
        else:
            cursor = self._ledger.open_non_durable_cursor(name, position, reads_view=compacted)
            cursor.properties.update(request.properties)
        return self._add(cursor)

    async def _start_position(self, request: SubscribeRequest) -> Position:
        """The mark-delete position of a new subscription.

        One that reads the compacted view starts with it from the earliest position and, if it is not durable,
        without a start of its own, as in Apache Pulsar.
        """
        compacted = request.read_compacted
        if request.rollback_s:
            since_ms = self._clock.wall_ms() - request.rollback_s * 1000
            return await self._before_publish_time(since_ms, compacted)
        if request.start is not None and not request.durable:
            # One step back: the entry itself is delivered, because it may be a batch of which only a part was
            # read, and the client drops the messages that it has read.
            return self._mark_delete_before(request.start, compacted)
        if request.from_earliest or (compacted and not request.durable):
            return self._first_position(compacted)
        return self._ledger.last_position

    def _first_position(self, compacted: bool) -> Position:
        """The position before the first entry that a subscription can read."""
        in_view = compacted and self._ledger.compaction.horizon is not None
        return BEFORE_VIEW if in_view else self._ledger.first_position()

    async def _before_publish_time(self, publish_time_ms: int, compacted: bool) -> Position:
        """The position before the first entry published at this time or later.

        Where the topic begins later, the compacted view is searched.
        """
        position = await self._ledger.find_before_publish_time(publish_time_ms)
        if compacted and (not self._ledger.entries or position <= self._ledger.first_position()):
            found = await self._ledger.compaction.first_at_time(publish_time_ms)
            if found is not None:
                return Position(found.ledger_id, found.entry_id - 1)
        return position

    def _mark_delete_before(self, position: Position, compacted: bool = False) -> Position:
        """The mark-delete position that makes the entry at `position` the next one; within the topic."""
        first, last = self._first_position(compacted), self._ledger.last_position
        if position.ledger_id < 0:
            return first
        return min(max(Position(position.ledger_id, position.entry_id - 1), first), last)

    async def create(self, name: str) -> None:
        if not self._state.policies.auto_subscription_creation and name not in self._by_name:
            raise NotAllowed(
                f"no subscription {name!r} on {self._state.name}: allowAutoSubscriptionCreation is off"
            )
        await self.create_at(name, self._ledger.first_position(), {})

    async def create_at(self, name: str, position: Position, properties: dict[str, str]) -> bool:
        _check_not_reserved(name)
        async with self._lock:
            self._state.check_open()
            if name in self._by_name:
                return False
            check_one_more_subscription(self._state.policies, self._state.name, len(self._by_name))
            self._add(await self._ledger.create_cursor(name, position, properties))
            return True

    async def describe(self, subscription: AnySubscription, properties: dict[str, str]) -> None:
        async with self._lock:
            await self._ledger.describe_cursor(self._ours(subscription).cursor, properties)

    def _ours(self, subscription: AnySubscription) -> Subscription:
        ours = self._by_name.get(subscription.name)
        if ours is None or ours is not subscription:
            raise SubscriptionNotFound(
                f"subscription {subscription.name!r} of {self._state.name} was deleted"
            )
        return ours

    async def adopt(self, others: Mapping[str, AnySubscription]) -> None:
        async with self._lock:
            self._state.check_open()
            for name, theirs in sorted(others.items()):
                if name in self._by_name or not isinstance(theirs, Subscription):
                    continue
                if theirs.cursor.durable:
                    start, properties = self._ledger.first_position(), dict(theirs.cursor.properties)
                    self._add(await self._ledger.create_cursor(name, start, properties))

    async def unsubscribe(self, subscription: AnySubscription, consumer: Consumer, *, force: bool) -> None:
        async with self._lock:
            self._ours(subscription)
            if not force and subscription.consumers != [consumer]:
                raise UnsubscribeRefused("Unconnected or shared consumer attempting to unsubscribe")
            if force:
                close_consumers(subscription, EndCode.UNSUBSCRIBED)
            else:
                subscription.remove_consumer(consumer)
            await self._delete(subscription)

    async def delete_unused(
        self, subscription: AnySubscription, expired: Callable[[], bool] = lambda: True
    ) -> bool:
        async with self._lock:
            if self._by_name.get(subscription.name) is not subscription or subscription.consumers:
                return False
            if not expired():
                return False
            await self._delete(subscription)
            return True

    async def _delete(self, subscription: AnySubscription) -> None:
        # When storage refuses, the deletion is written later; it cannot be undone, so the subscription is
        # removed from here first.
        del self._by_name[subscription.name]
        await self._ledger.delete_cursor(subscription.name)

    def remove_consumer(self, subscription: AnySubscription, consumer: Consumer) -> None:
        subscription.remove_consumer(consumer)
        ours = self._by_name.get(subscription.name)
        if ours is subscription and not ours.cursor.durable and not ours.consumers:
            # A non-durable subscription is deleted with its last consumer, and its name is free at once.
            del self._by_name[subscription.name]
            self._ledger.close_cursor(ours.cursor)

    async def seek(
        self, subscription: AnySubscription, position: Position, unacked_words: Sequence[int] | None
    ) -> None:
        target = self._mark_delete_before(position, self._ours(subscription).cursor.reads_view)
        ours = await self._reset(subscription, target)
        if unacked_words:
            size = await messages_of(self._ledger, position, self._config.read_bytes_max)
            acked = words_to_acked_bits(unacked_words, size)
            ours.cursor.ack_batch(position.ledger_id, position.entry_id, acked, size)

    async def seek_time(self, subscription: AnySubscription, publish_time_ms: int) -> None:
        compacted = self._ours(subscription).cursor.reads_view
        await self._reset(subscription, await self._before_publish_time(publish_time_ms, compacted))

    async def _reset(self, subscription: AnySubscription, mark_delete: Position) -> Subscription:
        async with self._lock:
            ours = self._ours(subscription)
            close_consumers(ours, EndCode.CURSOR_RESET)
            await self._ledger.reset_cursor(ours.cursor, mark_delete)
            ours.rewind()
            return ours

    def mark_delete_position(self, subscription: AnySubscription) -> Position | None:
        ours = self._by_name.get(subscription.name)
        return None if ours is None else ours.cursor.mark_delete

    def _add(self, cursor: Cursor) -> Subscription:
        subscription = Subscription(
            self._ledger,
            cursor,
            self._config,
            self._budget,
            self._stats,
            self._spawn,
            unacked_max=self._state.policies.max_unacked_per_subscription,
            broker_limit=self._broker_unacked,
            tenure=self._tenure,
        )
        self._by_name[cursor.name] = subscription
        subscription.delay_delivery(delay_tick_ms(self._state.policies))
        self._limit_dispatch([subscription])
        return subscription

    def _limit_dispatch(self, subscriptions: Iterable[Subscription]) -> None:
        if self._dispatch_rates is not None:
            self._dispatch_limit = self._dispatch_rates.limit(
                subscriptions, self._state.policies, self._dispatch_limit, self._stats
            )


def _check_not_reserved(name: str) -> None:
    if name == COMPACTION_SUBSCRIPTION:
        raise NotAllowed(f"subscription {name} is reserved for compaction; use another name")
