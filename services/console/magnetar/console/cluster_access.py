"""Addresses of the cluster that a console shows."""

from __future__ import annotations

from dataclasses import dataclass, field

from magnetar.common.security.tls.client_context import ClientFiles


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterAccess:
    """Addresses of a cluster, and the authorities that are trusted there."""

    admin_url: str
    """URL of the admin API: a broker's or discovery's HTTP port."""
    service_url: str
    """Service URL for clients, pulsar:// or pulsar+ssl://."""
    tls: ClientFiles = field(default_factory=ClientFiles)
    prometheus_url: str = ""
    """URL of a Prometheus with Magnetar's alerts; empty: alerts are not shown."""
