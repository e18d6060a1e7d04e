"""What is inside an entry, as rows: the columns of each of its messages.

Fields mean what clients make of them: inside a batch a message's own metadata says key, properties and times;
the batch's says the rest.
"""

from __future__ import annotations

import base64
import binascii
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, Final

from google.protobuf.message import DecodeError
from google.protobuf.unknown_fields import UnknownFieldSet
from magnetar.common.errors import DataCorruption
from magnetar.common.wire.batch import payload_offset
from magnetar.common.wire.checksum import crc32c_from
from magnetar.common.wire.command_parser import missing_fields
from magnetar.common.wire.frame import ENTRY_HEADER_BYTES
from magnetar.common.wire.pulsar_pb2 import NONE, CompressionType, MessageMetadata, SingleMessageMetadata
from magnetar.ledger.cold.columns import COLUMN_NAMES, COLUMNS
from magnetar.ledger.cold.entry_envelope import encode_envelope
from magnetar.ledger.cold.payload_codecs import decompress
from magnetar.ledger.ledger_store import RUN_MARKER, Run

_CALENDAR_MS_MAX: Final = 253_402_300_799_999
"""The last millisecond of the year 9999: what SQL and Python know as a time."""

# Without its tag's bytes a field is not there, and protobuf, which is slower, need not be asked. (A tag may
# be written longer than it has to be: who does that hides a field from columns, not from consumers.)
_PROPERTIES_TAG: Final = b"\x22"
_SINGLE_PROPERTIES_TAG: Final = b"\x0a"
_REPLICATED_TAG: Final = b"\x2a"
_COMPRESSION_TAG: Final = b"\x40"
_COMPRESSION_FIELD: Final = 8
_KEYS_TAG: Final = b"\x6a"
_HIGH_TAGS: Final = b"\x01"
"""The second byte of the tags of fields 16 to 31."""

ENTRY_ROWS_MAX: Final = 100_000
"""A larger batch is one raw row: a few hundred bytes, compressed, can hold a million empty messages."""

_ROW_BYTES: Final = 64
"""What a row's numbers are, about."""

_NO_PROPERTIES: Final[tuple[tuple[str, str], ...]] = ()
_COMMON: Final = COLUMN_NAMES[COLUMN_NAMES.index("schema_version") : COLUMN_NAMES.index("txn_least") + 1]
_NOTHING_COMMON: Final = (None,) * len(_COMMON)


class _Raw(Exception):
    """An entry that is kept as it is."""


def _int64(number: int) -> int:
    """An unsigned 64-bit number as the signed one with the same bits."""
    return number if number < 1 << 63 else number - (1 << 64)


def _time_us(time_ms: int) -> int | None:
    """Microseconds of a client's milliseconds; None for what is no date."""
    return time_ms * 1000 if 0 <= time_ms <= _CALENDAR_MS_MAX else None


def _text(value: Any) -> str:
    """Protobuf gives `bytes` for text that is not UTF-8."""
    return value if type(value) is str else bytes(value).decode(errors="replace")


def _properties(pairs: Any) -> Sequence[tuple[str, str]]:
    if not pairs:
        return _NO_PROPERTIES
    return tuple({_text(pair.key): _text(pair.value) for pair in pairs}.items())


def _key(own: Any) -> tuple[str | None, bytes | None]:
    """(key as text, key as bytes when the producer's keys are bytes)."""
    if not own.HasField("partition_key") or own.null_partition_key:
        return None, None
    key = _text(own.partition_key)
    if not own.partition_key_b64_encoded:
        return key, None
    try:
        return key, base64.b64decode(key, validate=True)
    except (binascii.Error, ValueError):
        return key, None


class EntryRows:
    """Makes the rows of entries that come in order; not to be used once `add` raised."""

    __slots__ = (
        "_exact",
        "_message_bytes_max",
        "_partition",
        "byte_length",
        "entry_bytes",
        "entry_starts",
        "first_entry_id",
        "last_entry_id",
        "max_publish_time_ms",
        "raw_reasons",
        "rows",
    )

    def __init__(self, partition: int, *, exact: bool, message_bytes_max: int) -> None:
        self._partition = partition
        self._exact = exact
        self._message_bytes_max = message_bytes_max
        self.rows: list[tuple[Any, ...]] = []
        """Values in the order of COLUMNS."""
        self.entry_starts: list[int] = []
        self.entry_bytes: list[int] = []
        self.raw_reasons: Counter[str] = Counter()
        self.first_entry_id = self.last_entry_id = -1
        self.max_publish_time_ms = 0
        self.byte_length = 0
        """About how much all rows are, uncompressed."""

    def add(self, run: Run) -> None:
        """The rows of a run."""
        index = run.first_index
        counts = run.message_counts
        for number, entry in enumerate(run.entries):
            count = 1 if counts is None else counts[number]
            self.add_entry(run, run.first_entry_id + number, entry, index, count)
            index += count

    def add_entry(self, run: Run, entry_id: int, entry: bytes, index: int, count: int) -> None:
        """The rows of an entry of a run; `index` is its first message's, `count` how many it counts as."""
        assert entry_id > self.last_entry_id, "entries come in order"
        if self.first_entry_id < 0:
            self.first_entry_id = entry_id
        self.last_entry_id = entry_id
        self.max_publish_time_ms = max(self.max_publish_time_ms, run.publish_time_ms)
        self.entry_starts.append(len(self.rows))
        metadata: MessageMetadata | None = None
        try:
            offset = payload_offset(entry)
            if crc32c_from(entry, 6) != int.from_bytes(entry[2:6], "big"):
                raise _Raw("checksum: the entry is not what its checksum covered")
            stored = entry[ENTRY_HEADER_BYTES:offset]
            metadata = _parsed(stored)
            self._add_messages(run, entry_id, entry, offset, stored, metadata, index, count)
        except (_Raw, DataCorruption) as reason:
            why = str(reason) if isinstance(reason, _Raw) else f"damaged: {reason}"
            self.raw_reasons[why.partition(":")[0]] += 1
            self._add_raw(run, entry_id, entry, metadata, index, count, why)

    def _add_messages(
        self,
        run: Run,
        entry_id: int,
        entry: bytes,
        offset: int,
        stored: bytes,
        metadata: MessageMetadata,
        index: int,
        count: int,
    ) -> None:
        """`stored` is the metadata's bytes. Raises before any row is added."""
        if run.flags & RUN_MARKER or metadata.HasField("marker_type"):
            raise _Raw("marker")
        if _KEYS_TAG in stored and metadata.encryption_keys:
            raise _Raw("encrypted")
        payload = entry[offset:]
        chunk = metadata.num_chunks_from_msg > 1
        compression: CompressionType.ValueType = NONE
        if _COMPRESSION_TAG in stored:
            if _unknown_compression(metadata):
                raise _Raw("compression: of a kind that this release does not know")
            compression = metadata.compression
            if compression != NONE and not chunk:  # a chunk is a piece of what was compressed as a whole
                try:
                    payload = decompress(compression, payload, metadata.uncompressed_size)
                except DataCorruption as error:
                    raise _Raw(f"compression: {error}") from error
                metadata.ClearField("compression")
                stored = metadata.SerializeToString()
        verbatim = None
        length = ENTRY_HEADER_BYTES + len(stored) + len(payload)
        if self._exact or length > max(self._message_bytes_max, len(entry)):
            verbatim = entry
        envelope = encode_envelope(compression, run.flags, count, stored)
        if metadata.HasField("num_messages_in_batch") and not chunk:
            if metadata.num_messages_in_batch > ENTRY_ROWS_MAX:
                raise _Raw(f"large: a batch of more than {ENTRY_ROWS_MAX} messages")
            singles = list(_batch(payload, metadata.num_messages_in_batch))
            if not singles:
                raise _Raw("damaged: a batch without messages")
            self._add_batch(run, entry_id, metadata, index, verbatim, envelope, singles)
            rows = len(singles)
        else:
            self._add_single(run, entry_id, stored, metadata, index, verbatim, envelope, payload)
            rows = 1
        self._count_bytes(length + len(verbatim or b"") + rows * _ROW_BYTES)

    def _count_bytes(self, entry_bytes: int) -> None:
        self.entry_bytes.append(entry_bytes)
        self.byte_length += entry_bytes

    def _add_single(
        self,
        run: Run,
        entry_id: int,
        stored: bytes,
        metadata: MessageMetadata,
        index: int,
        verbatim: bytes | None,
        envelope: bytes,
        payload: bytes | None,
        reason: str | None = None,
    ) -> None:
        key, key_bytes = _key(metadata)
        self.rows.append(
            (
                run.ledger_id,
                entry_id,
                -1,
                self._partition,
                _time_us(metadata.publish_time),
                _time_us(metadata.event_time) if metadata.event_time else None,
                run.publish_time_ms * 1000,
                index,
                key,
                key_bytes,
                metadata.ordering_key if metadata.HasField("ordering_key") else None,
                _properties(metadata.properties) if _PROPERTIES_TAG in stored else _NO_PROPERTIES,
                _text(metadata.producer_name),
                _int64(metadata.sequence_id),
                *(
                    _common(metadata)
                    if _HIGH_TAGS in stored or _REPLICATED_TAG in stored
                    else _NOTHING_COMMON
                ),
                metadata.null_value,
                payload,
                verbatim,
                reason,
                envelope,
                None,
            )
        )

    def _add_batch(
        self,
        run: Run,
        entry_id: int,
        metadata: MessageMetadata,
        index: int,
        verbatim: bytes | None,
        envelope: bytes | None,
        singles: Sequence[tuple[SingleMessageMetadata, bytes, bytes]],
    ) -> None:
        ledger_id, partition = run.ledger_id, self._partition
        publish_time, broker_time = _time_us(metadata.publish_time), run.publish_time_ms * 1000
        producer_name, sequence_id = _text(metadata.producer_name), metadata.sequence_id
        event_time = metadata.event_time
        common = _common(metadata)
        add = self.rows.append
        for number, (single, encoded, payload) in enumerate(singles):
            has = single.HasField
            key, key_bytes = _key(single)
            time_ms = single.event_time if has("event_time") else event_time
            sequence = single.sequence_id if has("sequence_id") else sequence_id + number & (1 << 64) - 1
            add(
                (
                    ledger_id,
                    entry_id,
                    number,
                    partition,
                    publish_time,
                    _time_us(time_ms) if time_ms else None,
                    broker_time,
                    index + number,
                    key,
                    key_bytes,
                    single.ordering_key if has("ordering_key") else None,
                    _properties(single.properties) if _SINGLE_PROPERTIES_TAG in encoded else _NO_PROPERTIES,
                    producer_name,
                    _int64(sequence),
                    *common,
                    single.null_value,
                    payload,
                    verbatim,
                    None,
                    envelope,
                    encoded,
                )
            )
            verbatim = envelope = None

    def _add_raw(
        self,
        run: Run,
        entry_id: int,
        entry: bytes,
        metadata: MessageMetadata | None,
        index: int,
        count: int,
        reason: str,
    ) -> None:
        """With what its metadata says, where that can be read: of a batch mostly its first message's."""
        self._count_bytes(len(entry) + _ROW_BYTES)
        if metadata is not None:
            stored = entry[ENTRY_HEADER_BYTES : payload_offset(entry)]
            envelope = encode_envelope(metadata.compression, run.flags, count, b"")
            self._add_single(run, entry_id, stored, metadata, index, entry, envelope, None, reason)
            return
        known = {
            "ledger_id": run.ledger_id,
            "entry_id": entry_id,
            "batch_index": -1,
            "partition": self._partition,
            "broker_publish_time": run.publish_time_ms * 1000,
            "message_index": index,
            "null_value": False,
            "raw_entry": entry,
            "raw_reason": reason,
            "entry_metadata": encode_envelope(NONE, run.flags, count, b""),
        }
        self.rows.append(tuple(known.get(column.name) for column in COLUMNS))


def _parsed(stored: bytes) -> MessageMetadata:
    """Like `parse_metadata`, of the metadata's bytes alone."""
    metadata = MessageMetadata()
    try:
        metadata.ParseFromString(stored)
    except DecodeError as error:
        raise DataCorruption("the metadata of an entry is no protobuf message") from error
    if not metadata.IsInitialized():
        raise DataCorruption("metadata without " + missing_fields(metadata))
    return metadata


def _common(metadata: MessageMetadata) -> tuple[Any, ...]:
    """The columns of _COMMON: the same for all messages of an entry."""
    has = metadata.HasField
    chunk = metadata.num_chunks_from_msg > 1
    in_transaction = has("txnid_most_bits") and has("txnid_least_bits")
    return (
        metadata.schema_version if has("schema_version") else None,
        _time_us(metadata.deliver_at_time) if metadata.deliver_at_time else None,
        _text(metadata.replicated_from) if has("replicated_from") else None,
        _text(metadata.uuid) if chunk else None,
        metadata.chunk_id if chunk else None,
        metadata.num_chunks_from_msg if chunk else None,
        _int64(metadata.txnid_most_bits) if in_transaction else None,
        _int64(metadata.txnid_least_bits) if in_transaction else None,
    )


def _unknown_compression(metadata: MessageMetadata) -> bool:
    """Protobuf puts a value that it does not know among the unknown fields."""
    unknown: Any = UnknownFieldSet(metadata)  # its stubs do not know that it can be iterated
    return any(field.field_number == _COMPRESSION_FIELD for field in unknown)


def _batch(payload: bytes, message_count: int) -> Iterator[tuple[SingleMessageMetadata, bytes, bytes]]:
    """(metadata, its bytes, payload) of each message. Raises DataCorruption where it does not fit.

    Like `batch_messages`, which does not keep the metadata's own bytes.
    """
    position, end = 0, len(payload)
    for index in range(message_count):
        start = position + 4
        metadata_end = start + int.from_bytes(payload[position:start], "big")
        if start > end or metadata_end > end:
            raise DataCorruption(f"a batch of {message_count} messages ends in number {index}")
        encoded = payload[start:metadata_end]
        single = SingleMessageMetadata()
        try:
            single.ParseFromString(encoded)
        except DecodeError as error:
            raise DataCorruption(f"the metadata of message {index} is no protobuf message") from error
        position = metadata_end + single.payload_size
        if not single.IsInitialized() or single.payload_size < 0 or position > end:
            raise DataCorruption(f"message {index} does not fit: {end - metadata_end} bytes are left")
        yield single, encoded, payload[metadata_end:position]
    if position != end:
        raise DataCorruption(f"{end - position} bytes after the last of {message_count} messages of a batch")
