"""Starts the same command once per worker, forwards stop signals, and restarts workers that died.

A worker stops when its standard input ends, so no worker outlives the parent process.
"""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from magnetar.common.obs.logs import get_logger
from magnetar.common.runtime.task_owner import TaskOwner
from magnetar.standalone.process import ask_to_stop
from magnetar.standalone.start_error import CannotStart, listed, reason

_log = get_logger("magnetar.workers")

AGAIN_AFTER_S: Final = 1.0
AGAIN_AFTER_MAX_S: Final = 30.0
"""Delay before a dead worker is restarted, in seconds: the first value, doubled up to the last."""

LIVED_S: Final = 60.0
"""Lifetime in seconds after which a worker's restart delay is reset."""

KILLED_LATER_MS: Final = 2_500
STOPS_LATER_MS: Final = 5_000
"""Seconds after a worker's stop timeout: until it is killed, and until this process ends anyway."""

READY: Final = "magnetar ready in "
"""Prefix of the ready line that a service prints without a terminal."""


@dataclass(slots=True)
class Worker:
    """A running worker."""

    number: int
    process: asyncio.subprocess.Process | None = None
    reached_at: str = ""
    """Ready line of the worker; empty before it is ready."""


class WorkerProcesses:
    """The processes of all workers. Use it once: `start`, then `close`."""

    def __init__(
        self,
        count: int,
        argument: Callable[[int], str],
        stop_timeout_ms: int,
        command: Sequence[str] | None = None,
        *,
        again_after_s: float | None = None,
        restart_stopped: bool = False,
    ) -> None:
        """`command` starts a worker when `--worker` and its argument are appended; default: this process's
        command. `again_after_s`: the first delay before a restart, AGAIN_AFTER_S without it.
        `restart_stopped`: a worker that was stopped regularly is restarted, too.
        """
        self.workers = [Worker(number) for number in range(count)]
        self._argument = argument
        self._stop_timeout_ms = stop_timeout_ms
        self._command = list(command or [sys.executable, *sys.orig_argv[1:]])
        self._again_after_s = AGAIN_AFTER_S if again_after_s is None else again_after_s
        self._restart_stopped = restart_stopped
        self._tasks = TaskOwner("workers")

    async def start(self) -> None:
        """Start all workers; returns when all are ready. Raises CannotStart when a worker ends."""
        try:
            await asyncio.gather(*(self._launch(worker) for worker in self.workers))
            ready = await asyncio.gather(*(self._until_ready(worker) for worker in self.workers))
            problems = [
                f"worker {worker.number} ended with exit code {_status(worker)}; see its output above"
                for worker, served in zip(self.workers, ready, strict=True)
                if not served
            ]
            if problems:
                raise CannotStart(listed("magnetar cannot start", problems))
        except OSError as error:
            await self.close()
            raise CannotStart(listed("magnetar cannot start", [reason(error)])) from error
        except BaseException:
            await self.close()
            raise
        for worker in self.workers:
            self._tasks.spawn(self._watch(worker), f"worker {worker.number}")

    async def close(self) -> None:
        """Stop all workers gracefully and wait; kill those that exceed the timeout. Idempotent."""
        await self._tasks.close()
        running = [one.process for one in self.workers if one.process and one.process.returncode is None]
        for process in running:
            with suppress(ProcessLookupError):
                process.send_signal(signal.SIGTERM)
        late_s = (self._stop_timeout_ms + KILLED_LATER_MS) / 1000
        await asyncio.gather(*(self._ended(worker, late_s) for worker in self.workers))

    async def _ended(self, worker: Worker, late_s: float) -> None:
        process = worker.process
        if process is None:
            return
        try:
            async with asyncio.timeout(late_s):
                await process.wait()
        except TimeoutError:  # The worker hangs, or waits for something that hangs.
            _log.error("worker did not stop in time: killing it", worker=worker.number, pid=process.pid)
            with suppress(ProcessLookupError):
                process.kill()
            await process.wait()

    async def _launch(self, worker: Worker) -> None:
        worker.reached_at = ""
        worker.process = await asyncio.create_subprocess_exec(
            *self._command,
            *("--worker", self._argument(worker.number)),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            start_new_session=True,  # Only this process receives Ctrl-C, and forwards it to the workers.
        )
        _log.info("worker started", worker=worker.number, pid=worker.process.pid)

    async def _until_ready(self, worker: Worker) -> bool:
        """Wait for the worker's ready line; returns False when its output ends first."""
        process = worker.process
        assert process is not None
        assert process.stdout is not None
        async for line in process.stdout:
            text = line.decode(errors="replace").strip()
            if text.startswith(READY):
                worker.reached_at = text.removeprefix(READY).partition(": ")[2].partition(" metadata=")[0]
                return True
            print(text, flush=True)
        await process.wait()
        return False

    async def _watch(self, worker: Worker) -> None:
        """Log each unexpected end of the worker and restart it, until a regular stop."""
        wait_s = self._again_after_s
        loop = asyncio.get_running_loop()
        began = loop.time()
        while True:
            assert worker.process is not None
            assert worker.process.stdout is not None
            async for line in worker.process.stdout:
                print(line.decode(errors="replace").rstrip(), flush=True)
            status = await worker.process.wait()
            if status == 0 and not self._restart_stopped:
                _log.info("worker was stopped; not restarting", worker=worker.number)
                if all(one.process and one.process.returncode == 0 for one in self.workers):
                    ask_to_stop()
                return
            if loop.time() - began > LIVED_S:
                wait_s = self._again_after_s
            _log.error("worker died; restarting", worker=worker.number, status=status, after_s=wait_s)
            await asyncio.sleep(wait_s)
            wait_s = min(2 * wait_s, AGAIN_AFTER_MAX_S)
            began = loop.time()
            try:
                await self._launch(worker)
            except OSError as error:
                _log.error("worker cannot be started", worker=worker.number, reason=reason(error))
                continue
            if await self._until_ready(worker):
                _log.info("worker is ready again", worker=worker.number, at=worker.reached_at)


def _status(worker: Worker) -> int | None:
    return worker.process.returncode if worker.process is not None else None
