"""Messages passed to producers and received from consumers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from magnetar.common.wire.pulsar_pb2 import CompressionType, KeyValue, SingleMessageMetadata


@dataclass(slots=True)
class Outgoing:
    """A message to publish. It may be sent many times, and must not change after the first."""

    payload: bytes
    key: str | None = None
    properties: Mapping[str, str] = field(default_factory=dict)
    event_time_ms: int = 0
    replicated: bool = True
    """Whether the message is replicated to other clusters."""

    _single: bytes = b""

    @property
    def in_batch(self) -> bytes:
        """Returns the encoding in a batch: size, SingleMessageMetadata, payload."""
        if not self._single:
            metadata = SingleMessageMetadata(payload_size=len(self.payload))
            if self.key is not None:
                metadata.partition_key = self.key
            if self.event_time_ms:
                metadata.event_time = self.event_time_ms
            for name, value in self.properties.items():
                metadata.properties.append(KeyValue(key=name, value=value))
            encoded = metadata.SerializeToString()
            self._single = len(encoded).to_bytes(4, "big") + encoded + self.payload
        return self._single


@dataclass(frozen=True, slots=True)
class MessageId:
    """A message's position; `batch_index` is -1 outside a batch, `partition` -1 outside a partitioned
    topic.
    """

    ledger_id: int
    entry_id: int
    partition: int = -1
    batch_index: int = -1

    def __str__(self) -> str:
        """The format that pulsar-client prints."""
        text = f"{self.ledger_id}:{self.entry_id}:{self.partition}"
        return f"{text}:{self.batch_index}" if self.batch_index >= 0 else text


@dataclass(slots=True)
class EntryLeft:
    """A delivered entry, kept until all its messages are acknowledged."""

    ids: list[tuple[int, int]]
    """(ledger, entry) ids; one for each chunk of a chunked message."""

    batch_size: int
    """Number of messages in the batch; 0 for a single message."""

    acked_bits: int = 0


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


@dataclass(slots=True, eq=False)
class Incoming:
    """A message as received by a consumer."""

    topic: str
    id: MessageId
    payload: bytes
    key: str | None
    properties: Mapping[str, str]
    publish_time_ms: int
    event_time_ms: int
    producer_name: str
    sequence_id: int
    redelivery_count: int
    entry: EntryLeft
    unreadable: str = ""
    """The reason why the payload could not be decoded, which is empty then."""
    encrypted: EncryptionContext | None = None
    """Set if the message is encrypted and was not decrypted."""
