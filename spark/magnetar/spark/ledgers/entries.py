"""Readers of a ledger's entries for a task: over its bookies where it has some, else through a broker."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final, Protocol

from magnetar.ledger.ledger_store import Run
from magnetar.spark.ledgers.ledger_source import LedgerSource

UNIT_BYTES: Final = 4 << 20
"""Bytes of entries that are made into one table of rows."""


class Entries(Protocol):
    """Reads one ledger."""

    def read(self, first_entry_id: int, last_entry_id: int) -> Iterator[list[Run]]:
        """Yield all entries of the range, both ends included, in order and without gaps.

        Raises StorageError when one of them is lost; a retriable one when it cannot be read now.
        """
        ...


@contextmanager
def open_entries(source: LedgerSource) -> Iterator[Entries]:
    """Open a reader of the ledger of `source`, and close its connections at the end."""
    if source.bookies:
        from magnetar.spark.ledgers.bookie_entries import BookieEntries

        with BookieEntries(source) as over_bookies:
            yield over_bookies
    else:
        from magnetar.spark.ledgers.broker_entries import BrokerEntries

        with BrokerEntries(source) as over_a_broker:
            yield over_a_broker
