"""How the rows of a task become entries: cut and ordered by nothing but the rows, so the same each time.

Rows are taken in windows of a fixed size. In a window each partition of a topic gets its rows in entries, one
key after the other unless that is not wanted, since an entry of several keys would go to a single consumer of
a Key_Shared subscription. So the order within a key is that of the rows, and over all rows that have no key.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final

from magnetar.common.wire.varint import encode_varint
from magnetar.spark.sink.rows import OutgoingRow
from magnetar.spark.sink.sequence_numbers import PlainNumbers, RowNumbers

WINDOW_ROWS: Final = 10_000
WINDOW_BYTES: Final = 8 * 1024 * 1024

SEQUENCE_ID_TAG: Final = b"\x40"
"""SingleMessageMetadata.sequence_id as a field: number 8, a varint."""


@dataclass(slots=True)
class OutgoingEntry:
    """Messages of one entry, in order, with their sequence ids."""

    topic: str
    """A partition, or a topic without any."""

    rows: list[OutgoingRow] = field(default_factory=list)
    sequence_ids: list[int] = field(default_factory=list)
    byte_length: int = 0

    def without(self, first: int) -> OutgoingEntry:
        """Return the entry without its first `first` messages."""
        rows = self.rows[first:]
        return OutgoingEntry(
            self.topic, rows, self.sequence_ids[first:], sum(row.byte_length for row in rows)
        )

    def after(self, last: int) -> OutgoingEntry:
        """Return the entry with sequence ids that follow one, in place of those from 0."""
        ids = [sequence_id + last + 1 for sequence_id in self.sequence_ids]
        return OutgoingEntry(self.topic, self.rows, ids, self.byte_length)

    def only(self, count: int) -> OutgoingEntry:
        """Return the first `count` messages as an entry."""
        rows = self.rows[:count]
        return OutgoingEntry(
            self.topic, rows, self.sequence_ids[:count], sum(row.byte_length for row in rows)
        )


@dataclass(frozen=True, slots=True)
class EntryLimits:
    """Limits of an entry, and which messages may share it."""

    batching: str
    """key, plain or none: see SinkOptions."""

    messages_max: int
    bytes_max: int


def windows(
    rows: Iterable[OutgoingRow], rows_max: int = WINDOW_ROWS, bytes_max: int = WINDOW_BYTES
) -> Iterator[list[OutgoingRow]]:
    """The rows in lists of at most so many, which a row more would make too large."""
    window: list[OutgoingRow] = []
    size = 0
    for row in rows:
        if window and (len(window) >= rows_max or size + row.byte_length > bytes_max):
            yield window
            window, size = [], 0
        window.append(row)
        size += row.byte_length
    if window:
        yield window


def entries_of(
    window: list[OutgoingRow],
    place: Callable[[OutgoingRow], str],
    numbers: RowNumbers | PlainNumbers,
    limits: EntryLimits,
) -> list[OutgoingEntry]:
    """The entries of a window in the order of their sequence ids.

    `place` says the partition of a row; it is called once for each row, in order.
    """
    groups: dict[tuple[object, ...], list[OutgoingRow]] = {}
    by_key = limits.batching == "key"
    for row in window:
        topic = place(row)
        group: tuple[object, ...] = (topic,)
        if by_key:
            group = (topic, row.key, row.key_is_base64, row.ordering_key)
        groups.setdefault(group, []).append(row)
    entries: list[OutgoingEntry] = []
    for group, rows in groups.items():
        topic = str(group[0])
        entry: OutgoingEntry | None = None
        for row in rows:
            alone = row.deliver_at_ms > 0 or limits.batching == "none"
            if (
                entry is None
                or alone
                or len(entry.rows) >= limits.messages_max
                or entry.byte_length + row.byte_length > limits.bytes_max
            ):
                entry = OutgoingEntry(topic)
                entries.append(entry)
            entry.rows.append(row)
            entry.byte_length += row.byte_length
            entry.sequence_ids.append(numbers.next(_published(topic, row)))
            if alone:
                entry = None
    return entries


def batch_parts(entry: OutgoingEntry) -> list[bytes]:
    """Returns the messages as parts of a batch: size, metadata and payload of each."""
    parts: list[bytes] = []
    for row, sequence_id in zip(entry.rows, entry.sequence_ids, strict=True):
        metadata = row.encoded + SEQUENCE_ID_TAG + encode_varint(sequence_id)
        parts.append(b"".join((len(metadata).to_bytes(4, "big"), metadata, row.payload)))
    return parts


def _published(topic: str, row: OutgoingRow) -> bytes:
    """Return everything published of a row, for its check."""
    deliver = row.deliver_at_ms.to_bytes(8, "big") if row.deliver_at_ms else b""
    return b"".join((topic.encode(), deliver, row.encoded, row.payload))
