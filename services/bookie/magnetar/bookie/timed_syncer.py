"""Measures the time until commit groups are durable, as BookKeeper's JOURNAL_SYNC does."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from magnetar.common.obs.latency import Latency
from magnetar.common.runtime.clock import Clock
from magnetar.common.runtime.disk import Buffer, DiskFile
from magnetar.ledger.segment_log.syncer import Syncer


class TimedSyncer:
    """A syncer that records each group's latency, measured on the event loop, and whether it failed."""

    def __init__(self, syncer: Syncer, syncs: Latency, clock: Clock) -> None:
        self._syncer = syncer
        self._syncs = syncs
        self._clock = clock
        # At most one submission is in progress, so one of each is enough.
        self._submitted_at = 0.0
        self._told: Callable[[OSError | None], None] | None = None

    def start(self) -> None:
        self._syncer.start()

    def submit(
        self,
        file: DiskFile,
        buffers: Sequence[Buffer],
        offset: int,
        done: Callable[[OSError | None], None],
        *,
        sync: bool,
        busy: bool,
    ) -> None:
        self._submitted_at = self._clock.monotonic()
        self._told = done
        self._syncer.submit(file, buffers, offset, self._done, sync=sync, busy=busy)

    def close(self) -> None:
        self._syncer.close()

    def _done(self, error: OSError | None) -> None:
        now = self._clock.monotonic()
        self._syncs.observe(now, now - self._submitted_at, success=error is None)
        done, self._told = self._told, None
        assert done is not None, "what is done was submitted"
        done(error)
