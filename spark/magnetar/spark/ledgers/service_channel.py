"""Channels to brokers, and TLS files, from the address that a task was given."""

from __future__ import annotations

from pathlib import Path

from magnetar.common.offload.offload_client import OffloadChannel
from magnetar.common.security.services.credentials import CredentialFiles
from magnetar.spark.ledgers.ledger_source import ServiceAddress


def open_channel(service: ServiceAddress, *, deadline_s: float | None = None) -> OffloadChannel:
    """Return a channel to a broker, which the caller closes. Raises ValueError, ConfigError."""
    return OffloadChannel(service.address, credential_files(service), deadline_s=deadline_s)


def credential_files(service: ServiceAddress) -> CredentialFiles | None:
    """Return the files for TLS to bookies, and to brokers at grpcs://; None without an authority."""
    if not service.trust_certs:
        return None
    return CredentialFiles(
        trust_certs=Path(service.trust_certs),
        certificate=Path(service.certificate) if service.certificate else None,
        key=Path(service.key) if service.key else None,
        server_name=service.server_name,
    )
