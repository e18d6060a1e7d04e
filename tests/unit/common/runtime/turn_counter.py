"""A task that counts the turns that the event loop gives to other tasks."""

from __future__ import annotations

import asyncio


class TurnCounter:
    """Counts turns of the running event loop until `end`."""

    def __init__(self) -> None:
        self.turns = 0
        self._task = asyncio.get_running_loop().create_task(self._run())

    async def _run(self) -> None:
        while True:
            self.turns += 1
            await asyncio.sleep(0)

    async def end(self) -> None:
        self._task.cancel()
        await asyncio.wait([self._task])
