"""What became of ledgers, for whoever watches."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Protocol

from magnetar.common.offload.offload_pb2 import CompleteRequest, Ledger


class Result(Enum):
    """What became of a ledger."""

    OFFLOADED = "offloaded"
    TAKEN = "taken"
    """Another job has it, or nobody wants it any more."""
    FAILED = "failed"
    UNSETTLED = "unsettled"
    """Written and verified, or begun, and nobody answers: it is settled later."""


@dataclass(frozen=True, slots=True)
class Attempt:
    """One try at a ledger."""

    topic: str
    creation_id: int
    ledger_id: int
    attempt: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What became of a ledger, and its figures. Sizes in bytes."""

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
    """Of an unsettled one that is whole: what is still to be said."""
    given_up: Attempt | None = None
    """Of an unsettled one that is not: likewise."""


class Watcher(Protocol):
    """Hears how it goes, from several threads."""

    def began(self, ledger: Ledger, parts: int) -> None: ...

    def advanced(self, ledger: Ledger, phase: str, done: int, total: int) -> None: ...

    def ended(self, outcome: Outcome) -> None: ...
