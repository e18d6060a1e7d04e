"""Outcomes of offloading ledgers."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Protocol

from magnetar.common.offload.offload_pb2 import CompleteRequest, Ledger


class Result(Enum):
    """The outcome of a ledger."""

    OFFLOADED = "offloaded"
    TAKEN = "taken"
    """Another job has the ledger, or its offload is no longer requested."""
    HELD = "held"
    """An open transaction has entries before its end; it is offloaded once that has ended."""
    FAILED = "failed"
    UNSETTLED = "unsettled"
    """Begun or complete, but no broker answers; settled later."""


@dataclass(frozen=True, slots=True)
class Attempt:
    """One offload attempt at a ledger."""

    topic: str
    creation_id: int
    ledger_id: int
    attempt: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """Outcome and figures of a ledger. Sizes in bytes."""

    topic: str
    ledger_id: int
    result: Result
    reason: str = ""
    entries: int = 0
    entry_bytes: int = 0
    rows: int = 0
    raw_entries: int = 0
    raw_reasons: tuple[tuple[str, int], ...] = ()
    object_bytes: int = 0
    seconds: float = 0.0
    complete: CompleteRequest | None = None
    """The pending Complete of an unsettled attempt whose objects are whole."""
    given_up: Attempt | None = None
    """The pending Fail of an unsettled attempt."""


class Watcher(Protocol):
    """Receives progress, from several threads."""

    def began(self, ledger: Ledger, parts: int) -> None: ...

    def advanced(self, ledger: Ledger, phase: str, done: int, total: int) -> None: ...

    def ended(self, outcome: Outcome) -> None: ...
