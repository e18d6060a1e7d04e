"""Reads one part by row groups. Needs pyarrow (`magnetar-ledger[cold]`).

Every call blocks: a broker calls from a thread. A footer, once read, serves any number of readers of the
part; a reader serves one thread at a time.
"""

from __future__ import annotations

import io
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq
from magnetar.common.errors import DataCorruption, UnsupportedFormat
from magnetar.common.wire.checksum import crc32c
from magnetar.ledger.cold import layout
from magnetar.ledger.cold.arrow_values import binary_data, values_of
from magnetar.ledger.cold.columns import COLUMN_NAMES, REBUILD_COLUMNS
from magnetar.ledger.cold.entry_rebuild import runs_of
from magnetar.ledger.cold.key_rows import KEY_COLUMNS, KeyRun, key_runs_of
from magnetar.ledger.cold.manifest import FORMAT_VERSION, Part
from magnetar.ledger.ledger_store import Run

ROWS_AT_ONCE: Final = 65_536


@dataclass(frozen=True, slots=True)
class RowGroup:
    """Whole, consecutive entries of a part."""

    number: int
    first_entry_id: int
    last_entry_id: int
    rows: int
    first_publish_time_ms: int
    """The earliest and the latest time at which the broker accepted one of its entries, ms since 1970 UTC."""
    last_publish_time_ms: int
    first_index: int
    """Topic-wide index of its first message."""
    byte_length: int
    """Compressed bytes in the object."""
    uncompressed_bytes: int


@dataclass(frozen=True, slots=True)
class Footer:
    """The metadata of a part; immutable, shared by readers."""

    metadata: Any
    """A pyarrow.parquet.FileMetaData."""
    topic: str
    ledger_id: int
    first_entry_id: int
    last_entry_id: int
    rows: int
    entries: int
    raw_entries: int
    row_groups: tuple[RowGroup, ...]

    @property
    def byte_length(self) -> int:
        """Approximate memory in bytes."""
        return 1024 + int(self.metadata.serialized_size) * 2

    def row_groups_for(self, first_entry_id: int, last_entry_id: int) -> range:
        """Returns the numbers of the row groups with any of these entries, both inclusive."""
        groups = self.row_groups
        start = bisect_left(groups, first_entry_id, key=lambda group: group.last_entry_id)
        stop = bisect_right(groups, last_entry_id, key=lambda group: group.first_entry_id)
        return range(start, max(start, stop))

    def row_group_of(self, entry_id: int) -> int:
        """Returns the number of the row group with an entry; raises IndexError without one."""
        found = self.row_groups_for(entry_id, entry_id)
        if not found:
            raise IndexError(f"entry {entry_id} is not among {self.first_entry_id} to {self.last_entry_id}")
        return found[0]


@dataclass(frozen=True, slots=True)
class Checked:
    """The findings of reading a part's rows back."""

    rows: int
    entries: int
    raw_entries: int
    payload_crc32c: int
    payload_bytes: int
    raw_crc32c: int
    raw_bytes: int

    def differences(self, part: Part) -> list[str]:
        """Describes the differences from the manifest; empty: none."""
        return [
            f"{part.name}: {name} is {found}, expected {getattr(part, name)}"
            for name in self.__slots__
            if (found := getattr(self, name)) != getattr(part, name)
        ]


class PartReader:
    """Reads one part from `source`: a path, or an open binary file that can seek, which the caller closes."""

    def __init__(self, source: Any, footer: Footer | None = None, *, part: Part | None = None) -> None:
        """Creates a reader. Reads the footer unless given, and compares it with the manifest's `part` if
        given.

        Raises DataCorruption, UnsupportedFormat, the source's own errors. Without `part`, open only intact
        files: Arrow crashes on some damaged footers.
        """
        self.footer = read_footer(source, part) if footer is None else footer
        with _arrow_errors("a part cannot be opened"):
            self._file = pq.ParquetFile(
                source, metadata=self.footer.metadata, pre_buffer=True, page_checksum_verification=True
            )

    def close(self) -> None:
        """Releases the source; a file opened from a path is closed."""
        self._file.close()

    def __enter__(self) -> PartReader:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def read_table(self, row_groups: Iterable[int], columns: Sequence[str] = COLUMN_NAMES) -> Any:
        """Returns a pyarrow.Table of these columns and row groups, in order. Raises DataCorruption."""
        with _arrow_errors("rows of a part cannot be read"):
            return self._file.read_row_groups(list(row_groups), columns=list(columns), use_threads=False)

    def read_rows(
        self, row_groups: Iterable[int], columns: Sequence[str] = COLUMN_NAMES
    ) -> dict[str, list[Any]]:
        """Return rows as lists, with values as in `Rows.columns`."""
        table = self.read_table(row_groups, columns)
        return {name: values_of(table[name]) for name in columns}

    def read_runs(self, row_groups: Iterable[int]) -> list[Run]:
        """Returns the entries of these row groups. Raises DataCorruption."""
        return runs_of(self.read_rows(row_groups, REBUILD_COLUMNS))

    def read_key_runs(self, row_groups: Sequence[int]) -> list[KeyRun]:
        """Returns the entries of these row groups, without the messages' bodies if their metadata tells
        which have none. Raises DataCorruption.
        """
        found = key_runs_of(self.read_rows(row_groups, KEY_COLUMNS))
        if found is not None:
            return found
        return [KeyRun(run, True, run.byte_length) for run in self.read_runs(row_groups)]

    def check(self) -> Checked:
        """Reads everything back, one row group at a time; returns the findings to compare with the
        manifest.
        """
        rows = entries = raw_entries = payload_bytes = raw_bytes = 0
        payload_crc = raw_crc = 0
        for group in self.footer.row_groups:
            table = self.read_table([group.number])
            rows += table.num_rows
            entries += table.num_rows - table["entry_metadata"].null_count
            raw_entries += table.num_rows - table["raw_reason"].null_count
            for data in binary_data(table["payload"]):
                payload_crc = crc32c(data, payload_crc)
                payload_bytes += len(data)
            for data in binary_data(table["raw_entry"]):
                raw_crc = crc32c(data, raw_crc)
                raw_bytes += len(data)
        return Checked(rows, entries, raw_entries, payload_crc, payload_bytes, raw_crc, raw_bytes)


def read_footer(source: Any, part: Part | None = None) -> Footer:
    """Reads the footer of a part, for reuse: see PartReader. Raises DataCorruption, UnsupportedFormat."""
    if part is not None and part.footer_bytes:
        source = io.BytesIO(_checked_footer(source, part))
    with _arrow_errors("a part that is not Parquet"):
        footer = _footer(pq.read_metadata(source))
    if part is not None:
        for name in ("first_entry_id", "last_entry_id", "rows", "entries", "raw_entries"):
            told, expected = getattr(footer, name), getattr(part, name)
            if told != expected:
                raise DataCorruption(f"{part.name} says of its {name} {told}, the manifest {expected}")
    return footer


def _checked_footer(source: Any, part: Part) -> bytes:
    """Reads and verifies a footer. Raises DataCorruption."""
    if isinstance(source, (str, Path)):
        with open(source, "rb") as file:
            return _checked_footer(file, part)
    source.seek(part.byte_length - part.footer_bytes)
    data: bytes = source.read(part.footer_bytes)
    if len(data) != part.footer_bytes or crc32c(data) != part.footer_crc32c:
        raise DataCorruption(f"the footer of {part.name} is not the one that was written")
    return data


@contextmanager
def _arrow_errors(what: str) -> Iterator[None]:
    """Converts Arrow's errors to DataCorruption; errors of the source, which have an errno, pass
    unchanged.
    """
    try:
        yield
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise
        raise DataCorruption(f"{what}: {error}") from error


def _footer(metadata: Any) -> Footer:
    told = {key.decode(): value.decode() for key, value in (metadata.metadata or {}).items()}
    if layout.FILE_FORMAT not in told:
        raise DataCorruption("a Parquet object that is not a part of a ledger: it has no format version")
    if told[layout.FILE_FORMAT] != str(FORMAT_VERSION):
        raise UnsupportedFormat(
            f"a part of format version {told[layout.FILE_FORMAT]}; this release reads version "
            f"{FORMAT_VERSION}. Run the release that wrote it, or a later one"
        )
    columns = {metadata.schema.column(index).path: index for index in range(metadata.num_columns)}
    try:
        groups = tuple(
            _row_group(metadata.row_group(number), number, columns)
            for number in range(metadata.num_row_groups)
        )
        return Footer(
            metadata,
            told[layout.FILE_TOPIC],
            int(told[layout.FILE_LEDGER]),
            int(told[layout.FILE_FIRST_ENTRY]),
            int(told[layout.FILE_LAST_ENTRY]),
            metadata.num_rows,
            int(told[layout.FILE_ENTRIES]),
            int(told[layout.FILE_RAW_ENTRIES]),
            groups,
        )
    except (KeyError, ValueError, AttributeError) as error:
        raise DataCorruption(f"the footer of a part does not say what it has to: {error!r}") from error


def _row_group(group: Any, number: int, columns: dict[str, int]) -> RowGroup:
    entry_ids = group.column(columns["entry_id"]).statistics
    times = group.column(columns["broker_publish_time"]).statistics
    indexes = group.column(columns["message_index"]).statistics
    return RowGroup(
        number,
        entry_ids.min_raw,
        entry_ids.max_raw,
        group.num_rows,
        times.min_raw // 1000,
        times.max_raw // 1000,
        indexes.min_raw,
        sum(group.column(index).total_compressed_size for index in range(group.num_columns)),
        group.total_byte_size,
    )
