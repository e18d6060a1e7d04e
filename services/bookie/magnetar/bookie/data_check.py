"""Whether all data is still to be compared with metadata: after a doubt, until a scrub came to its end.

A doubt marks the ledgers that are not closed (`limbo`). Closed ones may lack entries as well, from an emptied
disk or a restored image: what they lack is not here, and nobody asks a bookie twice. A file `unchecked`, made
durable before the doubt itself is forgotten, keeps in mind that the whole has to be looked through.
"""

from __future__ import annotations

from typing import Final

from magnetar.common.runtime.blocking import BlockingPool
from magnetar.common.runtime.disk import Disk, replace_file

UNCHECKED: Final = "unchecked"


def note_unchecked(disk: Disk) -> None:
    """Remember durably that everything has to be checked. Blocks; raises OSError."""
    replace_file(disk, UNCHECKED, b"")


class DataCheck:
    """Check of one data directory."""

    def __init__(self, disk: Disk, pool: BlockingPool) -> None:
        self._disk = disk
        self._pool = pool

    async def is_needed(self) -> bool:
        """Raises OSError."""
        return UNCHECKED in await self._pool.run(lambda: self._disk.listdir(""))

    async def done(self) -> None:
        """All that metadata gives this bookie was found sound, or mended. Raises OSError."""
        await self._pool.run(self._forget)

    def _forget(self) -> None:
        self._disk.unlink(UNCHECKED)
        self._disk.sync_dir("")
