"""The log's syncer in virtual time: a write, then its sync, each at a seeded moment."""

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
        """Nothing to start: the loop is the thread."""

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
            # The device has it; the process hears of it a little later, and may die in between.
            self._later(lambda: done(None))

        self._later(write)

    def close(self) -> None:
        """Nothing runs outside the loop."""

    def _later(self, call: Callable[[], None]) -> None:
        self._loop.call_later(self._loop.rng.uniform(0, self._delay_max_s), call)
