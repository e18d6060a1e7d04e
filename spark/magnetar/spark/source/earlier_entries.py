"""Rows of entries before a range, newest first: chunks of a message that ends in it may be there."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any, Final

import pyarrow as pa
from magnetar.common.errors import MagnetarError, TopicNotFound
from magnetar.common.obs.logs import get_logger
from magnetar.spark.ledgers.entries import UNIT_BYTES, open_entries
from magnetar.spark.ledgers.ledger_source import LedgerSource, hot_source
from magnetar.spark.source.cold_parts import read_manifest, read_part
from magnetar.spark.source.range_reader import WHOLE, ReadContext, describe_topic, rows_between, run_tables
from magnetar.spark.source.reading_plan import ColdPart, EarlierEntries, cold_ledger, cold_ranges

log = get_logger(__name__)

WINDOW_ENTRIES: Final = 8
"""Read at a time when going back, at first."""


def read_back(
    context: ReadContext, topic: str, partition: int, before: Iterable[EarlierEntries]
) -> Iterator[Any]:
    """Tables of the rows of earlier entries, newest first; rows inside a table ascend.

    A ledger that is not where it was is looked for once; where the topic does not have it any more, nothing
    that comes before it is there either. Raises what else reading may.
    """
    for earlier in before:
        at = earlier.last_entry_id
        try:
            for table, first in _back(context, partition, earlier):
                yield table
                at = first - 1
        except MagnetarError as error:
            if at < earlier.first_entry_id:
                continue
            moved = _moved(context, topic, replace(earlier, last_entry_id=at), error)
            if moved is None:
                return
            for table, _ in _back(context, partition, moved):
                yield table


def _moved(
    context: ReadContext, topic: str, earlier: EarlierEntries, error: MagnetarError
) -> EarlierEntries | None:
    """Return the current address of earlier entries; None when they were trimmed."""
    ledger_id, last = earlier.ledger_id, earlier.last_entry_id
    log.warning("looking up the ledger again", topic=topic, ledger=ledger_id, entry=last, error=str(error))
    try:
        found = describe_topic(context.service, topic)
    except TopicNotFound:
        return None
    ledger = next((one for one in found.ledgers if one.ledger_id == ledger_id), None)
    if ledger is None:
        return None
    cold = cold_ledger(ledger)
    if cold is None or (earlier.source is None and not ledger.offload.left_bookies_ms):
        service = context.service
        if ledger.closed_ms == 0 and found.address:
            service = replace(service, address=found.address)
        return replace(earlier, cold=None, part=None, source=hot_source(service, topic, ledger))
    return replace(earlier, cold=cold, part=None, source=None)


def _back(context: ReadContext, partition: int, earlier: EarlierEntries) -> Iterator[tuple[Any, int]]:
    """(rows, their first entry), newest first."""
    if earlier.source is not None:
        yield from _windows_back(context, partition, earlier, earlier.source)
        return
    for part, first, last in _parts_back(earlier):
        for table, low, high in read_part(part, first, last, context.columns, newest_first=True):
            yield rows_between(table, low, high), low


def _windows_back(
    context: ReadContext, partition: int, earlier: EarlierEntries, source: LedgerSource
) -> Iterator[tuple[Any, int]]:
    """Few entries at first: chunks are as large as entries may be."""
    window = WINDOW_ENTRIES
    end = earlier.last_entry_id
    aborted = source.aborted_entries()
    with open_entries(source) as entries:
        while end >= earlier.first_entry_id:
            begin = max(earlier.first_entry_id, end - window + 1)
            runs = [run for some in entries.read(begin, end) for run in some]
            tables = [table for table, _ in run_tables(runs, partition, context.columns, aborted)]
            yield pa.concat_tables(tables), begin
            size = sum(run.byte_length for run in runs)
            window = window * 2 if size < UNIT_BYTES else max(1, window // 2)
            end = begin - 1


def _parts_back(earlier: EarlierEntries) -> Iterator[tuple[ColdPart, int, int]]:
    first, last = earlier.first_entry_id, earlier.last_entry_id
    if earlier.part is not None:
        yield earlier.part, first, last
    elif earlier.cold is not None:
        ranges = list(cold_ranges(earlier.cold, read_manifest(earlier.cold), first, last, WHOLE))
        for each in reversed(ranges):
            assert each.part is not None, "an offloaded ledger has parts"
            yield each.part, each.first_entry_id, each.last_entry_id
