"""The log's syncer in virtual time: a write and its sync, each at a seeded moment."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from magnetar.common.runtime.disk import Buffer, DiskFile
from magnetar.sim.loop import SimLoop


class SimSyncer:
    """Writes after up to `delay_max_s`, syncs after up to as much again, then reports on the loop."""

    def __init__(self, loop: SimLoop, delay_max_s: float = 0.002) -> None:
        self._loop = loop
        self._delay_max_s = delay_max_s

    def start(self) -> None:
        """Does nothing: there is no thread to start."""

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
        def write() -> None:
            try:
                file.pwritev(buffers, offset)
            except OSError as error:
                done(error)
                return
            if sync:
                self._later(sync_file)
            else:
                done(None)

        def sync_file() -> None:
            try:
                file.fdatasync()
            except OSError as error:
                done(error)
                return
            # The data is on the device; the process is notified later, and may die in between.
            self._later(lambda: done(None))

        self._later(write)

    def close(self) -> None:
        """Does nothing: there is no work outside the loop."""

    def _later(self, call: Callable[[], None]) -> None:
        self._loop.call_later(self._loop.rng.uniform(0, self._delay_max_s), call)
