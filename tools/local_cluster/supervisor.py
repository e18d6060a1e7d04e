"""Starts the processes in order, watches them, starts again what died, and stops all of it in order."""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import Sequence
from typing import Final

from tools.local_cluster.plan import KINDS, Plan
from tools.local_cluster.process import Process, how_it_ended
from tools.local_cluster.screen import Screen

READY_SECONDS_MAX: Final = 120.0
STOP_SECONDS_MAX: Final = 75.0
"""More than any of them takes by its own settings."""

AGAIN_AFTER_S: Final = 2.0
AGAIN_AFTER_MAX_S: Final = 60.0
LIVED_S: Final = 60.0
"""A process that dies sooner is started again later each time, up to the longest wait."""

DRAW_EVERY_S: Final = 0.1


class CannotStart(Exception):
    """A process did not come up; what there is to say was said."""


class Supervisor:
    """`start`, `watch` until it is canceled, `stop`; `kill` ends everything at once."""

    def __init__(self, plan: Plan, screen: Screen, *, start_again: bool = True) -> None:
        self.processes: Sequence[Process] = [Process(member) for member in plan.members]
        self._screen = screen
        self._start_again = start_again

    async def start(self) -> None:
        """Return once each of them serves: etcd first, then the others side by side. Raises CannotStart."""
        drawing = asyncio.create_task(self._draw())
        try:
            async with asyncio.timeout(READY_SECONDS_MAX):
                await self._start_all(self._of("etcd"))
                await self._start_all([one for one in self.processes if one.member.kind != "etcd"])
        except TimeoutError:
            for one in self.processes:
                if not one.ready:
                    what = f"{one.member.name} is not ready after {READY_SECONDS_MAX:g} s"
                    self._screen.happened(what, one.member.log, one.log_end())
            raise CannotStart from None
        finally:
            drawing.cancel()

    async def watch(self) -> None:
        """For ever: say who died, and start it again."""
        async with asyncio.TaskGroup() as group:
            for one in self.processes:
                group.create_task(self._watch(one))

    async def stop(self) -> None:
        """The console and discoveries, then brokers, which close their topics, then bookies, then etcd."""
        for kind in reversed(KINDS):
            some = [one for one in self._of(kind) if one.running]
            if not some:
                continue
            began = time.monotonic()
            for one in some:
                one.signal(signal.SIGTERM)
            done = await asyncio.gather(*(self._ended(one) for one in some))
            names = ", ".join(one.member.name for one in some)
            if all(done):
                self._screen.say(f"stopped {names} ({time.monotonic() - began:.1f} s)")

    async def kill(self) -> None:
        """SIGKILL to whatever runs."""
        for one in self.processes:
            one.signal(signal.SIGKILL)
        await asyncio.gather(*(one.wait() for one in self.processes if one.starts))

    def _of(self, kind: str) -> list[Process]:
        return [one for one in self.processes if one.member.kind == kind]

    async def _start_all(self, some: Sequence[Process]) -> None:
        for one in some:
            await one.launch()
        for one, ready in zip(some, await self._all_ready(some), strict=True):
            if not ready:
                what = f"{one.member.name} {how_it_ended(await one.wait())}"
                self._screen.happened(what, one.member.log, one.log_end())
        if not all(one.ready for one in some):
            raise CannotStart

    async def _all_ready(self, some: Sequence[Process]) -> list[bool]:
        """Wait until all processes are ready; returns each result. Stops waiting after the first failure."""

        async def one_ready(one: Process) -> bool:
            if ready := await one.until_ready():
                self._screen.started(one)
            return ready

        waiting = {asyncio.create_task(one_ready(one)) for one in some}
        while waiting:
            done, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            if not all(task.result() for task in done):
                for task in waiting:
                    task.cancel()
                break
        return [one.ready or one.running for one in some]

    async def _watch(self, one: Process) -> None:
        wait_s = AGAIN_AFTER_S
        while True:
            since = time.monotonic()
            status = await one.wait()
            if time.monotonic() - since > LIVED_S:
                wait_s = AGAIN_AFTER_S
            what = f"{one.member.name} (pid {one.pid}) {how_it_ended(status)}"
            if not self._start_again:
                self._screen.happened(f"{what}, and stays so", one.member.log, one.log_end())
                return
            self._screen.happened(
                f"{what}, and is started again in {wait_s:g} s", one.member.log, one.log_end()
            )
            await asyncio.sleep(wait_s)
            wait_s = min(2 * wait_s, AGAIN_AFTER_MAX_S)
            began = time.monotonic()
            await one.launch()
            if await one.until_ready():
                took = time.monotonic() - began
                self._screen.event(f"{one.member.name} serves again as pid {one.pid} ({took:.1f} s)")

    async def _ended(self, one: Process) -> bool:
        try:
            async with asyncio.timeout(STOP_SECONDS_MAX):
                status = await one.wait()
        except TimeoutError:
            one.signal(signal.SIGKILL)
            status = await one.wait()
            what = f"{one.member.name} did not stop within {STOP_SECONDS_MAX:g} s and was killed"
        else:
            if _is_clean(one, status):
                return True
            what = f"{one.member.name} {how_it_ended(status)}"
        self._screen.happened(what, one.member.log, one.log_end())
        return False

    async def _draw(self) -> None:
        while True:
            self._screen.progress(self.processes)
            await asyncio.sleep(DRAW_EVERY_S)


def _is_clean(one: Process, status: int) -> bool:
    """Ended by the signal itself: one that was still starting, or etcd, which closes its files before."""
    return status == 0 or (status == -signal.SIGTERM and (one.member.kind == "etcd" or not one.ready))
