"""The address of a ledger for a task: small values that pickle."""

from __future__ import annotations

from dataclasses import dataclass

from magnetar.common.offload.offload_pb2 import Ledger
from magnetar.ledger.cold.aborted_entries import AbortedEntries, decode_aborted


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
    aborted: bytes | None = None
    """Entries of aborted transactions, as in `Ledger.aborted`; None: not known, and none may be read."""

    def aborted_entries(self) -> AbortedEntries | None:
        """Returns the ids of the entries of aborted transactions, for `cold.rows`; None if not known."""
        if self.aborted is None:
            return None
        return decode_aborted(self.aborted)


def hot_source(service: ServiceAddress, topic: str, ledger: Ledger) -> LedgerSource:
    """Returns the address of a described ledger outside objects."""
    on_bookies = ledger.closed_ms != 0 and ledger.HasField("bookies")
    bookies = ledger.bookies.SerializeToString() if on_bookies else b""
    aborted = ledger.aborted if ledger.transactions_told else None
    return LedgerSource(service, topic, ledger.ledger_id, ledger.ledger_key, bookies, aborted)
