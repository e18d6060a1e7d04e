"""Instructions of a standalone's parent process to each worker."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from magnetar.broker.listener_config import ListenerConfig


@dataclass(frozen=True, slots=True)
class WorkerPlan:
    """One worker and its place among all."""

    number: int
    """Number of this worker, from 0."""
    count: int
    sockets: str
    """Directory of the unix sockets."""
    shared: Mapping[str, int]
    """Ports of all workers, by their keys."""
    own: Mapping[str, int]
    """Ports of this worker, with which lookups answer."""

    def text(self) -> str:
        """Return the plan as one argument of a command."""
        return json.dumps(asdict(self))

    @property
    def metadata_socket(self) -> Path:
        return metadata_socket(self.sockets)

    def log_socket(self, name: str) -> Path:
        """Return the socket at which a log is served."""
        return Path(self.sockets) / f"{name}.sock"

    def shared_ports(self, listener: ListenerConfig) -> ListenerConfig:
        """Return the configuration with the ports of all workers."""
        return _with_ports(listener, self.shared)

    def own_ports(self, listener: ListenerConfig) -> ListenerConfig:
        """Return the configuration with the ports of this worker."""
        return _with_ports(listener, self.own)


def plan_of(text: str) -> WorkerPlan:
    """Return the plan in an argument. Raises ValueError, TypeError."""
    return WorkerPlan(**json.loads(text))


def metadata_socket(sockets: str) -> Path:
    """Return the socket at which the parent process serves the metadata."""
    return Path(sockets) / "metadata.sock"


def _with_ports(listener: ListenerConfig, ports: Mapping[str, int]) -> ListenerConfig:
    return replace(
        listener,
        broker_service_port=ports.get("brokerServicePort"),
        broker_service_port_tls=ports.get("brokerServicePortTls"),
        web_service_port=ports.get("webServicePort"),
        web_service_port_tls=ports.get("webServicePortTls"),
    )
