"""Messages of a topic, read by the client as the visitor: from a position, filtered, within bounds.

A page is found by reading until it is full, the topic ends, or a bound is met; the next page begins there.
The reader is not durable: it leaves nothing behind.
"""

from __future__ import annotations

import asyncio
import json
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Final

from magnetar.client import (
    AutoConsume,
    AutoProduce,
    Client,
    ClientError,
    KeyAndValue,
    Message,
    MessageId,
    Reader,
    Tls,
    Token,
)
from magnetar.client.consumer.dead_letters import REAL_TOPIC
from magnetar.client.errors import OperationTimeout
from magnetar.console.cluster_access import ClusterAccess
from magnetar.console.errors import BadRequest

READ_S: Final = 5.0
"""Seconds of reading for one page."""

READ_MESSAGES_MAX: Final = 10_000
"""Messages looked at for one page."""

TEXT_CHARS_MAX: Final = 4096
"""Characters shown of a payload."""

HEX_BYTES_MAX: Final = 256
"""Bytes shown of a payload that is no text."""

PROPERTIES_MAX: Final = 100

READER_QUEUE: Final = 16
"""Messages that brokers may send ahead; each may have 5 MiB."""

SEARCH_S: Final = 300.0
"""Seconds of a search that the visitor watches."""

SEARCH_MESSAGES_MAX: Final = 5_000_000
"""Messages looked at by such a search."""

SEARCHES_MAX: Final = 4
"""Such searches at a time."""

TELL_S: Final = 0.5
"""Seconds between two reports of a search."""

CLIENTS_MAX: Final = 8
"""Clients at a time; more visitors wait."""

_OPERATION_S: Final = 15.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Filters:
    """Conditions for messages of a page; empty texts let all of them pass."""

    key: str = ""
    """Part of the key."""
    prop: str = ""
    """A property's name, or name=value."""
    text: str = ""
    """Part of the payload as text, in any case of letters."""

    def pass_(self, message: Message) -> bool:
        """Return whether a message is one of those that are wanted."""
        if self.key and self.key not in (message.key or ""):
            return False
        if self.prop:
            name, has_value, value = self.prop.partition("=")
            found = message.properties.get(name)
            if found is None or (has_value and found != value):
                return False
        return not self.text or self.text.casefold() in _searched(message).casefold()


@dataclass(frozen=True, slots=True)
class ShownMessage:
    """A message as a page shows it."""

    message_id: str
    key: str
    size: int
    """Bytes of the payload."""
    publish_time_ms: int
    event_time_ms: int
    deliver_at_ms: int
    producer: str
    sequence_id: int
    schema_version: str
    properties: list[tuple[str, str]]
    headers: list[tuple[str, str]]
    """Other fields of its metadata, by name."""
    origin: str
    """The topic that it comes from if it is a dead or retry letter; empty for any other message."""
    text: str
    """The value, or why there is none."""
    form: str
    """How the value is shown: decoded by the schema, as text, as bytes."""
    truncated: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Letter:
    """A message as it is published again."""

    payload: bytes | None
    """None: a message without value."""
    key: str | bytes | None
    properties: dict[str, str]
    ordering_key: bytes | None = None
    event_time_ms: int = 0


@dataclass(slots=True)
class Found:
    """A page of messages."""

    messages: list[ShownMessage] = field(default_factory=list)
    looked_at: int = 0
    next_id: str = ""
    """The last message that was looked at, after which the next page begins; empty at the topic's end."""


class MessageReading:
    """Reads and publishes as visitors. Create it on the event loop that uses it."""

    def __init__(self, access: ClusterAccess) -> None:
        self._access = access
        self._slots = asyncio.Semaphore(CLIENTS_MAX)
        self._searches = 0

    @asynccontextmanager
    async def client(self, token: str) -> AsyncIterator[Client]:
        """A client of one visitor, closed in the end. Raises ClientError."""
        files = self._access.tls
        async with self._slots:
            client = Client(
                self._access.service_url,
                authentication=Token(token) if token else None,
                tls=Tls(trust_certs_file=files.trust_certs, verify_hostname=files.verify_hostname),
                operation_timeout_s=_OPERATION_S,
                connect_timeout_s=5.0,
            )
            try:
                yield client
            finally:
                await client.close(flush=False)

    async def read(
        self,
        token: str,
        topic: str,
        start: MessageId | int,
        *,
        inclusive: bool,
        filters: Filters,
        count: int,
        last: bool = False,
    ) -> Found:
        """Returns up to `count` messages from a position, or a publish time in milliseconds; with `last` the
        last ones that are found up to the end. Raises ClientError.
        """
        found = Found()
        kept: deque[ShownMessage] = deque(maxlen=count)
        async with self.client(token) as client:
            reader = await _reader_at(client, topic, start, inclusive=inclusive)
            try:
                async with asyncio.timeout(READ_S):
                    if isinstance(start, int):
                        await reader.seek(start)
                    while (last or len(kept) < count) and found.looked_at < READ_MESSAGES_MAX:
                        if (message := await _next(reader, found)) is None:
                            break
                        if filters.pass_(message):
                            kept.append(shown(message))
            except (TimeoutError, OperationTimeout):
                pass  # the page has what was found in time
        found.messages = list(kept)
        return found

    async def search(
        self,
        token: str,
        topic: str,
        start: MessageId | int,
        *,
        inclusive: bool,
        filters: Filters,
        count: int,
    ) -> AsyncGenerator[Found, None]:
        """Yields what a search found since the last report, at least every TELL_S, until it has `count`
        messages, meets a bound, or the topic ends; then `next_id` is empty. Raises BadRequest with too many
        searches, ClientError.
        """
        if self._searches >= SEARCHES_MAX:
            raise BadRequest(f"{SEARCHES_MAX} searches run already; stop one, or try again later")
        self._searches += 1
        try:
            async with self.client(token) as client:
                reader = await _reader_at(client, topic, start, inclusive=inclusive)
                if isinstance(start, int):
                    await reader.seek(start)
                now = asyncio.get_running_loop().time
                ends, told, matches, found = now() + SEARCH_S, now(), 0, Found()
                while matches < count and found.looked_at < SEARCH_MESSAGES_MAX and now() < ends:
                    if (message := await _next(reader, found)) is None:
                        break
                    if filters.pass_(message):
                        matches += 1
                        found.messages.append(shown(message))
                    if now() - told >= TELL_S:
                        yield found
                        told, found = now(), Found(looked_at=found.looked_at, next_id=found.next_id)
                yield found
        finally:
            self._searches -= 1

    async def letter(self, token: str, topic: str, at: MessageId) -> Letter | None:
        """Returns the message at a position; None when there is none, or it cannot be read. Raises
        ClientError.
        """
        async with self.client(token) as client:
            reader = await client.create_reader(topic, at, start_inclusive=True, queue_size=1)
            if not await reader.has_message_available():
                return None
            message = await reader.read(READ_S)
            found = message.id
            wanted = (at.ledger_id, at.entry_id, max(at.batch_index, 0))
            if (found.ledger_id, found.entry_id, max(found.batch_index, 0)) != wanted:
                return None
            if message.unreadable or message.encrypted is not None:
                return None
            return Letter(
                payload=None if message.is_null else message.data,
                key=message.key_bytes if message.has_bytes_key else message.key,
                properties=message.properties,
                ordering_key=message.ordering_key,
                event_time_ms=message.event_time_ms,
            )

    async def publish(self, token: str, topic: str, letter: Letter) -> str:
        """Publishes a message and returns its id. The payload has to fit the topic's schema.

        Raises ClientError.
        """
        async with self.client(token) as client:
            schema = AutoProduce()
            producer = await client.create_producer(topic, schema=schema, batching=None)
            sent = await producer.send(
                letter.payload,
                key=letter.key,
                properties=letter.properties,
                ordering_key=letter.ordering_key,
                event_time_ms=letter.event_time_ms,
            )
            return id_text(sent)


async def _reader_at(client: Client, topic: str, start: MessageId | int, *, inclusive: bool) -> Reader[Any]:
    """Returns a reader at a position; at the earliest message for a publish time, which it has to seek."""
    first = MessageId.EARLIEST if isinstance(start, int) else start
    return await client.create_reader(
        topic, first, start_inclusive=inclusive, schema=AutoConsume(), queue_size=READER_QUEUE
    )


async def _next(reader: Reader[Any], found: Found) -> Message | None:
    """Reads the next message and counts it; None at the end of the topic."""
    if not await reader.has_message_available():
        found.next_id = ""
        return None
    message = await reader.read(READ_S)
    found.looked_at += 1
    found.next_id = id_text(message.id)
    return message


def id_text(message_id: MessageId) -> str:
    """Return ledger:entry, and the number in its batch for a message of one."""
    text = f"{message_id.ledger_id}:{message_id.entry_id}"
    return f"{text}:{message_id.partition}:{message_id.batch_index}" if message_id.batch_index >= 0 else text


def shown(message: Message) -> ShownMessage:
    """Return a message as text, whatever its payload is."""
    text, form = value_text(message)
    return ShownMessage(
        message_id=id_text(message.id),
        key=(message.key or "")[:TEXT_CHARS_MAX],
        size=len(message.data),
        publish_time_ms=message.publish_time_ms,
        event_time_ms=message.event_time_ms,
        deliver_at_ms=message.deliver_at_ms,
        producer=message.producer_name,
        sequence_id=message.sequence_id,
        schema_version=message.schema_version.hex(),
        properties=[
            (name[:TEXT_CHARS_MAX], value[:TEXT_CHARS_MAX])
            for name, value in list(message.properties.items())[:PROPERTIES_MAX]
        ],
        headers=headers_of(message),
        origin=message.properties.get(REAL_TOPIC, "")[:TEXT_CHARS_MAX],
        text=text[:TEXT_CHARS_MAX],
        form=form,
        truncated=len(text) > TEXT_CHARS_MAX or (form == "bytes" and len(message.data) > HEX_BYTES_MAX),
    )


def headers_of(message: Message) -> list[tuple[str, str]]:
    """Return what the metadata of a message has beside its key, times and properties."""
    found: list[tuple[str, str]] = []
    own, batch = message.id, message.id.batch_index
    if own.partition >= 0:
        found.append(("Partition", str(own.partition)))
    if batch >= 0:
        found.append(
            ("In its batch", f"{batch + 1} of {own.batch_size}" if own.batch_size else str(batch + 1))
        )
    if message.ordering_key is not None:
        found.append(("Ordering key", payload_text(message.ordering_key)[0][:TEXT_CHARS_MAX]))
    if message.has_bytes_key:
        found.append(("Key", "given as bytes"))
    if message.index is not None:
        found.append(("Index", str(message.index)))
    if message.replicated_from:
        found.append(("Replicated from", message.replicated_from[:TEXT_CHARS_MAX]))
    if message.encrypted is not None:
        found.append(("Encrypted", "yes; the console has no keys"))
    return found


def value_text(message: Message) -> tuple[str, str]:
    """Return the value of a message as text, and how it was made."""
    if message.unreadable:
        return message.unreadable, "unreadable"
    if message.is_null:
        return "", "no value"
    try:
        value = message.value
    except ClientError as error:
        text, form = payload_text(message.data)
        return text, f"{form}; not decoded: {error}"
    if isinstance(value, bytes):
        return payload_text(value)
    if isinstance(value, str):
        return value, "decoded by its schema"
    return json.dumps(_plain(value), indent=2, ensure_ascii=False, default=str), "decoded by its schema"


def payload_text(payload: bytes) -> tuple[str, str]:
    """Return a payload as text: indented if it is JSON, in hexadecimal digits if it is no text."""
    try:
        text = payload.decode()
    except UnicodeDecodeError:
        return payload[:HEX_BYTES_MAX].hex(" "), "bytes"
    if any(ord(each) < 32 and each not in "\t\r\n" for each in text):
        return payload[:HEX_BYTES_MAX].hex(" "), "bytes"
    if text[:1] in ("{", "["):
        try:
            return json.dumps(json.loads(text), indent=2, ensure_ascii=False), "JSON"
        except (ValueError, RecursionError):
            pass
    return text, "text"


def _searched(message: Message) -> str:
    """Return the text in which a filter searches: the payload, and what a schema makes of it."""
    raw = message.data.decode(errors="replace")
    text, form = value_text(message)
    return raw if form in ("text", "bytes") else f"{raw}\n{text}"


def _plain(value: Any) -> Any:
    """Return a decoded value as JSON has it, as far as it goes."""
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, KeyAndValue):
        return {"key": _plain(value.key), "value": _plain(value.value)}
    if isinstance(value, dict):
        return {str(name): _plain(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    return value
