"""Conversion of an entry's messages to rows.

Fields have the meaning that clients give them: inside a batch, key, properties and times come from a
message's own metadata, other fields from the batch's.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any, Final

from magnetar.common.errors import DataCorruption, NotSupportedYet
from magnetar.common.wire.batch import payload_offset
from magnetar.common.wire.checksum import crc32c_from
from magnetar.common.wire.frame import ENTRY_HEADER_BYTES
from magnetar.common.wire.pulsar_pb2 import NONE, CompressionType, MessageMetadata, SingleMessageMetadata
from magnetar.ledger.cold.aborted_entries import AbortedEntries
from magnetar.ledger.cold.columns import COLUMNS
from magnetar.ledger.cold.entry_envelope import encode_envelope
from magnetar.ledger.cold.entry_parsing import batch_parts, parse_stored, unknown_compression
from magnetar.ledger.cold.metadata_values import (
    COMPRESSION_TAG,
    HIGH_TAGS,
    KEYS_TAG,
    NO_PROPERTIES,
    NOTHING_COMMON,
    PROPERTIES_TAG,
    REPLICATED_TAG,
    SINGLE_PROPERTIES_TAG,
    common_values,
    int64,
    key_of,
    properties_of,
    text,
    time_us,
)
from magnetar.ledger.ledger_store import RUN_MARKER, RUN_TXN, Run
from magnetar.ledger.payload_codecs import decompress

ENTRY_ROWS_MAX: Final = 100_000
"""Maximum rows of a batch; a larger batch becomes one raw row, since a few hundred compressed bytes can hold
a million empty messages.
"""

ABORTED: Final = "aborted"
"""Raw reason of entries of aborted transactions: their rows have ids and the transaction, and no message."""

_ROW_BYTES: Final = 64
"""Approximate bytes of a row's numbers."""


class _Raw(Exception):
    """An entry stored unchanged."""


class EntryRows:
    """Builds rows of entries in order; unusable after `add` raised."""

    __slots__ = (
        "_aborted",
        "_exact",
        "_partition",
        "_rebuilt_bytes_max",
        "byte_length",
        "entry_bytes",
        "entry_starts",
        "first_entry_id",
        "last_entry_id",
        "max_publish_time_ms",
        "raw_reasons",
        "rows",
    )

    def __init__(
        self, partition: int, *, exact: bool, rebuilt_bytes_max: int, aborted: AbortedEntries | None
    ) -> None:
        self._partition = partition
        self._aborted = aborted
        self._exact = exact
        self._rebuilt_bytes_max = rebuilt_bytes_max
        self.rows: list[tuple[Any, ...]] = []
        """Values in the order of COLUMNS."""
        self.entry_starts: list[int] = []
        self.entry_bytes: list[int] = []
        self.raw_reasons: Counter[str] = Counter()
        self.first_entry_id = self.last_entry_id = -1
        self.max_publish_time_ms = 0
        self.byte_length = 0
        """Approximate uncompressed size of all rows in bytes."""

    def add(self, run: Run) -> None:
        """Adds the rows of a run."""
        index = run.first_index
        counts = run.message_counts
        for number, entry in enumerate(run.entries):
            count = 1 if counts is None else counts[number]
            self.add_entry(run, run.first_entry_id + number, entry, index, count)
            index += count

    def add_entry(self, run: Run, entry_id: int, entry: bytes, index: int, count: int) -> None:
        """Adds the rows of one entry; `index` is its first message's, `count` the number of messages it
        counts as. Raises NotSupportedYet for one in a transaction if aborted entries are not known.
        """
        assert entry_id > self.last_entry_id, "entries come in order"
        if self.first_entry_id < 0:
            self.first_entry_id = entry_id
        self.last_entry_id = entry_id
        self.max_publish_time_ms = max(self.max_publish_time_ms, run.publish_time_ms)
        self.entry_starts.append(len(self.rows))
        metadata: MessageMetadata | None = None
        if run.flags & RUN_TXN and self._is_aborted(run, entry_id):
            self.raw_reasons[ABORTED] += 1
            self._add_raw(run, entry_id, entry, None, index, count, ABORTED)
            return
        try:
            offset = payload_offset(entry)
            if crc32c_from(entry, 6) != int.from_bytes(entry[2:6], "big"):
                raise _Raw("checksum: the entry is not what its checksum covered")
            stored = entry[ENTRY_HEADER_BYTES:offset]
            metadata = parse_stored(stored)
            self._add_messages(run, entry_id, entry, offset, stored, metadata, index, count)
        except (_Raw, DataCorruption) as reason:
            why = str(reason) if isinstance(reason, _Raw) else f"damaged: {reason}"
            self.raw_reasons[why.partition(":")[0]] += 1
            self._add_raw(run, entry_id, entry, metadata, index, count, why)

    def _is_aborted(self, run: Run, entry_id: int) -> bool:
        if self._aborted is None:
            raise NotSupportedYet(
                f"entry {run.ledger_id}:{entry_id} is in a transaction, and the broker that was asked did "
                "not say how that ended: ask brokers of this release"
            )
        return entry_id in self._aborted

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
        """Adds a row per message; `stored` is the metadata's bytes. Raises before any row is added."""
        high = HIGH_TAGS in stored
        if run.flags & RUN_MARKER or (high and metadata.HasField("marker_type")):
            raise _Raw("marker")
        if KEYS_TAG in stored and metadata.encryption_keys:
            raise _Raw("encrypted")
        payload = entry[offset:]
        chunk = high and metadata.num_chunks_from_msg > 1
        compression: CompressionType.ValueType = NONE
        if COMPRESSION_TAG in stored:
            if unknown_compression(metadata):
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
        if self._exact or length > max(self._rebuilt_bytes_max, len(entry)):
            verbatim = entry
        envelope = encode_envelope(compression, run.flags, count, stored)
        if metadata.HasField("num_messages_in_batch") and not chunk:
            if metadata.num_messages_in_batch > ENTRY_ROWS_MAX:
                raise _Raw(f"large: a batch of more than {ENTRY_ROWS_MAX} messages")
            singles = list(batch_parts(payload, metadata.num_messages_in_batch))
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
        key, key_bytes = key_of(metadata)
        self.rows.append(
            (
                run.ledger_id,
                entry_id,
                -1,
                self._partition,
                time_us(metadata.publish_time),
                time_us(metadata.event_time) if metadata.event_time else None,
                run.publish_time_ms * 1000,
                index,
                key,
                key_bytes,
                metadata.ordering_key if metadata.HasField("ordering_key") else None,
                properties_of(metadata.properties) if PROPERTIES_TAG in stored else NO_PROPERTIES,
                text(metadata.producer_name),
                int64(metadata.sequence_id),
                *(
                    common_values(metadata)
                    if HIGH_TAGS in stored or REPLICATED_TAG in stored
                    else NOTHING_COMMON
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
        publish_time, broker_time = time_us(metadata.publish_time), run.publish_time_ms * 1000
        producer_name, sequence_id = text(metadata.producer_name), metadata.sequence_id
        event_time = metadata.event_time
        common = common_values(metadata)
        add = self.rows.append
        for number, (single, encoded, payload) in enumerate(singles):
            has = single.HasField
            key, key_bytes = key_of(single)
            time_ms = single.event_time if has("event_time") else event_time
            sequence = single.sequence_id if has("sequence_id") else sequence_id + number & (1 << 64) - 1
            add(
                (
                    ledger_id,
                    entry_id,
                    number,
                    partition,
                    publish_time,
                    time_us(time_ms) if time_ms else None,
                    broker_time,
                    index + number,
                    key,
                    key_bytes,
                    single.ordering_key if has("ordering_key") else None,
                    properties_of(single.properties) if SINGLE_PROPERTIES_TAG in encoded else NO_PROPERTIES,
                    producer_name,
                    int64(sequence),
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
        """Adds a raw row with `metadata`, if given, which for a batch is mostly its first message's."""
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
            "txn_most": None if run.txn is None else int64(run.txn.most),
            "txn_least": None if run.txn is None else int64(run.txn.least),
            "null_value": False,
            "raw_entry": entry,
            "raw_reason": reason,
            "entry_metadata": encode_envelope(NONE, run.flags, count, b""),
        }
        self.rows.append(tuple(known.get(column.name) for column in COLUMNS))
