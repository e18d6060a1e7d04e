"""Writes one part: rows of consecutive entries, as a Parquet object. Needs pyarrow (`magnetar-ledger[cold]`).

Row groups are about 16 MB uncompressed and begin and end with whole entries, so that each can be converted to
entries alone. Rows are ordered by (entry_id, batch_index), which the file declares; pages have a checksum,
and an index with the minimum and maximum of ids, times and keys.
"""

from __future__ import annotations

import hashlib
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, Protocol

import pyarrow as pa
import pyarrow.parquet as pq
from magnetar.common.wire.checksum import crc32c
from magnetar.ledger.cold import layout
from magnetar.ledger.cold.arrow_schema import ARROW_SCHEMA
from magnetar.ledger.cold.columns import COLUMNS, ColumnType
from magnetar.ledger.cold.manifest import FORMAT_VERSION, Part
from magnetar.ledger.cold.rows import Rows, checksum_values

ROW_GROUP_BYTES: Final = 16 << 20
"""Approximate uncompressed size of a row group; a larger entry has a row group of its own."""

_COMPRESSION_LEVEL: Final = 3

_PLAIN: Final = ("payload", "raw_entry", "entry_metadata", "message_metadata")
"""Columns neither sorted nor searched: no dictionary, no minimum and maximum."""

_DELTAS: Final = (
    "entry_id",
    "batch_index",
    "publish_time",
    "event_time",
    "broker_publish_time",
    "message_index",
    "sequence_id",
    "deliver_at",
    "chunk_id",
    "txn_least",
)
"""Columns whose values mostly increase slightly from row to row."""

_PROPERTY_COLUMNS: Final = ("properties.key_value.key", "properties.key_value.value")

_BLOOM_VALUES_MIN: Final = 1024
_BLOOM_FALSE_SHARE: Final = 0.05
_HAS_BLOOM: Final = "bloom_filter_options" in inspect.signature(pq.ParquetWriter.__init__).parameters


class Sink(Protocol):
    """Destination of a part: an open binary file, or anything that takes bytes in order."""

    def write(self, data: bytes, /) -> Any: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class PartInfo:
    """Metadata of a part beside its rows."""

    name: str
    """Within the attempt's directory: see `part_name`."""
    topic: str
    """Full name, of the partition."""
    ledger_id: int


class PartWriter:
    """Writes the rows of one part to `sink`, which the caller opens, syncs and closes.

    Rows are kept in memory up to a row group. Not for use by several threads at once.
    """

    def __init__(self, sink: Sink, info: PartInfo, *, row_group_bytes: int = ROW_GROUP_BYTES) -> None:
        self._sink = _Hashing(sink)
        self._info = info
        self._row_group_bytes = row_group_bytes
        self._writer: Any = None
        self._waiting: list[Any] = []
        self._waiting_bytes = 0
        self._first_entry_id = self._last_entry_id = -1
        self._rows = self._entries = self._raw_entries = 0
        self._payload_crc = self._payload_bytes = 0
        self._raw_crc = self._raw_bytes = 0

    @property
    def byte_length(self) -> int:
        """Bytes written to the sink so far, without the pending row group."""
        return self._sink.byte_length

    def write(self, rows: Rows) -> None:
        """Adds whole entries that follow the previous ones. Raises ValueError for others, and the errors of
        `sink`.
        """
        if not rows.entries:
            return
        if self._last_entry_id >= 0 and rows.first_entry_id != self._last_entry_id + 1:
            raise ValueError(
                f"part {self._info.name} of ledger {self._info.ledger_id} goes on with entry "
                f"{self._last_entry_id + 1}, not {rows.first_entry_id}"
            )
        if self._first_entry_id < 0:
            self._first_entry_id = rows.first_entry_id
        self._last_entry_id = rows.last_entry_id
        self._rows += rows.rows
        self._entries += rows.entries
        self._raw_entries += rows.raw_entries
        columns = rows.columns
        self._payload_crc, size = checksum_values(columns["payload"], self._payload_crc)
        self._payload_bytes += size
        self._raw_crc, size = checksum_values(columns["raw_entry"], self._raw_crc)
        self._raw_bytes += size
        table = pa.table(
            [pa.array(columns[field.name], type=field.type) for field in ARROW_SCHEMA], schema=ARROW_SCHEMA
        )
        with self._sink:
            self._take(table, rows)

    def _take(self, table: Any, rows: Rows) -> None:
        start, waiting = 0, self._waiting_bytes
        for row, entry_bytes in zip(rows.entry_starts, rows.entry_bytes, strict=True):
            if waiting and waiting + entry_bytes > self._row_group_bytes:
                self._keep(table, start, row)
                self._write_row_group()
                start, waiting = row, 0
            waiting += entry_bytes
        self._keep(table, start, rows.rows)
        self._waiting_bytes = waiting

    def close(self) -> Part:
        """Writes pending rows and the footer; returns the part's description. Raises ValueError without any
        row.
        """
        if not self._entries:
            raise ValueError(f"part {self._info.name} of ledger {self._info.ledger_id} has no entries")
        told = {
            layout.FILE_FORMAT: str(FORMAT_VERSION),
            layout.FILE_TOPIC: self._info.topic,
            layout.FILE_LEDGER: str(self._info.ledger_id),
            layout.FILE_FIRST_ENTRY: str(self._first_entry_id),
            layout.FILE_LAST_ENTRY: str(self._last_entry_id),
            layout.FILE_ROWS: str(self._rows),
            layout.FILE_ENTRIES: str(self._entries),
            layout.FILE_RAW_ENTRIES: str(self._raw_entries),
        }
        with self._sink:
            self._write_row_group()
            self._writer.add_key_value_metadata(told)
            end = self._sink.note_end()
            self._writer.close()
        # Parquet ends with the footer's length (4 bytes), which excludes itself and the magic (4 bytes).
        footer = end[-8 - int.from_bytes(end[-8:-4], "little") :]
        return Part(
            name=self._info.name,
            first_entry_id=self._first_entry_id,
            last_entry_id=self._last_entry_id,
            rows=self._rows,
            entries=self._entries,
            raw_entries=self._raw_entries,
            byte_length=self._sink.byte_length,
            sha256=self._sink.sha256.digest(),
            payload_crc32c=self._payload_crc,
            payload_bytes=self._payload_bytes,
            raw_crc32c=self._raw_crc,
            raw_bytes=self._raw_bytes,
            footer_crc32c=crc32c(footer),
            footer_bytes=len(footer),
        )

    def _keep(self, table: Any, start: int, stop: int) -> None:
        if stop > start:
            self._waiting.append(table.slice(start, stop - start))

    def _write_row_group(self) -> None:
        if not self._waiting:
            return
        table = pa.concat_tables(self._waiting)
        self._waiting = []
        self._waiting_bytes = 0
        if self._writer is None:
            self._writer = _writer(self._sink, table)
        self._writer.write_table(table, row_group_size=table.num_rows)


def _writer(sink: _Hashing, first: Any) -> Any:
    """Creates the Parquet writer. `first` is the first row group, from which the number of keys is
    estimated.
    """
    options: dict[str, Any] = {}
    keyed = first.num_rows - first["key"].null_count
    if _HAS_BLOOM and keyed:
        distinct = max(len(first["key"].unique()), _BLOOM_VALUES_MIN)
        options["bloom_filter_options"] = {"key": {"ndv": distinct, "fpp": _BLOOM_FALSE_SHARE}}
    leaves = [column.name for column in COLUMNS if column.type is not ColumnType.MAP]
    encoded = dict.fromkeys(_DELTAS, "DELTA_BINARY_PACKED")
    return pq.ParquetWriter(
        pa.PythonFile(sink, mode="w"),
        ARROW_SCHEMA,
        version="2.6",
        compression="zstd",
        compression_level=_COMPRESSION_LEVEL,
        use_dictionary=[
            *(name for name in leaves if name not in (*_PLAIN, *_DELTAS, "null_value")),
            *_PROPERTY_COLUMNS,
        ],
        column_encoding=encoded,
        write_statistics=[name for name in leaves if name not in _PLAIN],
        write_page_index=True,
        write_page_checksum=True,
        sorting_columns=pq.SortingColumn.from_ordering(
            ARROW_SCHEMA, [("entry_id", "ascending"), ("batch_index", "ascending")]
        ),
        **options,
    )


class _Hashing:
    """Passes bytes on and counts them, with the write-only file interface that Arrow needs.

    Valid only inside `with`: the writer of an abandoned part writes a footer when it is garbage-collected, to
    a file that the caller has closed.
    """

    def __init__(self, sink: Sink) -> None:
        self._write: Callable[[bytes], Any] = sink.write
        self._wanted = False
        self._end: bytearray | None = None
        self.sha256 = hashlib.sha256()
        self.byte_length = 0
        self.closed = False

    def __enter__(self) -> None:
        self._wanted = True

    def __exit__(self, *_: object) -> None:
        self._wanted = False

    def write(self, data: Any) -> int:
        if not self._wanted:
            return len(data)
        data = bytes(data)
        self._write(data)
        self.sha256.update(data)
        if self._end is not None:
            self._end += data
        self.byte_length += len(data)
        return len(data)

    def note_end(self) -> bytearray:
        """Starts capturing later writes as well."""
        self._end = bytearray()
        return self._end

    def flush(self) -> None:
        """Does nothing: the caller flushes the file."""

    def tell(self) -> int:
        return self.byte_length

    def close(self) -> None:
        """Does nothing: the caller closes the sink."""
        self.closed = True
