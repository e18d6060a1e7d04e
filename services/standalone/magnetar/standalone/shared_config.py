"""Configuration of a standalone with several workers: its settings, and those of sharing bundles."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Final

from magnetar.broker.load.config import LoadConfig
from magnetar.common.config.settings import setting
from magnetar.standalone.config import StandaloneConfig

PORT_MAX: Final = 65_535


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkersConfig:
    """Settings of the workers."""

    first_port: int = setting(
        0,
        "First of the ports that each worker of `standalone --workers` has for itself, with which lookups "
        "answer: one for each of brokerServicePort, brokerServicePortTls, webServicePort and "
        "webServicePortTls that is set, in this order, worker after worker. 0 picks free ones.",
        key="magnetarWorkerPort",
        minimum=0,
        maximum=PORT_MAX,
    )
    session_timeout_ms: int = setting(
        10_000,
        "Milliseconds for which the bundles of a worker that died wait for its restart.",
        key="metadataStoreSessionTimeoutMillis",
        minimum=1_000,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedStandaloneConfig:
    """A standalone whose bundles are shared by several workers."""

    standalone: StandaloneConfig = field(default_factory=StandaloneConfig)
    load: LoadConfig = field(default_factory=LoadConfig)
    workers: WorkersConfig = field(default_factory=WorkersConfig)

    def problems(self, count: int) -> list[str]:
        """All problems between values that are each valid, for so many workers."""
        found = self.standalone.problems()
        listener = self.standalone.broker.listener
        if listener.advertised_listeners:
            found.append(
                "advertisedListeners cannot be used with --workers: every worker is reached at ports of its "
                "own; use advertisedAddress and magnetarWorkerPort"
            )
        first = self.workers.first_port
        last = first + count * len(listener.ports) - 1
        if first and last > PORT_MAX:
            found.append(f"magnetarWorkerPort={first}: {count} workers need the ports up to {last}")
        given = {**listener.ports, "magnetarControlPort": self.standalone.jobs.port}
        found += [
            f"{key}={port} is one of the workers' own ports, {first} to {last} (magnetarWorkerPort)"
            for key, port in given.items()
            if first and first <= port <= last
        ]
        return found

    def warnings(self) -> list[str]:
        """Return warnings about valid settings that may be unintended."""
        return self.standalone.warnings()

    def advertised(self) -> SharedStandaloneConfig:
        """Return the configuration with the advertised host filled in."""
        return replace(self, standalone=self.standalone.advertised())
