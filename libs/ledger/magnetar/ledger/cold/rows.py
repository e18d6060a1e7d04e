"""Entries as rows, one for each message, and back: what a client reads is the same before and after.

    runs --rows_of--> Rows --part_writer--> Parquet --part_reader--> columns --runs_of--> runs

What comes back has the same entry ids, batches, metadata, payloads, publish times, indexes, counts and flags.
Bytes are the same too, but for entries whose payload was compressed: these come back uncompressed. Where that
would be more than REBUILT_BYTES_MAX, and with `exact`, rows keep the entry's own bytes beside the messages.

An entry that is no messages (encrypted, damaged, a marker, of an aborted transaction, of an unknown codec) is
one raw row with its bytes and the reason. Nothing that a client can have sent raises.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from magnetar.common.wire.checksum import crc32c
from magnetar.ledger.cold.aborted_entries import AbortedEntries
from magnetar.ledger.cold.columns import COLUMN_NAMES
from magnetar.ledger.cold.entry_rebuild import runs_of as runs_of
from magnetar.ledger.cold.entry_rows import EntryRows
from magnetar.ledger.ledger_store import Run

REBUILT_BYTES_MAX: Final = 1 << 20
"""Size in bytes that every client accepts: maxMessageSize is 5 MiB by default, and may have been higher when
the entry was published.
"""

PIECE_ROWS: Final = 50_000
PIECE_BYTES: Final = 16 << 20

_JOINED_ROWS: Final = 1024
"""Values checksummed in one call: a call for each would cost more than the copy."""


@dataclass(slots=True, eq=False)
class Rows:
    """Whole entries of one ledger as columns, in their order."""

    columns: dict[str, list[Any]]
    """Values by the names of COLUMNS; ColumnType gives their Python types."""
    first_entry_id: int
    """The first entry id; -1, like `last_entry_id`, without entries."""
    last_entry_id: int
    entry_starts: list[int]
    """The row at which each entry begins."""
    entry_bytes: list[int]
    """Approximate uncompressed size of each entry in columns."""
    raw_reasons: Counter[str] = field(default_factory=Counter)
    """Raw entries by the first word of their reason."""
    max_publish_time_ms: int = 0
    """The latest time at which the broker accepted one of the entries, ms since 1970 UTC."""

    @property
    def rows(self) -> int:
        return len(self.columns["entry_id"])

    @property
    def entries(self) -> int:
        return len(self.entry_starts)

    @property
    def raw_entries(self) -> int:
        return self.raw_reasons.total()

    @property
    def payload_crc32c(self) -> int:
        """CRC32-C of the payloads of all rows, concatenated."""
        return checksum_values(self.columns["payload"])[0]


def rows_in_pieces(
    runs: Iterable[Run],
    *,
    partition: int,
    exact: bool = False,
    rebuilt_bytes_max: int = REBUILT_BYTES_MAX,
    aborted: AbortedEntries | None = None,
) -> Iterator[Rows]:
    """Yields `rows_of` in pieces of whole entries, so that memory is limited whatever the entries contain.

    A piece ends with the entry that reaches PIECE_ROWS rows or PIECE_BYTES.
    """

    def begin() -> EntryRows:
        return EntryRows(partition, exact=exact, rebuilt_bytes_max=rebuilt_bytes_max, aborted=aborted)

    maker = begin()
    for run in runs:
        index = run.first_index
        for number, entry in enumerate(run.entries):
            count = 1 if run.message_counts is None else run.message_counts[number]
            maker.add_entry(run, run.first_entry_id + number, entry, index, count)
            index += count
            if len(maker.rows) >= PIECE_ROWS or maker.byte_length >= PIECE_BYTES:
                yield _rows(maker)
                maker = begin()
    if maker.rows:
        yield _rows(maker)


def rows_of(
    runs: Sequence[Run],
    *,
    partition: int,
    exact: bool = False,
    rebuilt_bytes_max: int = REBUILT_BYTES_MAX,
    aborted: AbortedEntries | None = None,
) -> Rows:
    """Returns the rows of ordered runs of one ledger; `partition` is -1 if the topic is not a partition.

    `exact` keeps the bytes of every entry. An entry that would be rebuilt larger than it was, and than
    `rebuilt_bytes_max`, keeps its bytes anyway. `aborted` has the ids of the entries of aborted transactions;
    None if they are not known: then an entry in a transaction raises NotSupportedYet. Holds all rows in
    memory, and a few hundred bytes of an entry can be thousands of rows, or many MiB: see `rows_in_pieces`.
    """
    maker = EntryRows(partition, exact=exact, rebuilt_bytes_max=rebuilt_bytes_max, aborted=aborted)
    for run in runs:
        maker.add(run)
    return _rows(maker)


def _rows(maker: EntryRows) -> Rows:
    by_name = (
        zip(COLUMN_NAMES, map(list, zip(*maker.rows, strict=True)), strict=True)
        if maker.rows
        else ((name, []) for name in COLUMN_NAMES)
    )
    return Rows(
        columns=dict(by_name),
        first_entry_id=maker.first_entry_id,
        last_entry_id=maker.last_entry_id,
        entry_starts=maker.entry_starts,
        entry_bytes=maker.entry_bytes,
        raw_reasons=maker.raw_reasons,
        max_publish_time_ms=maker.max_publish_time_ms,
    )


def checksum_values(values: Sequence[bytes | None], crc: int = 0) -> tuple[int, int]:
    """Returns (CRC32-C, bytes) of consecutive values, continuing from `crc`; None counts as empty."""
    size = 0
    for start in range(0, len(values), _JOINED_ROWS):
        joined = b"".join([value for value in values[start : start + _JOINED_ROWS] if value is not None])
        crc = crc32c(joined, crc)
        size += len(joined)
    return crc, size
