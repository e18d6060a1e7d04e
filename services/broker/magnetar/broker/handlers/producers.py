"""Producers: opening, closing, and the messages they send."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, Final

from magnetar.broker.client_endings import EndCode
from magnetar.broker.handlers.client import Client, Opening, OpenProducer
from magnetar.broker.handlers.client_schemas import producer_version
from magnetar.broker.handlers.name_limits import checked_name, checked_properties
from magnetar.broker.topics.publish.access_modes import SHARED
from magnetar.broker.topics.publish.batch_counts import correct_counts
from magnetar.broker.topics.publish.client_refusals import RefusedMessage
from magnetar.broker.topics.publish.pending_publish import part_of
from magnetar.broker.topics.publish.producer import Producer
from magnetar.common.errors import NotAllowed, ProtocolError, ServiceNotReady
from magnetar.common.naming.topic_name import TopicName
from magnetar.common.obs.metrics import REGISTRY
from magnetar.common.wire import commands
from magnetar.common.wire.events import SendRejected, SendRun, TransactionalSends
from magnetar.common.wire.producer_options import DEDUPLICATION, NOT_DEDUPLICATED, REQUIRED
from magnetar.common.wire.pulsar_pb2 import (
    CommandCloseProducer,
    CommandProducer,
)
from prometheus_client import Counter

IGNORED_SENDS: Final = Counter(
    "magnetar_ignored_messages_total",
    "Messages or batches that arrived for a producer after it was closed.",
    registry=REGISTRY,
)

TOPIC_EPOCH_MAX: Final = 2**62


def handle_producer(client: Client, command: CommandProducer) -> Coroutine[Any, Any, None] | None:
    """Opens a producer; responds with ProducerSuccess, unless the client closed it meanwhile.

    The id is registered at once, so that a close after this command finds it.
    """
    existing = client.producers.get(command.producer_id)
    if isinstance(existing, Opening):
        raise ServiceNotReady(f"producer {command.producer_id} is already being created on this connection")
    if existing is not None and command.epoch <= existing.producer.epoch:
        _answer(client, command.request_id, existing)
        return None
    if existing is not None:
        # The same client starts over: remove its previous producer.
        existing.topic.producers.remove(existing.producer)
        client.producer_ended(existing, EndCode.REPLACED)
    opening = Opening()
    client.producers[command.producer_id] = opening
    return _finish_opening(client, command, opening)


async def _finish_opening(client: Client, command: CommandProducer, opening: Opening) -> None:
    try:
        opened = await _open(client, command, opening)
    except BaseException as error:
        if client.producers.get(command.producer_id) is opening:
            del client.producers[command.producer_id]
        if opening.cancelled and isinstance(error, Exception):
            return
        raise
    if opening.cancelled:
        opened.topic.producers.remove(opened.producer)
        return
    client.producers[command.producer_id] = opened
    client.closed_producers.pop(command.producer_id, None)
    opened.producer.on_detached = partial(_detached, client, command.producer_id)
    _answer(client, command.request_id, opened)


def _detached(client: Client, producer_id: int, code: EndCode) -> None:
    """Forgets and records a producer that the broker closed."""
    opened = client.producers.get(producer_id)
    client.forget_producer(producer_id)
    if isinstance(opened, OpenProducer):
        client.producer_ended(opened, code)


async def _open(client: Client, command: CommandProducer, opening: Opening) -> OpenProducer:
    services = client.services
    name = TopicName.parse(command.topic)
    checked = await _check_rights(client, command, name)
    if command.topic_epoch > TOPIC_EPOCH_MAX:
        raise NotAllowed(f"invalid topic epoch {command.topic_epoch}: no broker ever assigned it")
    checked_name("producer", command.producer_name)
    checked_name("subscription", command.initial_subscription_name)
    properties = checked_properties("producer", command.metadata)
    former = client.closed_producers.get(command.producer_id)
    if former is not None and former.last_words is not None:
        await former.wait_persisted()  # so that its final frames are not taken for those of the new one
    topic = await services.topics.get(name, create=True)
    if properties.get(DEDUPLICATION) == REQUIRED and not topic.publishing.deduplicates:
        raise NotAllowed(
            f"topic {name} {NOT_DEDUPLICATED}, which the producer requires: enable deduplication for the "
            "namespace or the topic"
        )
    version = await producer_version(services.schemas, topic, command)
    if command.initial_subscription_name:
        if not name.persistent:
            raise NotAllowed(f"{name} is non-persistent: it has no initial subscription")
        await topic.subscriptions.create(command.initial_subscription_name)
    producer = Producer(
        producer_id=command.producer_id,
        name=command.producer_name or services.producer_names.next(),
        epoch=command.epoch,
        peer=client.peer,
        properties=properties,
        schema_version=version,
        connected_since_ms=services.clock.wall_ms(),
        client_version=client.client_version,
        encrypts=command.encrypted,
        access_mode=command.producer_access_mode,
        topic_epoch=command.topic_epoch + 1 if command.HasField("topic_epoch") else 0,
    )
    if opening.cancelled:
        raise ServiceNotReady(f"producer {command.producer_id} was closed while it was created")
    opening.on_cancelled = lambda: topic.producers.remove(producer)
    await topic.add_producer(producer, lambda: _tell_to_wait(client, command.request_id, producer))
    if checked != services.authorizer.generation:
        try:
            await _check_rights(client, command, name)
        except BaseException:
            topic.producers.remove(producer)
            raise
    return OpenProducer(topic, producer)


async def _check_rights(client: Client, command: CommandProducer, name: TopicName) -> int:
    """Check that the client may open the producer; return the generation of the grants that say so.

    Raises Unauthorized, MetadataError.
    """
    authorizer = client.services.authorizer
    while True:
        generation = authorizer.generation
        await authorizer.check_produce(client.principal, name)
        if command.initial_subscription_name:
            await authorizer.check_consume(client.principal, name, command.initial_subscription_name)
        if generation == authorizer.generation:
            return generation


def _tell_to_wait(client: Client, request_id: int, producer: Producer) -> None:
    """Notifies the client that the producer waits; the same request gets a second response when it is
    ready.
    """
    client.peer.write(commands.producer_success(request_id, producer.name, producer_ready=False))


def _answer(client: Client, request_id: int, opened: OpenProducer) -> None:
    """Responds to a request. The first topic epoch is 0 on the wire and absent before; here it is 1, and 0
    before.
    """
    producer = opened.producer
    topic_epoch = (
        opened.topic.producers.topic_epoch if producer.access_mode == SHARED else producer.topic_epoch
    )
    client.peer.write(
        commands.producer_success(
            request_id,
            producer.name,
            last_sequence_id=opened.topic.publishing.last_sequence_id(producer.name),
            schema_version=producer.schema_version,
            topic_epoch=topic_epoch - 1 if topic_epoch else None,
        )
    )


def handle_close_producer(client: Client, command: CommandCloseProducer) -> Coroutine[Any, Any, None]:
    """Closes a producer: refuse further messages, waits until pending ones are persisted, then answer."""
    existing = client.producers.get(command.producer_id)
    client.forget_producer(command.producer_id)
    if isinstance(existing, Opening):
        existing.cancel()
    elif existing is not None:
        existing.topic.producers.remove(existing.producer)
        client.producer_ended(existing, EndCode.CLOSED_BY_CLIENT)
    return _finish_close(client, command.request_id, existing)


async def _finish_close(client: Client, request_id: int, closing: Opening | OpenProducer | None) -> None:
    if isinstance(closing, OpenProducer):
        await closing.producer.wait_persisted()
    client.peer.write(commands.success(request_id))


def handle_sends(client: Client, sends: SendRun) -> None:
    """Publishes a run of messages. Raises ProtocolError for a producer that was never opened."""
    opened = client.producers.get(sends.producer_id)
    if not isinstance(opened, OpenProducer):
        _refuse_unknown(client, sends.producer_id, len(sends.entries))
        return
    if sends.message_counts is not None:
        refused = correct_counts(sends)
        if refused:
            _publish_those_before(opened.topic.publishing.publish, opened, sends, refused)
            return
    opened.topic.publishing.publish(opened.producer, sends)


def handle_transactional_sends(client: Client, event: TransactionalSends) -> None:
    """Publishes a run of messages in a transaction. Raises as `handle_sends`."""
    sends = event.sends
    opened = client.producers.get(sends.producer_id)
    if not isinstance(opened, OpenProducer):
        _refuse_unknown(client, sends.producer_id, len(sends.entries))
        return
    publish = partial(opened.topic.publishing.publish_in, event.txn)
    refused = correct_counts(sends) if sends.message_counts is not None else None
    if refused:
        _publish_those_before(publish, opened, sends, refused)
    else:
        publish(opened.producer, sends)


def _publish_those_before(
    publish: Callable[[Producer, SendRun], None],
    opened: OpenProducer,
    sends: SendRun,
    refused: dict[int, SendRejected],
) -> None:
    first = min(refused)
    before = part_of(sends, range(first))
    if before is not None:
        publish(opened.producer, before)
    _refuse(opened, refused[first])


def handle_rejected_send(client: Client, rejected: SendRejected) -> None:
    """Refuses one invalid message (with a wrong checksum, for example); the connection stays open."""
    opened = client.producers.get(rejected.producer_id)
    if isinstance(opened, OpenProducer):
        _refuse(opened, rejected)
    else:
        _refuse_unknown(client, rejected.producer_id)


def _refuse(opened: OpenProducer, rejected: SendRejected) -> None:
    message = RefusedMessage(rejected.sequence_id, rejected.error, rejected.message)
    opened.topic.refusals.refuse(opened.producer, [message])


def _refuse_unknown(client: Client, producer_id: int, sends: int = 1) -> None:
    """Ignores messages in flight to a closed producer. Raises ProtocolError for one that was never open."""
    if producer_id in client.producers or producer_id not in client.closed_producers:
        raise ProtocolError(f"Send for producer {producer_id}, which is not open on this connection")
    IGNORED_SENDS.inc(sends)
