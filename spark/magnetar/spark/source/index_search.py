"""Search for the entry of a message, by the topic-wide indexes that every entry carries.

Metadata knows where a ledger's numbers begin; inside it entries are probed, between two known ones where the
message should be. Entries of about the same number of messages take two or three probes.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from magnetar.common.errors import MagnetarError, NoSuchEntry
from magnetar.common.offload.offload_pb2 import Ledger
from magnetar.ledger.cold.entry_envelope import decode_envelope
from magnetar.ledger.cold.layout import Manifest
from magnetar.spark.ledgers.entries import Entries, open_entries
from magnetar.spark.source.cold_parts import open_part, read_manifest
from magnetar.spark.source.reading_plan import ColdLedger, ColdPart, TopicLedgers, cold_ledger

PROBES_MAX = 64
"""Probes of one search; halving alone needs no more."""


class Probed(NamedTuple):
    """The indexes in an entry."""

    first_index: int
    messages: int


class Probe(Protocol):
    """Looks at entries of one ledger."""

    def entry(self, entry_id: int) -> Probed:
        """Raises NoSuchEntry and what reading may."""
        ...


@contextmanager
def open_probe(topic: TopicLedgers, ledger: Ledger) -> Iterator[Probe]:
    """Open a probe of a ledger, wherever it is."""
    cold = cold_ledger(ledger)
    if cold is not None:
        try:
            manifest = read_manifest(cold)
        except MagnetarError:
            if ledger.offload.left_bookies_ms:
                raise
        else:
            yield ColdProbe(cold, manifest)
            return
    with open_entries(topic.source(ledger)) as entries:
        yield EntryProbe(entries)


@dataclass(slots=True)
class EntryProbe:
    """Probes entries on bookies or at a broker."""

    entries: Entries

    def entry(self, entry_id: int) -> Probed:
        for runs in self.entries.read(entry_id, entry_id):
            for run in runs:
                return Probed(run.first_index, run.messages)
        raise NoSuchEntry(f"entry {entry_id} was requested and not returned")


class ColdProbe:
    """Probes objects; keeps the row group of the last entry."""

    def __init__(self, cold: ColdLedger, manifest: Manifest) -> None:
        self._cold = cold
        self._manifest = manifest
        self._kept: dict[int, Probed] = {}

    def entry(self, entry_id: int) -> Probed:
        if entry_id not in self._kept:
            self._kept = self._row_group_of(entry_id)
        if entry_id not in self._kept:
            raise NoSuchEntry(f"ledger {self._manifest.ledger_id} has no entry {entry_id} in its objects")
        return self._kept[entry_id]

    def _row_group_of(self, entry_id: int) -> dict[int, Probed]:
        try:
            part = self._manifest.parts[self._manifest.part_of(entry_id)]
        except IndexError as error:
            raise NoSuchEntry(str(error)) from None
        where = ColdPart(self._cold.location, f"{self._cold.path}/{part.name}", part)
        with open_part(where) as reader:
            number = reader.footer.row_group_of(entry_id)
            table = reader.read_table([number], ("entry_id", "message_index", "entry_metadata"))
        return dict(_first_rows(table))


def _first_rows(table: Any) -> Iterator[tuple[int, Probed]]:
    columns = (table[name].to_pylist() for name in ("entry_id", "message_index", "entry_metadata"))
    for entry_id, index, envelope in zip(*columns, strict=True):
        if envelope is not None:
            yield entry_id, Probed(index, decode_envelope(envelope).message_count)


def entry_of_index(probe: Probe, first: tuple[int, int], end: tuple[int, int], index: int) -> tuple[int, int]:
    """(entry, its first index): the last entry that begins at or before message `index`.

    `first` is the (entry, index) of an entry that does, `end` the one behind the last entry, which does not.
    """
    (low, low_index), (high, high_index) = first, end
    for number in range(PROBES_MAX):
        if high - low <= 1:
            break
        if number % 3 == 2 or high_index <= low_index:
            middle = (low + high) // 2  # Where numbers are uneven, halving ends it.
        else:
            middle = low + (high - low) * (index - low_index) // (high_index - low_index)
            middle = min(max(middle, low + 1), high - 1)
        found = probe.entry(middle).first_index
        if found <= index:
            low, low_index = middle, found
        else:
            high, high_index = middle, found
    return low, low_index
