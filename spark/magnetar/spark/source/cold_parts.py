"""Manifests and parts of offloaded ledgers: the driver plans with manifests, tasks read parts."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import lru_cache
from typing import Any, Final

from magnetar.common.errors import DataCorruption
from magnetar.ledger.cold.layout import MANIFEST_NAME, Manifest
from magnetar.ledger.cold.objects import ObjectStore, open_store
from magnetar.ledger.cold.part_reader import PartReader
from magnetar.spark.source.reading_plan import NO_TIMES, ColdLedger, ColdPart, TimeBounds

MANIFESTS_AT_ONCE: Final = 16
STORES_KEPT: Final = 16


@lru_cache(maxsize=STORES_KEPT)
def store_at(location: str) -> ObjectStore:
    """The store of a location; one for all threads of this process. Raises ConfigError."""
    return open_store(location)


def read_manifest(cold: ColdLedger) -> Manifest:
    """The manifest that the job verified, no other. Raises ObjectStoreError, DataCorruption, ConfigError."""
    path = f"{cold.path}/{MANIFEST_NAME}"
    data = store_at(cold.location).read(path)
    if hashlib.sha256(data).digest() != cold.manifest_sha256:
        raise DataCorruption(f"{path} at {cold.location} is not the manifest that was verified")
    return Manifest.from_json(data)


def read_manifests(ledgers: Sequence[ColdLedger]) -> list[Manifest | Exception]:
    """Many of them, in order, each or why it cannot be read."""

    def read(cold: ColdLedger) -> Manifest | Exception:
        try:
            return read_manifest(cold)
        except Exception as error:  # the caller may know another place for the ledger
            return error

    if len(ledgers) <= 1:
        return [read(cold) for cold in ledgers]
    with ThreadPoolExecutor(MANIFESTS_AT_ONCE, "manifests") as pool:
        return list(pool.map(read, ledgers))


@contextmanager
def open_part(cold: ColdPart) -> Iterator[PartReader]:
    """Reads an object, its footer checked before Arrow sees it. Raises ObjectStoreError, DataCorruption."""
    store = store_at(cold.location)
    with store.open(cold.path, cold.part.byte_length) as file, PartReader(file, part=cold.part) as reader:
        yield reader


def read_part(
    part: ColdPart,
    first: int,
    last: int,
    columns: Sequence[str],
    *,
    times: TimeBounds = NO_TIMES,
    may_match: Any = None,
    newest_first: bool = False,
) -> Iterator[tuple[Any, int, int]]:
    """(pyarrow.Table, first entry, last entry) of each row group with these entries and of that time.

    A table may have more rows than were asked for. `may_match` is asked of each row group's metadata
    (pyarrow.parquet.RowGroupMetaData). Raises ObjectStoreError, DataCorruption.
    """
    with open_part(part) as reader:
        footer = reader.footer
        numbers = footer.row_groups_for(first, last)
        for number in reversed(numbers) if newest_first else numbers:
            group = footer.row_groups[number]
            if times.start_ms is not None and group.last_publish_time_ms < times.start_ms:
                continue
            if times.end_ms is not None and group.first_publish_time_ms >= times.end_ms:
                continue
            if may_match is not None and not may_match(footer.metadata.row_group(number)):
                continue
            table = reader.read_table([number], columns)
            yield table, max(first, group.first_entry_id), min(last, group.last_entry_id)
