"""`magnetar broker --workers N`: brokers side by side on one machine, each a process with a core of its own.

A broker keeps one core busy; more cores are more brokers. Each worker is a broker like any other: it is
registered under its own address and owns bundles of its own. The process that is started with `--workers` is
none itself. It starts the same command once per worker, says which worker each is, passes on that it is asked
to stop, and starts again what died.

A worker ends when the input that it was given ends: so none outlives the process that started it, whatever
became of that.
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
"""Before a worker that died is started again: the first wait, doubling up to the last."""

LIVED_S: Final = 60.0
"""A worker that lived so long begins with the first wait."""

KILLED_LATER_MS: Final = 2_500
STOPS_LATER_MS: Final = 5_000
"""Beyond the time that a worker may take to stop: when it is killed, and when we end anyway."""

READY: Final = "magnetar ready in "
"""How the line begins that a service prints where there is no terminal."""


def _ports(config: ClusterBrokerConfig) -> dict[str, int]:
    return {**config.broker.listener.ports, "magnetarControlPort": config.control.port}


def problems_of(config: ClusterBrokerConfig, workers: int) -> list[str]:
    """Problems of this number of workers with this configuration."""
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
        found.append(f"there is no port {min(too_high)}, which one of {workers} workers would have")
    return found


def ports_in_use(config: ClusterBrokerConfig, workers: int) -> list[str]:
    """Which ports of the workers are taken; the real bind still has the word."""
    host = config.broker.listener.bind_address
    each = [_ports(worker_config(config, number)) for number in range(workers)]
    return [
        f"worker {number}: {problem}"
        for number, ports in enumerate(each)
        for problem in port_problems(host, ports)
    ]


@dataclass(slots=True)
class _Worker:
    """One of them, as it is now."""

    number: int
    process: asyncio.subprocess.Process | None = None
    reached_at: str = ""
    """Its ready line; "" before."""


class Workers:
    """Implements `service.Service`. Use it once: `start`, then `close`."""

    def __init__(self, config: ClusterBrokerConfig, count: int, command: Sequence[str] | None = None) -> None:
        """`command` starts a worker once `--worker` and its number are added; else it is our own."""
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
        """Return once all of them serve.

        Raises ConfigError or CannotStart with every problem found, CannotStart when one of them ends.
        """
        config, count = self._config, len(self._workers)
        problems = problems_of(config, count)
        if problems:
            raise ConfigError(listed("the configuration cannot be used", problems))
        problems = ports_in_use(config, count)
        if problems:
            raise CannotStart(listed("magnetar cannot start", problems))
        try:
            await asyncio.gather(*(self._launch(worker) for worker in self._workers))
            ready = await asyncio.gather(*(self._until_ready(worker) for worker in self._workers))
            problems = [
                f"worker {worker.number} ended with exit code {_status(worker)}; what it said is above"
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
        """Have all of them stop in good order, and wait for that; idempotent. One that does not is killed."""
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
        except TimeoutError:  # it stands still, or waits for something that does
            _log.error("worker does not stop: it is killed", worker=worker.number, pid=process.pid)
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
            start_new_session=True,  # Ctrl-C comes to us alone, and from us to them
        )
        _log.info("worker started", worker=worker.number, pid=worker.process.pid)

    async def _until_ready(self, worker: _Worker) -> bool:
        """Whether it came to serve; False once its output has ended before."""
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
        """Until it stops in good order: say how it ended, and start it again."""
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
                _log.info("worker was stopped, and stays so", worker=worker.number)
                if all(one.process and one.process.returncode == 0 for one in self._workers):
                    ask_to_stop()
                return
            if loop.time() - began > LIVED_S:
                wait_s = AGAIN_AFTER_S
            _log.error("worker died, starting it again", worker=worker.number, status=status, after_s=wait_s)
            await asyncio.sleep(wait_s)
            wait_s = min(2 * wait_s, AGAIN_AFTER_MAX_S)
            began = loop.time()
            try:
                await self._launch(worker)
            except OSError as error:
                _log.error("worker cannot be started", worker=worker.number, reason=reason(error))
                continue
            if await self._until_ready(worker):
                _log.info("worker serves again", worker=worker.number, at=worker.reached_at)


def _status(worker: _Worker) -> int | None:
    return worker.process.returncode if worker.process is not None else None
