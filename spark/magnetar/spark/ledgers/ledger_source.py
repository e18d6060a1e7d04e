"""The address of a ledger for a task: small values that pickle."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ServiceAddress:
    """Address and TLS files with which tasks reach brokers and bookies."""

    address: str
    """host:port of a broker's offload service."""
    trust_certs: str = ""
    """Trusted CA certificates for bookies (PEM file); empty: no TLS to bookies."""
    certificate: str = ""
    key: str = ""
    server_name: str = ""


@dataclass(frozen=True, slots=True)
class LedgerSource:
    """Address of a ledger's entries."""

    service: ServiceAddress
    topic: str
    ledger_id: int
    ledger_key: int
    bookies: bytes = b""
    """A `Bookies` of magnetar.offload.v1; empty: brokers read the entries out."""
