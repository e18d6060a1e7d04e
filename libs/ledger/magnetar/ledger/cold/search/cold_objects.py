"""Where the objects of an offloaded ledger are, as brokers tell it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ColdObjects:
    """A ledger's objects."""

    ledger_id: int
    location: str
    path: str
    """The attempt's directory below the location."""
    manifest_sha256: bytes
