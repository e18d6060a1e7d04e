"""Finds the rows of one row group that fulfill a condition, by as few columns as possible.

Narrow columns are read first: ids, times, keys. Properties are read only if a row is left, contents only if a
row is left then, and the other columns only for a row group with a match.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from magnetar.ledger.cold.part_reader import Footer, PartReader
from magnetar.ledger.cold.search.chunk_contents import ChunkContents
from magnetar.ledger.cold.search.condition import Condition, MessagePosition, SearchedMessage

ROWS_AT_ONCE: Final = 1_000
"""Rows that are converted to messages at a time: a search with a limit may end with any of them."""

_SHOWN: Final = (
    "entry_id",
    "batch_index",
    "publish_time",
    "event_time",
    "key",
    "key_bytes",
    "properties",
    "producer_name",
    "sequence_id",
    "null_value",
    "payload",
    "raw_reason",
    "chunk_uuid",
    "chunk_id",
    "chunk_total",
)
_HIDDEN: Final = ("aborted", "marker")
"""Raw reasons of entries that no client gets."""

_UINT64: Final = 2**64


class GroupSearch:
    """The search in one row group of a part."""

    def __init__(
        self, reader: PartReader, number: int, condition: Condition, chunks: ChunkContents, partition: int
    ) -> None:
        """`chunks` belongs to the search of the whole topic."""
        self._reader = reader
        self._number = number
        self._condition = condition
        self._chunks = chunks
        self._partition = partition
        self._columns: dict[str, Any] = {}
        self.unsearchable = 0
        """Rows whose content is not known, so that no text was searched in it."""

    def messages(self) -> Iterator[list[SearchedMessage]]:
        """Yields messages with a match, in order, some at a time, also empty lists. Raises DataCorruption and
        the errors of the source.
        """
        rows = self._candidates()
        if not len(rows):
            return
        self._read(*_SHOWN)
        if self._columns["chunk_uuid"].null_count < len(self._columns["chunk_uuid"]):
            self._read("entry_metadata")
        names = [*_SHOWN, *(("entry_metadata",) if "entry_metadata" in self._columns else ())]
        for first in range(0, len(rows), ROWS_AT_ONCE):
            taken = pa.table({name: self._columns[name] for name in names}).take(
                rows.slice(first, ROWS_AT_ONCE)
            )
            shown = zip(*(_plain(taken[name]) for name in names), strict=True)
            found = (self._message(dict(zip(names, row, strict=True))) for row in shown)
            yield [message for message in found if message is not None]

    def _candidates(self) -> Any:
        """Returns the numbers of rows that match, or are chunks of a message that may."""
        condition = self._condition
        narrow = ["raw_reason"]
        if condition.has_position:
            narrow += ["entry_id", "batch_index"]
        if condition.has_times:
            narrow.append("event_time" if condition.by_event_time else "publish_time")
        if condition.key is not None:
            narrow += ["key", "key_bytes"]
        self._read(*narrow)
        mask = self._narrow_mask()
        if condition.properties and pc.any(mask).as_py():
            self._read("properties")
            for name, value in condition.properties:
                found = pc.map_lookup(self._columns["properties"], pa.scalar(name), "last")
                matches = pc.is_valid(found) if value is None else pc.equal(found, value)
                mask = pc.and_(mask, pc.fill_null(matches, False))
        if condition.text and pc.any(mask).as_py():
            mask = self._with_text(mask)
        return pc.indices_nonzero(mask)

    def _narrow_mask(self) -> Any:
        condition, columns = self._condition, self._columns
        reasons = columns["raw_reason"]
        mask = pc.fill_null(pc.invert(pc.is_in(reasons, pa.array(_HIDDEN))), True)
        if condition.entry_id is not None:
            mask = pc.and_(mask, pc.equal(columns["entry_id"], condition.entry_id))
        if condition.batch_index is not None:
            mask = pc.and_(mask, pc.equal(columns["batch_index"], condition.batch_index))
        if self._reader.footer.ledger_id == condition.start.ledger_id:
            start = condition.start
            later = pc.greater(columns["entry_id"], start.entry_id)
            same = pc.equal(columns["entry_id"], start.entry_id)
            inside = pc.greater_equal(columns["batch_index"], start.batch_index)
            mask = pc.and_(mask, pc.or_(later, pc.and_(same, inside)))
        if condition.has_times:
            times = pc.cast(columns["event_time" if condition.by_event_time else "publish_time"], pa.int64())
            for bound, compare in (
                (condition.since_ms, pc.greater_equal),
                (condition.until_ms, pc.less),
            ):
                if bound is not None:
                    mask = pc.and_(mask, pc.fill_null(compare(times, bound * 1000), False))
        if condition.key is not None:
            text, encoded = condition.stored_keys
            is_bytes = pc.is_valid(columns["key_bytes"])
            is_text = pc.and_(pc.invert(is_bytes), pc.equal(columns["key"], text))
            is_encoded = pc.and_(is_bytes, pc.equal(columns["key"], encoded))
            mask = pc.and_(mask, pc.fill_null(pc.or_(is_text, is_encoded), False))
        return mask

    def _with_text(self, mask: Any) -> Any:
        self._read("payload", "chunk_id")
        has_text = pc.fill_null(pc.match_substring(self._columns["payload"], self._condition.text), False)
        is_raw = pc.is_valid(self._columns["raw_reason"])
        self.unsearchable = pc.sum(pc.and_(mask, is_raw)).as_py() or 0
        # A piece of a message may have a part of the text; the whole is asked when it is joined.
        is_chunk = pc.and_(pc.is_valid(self._columns["chunk_id"]), pc.invert(is_raw))
        return pc.and_(mask, pc.or_(pc.and_(has_text, pc.invert(is_raw)), is_chunk))

    def _read(self, *names: str) -> None:
        missing = [name for name in names if name not in self._columns]
        if missing:
            table = self._reader.read_table([self._number], missing)
            self._columns |= {name: table[name] for name in missing}

    def _message(self, row: dict[str, Any]) -> SearchedMessage | None:
        payload, unreadable = row["payload"] or b"", row["raw_reason"] or ""
        if unreadable:
            payload = b""
        elif row["chunk_uuid"] is not None and row["chunk_id"] is not None:
            whole = self._chunks.add(row)
            if whole is None:
                return None
            payload, unreadable = whole
            if self._condition.text and self._condition.text not in payload:
                self.unsearchable += bool(unreadable)
                return None
        footer: Footer = self._reader.footer
        return SearchedMessage(
            topic=footer.topic,
            partition=self._partition,
            position=MessagePosition(footer.ledger_id, row["entry_id"], row["batch_index"]),
            key=_key_text(row["key"], row["key_bytes"]),
            key_bytes=row["key_bytes"] if row["key_bytes"] is not None else _encoded(row["key"]),
            properties=dict(row["properties"] or ()),
            publish_time_ms=(row["publish_time"] or 0) // 1000,
            event_time_ms=(row["event_time"] or 0) // 1000,
            producer_name=row["producer_name"] or "",
            sequence_id=(row["sequence_id"] or 0) % _UINT64,
            payload=payload,
            is_null=bool(row["null_value"]),
            unreadable=unreadable,
            is_cold=True,
        )


def _plain(column: Any) -> Sequence[Any]:
    """Returns values of a column; times are microseconds."""
    if pa.types.is_timestamp(column.type):
        column = pc.cast(column, pa.int64())
    values: list[Any] = column.to_pylist()
    return values


def _key_text(key: str | None, key_bytes: bytes | None) -> str | None:
    return key if key_bytes is None else key_bytes.decode(errors="replace")


def _encoded(key: str | None) -> bytes | None:
    return None if key is None else key.encode()
