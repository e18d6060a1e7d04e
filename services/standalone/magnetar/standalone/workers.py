"""`magnetar broker --workers N`: runs N brokers on one machine, one process each.

A broker uses one core, so more cores need more brokers. Each worker is an ordinary broker: it registers
under its own address and owns its own bundles. The parent process is not a broker. It starts the same command
once per worker with the worker's number, forwards stop signals, and restarts workers that died.
A worker stops when its standard input ends, so no worker outlives the parent process.
"""

from __future__ import annotations

import asyncio
import signal
import sys
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from magnetar.common.errors import ConfigError
from magnetar.common.obs.logs import get_logger
from magnetar.common.runtime.task_owner import TaskOwner
from magnetar.standalone.cluster_config import ClusterBrokerConfig
from magnetar.standalone.ports import port_problems
from magnetar.standalone.process import ask_to_stop
from magnetar.standalone.service import Address
from magnetar.standalone.start_error import CannotStart, listed, reason
from magnetar.standalone.worker_config import worker_config

_log = get_logger("magnetar.workers")

PORT_MAX: Final = 65_535

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


def _ports(config: ClusterBrokerConfig) -> dict[str, int]:
    return {**config.broker.listener.ports, "magnetarControlPort": config.control.port}


def problems_of(config: ClusterBrokerConfig, workers: int) -> list[str]:
    """Return conflicts between the number of workers and the configuration."""
    found = config.problems()
    each = [worker_config(config, number) for number in range(workers)]
    every_port = [port for one in each for port in _ports(one).values() if port]
    for port, times in sorted(Counter(every_port).items()):
        if times > 1:
            found.append(
                f"port {port} would be given to several workers: worker i has brokerServicePort + i, "
                "webServicePort + i and magnetarControlPort + i, and TLS ports likewise; set these further "
                "apart"
            )
    too_high = [port for port in every_port if port > PORT_MAX]
    if too_high:
        found.append(
            f"invalid port {min(too_high)} for one of {workers} workers: use lower ports or fewer workers"
        )
    return found


def ports_in_use(config: ClusterBrokerConfig, workers: int) -> list[str]:
    """Return the ports of the workers that are in use. The later bind is authoritative."""
    host = config.broker.listener.bind_address
    each = [_ports(worker_config(config, number)) for number in range(workers)]
    return [
        f"worker {number}: {problem}"
        for number, ports in enumerate(each)
        for problem in port_problems(host, ports)
    ]


@dataclass(slots=True)
class _Worker:
    """A running worker."""

    number: int
    process: asyncio.subprocess.Process | None = None
    reached_at: str = ""
    """Ready line of the worker; empty before it is ready."""


class Workers:
    """Implements `service.Service`. Use it once: `start`, then `close`."""

    def __init__(self, config: ClusterBrokerConfig, count: int, command: Sequence[str] | None = None) -> None:
        """`command` starts a worker when `--worker` and its number are appended; default: this process's
        command.
        """
        self._config = config.advertised()
        self._command = list(command or [sys.executable, *sys.orig_argv[1:]])
        self._workers = [_Worker(number) for number in range(count)]
        self._tasks = TaskOwner("workers")
        self._closing = False

    @property
    def shutdown_timeout_ms(self) -> int:
        return self._config.broker.shutdown_timeout_ms + STOPS_LATER_MS

    @property
    def addresses(self) -> Sequence[Address]:
        found = [Address(f"worker {worker.number}", worker.reached_at) for worker in self._workers]
        return [*found, Address("metadata", self._config.metadata.url)]

    async def start(self) -> None:
        """Start all workers; returns when all are ready.

        Raises ConfigError or CannotStart with every problem found, and CannotStart when a worker ends.
        """
        config, count = self._config, len(self._workers)
        problems = problems_of(config, count)
        if problems:
            raise ConfigError(listed("invalid configuration", problems))
        problems = ports_in_use(config, count)
        if problems:
            raise CannotStart(listed("magnetar cannot start", problems))
        try:
            await asyncio.gather(*(self._launch(worker) for worker in self._workers))
            ready = await asyncio.gather(*(self._until_ready(worker) for worker in self._workers))
            problems = [
                f"worker {worker.number} ended with exit code {_status(worker)}; see its output above"
                for worker, served in zip(self._workers, ready, strict=True)
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
        for worker in self._workers:
            self._tasks.spawn(self._watch(worker), f"worker {worker.number}")

    async def close(self) -> None:
        """Stop all workers gracefully and wait; kill those that exceed the timeout. Idempotent."""
        self._closing = True
        await self._tasks.close()
        running = [one.process for one in self._workers if one.process and one.process.returncode is None]
        for process in running:
            with suppress(ProcessLookupError):
                process.send_signal(signal.SIGTERM)
        late_s = (self._config.broker.shutdown_timeout_ms + KILLED_LATER_MS) / 1000
        await asyncio.gather(*(self._ended(worker, late_s) for worker in self._workers))

    async def _ended(self, worker: _Worker, late_s: float) -> None:
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

    async def _launch(self, worker: _Worker) -> None:
        worker.reached_at = ""
        worker.process = await asyncio.create_subprocess_exec(
            *self._command,
            *("--worker", str(worker.number)),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            start_new_session=True,  # Only this process receives Ctrl-C, and forwards it to the workers.
        )
        _log.info("worker started", worker=worker.number, pid=worker.process.pid)

    async def _until_ready(self, worker: _Worker) -> bool:
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

    async def _watch(self, worker: _Worker) -> None:
        """Log each unexpected end of the worker and restart it, until a regular stop."""
        wait_s = AGAIN_AFTER_S
        loop = asyncio.get_running_loop()
        began = loop.time()
        while True:
            assert worker.process is not None
            assert worker.process.stdout is not None
            async for line in worker.process.stdout:
                print(line.decode(errors="replace").rstrip(), flush=True)
            status = await worker.process.wait()
            if status == 0:
                _log.info("worker was stopped; not restarting", worker=worker.number)
                if all(one.process and one.process.returncode == 0 for one in self._workers):
                    ask_to_stop()
                return
            if loop.time() - began > LIVED_S:
                wait_s = AGAIN_AFTER_S
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


def _status(worker: _Worker) -> int | None:
    return worker.process.returncode if worker.process is not None else None
