"""The heartbeat topic of a broker, used by its health check: an ordinary persistent topic that is not listed.

Its name is Pulsar's, `persistent://pulsar/HOST:PORT/healthcheck`. Its namespace is not in metadata and has no
bundles. So only the broker in its name opens it, no broker assigns, moves or unloads it, and lists,
statistics and limits of user topics do not include it. Clients cannot use it: the name is reserved.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import replace
from typing import Final

from magnetar.broker.byte_budget import ByteBudget
from magnetar.broker.config import BrokerConfig
from magnetar.broker.health.heartbeat_client import HeartbeatClient
from magnetar.broker.policies.effective_policies import EffectivePolicies, Rate, resolve_namespace
from magnetar.broker.subscriptions.consumers.consumer import ConsumerOptions
from magnetar.broker.subscriptions.types.subscription_type import SubType
from magnetar.broker.task_spawner import Spawn
from magnetar.broker.topics.persistent_topic import PersistentTopic
from magnetar.broker.topics.publish.producer import Producer
from magnetar.broker.topics.subscribe.subscribe_request import SubscribeRequest
from magnetar.broker.topics.topic_context import TopicContext
from magnetar.common.errors import MagnetarError, OwnershipLost
from magnetar.common.metadata.values import Policies
from magnetar.common.naming.topic_name import TopicName
from magnetar.common.wire.events import SendRun
from magnetar.common.wire.frame import encode_entry
from magnetar.common.wire.pulsar_pb2 import MessageMetadata
from magnetar.common.wire.varint import encode_varint
from magnetar.ledger.managed_ledger.context import ManagedLedgerContext, no_guards
from magnetar.ledger.managed_ledger.directory import delete_managed_ledger
from magnetar.ledger.managed_ledger.topic_loading import open_managed_ledger

MESSAGES_MAX: Final = 1_000
"""Number of messages after which the topic is deleted and created again: it always has one short ledger."""

CLOSE_S: Final = 1.0
"""Seconds that closing waits for a message that storage has not confirmed."""

_CLIENT_ID: Final = 1


class HeartbeatTopic:
    """The heartbeat topic of one broker, opened at its first use. One use at a time."""

    def __init__(
        self,
        name: TopicName,
        config: BrokerConfig,
        budget: ByteBudget,
        ledgers: ManagedLedgerContext,
        spawn: Spawn,
    ) -> None:
        self.name = name
        self._config = config
        self._budget = budget
        self._ledgers = ledgers
        self._spawn = spawn
        self._topic: PersistentTopic | None = None
        self.lost = False
        """Whether it was open and another owner or its deletion has ended it since."""

    async def open(self) -> PersistentTopic:
        """Returns the topic, creating it when it is missing. Raises StorageError, MetadataError,
        ServiceNotReady.
        """
        topic = self._topic
        if topic is not None and not topic.closing:
            return topic
        self.lost = False
        topic = PersistentTopic(
            self.name,
            _policies(self._config),
            TopicContext(self._config, self._budget, self._ledgers.clock, self._spawn),
            self._gone,
        )
        ledger = await open_managed_ledger(
            self._ledgers, self.name.full, topic, create=True, properties={}, guards=no_guards
        )
        try:
            await topic.attach(ledger)
            topic.check_open()
        except BaseException:
            ledger.lose(OwnershipLost(f"{self.name} was not opened"))
            raise
        self._topic = topic
        return topic

    async def join(self, topic: PersistentTopic, client: HeartbeatClient, payload: bytes) -> None:
        """Subscribes after the last message and publishes one; `client` gets its receipt and the message.

        Raises StorageError, ServiceNotReady.
        """
        name = f"health-check-{payload.decode()}"
        options = ConsumerOptions(_CLIENT_ID, name, 0, {}, None)
        request = SubscribeRequest(
            subscription=name,
            type=SubType.Exclusive,
            durable=False,
            from_earliest=False,
            start=None,
            rollback_s=0,
            properties={},
            options=options,
            peer=client,
            sends_entry_metadata=False,
        )
        now_ms = self._ledgers.clock.wall_ms()
        subscription, consumer = await topic.subscriptions.subscribe(request)
        producer = Producer(_CLIENT_ID, name, 0, client, {}, b"", now_ms)
        try:
            subscription.add_permits(consumer, 1)
            await topic.add_producer(producer)
            topic.publishing.publish(producer, _send_of(name, payload, now_ms))
            await client.stored
            await client.read_back
        finally:
            client.connected = False
            topic.producers.remove(producer)
            topic.remove_consumer(subscription, consumer)

    async def trim(self) -> None:
        """Deletes the topic when it has MESSAGES_MAX messages. Raises MetadataError, StorageError."""
        topic = self._topic
        if topic is not None and topic.storage_entries >= MESSAGES_MAX:
            await self.delete()

    async def delete(self) -> None:
        """Closes the topic and deletes it with its messages. Idempotent. Raises MetadataError."""
        topic, self._topic = self._topic, None
        if topic is not None:
            closed = False
            try:
                with suppress(MagnetarError, TimeoutError):
                    await asyncio.wait_for(topic.close(), CLOSE_S)
                    closed = True
            finally:
                if not closed:
                    topic.give_up()
            await delete_managed_ledger(self._ledgers, self.name.full)

    def abandon(self, reason: str) -> None:
        """Leaves the topic as it is, because this broker's run has ended: the next run uses or deletes it."""
        topic, self._topic = self._topic, None
        if topic is not None:
            topic.abandon(OwnershipLost(reason))

    def _gone(self, topic: PersistentTopic) -> None:
        if self._topic is topic:
            self._topic = None
            self.lost = True


def _policies(config: BrokerConfig) -> EffectivePolicies:
    """The broker's configuration without limits, retention or refusals of users' messages."""
    return replace(
        resolve_namespace(config, Policies()).of_topics,
        retention_time_min=0,
        retention_size_bytes=0,
        deduplication=False,
        dispatch_rate=Rate(),
        subscription_dispatch_rate=Rate(),
        publish_rate=Rate(),
        subscribes_per_consumer=0,
        max_producers=0,
        max_producers_same_address=0,
        max_consumers=0,
        max_consumers_same_address=0,
        max_consumers_per_subscription=0,
        max_subscriptions=0,
        encryption_required=False,
        subscription_types=frozenset({"Exclusive"}),
        compaction_threshold_bytes=0,
    )


def _send_of(producer_name: str, payload: bytes, now_ms: int) -> SendRun:
    """One message, as a connection hands it on."""
    metadata = MessageMetadata(producer_name=producer_name, sequence_id=0, publish_time=now_ms)
    entry = encode_entry(metadata.SerializeToString(), payload)
    return SendRun(_CLIENT_ID, [entry], [encode_varint(0)], None, None, False, False, len(entry))
