"""`magnetar broker --workers N`: runs N brokers on one machine, one process each.

A broker uses one core, so more cores need more brokers. Each worker is an ordinary broker: it registers
under its own address and owns its own bundles. The parent process is not a broker; `WorkerProcesses` starts
the same command once per worker with the worker's number.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Final

from magnetar.common.errors import ConfigError
from magnetar.standalone.cluster_config import ClusterBrokerConfig
from magnetar.standalone.ports import port_problems
from magnetar.standalone.service import Address
from magnetar.standalone.start_error import CannotStart, listed
from magnetar.standalone.worker_config import worker_config
from magnetar.standalone.worker_processes import STOPS_LATER_MS, WorkerProcesses

PORT_MAX: Final = 65_535


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


class Workers:
    """Implements `service.Service`. Use it once: `start`, then `close`."""

    def __init__(self, config: ClusterBrokerConfig, count: int, command: Sequence[str] | None = None) -> None:
        """`command`: see `WorkerProcesses`."""
        self._config = config.advertised()
        self._count = count
        self.processes = WorkerProcesses(count, str, config.broker.shutdown_timeout_ms, command)

    @property
    def shutdown_timeout_ms(self) -> int:
        return self._config.broker.shutdown_timeout_ms + STOPS_LATER_MS

    @property
    def addresses(self) -> Sequence[Address]:
        found = [Address(f"worker {worker.number}", worker.reached_at) for worker in self.processes.workers]
        return [*found, Address("metadata", self._config.metadata.url)]

    async def start(self) -> None:
        """Start all workers; returns when all are ready.

        Raises ConfigError or CannotStart with every problem found, and CannotStart when a worker ends.
        """
        problems = problems_of(self._config, self._count)
        if problems:
            raise ConfigError(listed("invalid configuration", problems))
        problems = ports_in_use(self._config, self._count)
        if problems:
            raise CannotStart(listed("magnetar cannot start", problems))
        await self.processes.start()

    async def close(self) -> None:
        """Stop all workers gracefully and wait; kill those that exceed the timeout. Idempotent."""
        await self.processes.close()
