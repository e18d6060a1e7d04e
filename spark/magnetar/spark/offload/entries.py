"""The entries of a ledger for a task: from its bookies where it has some, otherwise out of a broker."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Final, Protocol

from magnetar.ledger.ledger_store import Run
from magnetar.spark.offload.tasks import LedgerSource

CHUNK_BYTES: Final = 4 << 20
"""Of entries, read at a time."""

UNIT_BYTES: Final = 4 << 20
"""Of entries, handed on at a time."""

PATIENCE_S: Final = 90.0
"""How long a task waits for entries that nobody gives now: a broker or bookie may be starting again."""


class Entries(Protocol):
    """Reads one ledger."""

    def read(self, first_entry_id: int, last_entry_id: int) -> Iterator[list[Run]]:
        """All of them, both inclusive, in order and without gaps, some at a time.

        Raises StorageError when one of them is lost; a retriable one when it cannot be read now.
        """
        ...


@contextmanager
def open_entries(source: LedgerSource) -> Iterator[Entries]:
    """What reads the ledger of `source`; ends its connections at the end."""
    if source.bookies:
        from magnetar.spark.offload.bookie_entries import BookieEntries

        with BookieEntries(source) as over_bookies:
            yield over_bookies
    else:
        from magnetar.spark.offload.broker_entries import BrokerEntries

        with BrokerEntries(source) as over_a_broker:
            yield over_a_broker


def in_units(read: Iterable[list[Run]], unit_bytes: int = UNIT_BYTES) -> Iterator[list[Run]]:
    """The same entries, cut where their sizes alone say so.

    Answers end where bookies and networks like; a task that is tried again has to write the same bytes.
    """
    unit: list[Run] = []
    room = unit_bytes
    for runs in read:
        for run in runs:
            for piece, full in _pieces(run, room, unit_bytes):
                unit.append(piece)
                room -= piece.byte_length
                if full:
                    yield unit
                    unit, room = [], unit_bytes
    if unit:
        yield unit


def _pieces(run: Run, room: int, unit_bytes: int) -> Iterator[tuple[Run, bool]]:
    """A run in pieces, each with whether its unit is full: with the entry that reaches the size."""
    first = at = run.first_entry_id
    for entry in run.entries:
        room -= len(entry)
        if room <= 0:
            yield run.slice(first, at), True
            first, room = at + 1, unit_bytes
        at += 1
    if first < at:
        yield run.slice(first, at - 1), False
