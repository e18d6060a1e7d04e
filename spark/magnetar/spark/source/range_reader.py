"""Reads the rows of a range, wherever its entries are now.

A plan says where they were. Until a task comes to them a ledger may have been offloaded and have left the
bookies, or its objects may have been written anew; then a broker says where it is, and the task goes on with
the entry where it stopped.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from magnetar.common.errors import (
    DataCorruption,
    EntryUnreadable,
    MagnetarError,
    NoSuchEntry,
    NoSuchLedger,
    TopicNotFound,
)
from magnetar.common.obs.logs import get_logger
from magnetar.common.offload.client_calls import Described
from magnetar.common.offload.offload_pb2 import Ledger
from magnetar.ledger.cold.aborted_entries import AbortedEntries
from magnetar.ledger.cold.arrow_schema import ARROW_SCHEMA
from magnetar.ledger.cold.objects import NoSuchObject
from magnetar.ledger.cold.rows import Rows, rows_in_pieces
from magnetar.ledger.ledger_store import Run
from magnetar.spark.ledgers.entries import UNIT_BYTES, open_entries
from magnetar.spark.ledgers.ledger_source import ServiceAddress, hot_source
from magnetar.spark.ledgers.service_channel import open_channel
from magnetar.spark.source.cold_parts import read_manifest, read_part
from magnetar.spark.source.reading_plan import (
    NO_TIMES,
    EntryRange,
    TimeBounds,
    cold_ledger,
    cold_ranges,
)

log = get_logger(__name__)

PAUSE_S: Final = 0.5
"""Delay before an unavailable location is tried again, in seconds."""

PLACES_MAX: Final = 4
"""Lookups of a ledger while one range is read."""

WHOLE: Final = 1 << 62
"""Size for tables that are not split."""

_HOT: Final = "bookies"

GONE: Final = (DataCorruption, EntryUnreadable, NoSuchEntry, NoSuchLedger, NoSuchObject, TopicNotFound)
"""Evidence that messages are lost. Nothing else is: an object store that is away, or whose credentials are
wrong, has them all the same."""


class MessagesLost(DataCorruption):
    """Messages of the range were deleted, or all copies are damaged."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadContext:
    """Settings shared by all ranges of a task."""

    service: ServiceAddress
    columns: tuple[str, ...]
    """Columns of ARROW_SCHEMA to read, in its order."""
    times: TimeBounds = NO_TIMES
    fail_on_data_loss: bool = True
    may_match: Callable[[Any], bool] | None = None
    """Decides from a row group's metadata whether it can have wanted rows."""
    opens_raw: bool = False
    """Raw rows become others, which statistics do not describe: `may_match` is for parts without raw rows."""


def run_tables(
    runs: Iterable[Run], partition: int, columns: Sequence[str], aborted: AbortedEntries | None = None
) -> Iterator[tuple[Any, int]]:
    """Entries of one ledger as pyarrow.Tables of these columns, each with its last entry.

    In pieces, as a small entry can be many rows. `aborted` as in `rows_in_pieces`.
    """
    for rows in rows_in_pieces(runs, partition=partition, aborted=aborted):
        yield stored_table(rows, columns), rows.last_entry_id


def stored_table(rows: Rows, columns: Sequence[str]) -> Any:
    """These columns of rows as a pyarrow.Table."""
    schema = pa.schema([ARROW_SCHEMA.field(name) for name in columns])
    arrays = [pa.array(rows.columns[field.name], type=field.type) for field in schema]
    return pa.table(arrays, schema=schema)


def read_range(context: ReadContext, topic: str, partition: int, each: EntryRange) -> Iterator[Any]:
    """Tables of the rows of exactly these entries (row groups that cannot match left out), in order.

    Raises MessagesLost, and what is retriable as it is.
    """
    at = each.first_entry_id
    search = _Search(context, topic, each)
    places = [each]
    while True:
        place = each
        try:
            for place in places:
                for table, last in _tables(context, partition, place, at):
                    yield table
                    at = last + 1
                at = max(at, place.last_entry_id + 1)
            return
        except EntryUnreadable as error:
            at = _skip(context, topic, each, at, error)
            if at > each.last_entry_id:
                return
        except MagnetarError as error:
            moved = search.after(place, at, error)
            if moved is None:
                _lost(context, topic, each, at, search.reasons)
                return
            places = moved


def _tables(context: ReadContext, partition: int, place: EntryRange, at: int) -> Iterator[tuple[Any, int]]:
    """(rows, the last entry that they are about) from `at` on."""
    first, last = max(at, place.first_entry_id), place.last_entry_id
    if first > last:
        return
    if place.part is not None:
        may_match = None if context.opens_raw and place.part.part.raw_entries else context.may_match
        groups = read_part(place.part, first, last, context.columns, times=context.times, may_match=may_match)
        for table, low, high in groups:
            yield rows_between(table, low, high), high
        return
    assert place.source is not None, "a range has a place"
    aborted = place.source.aborted_entries()
    with open_entries(place.source) as entries:
        for runs in _grouped(entries.read(first, last)):
            yield from run_tables(runs, partition, context.columns, aborted)


def _grouped(read: Iterable[list[Run]]) -> Iterator[list[Run]]:
    """Collect entries up to the size of a table; before an error, all entries that were read."""
    pending: list[Run] = []
    size = 0
    try:
        for runs in read:
            pending += runs
            size += sum(run.byte_length for run in runs)
            if size >= UNIT_BYTES:
                yield pending
                pending, size = [], 0
    except MagnetarError:
        if pending:
            yield pending
        raise
    if pending:
        yield pending


def rows_between(table: Any, first: int, last: int) -> Any:
    """The rows of these entries; row groups are in their order."""
    entry_ids = table["entry_id"]
    if not len(entry_ids) or (entry_ids[0].as_py() >= first and entry_ids[-1].as_py() <= last):
        return table
    return table.filter(pc.and_(pc.greater_equal(entry_ids, first), pc.less_equal(entry_ids, last)))


def _skip(context: ReadContext, topic: str, each: EntryRange, at: int, error: MagnetarError) -> int:
    """Return the entry after a lost one. Raises MessagesLost unless failOnDataLoss is false."""
    if context.fail_on_data_loss:
        raise MessagesLost(
            f"{topic}, entry {each.ledger_id}:{at}: {error}; set failOnDataLoss to false to read on behind it"
        ) from error
    log.warning("entry skipped", topic=topic, ledger=each.ledger_id, entry=at, error=str(error))
    return at + 1


def _lost(context: ReadContext, topic: str, each: EntryRange, at: int, reasons: Sequence[str]) -> None:
    why = "; ".join(reasons)
    if context.fail_on_data_loss:
        raise MessagesLost(
            f"{topic}, ledger {each.ledger_id}, entries {at} to {each.last_entry_id} cannot be read: {why}; "
            "set failOnDataLoss to false to go on without them"
        )
    last = each.last_entry_id
    log.warning("entries skipped", topic=topic, ledger=each.ledger_id, first=at, last=last, reason=why)


class _Search:
    """Finds the current places of a range after one failed."""

    def __init__(self, context: ReadContext, topic: str, each: EntryRange) -> None:
        self.reasons: list[str] = []
        """The errors of the places that were tried."""
        self._context = context
        self._topic = topic
        self._each = each
        self._address = ""
        """Address of the topic's owner."""
        self._tried: set[str] = set()
        self._tries = 0
        self._doubt: MagnetarError | None = None
        """An error of a place that may have the entries all the same."""

    def after(self, place: EntryRange, at: int, error: MagnetarError) -> list[EntryRange] | None:
        """Where the entries from `at` on are now, after a place failed; None when they are lost.

        Raises the error of a place that may still have them: when it is retriable and came too often, or when
        no other place is left.
        """
        self._tries += 1
        if error.retriable:
            if self._tries >= PLACES_MAX:
                raise error
            time.sleep(PAUSE_S * self._tries)
        else:
            self._failed(_HOT if place.part is None else place.part.path.rpartition("/")[0], error)
        ledger_id = self._each.ledger_id
        log.warning(
            "looking up the ledger again", topic=self._topic, ledger=ledger_id, entry=at, error=str(error)
        )
        ledger = self._described()
        if ledger is None:
            return None
        moved = self._places(ledger, at) if self._tries < PLACES_MAX else None
        if moved is None and self._doubt is not None:
            raise self._doubt
        return moved

    def _failed(self, place: str, error: MagnetarError) -> None:
        self._tried.add(place)
        self.reasons.append(str(error))
        if not isinstance(error, GONE):
            self._doubt = error

    def _described(self) -> Ledger | None:
        """The ledger as it is now; None when the topic does not have it any more."""
        each = self._each
        try:
            found = describe_topic(self._context.service, self._topic)
        except TopicNotFound as error:
            self.reasons.append(str(error))
            return None
        self._address = found.address
        ledger = next((one for one in found.ledgers if one.ledger_id == each.ledger_id), None)
        if ledger is None or ledger.last_entry_id < each.last_entry_id:
            self.reasons.append("the topic no longer has the ledger")
            return None
        return ledger

    def _places(self, ledger: Ledger, at: int) -> list[EntryRange] | None:
        each = self._each
        cold = cold_ledger(ledger)
        if cold is not None and cold.path not in self._tried:
            try:
                return list(cold_ranges(cold, read_manifest(cold), at, each.last_entry_id, WHOLE))
            except MagnetarError as error:
                self._failed(cold.path, error)
        if ledger.offload.left_bookies_ms or _HOT in self._tried:
            return None
        service = self._context.service
        if ledger.closed_ms == 0 and self._address:
            service = replace(service, address=self._address)
        source = hot_source(service, self._topic, ledger)
        return [EntryRange(each.ledger_id, at, each.last_entry_id, source=source)]


def describe_topic(service: ServiceAddress, topic: str) -> Described:
    """A topic as it is now, described by its owner. Raises TopicNotFound, and what else a call may."""
    with open_channel(service) as channel:
        return channel.describe(topic)
