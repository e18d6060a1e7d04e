"""Messages as sent and as received, and their ids."""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final, Protocol, TypeAlias

from google.protobuf.message import DecodeError
from magnetar.client.errors import ClientError, Unreadable
from magnetar.common.naming.txn_id import TxnId
from magnetar.common.wire.pulsar_pb2 import (
    BrokerEntryMetadata,
    CompressionType,
    MessageIdData,
    MessageMetadata,
    SingleMessageMetadata,
)

_UINT64: Final = 2**64


@dataclass(slots=True, order=True, unsafe_hash=True)
class MessageId:
    """A message's position; `batch_index` is -1 outside a batch, `partition` -1 outside a partitioned topic.

    The order is that of a topic's messages, and holds within one topic or partition only. Do not change one:
    it is not frozen because producers make one for each message, which frozen ones make three times as slow.
    """

    EARLIEST: ClassVar[MessageId]
    """The position before a topic's first message."""
    LATEST: ClassVar[MessageId]
    """The position after a topic's last message."""

    ledger_id: int
    entry_id: int
    partition: int = -1
    batch_index: int = -1
    batch_size: int = field(default=0, compare=False)
    """Number of messages in the batch; 0 outside a batch or if unknown."""
    first_chunk: MessageId | None = field(default=None, compare=False)
    """The first chunk of a chunked message, whose own id is that of the last chunk."""

    def __str__(self) -> str:
        """The format that pulsar-client prints."""
        text = f"{self.ledger_id}:{self.entry_id}:{self.partition}"
        return f"{text}:{self.batch_index}" if self.batch_index >= 0 else text

    @property
    def position(self) -> tuple[int, int]:
        """The ids of the ledger and of the entry."""
        return self.ledger_id, self.entry_id

    def to_data(self) -> MessageIdData:
        """Returns the id as in commands."""
        data = MessageIdData(ledgerId=self.ledger_id % _UINT64, entryId=self.entry_id % _UINT64)
        if self.partition >= 0:
            data.partition = self.partition
        if self.batch_index >= 0:
            data.batch_index = self.batch_index
        if self.batch_size:
            data.batch_size = self.batch_size
        if self.first_chunk is not None:
            data.first_chunk_message_id.CopyFrom(self.first_chunk.to_data())
        return data

    @staticmethod
    def from_data(data: MessageIdData) -> MessageId:
        """Returns the id that a command carries."""
        chunked = data.HasField("first_chunk_message_id")
        return MessageId(
            _signed(data.ledgerId),
            _signed(data.entryId),
            data.partition,
            data.batch_index,
            data.batch_size,
            MessageId.from_data(data.first_chunk_message_id) if chunked else None,
        )

    def to_bytes(self) -> bytes:
        """Returns bytes to store, which Pulsar's other clients read."""
        return self.to_data().SerializeToString()

    @staticmethod
    def from_bytes(stored: bytes) -> MessageId:
        """Reads what `to_bytes`, or another Pulsar client's serialize, returned. Raises ClientError."""
        try:
            return MessageId.from_data(MessageIdData.FromString(stored))
        except DecodeError as error:
            raise ClientError(
                f"invalid message id of {len(stored)} bytes: {error}; give the bytes that to_bytes returned"
            ) from error


def _signed(number: int) -> int:
    """Returns an unsigned 64-bit number as a signed one: -1 stands for the earliest position."""
    return number - _UINT64 if number >= _UINT64 // 2 else number


MessageId.EARLIEST = MessageId(-1, -1)
MessageId.LATEST = MessageId(2**63 - 1, 2**63 - 1)

OnSent: TypeAlias = Callable[[ClientError | None, MessageId | None], None]
"""Called once for a message that was sent: with its id when it is stored, or with an error."""


class EntryLeft:
    """A delivered entry, kept until all its messages are acknowledged."""

    __slots__ = ("acked_bits", "batch_size", "ids", "unacked")

    def __init__(self, ids: Sequence[tuple[int, int]], batch_size: int, acked_bits: int = 0) -> None:
        self.ids = ids
        """(ledger, entry) ids; one for each chunk of a chunked message."""
        self.batch_size = batch_size
        """Number of messages in the batch; 0 for a single message."""
        self.acked_bits = acked_bits
        """A bit for each message of the batch that is acknowledged."""
        self.unacked = batch_size - acked_bits.bit_count() if acked_bits else batch_size
        """Number of messages that are not acknowledged; 0 for a single message."""

    def acknowledge(self, batch_index: int) -> bool:
        """Marks a message of the batch as acknowledged; returns whether all are."""
        bit = 1 << batch_index
        if not self.acked_bits & bit:
            self.acked_bits |= bit
            self.unacked -= 1
        return not self.unacked

    def acknowledge_through(self, batch_index: int) -> bool:
        """Marks the messages of the batch up to one as acknowledged; returns whether all are."""
        self.acked_bits |= (2 << batch_index) - 1
        self.unacked = self.batch_size - self.acked_bits.bit_count()
        return not self.unacked


@dataclass(frozen=True, slots=True)
class EncryptionContext:
    """Metadata with which an application can decrypt and decode an entry itself."""

    keys: Mapping[str, bytes]
    """Wrapped data keys by the names of key pairs."""
    vector: bytes
    compression: CompressionType.ValueType
    uncompressed_size: int
    """Bytes of the payload before compression; 0 if it is not compressed."""
    batch_size: int
    """Number of messages in the batch; 0 for a single message."""


@dataclass(slots=True)
class Outgoing:
    """A message to publish. It must not change while it is unconfirmed."""

    payload: bytes
    key: str | None = None
    properties: Mapping[str, str] = field(default_factory=dict)
    event_time_ms: int = 0
    ordering_key: bytes | None = None
    deliver_at_ms: int = 0
    key_is_base64: bool = False
    is_null: bool = False
    replicate_to: Sequence[str] = ()
    """Clusters to replicate it to; empty: those of the namespace."""
    txn: TxnId | None = None
    schema_version: bytes = b""
    is_plain: bool = False
    """Whether it has nothing but a payload (and the version of the producer's schema)."""
    is_null_key: bool = False
    """Whether the key of its key/value pair is null, which is something else than no key."""


class Receiver(Protocol):
    """The consumer of a topic or partition, as its messages know it."""

    @property
    def topic(self) -> str:
        """The full name of the topic or partition."""

    @property
    def partition(self) -> int:
        """The number of the partition; -1 for a topic without."""

    def decode(self, message: Message) -> Any:
        """Returns the value of a message. Raises SchemaError."""

    async def fetch_schema(self, message: Message) -> None:
        """Gets what `decode` needs for a message. Raises ClientError."""

    def take(self, message: Message) -> None:
        """Records that the application takes a message."""

    def check(self) -> None:
        """Raises the error with which it ended, or Closed."""

    def acknowledge(self, message: Message) -> None:
        """Acknowledges a message with the next group."""

    def acknowledge_cumulative(self, message_id: MessageId, entry: EntryLeft | None = None) -> None:
        """Acknowledges all messages up to one."""

    async def acknowledged(self) -> None:
        """Returns once the acknowledgements so far are stored. Raises ClientError."""

    async def acknowledge_in(self, txn: TxnId, message: Message | MessageId, *, cumulative: bool) -> None:
        """Acknowledges in a transaction. Raises ClientError."""

    def negative_acknowledge(self, entry: EntryLeft, redelivery_count: int) -> None:
        """Asks for an entry again later."""

    def redeliver(self, positions: Sequence[tuple[int, int]]) -> None:
        """Asks for entries again now."""


@dataclass(slots=True)
class Problem:
    """Why a message has not the payload that was sent."""

    unreadable: str = ""
    encrypted: EncryptionContext | None = None


class Message:
    """A message as received; what is not needed is not decoded."""

    __slots__ = (
        "_broker_metadata",
        "_problem",
        "_serialized",
        "_serialized_own",
        "_value",
        "batch_index",
        "consumer",
        "data",
        "entry",
        "redelivery_count",
    )

    data: bytes
    """The payload; empty if it is unreadable."""
    redelivery_count: int
    """Number of times that it was delivered before, as far as the broker counts it."""
    batch_index: int
    """Its number in its batch; -1 outside a batch."""
    entry: EntryLeft
    """For the client: the entry that it came in."""
    consumer: Receiver
    """For the client: the consumer of the topic or partition that received it."""

    def __init__(
        self,
        consumer: Receiver,
        entry: EntryLeft,
        metadata: bytes | MessageMetadata,
        own: bytes | SingleMessageMetadata | None,
        data: bytes,
        batch_index: int,
        redelivery_count: int,
        broker_metadata: bytes,
        problem: Problem | None = None,
    ) -> None:
        """`own` is what a batch has for each of its messages; None outside a batch. Metadata that is
        serialized is parsed when it is needed.
        """
        self.consumer = consumer
        self.entry = entry
        self._serialized = metadata
        self._serialized_own = own
        self.data = data
        self.batch_index = batch_index
        self.redelivery_count = redelivery_count
        self._broker_metadata = broker_metadata
        self._problem = problem
        self._value: Any = _UNDECODED

    @property
    def _metadata(self) -> MessageMetadata:
        found = self._serialized
        if isinstance(found, bytes):
            self._serialized = found = MessageMetadata.FromString(found)
        return found

    @property
    def _own(self) -> Any:
        """The metadata of this message alone: key, properties, event time ..."""
        found = self._serialized_own
        if found is None:
            return self._metadata
        if isinstance(found, bytes):
            self._serialized_own = found = SingleMessageMetadata.FromString(found)
        return found

    @property
    def unreadable(self) -> str:
        """The reason why the payload could not be decoded; empty if it could."""
        return "" if self._problem is None else self._problem.unreadable

    @property
    def encrypted(self) -> EncryptionContext | None:
        """Set if the message is encrypted and was not decrypted."""
        return None if self._problem is None else self._problem.encrypted

    @property
    def topic(self) -> str:
        """The full name of the topic or partition."""
        return self.consumer.topic

    @property
    def id(self) -> MessageId:
        """The message's id; of a chunked message that of its last chunk."""
        ids = self.entry.ids
        ledger_id, entry_id = ids[-1]
        partition = self.consumer.partition
        first = MessageId(*ids[0], partition) if len(ids) > 1 else None
        return MessageId(ledger_id, entry_id, partition, self.batch_index, self.entry.batch_size, first)

    @property
    def value(self) -> Any:
        """The payload decoded by the consumer's schema; the bytes without one, None for a message without
        value. Raises Unreadable, SchemaError.
        """
        if self._value is _UNDECODED:
            if self.unreadable:
                raise Unreadable(f"{self.topic}, {self.id}: {self.unreadable}")
            self._value = self.consumer.decode(self)
        return self._value

    @property
    def is_null(self) -> bool:
        """Whether it has no value: a tombstone for compaction."""
        return bool(self._own.null_value)

    @property
    def key(self) -> str | None:
        """The key as text; None without one."""
        own = self._own
        if not own.HasField("partition_key"):
            return None
        text: str = own.partition_key
        return base64.b64decode(text).decode(errors="replace") if own.partition_key_b64_encoded else text

    @property
    def key_bytes(self) -> bytes | None:
        """The key as bytes; None without one."""
        own = self._own
        if not own.HasField("partition_key"):
            return None
        text: str = own.partition_key
        return base64.b64decode(text) if own.partition_key_b64_encoded else text.encode()

    @property
    def has_bytes_key(self) -> bool:
        """Whether the key was given as bytes."""
        return bool(self._own.partition_key_b64_encoded)

    @property
    def ordering_key(self) -> bytes | None:
        """The key by which Key_Shared subscriptions keep order, if it is another than the key."""
        return self._own.ordering_key if self._own.HasField("ordering_key") else None

    @property
    def properties(self) -> dict[str, str]:
        """The application's properties."""
        pairs = self._own.properties
        return {pair.key: pair.value for pair in pairs} if pairs else {}

    @property
    def publish_time_ms(self) -> int:
        """The producer's clock when it was published, in milliseconds since 1970."""
        return self._metadata.publish_time

    @property
    def event_time_ms(self) -> int:
        """The time that the application gave, in milliseconds since 1970; 0 for none."""
        return int(self._own.event_time)

    @property
    def producer_name(self) -> str:
        """The name of the producer that published it."""
        return self._metadata.producer_name

    @property
    def sequence_id(self) -> int:
        """The number that its producer gave it."""
        own = self._own
        if own is not self._metadata and own.HasField("sequence_id"):
            return int(own.sequence_id)
        return self._metadata.sequence_id + max(self.batch_index, 0)

    @property
    def schema_version(self) -> bytes:
        """The version of the schema with which it was written; empty without one."""
        return self._metadata.schema_version

    @property
    def deliver_at_ms(self) -> int:
        """The time before which it was not to be delivered; 0 for none."""
        return self._metadata.deliver_at_time

    @property
    def replicated_from(self) -> str:
        """The cluster in which it was first published; empty for this one."""
        return self._metadata.replicated_from

    @property
    def index(self) -> int | None:
        """The number of the message in its topic, if the broker adds one to entries."""
        if not self._broker_metadata:
            return None
        found = BrokerEntryMetadata.FromString(self._broker_metadata)
        if not found.HasField("index"):
            return None
        size = self.entry.batch_size
        return found.index - size + 1 + self.batch_index if size else found.index

    @property
    def broker_publish_time_ms(self) -> int | None:
        """The broker's clock when it was stored, if the broker adds it to entries."""
        if not self._broker_metadata:
            return None
        found = BrokerEntryMetadata.FromString(self._broker_metadata)
        return found.broker_timestamp if found.HasField("broker_timestamp") else None

    def __repr__(self) -> str:
        return f"<Message {self.id} of {self.topic}, {len(self.data)} bytes>"


_UNDECODED: Final = object()
