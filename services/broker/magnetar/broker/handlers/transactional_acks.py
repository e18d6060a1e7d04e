"""Acknowledgements in transactions: pending until the transaction ends."""

from __future__ import annotations

from magnetar.broker.handlers.client import Client, OpenConsumer
from magnetar.broker.handlers.message_ids import position_of
from magnetar.broker.topics.publish.transactional_publishing import transactions_are_off
from magnetar.common.errors import MagnetarError, TransactionNotAllowed
from magnetar.common.naming.position import Position
from magnetar.common.naming.txn_id import TxnId
from magnetar.common.wire import commands
from magnetar.common.wire.ack_set import words_to_acked_bits
from magnetar.common.wire.error_codes import code_of
from magnetar.common.wire.pulsar_pb2 import CommandAck, MessageIdData
from magnetar.ledger.managed_ledger.ack_state import ENTRY_IDS_MAX
from magnetar.ledger.managed_ledger.pending_acks import PendingAck
from pyroaring import BitMap


async def handle_ack_in_transaction(client: Client, opened: OpenConsumer, command: CommandAck) -> None:
    """Acknowledges in a transaction, all of the command's messages or none; answers once that is durable.

    Raises TransactionConflict, TransactionNotAllowed, and StorageError when the size of a batch cannot be
    read.
    """
    if not client.services.config.transactions.enabled:
        raise transactions_are_off()
    txn = TxnId(command.txnid_most_bits, command.txnid_least_bits)
    opened.consumer.noted_ack()
    if command.ack_type == CommandAck.AckType.Cumulative:
        acked = await _cumulative(opened, command)
    else:
        acked = await _individual(opened, command)
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

    opened.subscription.ack_in_transaction(txn, acked, opened.consumer, durable)


async def _individual(opened: OpenConsumer, command: CommandAck) -> PendingAck:
    acked = PendingAck()
    for message_id in command.message_id:
        at = position_of(message_id)
        if _is_partial(message_id):
            bits, size = await _bits_of(opened, message_id)
            acked.batches[at] = acked.batches.get(at, (0, size))[0] | bits, size
        elif 0 <= at.entry_id < ENTRY_IDS_MAX:
            acked.individual.setdefault(at.ledger_id, BitMap()).add(at.entry_id)
        else:
            raise TransactionNotAllowed(f"there is no entry {at}")
    return acked


async def _cumulative(opened: OpenConsumer, command: CommandAck) -> PendingAck:
    if len(command.message_id) != 1:
        raise TransactionNotAllowed(
            f"a cumulative acknowledgement needs exactly one id, not {len(command.message_id)}"
        )
    (message_id,) = command.message_id
    at = position_of(message_id)
    if not _is_partial(message_id):
        return PendingAck(cumulative=at)
    # All entries before this one, and the messages of this batch that are set in the bits.
    bits = await _bits_of(opened, message_id)
    return PendingAck(batches={at: bits}, cumulative=Position(at.ledger_id, at.entry_id - 1))


def _is_partial(message_id: MessageIdData) -> bool:
    return bool(message_id.ack_set) and any(message_id.ack_set)


async def _bits_of(opened: OpenConsumer, message_id: MessageIdData) -> tuple[int, int]:
    """Returns (bits of acknowledged messages, batch size)."""
    size = message_id.batch_size or await opened.topic.messages_of(position_of(message_id))
    return words_to_acked_bits(message_id.ack_set, size), size
