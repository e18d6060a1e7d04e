"""Consumers: subscribing, permits, closing, unsubscribing, seeking, and their statistics."""

from __future__ import annotations

from collections.abc import Coroutine
from datetime import UTC, datetime
from functools import partial
from typing import Any, Final

from magnetar.broker.client_endings import EndCode
from magnetar.broker.handlers.client import Client, OpenConsumer, Opening
from magnetar.broker.handlers.client_schemas import check_consumer, is_auto_consume
from magnetar.broker.handlers.message_ids import position_of
from magnetar.broker.handlers.name_limits import checked_name, checked_properties
from magnetar.broker.subscriptions.consumers.consumer import ConsumerOptions
from magnetar.broker.subscriptions.types.subscription_type import SubType
from magnetar.broker.subscriptions.types.table import TYPES
from magnetar.broker.topics.subscribe.subscribe_request import SubscribeRequest
from magnetar.common.errors import (
    ConsumerNotFound,
    IncompleteSeek,
    InvalidName,
    NotAllowed,
    ProtocolError,
    ServiceNotReady,
)
from magnetar.common.naming.topic_name import TopicName
from magnetar.common.wire import commands
from magnetar.common.wire.pulsar_pb2 import (
    CommandCloseConsumer,
    CommandConsumerStats,
    CommandConsumerStatsResponse,
    CommandFlow,
    CommandGetLastMessageId,
    CommandSeek,
    CommandSubscribe,
    CommandUnsubscribe,
    KeySharedMode,
    ServerError,
)

PERMITS_MAX: Final = 2**31 - 1
"""Maximum permits of one Flow: clients use signed numbers, so a larger one was negative."""


def handle_subscribe(client: Client, command: CommandSubscribe) -> Coroutine[Any, Any, None] | None:
    """Connects a consumer; responds with Success, unless the client closed it meanwhile.

    The id is registered at once, so that a close after this command finds it.
    """
    existing = client.consumers.get(command.consumer_id)
    if isinstance(existing, Opening):
        raise ServiceNotReady(f"consumer {command.consumer_id} is already being created on this connection")
    if existing is not None:
        client.peer.write(commands.success(command.request_id))
        return None
    opening = Opening()
    client.consumers[command.consumer_id] = opening
    return _finish_opening(client, command, opening)


async def _finish_opening(client: Client, command: CommandSubscribe, opening: Opening) -> None:
    try:
        opened = await _open(client, command)
    except BaseException as error:
        if client.consumers.get(command.consumer_id) is opening:
            del client.consumers[command.consumer_id]
        if opening.cancelled and isinstance(error, Exception):
            return
        raise
    if opening.cancelled:
        opened.topic.remove_consumer(opened.subscription, opened.consumer)
        return
    client.consumers[command.consumer_id] = opened
    opened.consumer.on_detached = partial(_detached, client, opened)
    client.peer.write(commands.success(command.request_id))


def _detached(client: Client, opened: OpenConsumer, code: EndCode) -> None:
    """Forgets and records a consumer that the broker closed."""
    client.consumers.pop(opened.consumer.consumer_id, None)
    client.consumer_ended(opened, code)


async def _open(client: Client, command: CommandSubscribe) -> OpenConsumer:
    services = client.services
    name = TopicName.parse(command.topic)
    checked = await _check_rights(client, command, name)
    if not command.subscription.strip():
        raise InvalidName("the subscription name is empty; give it one")
    checked_name("subscription", command.subscription)
    checked_name("consumer", command.consumer_name)
    subscription_properties = checked_properties("subscription", command.subscription_properties)
    consumer_properties = checked_properties("consumer", command.metadata)
    if command.read_compacted and (not name.persistent or TYPES[command.subType].individual):
        raise NotAllowed(
            "read_compacted requires an Exclusive or Failover subscription of a persistent topic"
        )
    topic = await services.topics.get(name, create=command.force_topic_creation)
    await check_consumer(services.schemas, topic, command)
    request = SubscribeRequest(
        subscription=command.subscription,
        type=command.subType,
        durable=command.durable,
        from_earliest=command.initialPosition == CommandSubscribe.InitialPosition.Earliest,
        start=position_of(command.start_message_id) if command.HasField("start_message_id") else None,
        rollback_s=command.start_message_rollback_duration_sec,
        properties=subscription_properties,
        options=ConsumerOptions(
            consumer_id=command.consumer_id,
            name=command.consumer_name,
            priority_level=command.priority_level,
            properties=consumer_properties,
            epoch=command.consumer_epoch if command.HasField("consumer_epoch") else None,
            sticky=command.keySharedMeta.keySharedMode == KeySharedMode.STICKY,
            hash_ranges=tuple((each.start, each.end) for each in command.keySharedMeta.hashRanges),
            allow_out_of_order=command.keySharedMeta.allowOutOfOrderDelivery,
            client_version=client.client_version,
            is_auto_consume=is_auto_consume(command),
            read_compacted=command.read_compacted,
        ),
        peer=client.peer,
        sends_entry_metadata=(
            client.understands_entry_metadata and services.config.dispatch.expose_broker_entry_metadata
        ),
    )
    subscription, consumer = await topic.subscriptions.subscribe(request)
    if checked != services.authorizer.generation:
        try:
            await _check_rights(client, command, name)
        except BaseException:
            topic.remove_consumer(subscription, consumer)
            raise
    return OpenConsumer(topic, subscription, consumer)


async def _check_rights(client: Client, command: CommandSubscribe, name: TopicName) -> int:
    """Check that the client may subscribe; return the generation of the grants that say so.

    Raises Unauthorized, MetadataError.
    """
    authorizer = client.services.authorizer
    while True:
        generation = authorizer.generation
        await authorizer.check_consume(client.principal, name, command.subscription)
        if generation == authorizer.generation:
            return generation


def handle_flow(client: Client, command: CommandFlow) -> None:
    """Adds permits. Raises ProtocolError for a number below 1; ignored for an unknown consumer."""
    if not 0 < command.messagePermits <= PERMITS_MAX:
        raise ProtocolError(f"Flow of consumer {command.consumer_id} gives no permits; give at least one")
    opened = client.open_consumer(command.consumer_id)
    if opened is not None:
        opened.consumer.noted_flow()
        opened.subscription.add_permits(opened.consumer, command.messagePermits)


def handle_close_consumer(client: Client, command: CommandCloseConsumer) -> None:
    existing = client.consumers.pop(command.consumer_id, None)
    if isinstance(existing, Opening):
        existing.cancelled = True
    elif existing is not None:
        existing.topic.remove_consumer(existing.subscription, existing.consumer)
        client.consumer_ended(existing, EndCode.CLOSED_BY_CLIENT)
    client.peer.write(commands.success(command.request_id))


async def handle_unsubscribe(client: Client, command: CommandUnsubscribe) -> None:
    opened = _require(client, command.consumer_id)
    await opened.topic.subscriptions.unsubscribe(opened.subscription, opened.consumer, force=command.force)
    if client.consumers.get(command.consumer_id) is opened:
        del client.consumers[command.consumer_id]
        client.consumer_ended(opened, EndCode.UNSUBSCRIBED)
    client.peer.write(commands.success(command.request_id))


async def handle_seek(client: Client, command: CommandSeek) -> None:
    """Moves the whole subscription; all its consumers have to subscribe again before the response."""
    opened = _require(client, command.consumer_id)
    if command.HasField("message_id"):
        words = list(command.message_id.ack_set)
        await opened.topic.subscriptions.seek(
            opened.subscription, position_of(command.message_id), words or None
        )
    elif command.HasField("message_publish_time"):
        await opened.topic.subscriptions.seek_time(opened.subscription, command.message_publish_time)
    else:
        raise IncompleteSeek("Seek has neither a message id nor a publish time; set one of them")
    client.peer.write(commands.success(command.request_id))


async def handle_get_last_message_id(client: Client, command: CommandGetLastMessageId) -> None:
    opened = _require(client, command.consumer_id)
    position, batch_index = await opened.topic.last_message_id(compacted=opened.consumer.read_compacted)
    partition = opened.topic.name.partition_index
    mark_delete = opened.topic.subscriptions.mark_delete_position(opened.subscription)
    client.peer.write(
        commands.last_message_id(
            command.request_id,
            commands.message_id(*position, partition=partition, batch_index=batch_index),
            None if mark_delete is None else commands.position_id(*mark_delete),
        )
    )


async def handle_consumer_stats(client: Client, command: CommandConsumerStats) -> None:
    """Responds with figures of a consumer and its subscription; rates are those of the last minute."""
    opened = client.open_consumer(command.consumer_id)
    if opened is None:
        unknown = CommandConsumerStatsResponse(
            request_id=command.request_id,
            error_code=ServerError.ConsumerNotFound,
            error_message=str(_unknown(command.consumer_id)),
        )
        client.peer.write(commands.consumer_stats(unknown))
        return
    consumer, subscription = opened.consumer, opened.subscription
    since = datetime.fromtimestamp(consumer.connected_since_ms / 1000, UTC)
    stats = consumer.stats
    client.peer.write(
        commands.consumer_stats(
            CommandConsumerStatsResponse(
                request_id=command.request_id,
                msgRateOut=stats.message_rate_out,
                msgThroughputOut=stats.byte_rate_out,
                msgRateRedeliver=stats.redelivery_rate,
                msgRateExpired=subscription.stats.expired_rate,
                messageAckRate=stats.ack_rate,
                consumerName=consumer.name,
                availablePermits=max(0, consumer.permits),
                unackedMessages=consumer.pending.messages,
                blockedConsumerOnUnackedMsgs=consumer.blocked_on_unacked,
                address=client.peer.address,
                connectedSince=since.isoformat(timespec="milliseconds"),
                type=SubType.Name(subscription.type or SubType.Exclusive),
                msgBacklog=subscription.backlog(),
            )
        )
    )


def _require(client: Client, consumer_id: int) -> OpenConsumer:
    opened = client.open_consumer(consumer_id)
    if opened is None:
        raise _unknown(consumer_id)
    return opened


def _unknown(consumer_id: int) -> ConsumerNotFound:
    return ConsumerNotFound(f"consumer {consumer_id} is not open on this connection; subscribe again")
