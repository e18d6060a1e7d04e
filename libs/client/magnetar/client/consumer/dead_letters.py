"""Dead letter and retry letter topics: their names, and the properties of what is published to them.

Names and properties are those of Pulsar 4.0's Java client, so that its consumers continue the count.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from magnetar.client.consumer.acknowledgements import Position
from magnetar.client.messages import Message, MessageId, Receiver
from magnetar.client.producer.options import ProducerOptions
from magnetar.client.producer.producer import Producer
from magnetar.client.schemas.schema import Payload, SchemaInfo
from magnetar.client.session import ClientParts
from magnetar.common.naming.topic_name import TopicName

RETRIES: Final = "RECONSUMETIMES"
REAL_TOPIC: Final = "REAL_TOPIC"
REAL_SUBSCRIPTION: Final = "REAL_SUBSCRIPTION"
ORIGIN_MESSAGE_ID: Final = "ORIGIN_MESSAGE_ID"
OLD_ORIGIN_MESSAGE_ID: Final = "ORIGIN_MESSAGE_IDY_TIME"
"""A former misspelling, which consumers still read."""
DELAY_MS: Final = "DELAY_TIME"


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetterPolicy:
    """When a message becomes a dead letter, and where it is published."""

    redeliveries_max: int
    """Redeliveries of a message before it is a dead letter, so that it is delivered once more than that."""
    topic: str = ""
    """The dead letter topic; `<topic>-<subscription>-DLQ` if empty."""
    retry_topic: str = ""
    """The retry letter topic; `<topic>-<subscription>-RETRY` if empty."""
    initial_subscription: str = ""
    """A subscription created with the dead letter topic, without which its messages are not retained."""

    def __post_init__(self) -> None:
        """Checks the values. Raises ValueError."""
        if self.redeliveries_max < 1:
            raise ValueError(f"invalid redeliveries_max {self.redeliveries_max}: give at least 1")

    def dead_letter_topic(self, topic: str, subscription: str) -> str:
        """Returns the full name for a topic or partition. Raises InvalidName."""
        return _full(self.topic) if self.topic else f"{_whole(topic)}-{subscription}-DLQ"

    def retry_letter_topic(self, topic: str, subscription: str) -> str:
        """Returns the full name for a topic or partition. Raises InvalidName."""
        return _full(self.retry_topic) if self.retry_topic else f"{_whole(topic)}-{subscription}-RETRY"

    def is_dead(self, redelivery_count: int) -> bool:
        """Returns whether a message delivered with this count goes to the dead letter topic instead."""
        return redelivery_count >= self.redeliveries_max


@dataclass(frozen=True, slots=True)
class RetryLetter:
    """The properties and the delay of a message to consume again later."""

    properties: Mapping[str, str]
    delay_s: float
    is_dead: bool
    """Whether the retries are used up, so that it goes to the dead letter topic, without delay."""


def dead_letter_properties(
    topic: str, subscription: str, message_id: MessageId, properties: Mapping[str, str]
) -> dict[str, str]:
    """Returns the properties of a dead letter: the message's own, and where it came from first."""
    named = dict(properties)
    named.setdefault(REAL_TOPIC, topic)
    named.setdefault(REAL_SUBSCRIPTION, subscription)
    origin = named.get(ORIGIN_MESSAGE_ID) or named.get(OLD_ORIGIN_MESSAGE_ID) or str(message_id)
    named.setdefault(ORIGIN_MESSAGE_ID, origin)
    named.setdefault(OLD_ORIGIN_MESSAGE_ID, origin)
    return named


def retry_letter(
    policy: DeadLetterPolicy,
    topic: str,
    subscription: str,
    message_id: MessageId,
    properties: Mapping[str, str],
    delay_s: float,
    more: Mapping[str, str] | None = None,
) -> RetryLetter:
    """Returns what to publish so that a message is consumed again after `delay_s`.

    `more` are properties that the application adds; they replace the message's own of the same name, but not
    the count.
    """
    delay_s = max(delay_s, 0.0)
    named = dead_letter_properties(topic, subscription, message_id, {**properties, **(more or {})})
    retries = _count(properties.get(RETRIES, "0")) + 1
    named[RETRIES] = str(retries)
    named[DELAY_MS] = str(round(delay_s * 1000))
    dead = retries > policy.redeliveries_max
    return RetryLetter(named, 0.0 if dead else delay_s, dead)


def _count(text: str) -> int:
    """Returns a count of retries; 0 for what an application wrote under that name."""
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 10 else 0


def _full(topic: str) -> str:
    return TopicName.parse(topic).full


def _whole(topic: str) -> str:
    """Returns the full name of a topic without the suffix of a partition."""
    return TopicName.parse(topic).base.full


@dataclass(frozen=True, slots=True)
class _Encoded:
    """The schema of payloads that are encoded already."""

    info: SchemaInfo | None

    def encode(self, value: bytes) -> bytes:
        return value

    def decode(self, payload: Payload, version: bytes) -> bytes:
        return bytes(payload)


class DeadLetters:
    """The last deliveries of one consumer's messages, and the producers to which they move."""

    def __init__(
        self,
        parts: ClientParts,
        policy: DeadLetterPolicy,
        topic: str,
        subscription: str,
        schema: SchemaInfo | None,
    ) -> None:
        """`schema` is what the payloads are encoded by; both topics get it."""
        self._parts = parts
        self._policy = policy
        self._subscription = subscription
        self._schema = _Encoded(schema) if schema is not None else None
        self._dead_topic = policy.dead_letter_topic(topic, subscription)
        self.retry_topic = policy.retry_letter_topic(topic, subscription)
        """The topic of messages to consume again later."""
        self._producers: dict[str, Producer[bytes]] = {}
        self._last_deliveries: dict[tuple[str, Position], list[Message]] = {}

    def delivered(self, message: Message) -> None:
        """Keeps a message that is delivered for the last time, until it is acknowledged."""
        if self._policy.is_dead(message.redelivery_count):
            at = message.topic, message.entry.ids[0]
            self._last_deliveries.setdefault(at, []).append(message)

    def acknowledged(self, message: Message) -> None:
        """Forgets a message."""
        kept = self._last_deliveries.get((message.topic, message.entry.ids[0]))
        if kept is not None and message in kept:
            kept.remove(message)
            if not kept:
                del self._last_deliveries[message.topic, message.entry.ids[0]]

    def take(self, consumer: Receiver, positions: Sequence[Position]) -> list[Message]:
        """Returns those messages of the entries that are dead letters, and forgets them."""
        found: list[Message] = []
        for position in positions:
            found += self._last_deliveries.pop((consumer.topic, position), ())
        return found

    async def publish(self, message: Message) -> None:
        """Publishes a message to the dead letter topic. Raises ClientError."""
        named = dead_letter_properties(message.topic, self._subscription, message.id, message.properties)
        await self._send(self._dead_topic, message, named, 0.0)

    async def retry(self, message: Message, delay_s: float, more: Mapping[str, str] | None) -> None:
        """Publishes a message to the retry letter topic, or after its last retry to the dead letter topic.
        Raises ClientError.
        """
        letter = retry_letter(
            self._policy, message.topic, self._subscription, message.id, message.properties, delay_s, more
        )
        topic = self._dead_topic if letter.is_dead else self.retry_topic
        await self._send(topic, message, letter.properties, letter.delay_s)

    async def close(self) -> None:
        """Closes the producers."""
        for producer in self._producers.values():
            await producer.close()

    async def _send(
        self, topic: str, message: Message, properties: Mapping[str, str], delay_s: float
    ) -> None:
        producer = self._producers.get(topic)
        if producer is None:
            initial = self._policy.initial_subscription if topic == self._dead_topic else ""
            options = ProducerOptions(batching=None, initial_subscription=initial, chunking=True)
            producer = Producer(self._parts, TopicName.parse(topic), options, self._schema, ())
            await producer.open()
            self._producers[topic] = producer
        await producer.send(
            None if message.is_null else message.data,
            key=message.key_bytes if message.has_bytes_key else message.key,
            properties=properties,
            event_time_ms=message.event_time_ms,
            ordering_key=message.ordering_key,
            deliver_after_s=delay_s,
        )
