"""A persistent topic: its subscriptions and consumers, over a managed ledger that its producers write to."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence

from magnetar.broker.byte_budget import ByteBudget
from magnetar.broker.config import BrokerConfig
from magnetar.broker.offload.figures import offloaded_bytes
from magnetar.broker.ownership.lease import Lease, Tenure
from magnetar.broker.policies.effective import EffectivePolicies
from magnetar.broker.policies.offloading import rules_of
from magnetar.broker.spawn import Spawn
from magnetar.broker.subscriptions.broker_unacked_limit import BrokerUnackedLimit
from magnetar.broker.subscriptions.consumer import Consumer
from magnetar.broker.subscriptions.delay_gate import delay_tick_ms
from magnetar.broker.subscriptions.dispatch_rate import DispatchLimit
from magnetar.broker.subscriptions.membership import SubType, check_allowed
from magnetar.broker.subscriptions.subscription import Subscription
from magnetar.broker.topics.backlog import backlog_quota, topic_backlog
from magnetar.broker.topics.backlog.retention import retention_of
from magnetar.broker.topics.publish.persistent_publishing import PersistentPublishing
from magnetar.broker.topics.publish.publish_gate import PublishLimits
from magnetar.broker.topics.subscribe.consumer_limits import (
    check_one_more_consumer,
    check_one_more_subscription,
)
from magnetar.broker.topics.subscribe.dispatch_rates import DispatchRates
from magnetar.broker.topics.subscribe.holder_liveness import holders_are_gone
from magnetar.broker.topics.subscribe.subscribe_rate import SubscribeRate
from magnetar.broker.topics.topic import AnySubscription, SubscribeRequest, Topic, close_consumers
from magnetar.common.errors import (
    ConsumerAssignFailed,
    ConsumerBusy,
    NotAllowed,
    OwnershipLost,
    StorageError,
    SubscriptionNotFound,
    TooManyConsumers,
    UnsubscribeRefused,
)
from magnetar.common.naming.position import Position
from magnetar.common.naming.topic_name import TopicName
from magnetar.common.obs.logs import get_logger
from magnetar.common.runtime.clock import Clock
from magnetar.common.wire.ack_set import words_to_acked_bits
from magnetar.common.wire.batch import parse_metadata
from magnetar.ledger.managed_ledger.cursor import Cursor
from magnetar.ledger.managed_ledger.entry_cache import ReadCounts
from magnetar.ledger.managed_ledger.managed_ledger import ManagedLedger

log = get_logger(__name__)


class PersistentTopic(PersistentPublishing):
    """Subscriptions and consumers of one persistent topic, and what it is as a whole."""

    __slots__ = (
        "_broker_unacked",
        "_budget",
        "_copies",
        "_dispatch_limit",
        "_dispatch_rates",
        "_on_gone",
        "_subscribe_rate",
        "_subscriptions",
        "_subscriptions_lock",
        "_tenure",
        "oldest_entry",
    )

    def __init__(
        self,
        name: TopicName,
        policies: EffectivePolicies,
        config: BrokerConfig,
        budget: ByteBudget,
        clock: Clock,
        spawn: Spawn,
        on_gone: Callable[[PersistentTopic], None],
        *,
        publish_limits: PublishLimits | None = None,
        broker_unacked: BrokerUnackedLimit | None = None,
        dispatch_rates: DispatchRates | None = None,
        lease: Lease | None = None,
    ) -> None:
        """`lease`: how long it is certain that the topic is ours; None: there is no other broker."""
        super().__init__(name, policies, config, clock, spawn, publish_limits)
        self._budget = budget
        self._on_gone = on_gone
        self._broker_unacked = broker_unacked
        self._dispatch_rates = dispatch_rates
        self._dispatch_limit: DispatchLimit | None = None
        self._subscribe_rate: SubscribeRate | None = None
        self.oldest_entry: tuple[Position, int] | None = None
        """Position and publish time (ms) of the oldest entry in a backlog, when it was last looked at."""
        self._subscriptions: dict[str, Subscription] = {}
        self._subscriptions_lock = asyncio.Lock()
        self._tenure = None if lease is None else Tenure(lease)
        self._copies = 0

    async def attach(self, ledger: ManagedLedger) -> None:
        """Serve from this managed ledger, which was opened with the topic as its listener.

        Raises StorageError when the state of deduplication cannot be had.
        """
        self.ledger = ledger
        self._copies = ledger.persist_as(self.policies.persistence)
        ledger.retain(retention_of(self.policies))
        ledger.offload = rules_of(self.policies.offload)
        for cursor in ledger.cursors.values():
            self._add_subscription(cursor)
        await self._attach_publishing(ledger)

    def _add_subscription(self, cursor: Cursor) -> Subscription:
        subscription = Subscription(
            self.ledger,
            cursor,
            self._config.dispatch,
            self._budget,
            self.stats,
            self._spawn,
            unacked_max=self.policies.max_unacked_per_subscription,
            broker_limit=self._broker_unacked,
            tenure=self._tenure,
        )
        self._subscriptions[cursor.name] = subscription
        subscription.delay_delivery(delay_tick_ms(self.policies))
        self._limit_dispatch([subscription])
        return subscription

    def _limit_dispatch(self, subscriptions: Iterable[Subscription]) -> None:
        if self._dispatch_rates is not None:
            self._dispatch_limit = self._dispatch_rates.limit(
                subscriptions, self.policies, self._dispatch_limit, self.stats
            )

    def apply_policies(self, policies: EffectivePolicies) -> None:
        super().apply_policies(policies)
        self._copies = self.ledger.persist_as(policies.persistence)
        self.ledger.retain(retention_of(policies))
        self.ledger.offload = rules_of(policies.offload)
        self._limit_dispatch(self._subscriptions.values())
        for subscription in self._subscriptions.values():
            subscription.limit_unacked(
                policies.max_unacked_per_subscription, policies.max_unacked_per_consumer
            )
            subscription.delay_delivery(delay_tick_ms(policies))

    @property
    def subscriptions(self) -> Mapping[str, Subscription]:
        return self._subscriptions

    @property
    def storage_bytes(self) -> int:
        return self.ledger.storage_bytes

    @property
    def copies(self) -> int:
        return self._copies

    @property
    def storage_entries(self) -> int:
        return self.ledger.entries

    @property
    def read_counts(self) -> ReadCounts | None:
        return self.ledger.read_counts

    @property
    def offloaded_bytes(self) -> int:
        return offloaded_bytes(self.ledger.spans.spans)

    @property
    def backlog_bytes(self) -> int:
        return topic_backlog.backlog_bytes(self)

    @property
    def delayed_index_bytes(self) -> int:
        return 0 if self.ledger.delays is None else self.ledger.delays.index.byte_size

    @property
    def oldest_backlog_age_s(self) -> int:
        return topic_backlog.known_oldest_age_s(self, self._clock.wall_ms())

    # -- publishing

    async def terminate(self) -> Position:
        position = await super().terminate()
        for subscription in self._subscriptions.values():
            subscription.tell_of_end()
        return position

    async def check_quota(self) -> None:
        if backlog_quota.has_quota(self.policies):
            await backlog_quota.refuse_producer(self, self._clock.wall_ms())

    def on_lost(self, error: StorageError) -> None:
        """Another owner has the topic, or its storage is gone: close its clients, who look it up again.

        Nobody gets a SendError: the fate of what is unconfirmed is unknown.
        """
        log.error("topic lost", topic=self.name.full, error=str(error))
        self.closing = True
        self.give_up()
        peers = {producer.peer for producer in self.producers.values()}
        for subscription in self._subscriptions.values():
            peers.update(consumer.peer for consumer in subscription.consumers)
        for peer in peers:
            peer.close(f"topic {self.name} is lost: {error}")
        self._on_gone(self)

    # -- subscriptions

    async def subscribe(self, request: SubscribeRequest) -> tuple[AnySubscription, Consumer]:
        check_allowed(request.type, self.policies.subscription_types)
        if self.policies.subscribes_per_consumer:
            self._subscribe_rate = self._subscribe_rate or SubscribeRate()
            self._subscribe_rate.check(request, self.policies, self._clock.monotonic())
        try:
            return await self._subscribe(request)
        except TooManyConsumers:
            raise
        except (ConsumerBusy, ConsumerAssignFailed) as refusal:
            if not await holders_are_gone(self._subscriptions.get(request.subscription), request, refusal):
                raise
        return await self._subscribe(request)

    async def _subscribe(self, request: SubscribeRequest) -> tuple[AnySubscription, Consumer]:
        async with self._subscriptions_lock:
            self.check_open()
            check_one_more_consumer(
                self.policies, self.name, self._subscriptions, request.subscription, request.peer
            )
            subscription = self._subscriptions.get(request.subscription)
            new = subscription is None
            if subscription is None:
                subscription = await self._create(request)
            elif subscription.cursor.durable != request.durable:
                kind = "Durable" if subscription.cursor.durable else "NonDurable"
                raise NotAllowed(f"{kind} subscription with the same name already exists.")
            elif request.properties and not subscription.properties:
                await self.ledger.describe_cursor(subscription.cursor, request.properties)
            self.check_open()
            consumer = Consumer(
                request.options,
                request.peer,
                partition=self.name.partition_index,
                unacked_max=self.policies.max_unacked_per_consumer,
                clock=self._clock,
                sends_entry_metadata=request.sends_entry_metadata,
            )
            if request.type not in (SubType.Exclusive, SubType.Failover):
                consumer.epoch = None
            try:
                subscription.add_consumer(consumer, request.type)
            except ConsumerAssignFailed:
                if new:
                    await self._delete(subscription)  # as if the consumer had never come
                raise
            return subscription, consumer

    async def _create(self, request: SubscribeRequest) -> Subscription:
        if request.durable and not self.policies.auto_subscription_creation:
            raise SubscriptionNotFound(
                f"subscription {request.subscription!r} does not exist on {self.name} and "
                "allowAutoSubscriptionCreation is off; create it first"
            )
        check_one_more_subscription(self.policies, self.name, len(self._subscriptions))
        position = await self._start_position(request)
        if request.durable:
            cursor = await self.ledger.create_cursor(request.subscription, position, request.properties)
        else:
            cursor = self.ledger.open_non_durable_cursor(request.subscription, position)
            cursor.properties.update(request.properties)
        return self._add_subscription(cursor)

    async def _start_position(self, request: SubscribeRequest) -> Position:
        """The mark-delete position of a subscription that begins now."""
        if request.rollback_s:
            since_ms = self._clock.wall_ms() - request.rollback_s * 1000
            return await self.ledger.find_before_publish_time(since_ms)
        if request.start is not None and not request.durable:
            # One step back: the entry itself is delivered, and the client drops what it does not want of it,
            # because it may be a batch of which only a part was read.
            return self._mark_delete_before(request.start)
        return self.ledger.first_position() if request.from_earliest else self.ledger.last_position

    def _mark_delete_before(self, position: Position) -> Position:
        """The mark-delete position that makes the entry at `position` the next one; within the topic."""
        first, last = self.ledger.first_position(), self.ledger.last_position
        if position.ledger_id < 0:
            return first
        return min(max(Position(position.ledger_id, position.entry_id - 1), first), last)

    async def create_subscription(self, name: str) -> None:
        if not self.policies.auto_subscription_creation and name not in self._subscriptions:
            raise NotAllowed(f"no subscription {name!r} on {self.name}: allowAutoSubscriptionCreation is off")
        await self.new_subscription(name, self.ledger.first_position(), {})

    async def new_subscription(self, name: str, position: Position, properties: dict[str, str]) -> bool:
        async with self._subscriptions_lock:
            self.check_open()
            if name in self._subscriptions:
                return False
            check_one_more_subscription(self.policies, self.name, len(self._subscriptions))
            self._add_subscription(await self.ledger.create_cursor(name, position, properties))
            return True

    async def describe_subscription(self, subscription: AnySubscription, properties: dict[str, str]) -> None:
        async with self._subscriptions_lock:
            await self.ledger.describe_cursor(self._ours(subscription).cursor, properties)

    def _ours(self, subscription: AnySubscription) -> Subscription:
        ours = self._subscriptions.get(subscription.name)
        if ours is None or ours is not subscription:
            raise SubscriptionNotFound(f"subscription {subscription.name!r} is gone from {self.name}")
        return ours

    async def adopt_subscriptions(self, other: Topic) -> None:
        async with self._subscriptions_lock:
            self.check_open()
            for name, theirs in sorted(other.subscriptions.items()):
                if name in self._subscriptions or not isinstance(theirs, Subscription):
                    continue
                if theirs.cursor.durable:
                    start, properties = self.ledger.first_position(), dict(theirs.cursor.properties)
                    self._add_subscription(await self.ledger.create_cursor(name, start, properties))

    async def unsubscribe(self, subscription: AnySubscription, consumer: Consumer, *, force: bool) -> None:
        async with self._subscriptions_lock:
            self._ours(subscription)
            if not force and subscription.consumers != [consumer]:
                raise UnsubscribeRefused("Unconnected or shared consumer attempting to unsubscribe")
            close_consumers(subscription) if force else subscription.remove_consumer(consumer)
            await self._delete(subscription)

    async def delete_unused(
        self, subscription: AnySubscription, expired: Callable[[], bool] = lambda: True
    ) -> bool:
        async with self._subscriptions_lock:
            if self._subscriptions.get(subscription.name) is not subscription or subscription.consumers:
                return False
            if not expired():
                return False
            await self._delete(subscription)
            return True

    async def _delete(self, subscription: AnySubscription) -> None:
        # Storage that refuses writes the deletion down later: it is not to be taken back, so who comes
        # meanwhile must find nothing.
        del self._subscriptions[subscription.name]
        await self.ledger.delete_cursor(subscription.name)

    def remove_consumer(self, subscription: AnySubscription, consumer: Consumer) -> None:
        super().remove_consumer(subscription, consumer)
        ours = self._subscriptions.get(subscription.name)
        if ours is subscription and not ours.cursor.durable and not ours.consumers:
            # A non-durable subscription goes with its last consumer, at once: its name is free.
            del self._subscriptions[subscription.name]
            self.ledger.close_cursor(ours.cursor)

    async def seek(
        self, subscription: AnySubscription, position: Position, unacked_words: Sequence[int] | None
    ) -> None:
        target = self._mark_delete_before(position)
        ours = await self._reset(subscription, target)
        if unacked_words:
            size = await self.messages_of(position)
            acked = words_to_acked_bits(unacked_words, size)
            ours.cursor.ack_batch(position.ledger_id, position.entry_id, acked, size)

    async def seek_time(self, subscription: AnySubscription, publish_time_ms: int) -> None:
        await self._reset(subscription, await self.ledger.find_before_publish_time(publish_time_ms))

    async def _reset(self, subscription: AnySubscription, mark_delete: Position) -> Subscription:
        async with self._subscriptions_lock:
            ours = self._ours(subscription)
            close_consumers(ours)
            await self.ledger.reset_cursor(ours.cursor, mark_delete)
            ours.rewind()
            return ours

    # -- questions

    async def last_message_id(self) -> tuple[Position, int]:
        position = self.ledger.read_limit()
        if position.entry_id < 0:
            return position, -1
        result = await self.ledger.read(position, 1, self._config.dispatch.read_bytes_max)
        if not result.runs:
            return position, -1
        metadata = parse_metadata(result.runs[0].entries[0])
        if not metadata.HasField("num_messages_in_batch"):
            return position, -1
        return position, metadata.num_messages_in_batch - 1

    def mark_delete_position(self, subscription: AnySubscription) -> Position | None:
        ours = self._subscriptions.get(subscription.name)
        return None if ours is None else ours.cursor.mark_delete

    async def messages_of(self, position: Position) -> int:
        run = self.ledger.read_cached(position, 1, self._config.dispatch.read_bytes_max)
        if run is None:
            runs = (await self.ledger.read(position, 1, self._config.dispatch.read_bytes_max)).runs
            run = runs[0] if runs else None
        if run is None or (run.ledger_id, run.first_entry_id) != position:
            return 1
        return run.messages

    def prove_ownership(self) -> None:
        """By an append to the cursor ledger, which is fenced before another owner delivers anything.

        A topic without one proves it by its next data append.
        """
        if self._tenure is not None:
            self._tenure.prove(self.ledger, self.abandon)

    def abandon(self, error: OwnershipLost) -> None:
        self.closing = True
        self.ledger.lose(error)

    async def close(self) -> None:
        self.disconnect_clients()
        if self._deduplication is not None:
            self._deduplication.close()
        await self.ledger.close()
