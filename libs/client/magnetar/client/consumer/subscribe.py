"""The command that subscribes a consumer."""

from __future__ import annotations

from typing import Final

from magnetar.client.consumer.options import SUBSCRIPTION_TYPES, ConsumerOptions
from magnetar.client.messages import MessageId
from magnetar.client.schemas.schema import SchemaInfo
from magnetar.common.schemas.definition import SchemaType
from magnetar.common.wire.pulsar_pb2 import (
    CommandSubscribe,
    IntRange,
    KeySharedMeta,
    KeySharedMode,
    MessageIdData,
)

AUTO_CONSUME_SINCE: Final = 21
"""The protocol version since which brokers know consumers that take the schema of each message."""


def subscribe_command(
    topic: str,
    consumer_id: int,
    epoch: int,
    options: ConsumerOptions,
    schema: SchemaInfo | None,
    protocol_version: int,
) -> CommandSubscribe:
    """Returns the command, without a start: a subscription that is not durable has one, see `start_of`."""
    command = CommandSubscribe(
        topic=topic,
        subscription=options.subscription,
        subType=SUBSCRIPTION_TYPES[options.type],
        consumer_id=consumer_id,
        request_id=0,
        durable=options.durable,
        priority_level=options.priority_level,
        read_compacted=options.read_compacted,
        consumer_epoch=epoch,
        initialPosition=CommandSubscribe.Earliest
        if options.initial_position == "earliest"
        else CommandSubscribe.Latest,
    )
    if options.name:
        command.consumer_name = options.name
    if options.replicate_subscription:
        command.replicate_subscription_state = True
    # Older brokers do not know the type; newer ones do not take such a consumer for one of plain bytes.
    if schema is not None and (
        schema.type != SchemaType.AUTO_CONSUME or protocol_version >= AUTO_CONSUME_SINCE
    ):
        command.schema.CopyFrom(schema.to_wire())
    for name, value in options.properties.items():
        command.metadata.add(key=name, value=value)
    for name, value in options.subscription_properties.items():
        command.subscription_properties.add(key=name, value=value)
    if options.type == "key_shared":
        policy = options.key_shared
        mode = KeySharedMode.STICKY if policy.sticky_ranges else KeySharedMode.AUTO_SPLIT
        ranges = [IntRange(start=first, end=last) for first, last in policy.sticky_ranges]
        command.keySharedMeta.CopyFrom(
            KeySharedMeta(
                keySharedMode=mode, hashRanges=ranges, allowOutOfOrderDelivery=policy.allow_out_of_order
            )
        )
    return command


def start_of(start: MessageId, *, inclusive: bool) -> MessageIdData:
    """Returns where the broker begins: after an entry, or with it if a batch index is given."""
    if start in (MessageId.EARLIEST, MessageId.LATEST):
        return start.to_data()
    if inclusive and start.first_chunk is not None:
        start = start.first_chunk
    data = MessageIdData(ledgerId=start.ledger_id, entryId=start.entry_id)
    if start.batch_index >= 0 or inclusive:
        data.batch_index = max(start.batch_index, 0)
    return data
