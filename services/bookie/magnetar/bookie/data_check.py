"""Records that all data must be compared with metadata: from a possible loss until a scrub completes.

After a possible loss, ledgers that are not closed are in limbo (`limbo`). Closed ones may lack entries as
well, because of an emptied disk or a restored image: a missing entry is reported as absent, and readers do
not ask a bookie twice. The file `unchecked`, made durable before the `doubt` file is removed, records that
all data must be scrubbed.
"""

from __future__ import annotations

from typing import Final

from magnetar.common.runtime.blocking import BlockingPool
from magnetar.common.runtime.disk import Disk, replace_file

UNCHECKED: Final = "unchecked"


def note_unchecked(disk: Disk) -> None:
    """Records durably that all data must be checked. Blocks; raises OSError."""
    replace_file(disk, UNCHECKED, b"")


class DataCheck:
    """The pending data check of one data directory."""

    def __init__(self, disk: Disk, pool: BlockingPool) -> None:
        self._disk = disk
        self._pool = pool

    async def is_needed(self) -> bool:
        """Returns whether a check is pending. Raises OSError."""
        return UNCHECKED in await self._pool.run(lambda: self._disk.listdir(""))

    async def done(self) -> None:
        """Records that all entries of this bookie were intact or repaired. Raises OSError."""
        await self._pool.run(self._forget)

    def _forget(self) -> None:
        self._disk.unlink(UNCHECKED)
        self._disk.sync_dir("")
