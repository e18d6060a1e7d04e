"""Costs of the parts of the control plane: seconds of one core, and of etcd."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Costs:
    """Seconds. `bench.scale.measure` measures them on a machine; tests use the defaults."""

    choose_s: float = 50e-6
    choose_broker_s: float = 1e-6
    """The leader chooses an owner in choose_s + choose_broker_s for each broker."""
    call_s: float = 300e-6
    """One side of a call between two processes."""
    connect_s: float = 1e-3
    """One side of a new connection, with its Hello."""
    event_s: float = 200e-6
    """One change of an owner in a transaction of its own, received and applied by a mirror."""
    joined_event_s: float = 20e-6
    """One of many changes of a transaction, received and applied by a mirror."""
    key_s: float = 20e-6
    """One key of a listing, received and applied by a mirror."""
    etcd_write_s: float = 100e-6
    etcd_read_s: float = 50e-6
    etcd_key_s: float = 2e-6
    """One key of a listing, beside the request."""
    etcd_event_s: float = 20e-6
    """One change in a transaction of its own, sent to one watch."""
    etcd_joined_event_s: float = 2e-6
    """One of many changes of a transaction, sent to one watch."""
    etcd_cores: int = 12
    """Cores that send changes: three members with four cores each, among which the watches are spread."""

    def choice_s(self, brokers: int) -> float:
        """Returns the leader's time for one choice."""
        return self.choose_s + self.choose_broker_s * brokers
