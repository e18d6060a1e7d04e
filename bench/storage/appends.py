"""Appending to one ledger through the ledger interface: the same load for the local log and for bookies.

A window of runs is kept in flight for some seconds; each confirmation lets as many runs in as it confirmed.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from magnetar.common.errors import StorageError
from magnetar.ledger.ledger_store import LedgerListener, LedgerStore, LedgerWriter, Run

from bench.figures import percentile
from bench.storage.procfs import cpu_seconds

WARM_S = 0.5
SETTLE_S = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class AppendLoad:
    """The appended load: `window` runs in flight, `batch` entries a run, `size` bytes an entry."""

    size: int
    batch: int
    window: int
    seconds: float


class Appending:
    """One ledger's generator. Fails with the ledger."""

    def __init__(self, load: AppendLoad) -> None:
        self._load = load
        self._entries = [os.urandom(load.size) for _ in range(load.batch)]
        self._sent_at: deque[float] = deque()
        self._news = asyncio.Event()
        self._error: StorageError | None = None
        self.latencies: list[float] = []
        """Seconds from append to confirmation, a run each."""
        self.sent = 0
        self.confirmed = 0
        self.listener = LedgerListener(self._on_confirmed, self._on_failed)

    async def run(self, writer: LedgerWriter, seconds: float) -> None:
        """Append for so long, then wait until all is confirmed. Raises what the ledger failed with."""
        load, now = self._load, time.perf_counter
        ahead = load.window * load.batch
        until = now() + seconds
        while (going := now() < until) or self.confirmed < self.sent:
            while going and self.sent - self.confirmed < ahead:
                self._sent_at.append(now())
                writer.append(Run(self._entries, publish_time_ms=1, first_index=self.sent))
                self.sent += load.batch
            self._news.clear()
            await self._news.wait()
            if self._error is not None:
                raise self._error

    def _on_confirmed(self, last_confirmed: int) -> None:
        at = time.perf_counter()
        batch = self._load.batch
        for _ in range((last_confirmed + 1 - self.confirmed) // batch):
            self.latencies.append(at - self._sent_at.popleft())
            self.confirmed += batch
        self._news.set()

    def _on_failed(self, error: StorageError, _last_confirmed: int) -> None:
        self._error = error
        self._news.set()


async def measure(
    store: LedgerStore, load: AppendLoad, *, quorum: tuple[int, int], bookie_pids: Sequence[int]
) -> dict[str, float]:
    """One ledger's load, after a short warm-up with it. `quorum` is (Qw = E, Qa)."""
    write_quorum, ack_quorum = quorum
    appending = Appending(load)
    writer = await store.create(
        appending.listener,
        ensemble_size=write_quorum,
        write_quorum=write_quorum,
        ack_quorum=ack_quorum,
        properties={"kind": "bench"},
    )
    await appending.run(writer, WARM_S)
    await asyncio.sleep(SETTLE_S)
    appending.latencies.clear()
    before, sent_before = [cpu_seconds(pid) for pid in bookie_pids], appending.sent
    cpu, began = time.process_time(), time.perf_counter()
    await appending.run(writer, load.seconds)
    took = time.perf_counter() - began
    await asyncio.sleep(SETTLE_S)  # the slowest of a write set has no say in a confirmation
    cpu = time.process_time() - cpu
    entries = appending.sent - sent_before
    bookies = [cpu_seconds(pid) - each for pid, each in zip(bookie_pids, before, strict=True)]
    await writer.close()
    figures = {
        "entries": float(entries),
        "entries/s": entries / took,
        "MB/s": entries * load.size / took / 1e6,
        "p50 ms": 1e3 * percentile(appending.latencies, 0.5),
        "p95 ms": 1e3 * percentile(appending.latencies, 0.95),
        "p99 ms": 1e3 * percentile(appending.latencies, 0.99),
        "process us/entry": 1e6 * cpu / entries,
    }
    if bookies:
        figures["bookie us/entry"] = 1e6 * sum(bookies) / len(bookies) / entries
        figures["entries/CPU s of one bookie"] = entries * len(bookies) / max(sum(bookies), 1e-9)
    else:
        figures["entries/CPU s"] = entries / cpu
    return figures
