"""Entries read through a broker, such as a standalone's, whose ledgers no other process opens."""

from __future__ import annotations

import time
from collections.abc import Iterator
from types import TracebackType

from magnetar.ledger.ledger_store import LedgerRef, Run
from magnetar.ledger.offload_reads import read_runs
from magnetar.spark.ledgers.ledger_source import LedgerSource
from magnetar.spark.ledgers.service_channel import open_channel


class BrokerEntries:
    """Implements `entries.Entries`. To be used in a `with`."""

    def __init__(self, source: LedgerSource) -> None:
        self._source = source
        self._channel = open_channel(source.service)

    def __enter__(self) -> BrokerEntries:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._channel.close()

    def read(self, first_entry_id: int, last_entry_id: int) -> Iterator[list[Run]]:
        """See `Entries.read`. A broken stream is resumed."""
        source = self._source
        ref = LedgerRef(source.ledger_id, source.ledger_key)
        for run in read_runs(
            self._channel, source.topic, ref, first_entry_id, last_entry_id, sleep=time.sleep
        ):
            yield [run]
