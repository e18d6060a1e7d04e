"""Reads the messages of ledgers that are not offloaded, as a client does: by a reader that leaves nothing."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import TYPE_CHECKING, Final

from magnetar.ledger.cold.search.condition import MessagePosition, SearchedMessage

if TYPE_CHECKING:
    from magnetar.client.client import Client
    from magnetar.client.messages import Message
    from magnetar.client.reader import Reader

READ_S: Final = 5.0
"""Seconds in which a message that the broker says is there has to arrive."""

ENCRYPTED: Final = "encrypted"


async def messages_between(
    client: Client, topic: str, first: MessagePosition, last: MessagePosition
) -> AsyncGenerator[SearchedMessage | None]:
    """Yields the messages of a topic or partition from one position to another, both included, and None while
    nothing arrives. Raises ClientError.
    """
    from magnetar.client.errors import OperationTimeout
    from magnetar.client.messages import MessageId

    reader: Reader[bytes] = await client.create_reader(
        topic,
        MessageId(first.ledger_id, max(first.entry_id, 0)),
        start_inclusive=True,
        crypto_failure="consume",
    )
    quiet = 0
    async with reader:
        while quiet < 2 and await reader.has_message_available():
            try:
                message = await reader.read(READ_S)
            except OperationTimeout:
                # The last entries may be of an aborted transaction, which no reader gets.
                quiet += reader.is_connected
                yield None
                continue
            quiet = 0
            found = searched(message)
            if found.position[:2] > last[:2]:
                return
            yield found
            size = message.id.batch_size
            if found.position[:2] == last[:2] and found.position.batch_index >= size - 1:
                return


def searched(message: Message) -> SearchedMessage:
    """Returns a message as searches see it."""
    message_id = message.id
    unreadable = ENCRYPTED if message.encrypted is not None else message.unreadable
    try:
        key, key_bytes = message.key, message.key_bytes
    except ValueError:  # A key that says to be base64 and is not.
        key = key_bytes = None
    return SearchedMessage(
        topic=message.topic,
        partition=message_id.partition,
        position=MessagePosition(message_id.ledger_id, message_id.entry_id, message_id.batch_index),
        key=key,
        key_bytes=key_bytes,
        properties=message.properties,
        publish_time_ms=message.publish_time_ms,
        event_time_ms=message.event_time_ms,
        producer_name=message.producer_name,
        sequence_id=message.sequence_id,
        payload=b"" if unreadable else bytes(message.data),
        is_null=message.is_null,
        unreadable=unreadable,
    )
