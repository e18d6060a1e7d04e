"""Opens the entries of a ledger for a task: on its bookies where it has some, otherwise at a broker."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from magnetar.spark.offload.entries import Entries
from magnetar.spark.offload.tasks import LedgerSource


@contextmanager
def open_entries(source: LedgerSource) -> Iterator[Entries]:
    """Open what reads the ledger of `source`; closes its connections on exit."""
    if source.bookies:
        from magnetar.spark.offload.bookie_entries import BookieEntries

        with BookieEntries(source) as over_bookies:
            yield over_bookies
    else:
        from magnetar.spark.offload.broker_entries import BrokerEntries

        with BrokerEntries(source) as over_a_broker:
            yield over_a_broker
