"""Acknowledgements and requests for redelivery.

An acknowledgement may name a consumer that is not open: one that an unload of its topic closed while the
acknowledgement was on its way, or one that is being opened. Its messages come again. If the client waits for
an answer, it gets an error that it may retry (Apache Pulsar 4.0 does not answer, so that clients wait for
their timeout).
"""

from __future__ import annotations

from collections.abc import Coroutine, Sequence
from typing import Any, Final

from magnetar.broker.handlers import transactional_acks
from magnetar.broker.handlers.client import Client, OpenConsumer
from magnetar.broker.handlers.message_ids import position_of
from magnetar.common.errors import MagnetarError, ServiceNotReady, StorageError
from magnetar.common.naming.position import Position
from magnetar.common.naming.txn_id import TxnId
from magnetar.common.obs.logs import get_logger
from magnetar.common.obs.metrics import REGISTRY, begin_at_zero
from magnetar.common.wire import commands
from magnetar.common.wire.ack_set import words_to_acked_bits
from magnetar.common.wire.error_codes import code_of
from magnetar.common.wire.events import AckGroup, AckRun, TransactionalAcks
from magnetar.common.wire.pulsar_pb2 import (
    CommandAck,
    CommandRedeliverUnacknowledgedMessages,
    MessageIdData,
)
from prometheus_client import Counter

log = get_logger(__name__)

IGNORED_ACKS = Counter(
    "magnetar_ignored_acks_total",
    "Acknowledgements that were ignored, by reason.",
    ["reason"],
    registry=REGISTRY,
)
begin_at_zero(
    IGNORED_ACKS, "unknown consumer", "cumulative on Shared or Key_Shared", "cumulative with several ids"
)

UNREADABLE_MESSAGES = Counter(
    "magnetar_unreadable_messages_total",
    "Messages that consumers acknowledged because they could not decode them, by validation error.",
    ["error"],
    registry=REGISTRY,
)

LOGGED_IDS_MAX: Final = 10
"""Maximum number of ids in one log line."""


def handle_acks(client: Client, acks: AckRun) -> None:
    """Processes individual acknowledgements of whole entries without a response."""
    opened = client.open_consumer(acks.consumer_id)
    if opened is None:
        IGNORED_ACKS.labels("unknown consumer").inc(len(acks.entry_ids))
        return
    opened.consumer.noted_ack()
    opened.subscription.ack_many(acks.ledger_id, acks.entry_ids, opened.consumer)


def handle_ack_group(client: Client, acks: AckGroup) -> None:
    """Processes individual acknowledgements of whole entries; responds once they are durable if requested."""
    opened = client.open_consumer(acks.consumer_id)
    if opened is None:
        _refuse_unknown(client, acks.consumer_id, [] if acks.request_id is None else [acks.request_id])
        return
    opened.consumer.noted_ack()
    for ledger_id, entry_ids in acks.entry_ids.items():
        opened.subscription.ack_many(ledger_id, entry_ids, opened.consumer)
    if acks.request_id is not None:
        _answer_when_persisted(client, opened, acks.request_id)


def handle_transactional_acks(client: Client, acks: TransactionalAcks) -> bool:
    """Processes individual acknowledgements of whole entries in one transaction; False if each has to be
    processed by itself.
    """
    opened = client.open_consumer(acks.consumer_id)
    if opened is None:
        _refuse_unknown(client, acks.consumer_id, acks.request_ids, acks.txn, count=len(acks.commands))
        return True
    return transactional_acks.handle_acks_in_transaction(client, opened, acks)


def handle_ack(client: Client, command: CommandAck) -> Coroutine[Any, Any, None] | None:
    """Processes acknowledgements; responds with AckResponse once they are durable when the command has a
    request id.

    Returns a coroutine when the size of a batch has to be read from storage.
    """
    opened = client.open_consumer(command.consumer_id)
    if opened is None:
        request_ids = [command.request_id] if command.HasField("request_id") else []
        _refuse_unknown(client, command.consumer_id, request_ids, _txn_of(command))
        return None
    if command.HasField("txnid_most_bits") or command.HasField("txnid_least_bits"):
        return transactional_acks.handle_ack_in_transaction(client, opened, command)
    if command.HasField("validation_error"):
        error = CommandAck.ValidationError.Name(command.validation_error)
        UNREADABLE_MESSAGES.labels(error).inc(len(command.message_id))
        ids = [str(position_of(each)) for each in command.message_id[:LOGGED_IDS_MAX]]
        _warn(client, opened, "consumer could not read a message and dropped it", error=error, ids=ids)
    opened.consumer.noted_ack()
    if command.ack_type == CommandAck.AckType.Cumulative:
        partial = _ack_cumulative(client, opened, command)
    else:
        partial = _ack_individual(client, opened, command)
    if partial:
        return _ack_partly(client, opened, command, partial)
    if command.HasField("request_id"):
        _answer_when_persisted(client, opened, command.request_id)
    return None


def _txn_of(command: CommandAck) -> TxnId | None:
    is_in_one = command.HasField("txnid_most_bits") or command.HasField("txnid_least_bits")
    return TxnId(command.txnid_most_bits, command.txnid_least_bits) if is_in_one else None


def _refuse_unknown(
    client: Client, consumer_id: int, request_ids: Sequence[int], txn: TxnId | None = None, *, count: int = 1
) -> None:
    """Counts commands that name a consumer that is not open, and answers those that have a request id."""
    IGNORED_ACKS.labels("unknown consumer").inc(count)
    if not request_ids:
        return
    error = ServiceNotReady(
        f"consumer {consumer_id} is not open on this connection: its topic may have moved; "
        "retry once the consumer is connected again"
    )
    code, reason = code_of(error), str(error)
    for request_id in request_ids:
        client.peer.write(commands.ack_response(consumer_id, request_id, code, reason, txn=txn))


def _ack_individual(client: Client, opened: OpenConsumer, command: CommandAck) -> list[MessageIdData]:
    """Acknowledges whole entries; returns the ids that cover only a part of their batch."""
    partial = []
    whole: dict[int, list[int]] = {}
    for message_id in command.message_id:
        if message_id.ack_set and any(message_id.ack_set):
            partial.append(message_id)
        else:
            whole.setdefault(message_id.ledgerId, []).append(message_id.entryId)
    for ledger_id, entry_ids in whole.items():
        opened.subscription.ack_many(ledger_id, entry_ids, opened.consumer)
    if partial and not client.services.config.dispatch.batch_index_ack_enabled:
        return []
    return partial


def _ack_cumulative(client: Client, opened: OpenConsumer, command: CommandAck) -> list[MessageIdData]:
    if opened.subscription.individual:
        # Shared and Key_Shared have no order, so there are no entries "before" one.
        IGNORED_ACKS.labels("cumulative on Shared or Key_Shared").inc()
        _warn(client, opened, "cumulative acknowledgement on a Shared or Key_Shared subscription is ignored")
        return []
    if len(command.message_id) != 1:
        IGNORED_ACKS.labels("cumulative with several ids").inc()
        _warn(client, opened, "cumulative acknowledgement needs exactly one id", ids=len(command.message_id))
        return []
    message_id = command.message_id[0]
    position = position_of(message_id)
    if message_id.ack_set and any(message_id.ack_set):
        # All entries before this one, and the messages of this batch that are set in the bits.
        opened.subscription.ack_cumulative(
            Position(position.ledger_id, position.entry_id - 1), opened.consumer
        )
        return [message_id]
    opened.subscription.ack_cumulative(position, opened.consumer)
    return []


def _warn(client: Client, opened: OpenConsumer, event: str, **said: object) -> None:
    """Logs at most one line a second for each event of a client; `commands` is the number of commands it
    covers.
    """
    count = client.times_to_log(event)
    if count:
        topic, subscription = opened.topic.name.full, opened.subscription.name
        log.warning(event, topic=topic, subscription=subscription, commands=count, **said)


async def _ack_partly(
    client: Client, opened: OpenConsumer, command: CommandAck, partial: list[MessageIdData]
) -> None:
    """Acknowledges parts of batches; raises the first read error after all others are acknowledged."""
    failure: StorageError | None = None
    for message_id in partial:
        position = position_of(message_id)
        try:
            size = message_id.batch_size or await opened.topic.messages_of(position)
        except StorageError as error:
            failure = failure or error
            continue
        acked = words_to_acked_bits(message_id.ack_set, size)
        opened.subscription.ack_batch(*position, acked, size, opened.consumer)
    if failure is not None:
        raise failure
    if command.HasField("request_id"):
        _answer_when_persisted(client, opened, command.request_id)


def _answer_when_persisted(client: Client, opened: OpenConsumer, request_id: int) -> None:
    consumer_id, peer = opened.consumer.consumer_id, client.peer

    def persisted(error: MagnetarError | None) -> None:
        if error is None:
            peer.write(commands.ack_response(consumer_id, request_id))
        else:
            peer.write(commands.ack_response(consumer_id, request_id, code_of(error), str(error)))

    opened.subscription.when_persisted(persisted)


def handle_redeliver(client: Client, command: CommandRedeliverUnacknowledgedMessages) -> None:
    """Redelivers the given ids, or everything unacknowledged; ignored for an unknown consumer."""
    opened = client.open_consumer(command.consumer_id)
    if opened is None:
        return
    positions = [position_of(each) for each in command.message_ids] or None
    epoch = command.consumer_epoch if command.HasField("consumer_epoch") else None
    opened.subscription.redeliver(opened.consumer, positions, epoch)
