"""Acknowledgements in transactions: pending until the transaction ends.

Clients send one command a message, many at once: those that arrive together are one change of the cursor.
"""

from __future__ import annotations

from collections.abc import Coroutine, Sequence
from typing import Any

from magnetar.broker.handlers.client import Client, OpenConsumer
from magnetar.broker.handlers.message_ids import position_of
from magnetar.broker.topics.publish.transactional_publishing import transactions_are_off
from magnetar.common.errors import MagnetarError, TransactionNotAllowed
from magnetar.common.naming.position import Position
from magnetar.common.naming.txn_id import TxnId
from magnetar.common.wire import commands
from magnetar.common.wire.ack_set import words_to_acked_bits
from magnetar.common.wire.error_codes import code_of
from magnetar.common.wire.events import TransactionalAcks
from magnetar.common.wire.pulsar_pb2 import CommandAck, MessageIdData
from magnetar.ledger.managed_ledger.ack_state import ENTRY_IDS_MAX
from magnetar.ledger.managed_ledger.pending_acks import PendingAck
from pyroaring import BitMap


def handle_ack_in_transaction(
    client: Client, opened: OpenConsumer, command: CommandAck
) -> Coroutine[Any, Any, None] | None:
    """Acknowledges in a transaction, all of the command's messages or none; answers once that is durable.

    Returns a coroutine when the size of a batch has to be read from storage. Raises TransactionConflict,
    TransactionNotAllowed; the coroutine raises StorageError too.
    """
    if not client.services.config.transactions.enabled:
        raise transactions_are_off()
    opened.consumer.noted_ack()
    unsized = [each for each in command.message_id if _is_partial(each) and not each.batch_size]
    if unsized:
        return _ack_after_sizes(client, opened, command, unsized)
    _ack(client, opened, command)
    return None


def handle_acks_in_transaction(client: Client, opened: OpenConsumer, acks: TransactionalAcks) -> bool:
    """Processes plain commands that arrived together as one acknowledgement; answers once it is durable.

    Returns False, with nothing acknowledged, if one of them fails: then each has to be processed by itself.
    """
    if not client.services.config.transactions.enabled:
        return False
    acked = PendingAck({ledger_id: BitMap(entry_ids) for ledger_id, entry_ids in acks.entry_ids.items()})
    request_ids = acks.request_ids
    txn, consumer_id, peer = acks.txn, acks.consumer_id, client.peer

    def durable(error: MagnetarError | None) -> None:
        if error is None:
            peer.write(commands.ack_responses(consumer_id, request_ids, txn))
            return
        code, reason = code_of(error), str(error)
        for request_id in request_ids:
            peer.write(commands.ack_response(consumer_id, request_id, code, reason, txn=txn))

    try:
        opened.subscription.ack_in_transaction(
            txn, acked, opened.consumer, durable if request_ids else _unanswered
        )
    except MagnetarError:
        return False
    opened.consumer.noted_ack()
    return True


def _unanswered(error: MagnetarError | None) -> None:
    """Does nothing: no command asked for an answer."""


async def _ack_after_sizes(
    client: Client, opened: OpenConsumer, command: CommandAck, unsized: Sequence[MessageIdData]
) -> None:
    for message_id in unsized:
        message_id.batch_size = await opened.topic.messages_of(position_of(message_id))
    _ack(client, opened, command)


def _ack(client: Client, opened: OpenConsumer, command: CommandAck) -> None:
    """Acknowledges; the sizes of all batches are known."""
    txn = TxnId(command.txnid_most_bits, command.txnid_least_bits)
    consumer_id, request_id, peer = opened.consumer.consumer_id, command.request_id, client.peer
    wants_answer = command.HasField("request_id")

    def durable(error: MagnetarError | None) -> None:
        if not wants_answer:
            return
        if error is None:
            peer.write(commands.ack_response(consumer_id, request_id, txn=txn))
        else:
            answer = commands.ack_response(consumer_id, request_id, code_of(error), str(error), txn=txn)
            peer.write(answer)

    if command.ack_type == CommandAck.AckType.Cumulative:
        acked = _cumulative(command)
    else:
        acked = _individual(command)
    opened.subscription.ack_in_transaction(txn, acked, opened.consumer, durable)


def _individual(command: CommandAck) -> PendingAck:
    acked = PendingAck()
    for message_id in command.message_id:
        at = position_of(message_id)
        if _is_partial(message_id):
            bits, size = _bits_of(message_id)
            acked.batches[at] = acked.batches.get(at, (0, size))[0] | bits, size
        elif 0 <= at.entry_id < ENTRY_IDS_MAX:
            acked.individual.setdefault(at.ledger_id, BitMap()).add(at.entry_id)
        else:
            raise TransactionNotAllowed(f"there is no entry {at}")
    return acked


def _cumulative(command: CommandAck) -> PendingAck:
    if len(command.message_id) != 1:
        raise TransactionNotAllowed(
            f"a cumulative acknowledgement needs exactly one id, not {len(command.message_id)}"
        )
    (message_id,) = command.message_id
    at = position_of(message_id)
    if not _is_partial(message_id):
        return PendingAck(cumulative=at)
    # All entries before this one, and the messages of this batch that are set in the bits.
    return PendingAck(batches={at: _bits_of(message_id)}, cumulative=Position(at.ledger_id, at.entry_id - 1))


def _is_partial(message_id: MessageIdData) -> bool:
    return bool(message_id.ack_set) and any(message_id.ack_set)


def _bits_of(message_id: MessageIdData) -> tuple[int, int]:
    """Returns (bits of acknowledged messages, batch size)."""
    return words_to_acked_bits(message_id.ack_set, message_id.batch_size), message_id.batch_size
