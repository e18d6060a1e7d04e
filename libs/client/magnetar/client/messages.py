"""Messages as they are given to producers and come from consumers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from magnetar.common.wire.pulsar_pb2 import KeyValue, SingleMessageMetadata


@dataclass(slots=True)
class Outgoing:
    """A message to publish. The same object may be sent many times; it must not change after the first."""

    payload: bytes
    key: str | None = None
    properties: Mapping[str, str] = field(default_factory=dict)
    event_time_ms: int = 0
    replicated: bool = True
    """False: the message stays in its cluster."""

    _single: bytes = b""

    @property
    def in_batch(self) -> bytes:
        """The form within a batch: size, SingleMessageMetadata, payload."""
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
    """Where a message is; `batch_index` is -1 outside a batch, `partition` -1 outside a partitioned topic."""

    ledger_id: int
    entry_id: int
    partition: int = -1
    batch_index: int = -1

    def __str__(self) -> str:
        """Formats the message as pulsar-client does."""
        text = f"{self.ledger_id}:{self.entry_id}:{self.partition}"
        return f"{text}:{self.batch_index}" if self.batch_index >= 0 else text


@dataclass(slots=True)
class EntryLeft:
    """An entry that was delivered, until all its messages are acknowledged."""

    ids: list[tuple[int, int]]
    """(ledger, entry), of each chunk for a message in chunks."""

    batch_size: int
    """0 for a message alone."""

    acked_bits: int = 0


@dataclass(slots=True, eq=False)
class Incoming:
    """A message as a consumer got it."""

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
    """Why the payload could not be decoded; it is empty then."""
