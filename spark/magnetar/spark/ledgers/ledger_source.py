"""The address of a ledger for a task: small values that pickle."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ServiceAddress:
    """Address and TLS files with which tasks reach brokers and bookies."""

    address: str
    """host:port of a broker's offload service, or grpcs://host:port where it has mutual TLS."""
    trust_certs: str = ""
    """Authority of services (PEM file where the task runs); empty: no TLS to bookies."""
    certificate: str = ""
    key: str = ""
    server_name: str = ""
    """Name in certificates of services, where it is not the host of their address."""


@dataclass(frozen=True, slots=True)
class LedgerSource:
    """Address of a ledger's entries."""

    service: ServiceAddress
    topic: str
    ledger_id: int
    ledger_key: int
    bookies: bytes = b""
    """A `Bookies` of magnetar.offload.v1; empty: brokers read the entries out."""
