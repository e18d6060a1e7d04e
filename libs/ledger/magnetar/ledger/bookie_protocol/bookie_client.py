"""One bookie as its clients see it: the seam between the quorum protocol and whatever carries messages.

gRPC implements it for real, libs/sim with a network that delays, drops, duplicates and reorders. Nothing is
retried below this line: who calls knows whether another bookie, or nobody, should be asked.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from magnetar.common.errors import StorageError
from magnetar.ledger.bookie_protocol.bookie_pb2 import (
    Code,
    Description,
    EntryRanges,
    LedgerList,
    LedgerState,
    Record,
)
from magnetar.ledger.ledger_store import LedgerRef

PROTOCOL_VERSION: Final = 1


class BookieUnreachable(StorageError):
    """No answer from a bookie, or none in time: the fate of what was asked is unknown."""

    retriable = True


class BookieElsewhere(BookieUnreachable):
    """Another bookie, or another disk of the same one, has the address: who was asked is not there."""


@dataclass(frozen=True, slots=True, eq=False)
class EncodedAppend:
    """A run on its way to bookies: encoded once, sent to each of its write set.

    `wire` is one `appends` field of an AppendBatch, tag and length included, so that a batch is the
    concatenation of its appends.
    """

    ref: LedgerRef
    first_entry_id: int
    entry_count: int
    wire: bytes


AppendDone = Callable[["Code.ValueType", str], None]
"""Told once per append, on the loop, never from inside `append`: (code, reason)."""


@dataclass(frozen=True, slots=True)
class ReadAnswer:
    """One bookie's part of a range: records in order, and the reason of its end."""

    records: Sequence[Record]
    code: Code.ValueType
    """OK: everything asked for came, or max_bytes did."""
    stopped_at: int
    """Where the answer ends otherwise: the entry that `code` is about."""
    reason: str
    torn: bool = False
    """With ENTRY_UNKNOWN: confirmed there only if the disk lost what it had synced (`ReadPart.torn`)."""


class BookieClient(Protocol):
    """Calls to one bookie. Each may raise BookieUnreachable; codes are about ledgers and entries."""

    @property
    def bookie_id(self) -> str: ...

    @property
    def pending_bytes(self) -> int:
        """Bytes appended and not answered yet."""
        ...

    def append(self, append: EncodedAppend, done: AppendDone) -> None:
        """Send an append; a plain call, batched with others of the loop turn.

        `done` gets OK once the bookie has it durably, UNREACHABLE when that will never be known.
        """
        ...

    def write_lac(self, ref: LedgerRef, lac: int) -> None:
        """Tell a ledger's LAC when no append will carry it soon; a plain call, a hint without an answer."""
        ...

    async def read(
        self, ref: LedgerRef, first: int, last: int, max_bytes: int, *, fence: bool = False
    ) -> ReadAnswer: ...

    async def read_lac(self, ref: LedgerRef, *, above: int = -1, wait_ms: int = 0) -> LedgerState: ...

    async def fence(self, ref: LedgerRef) -> LedgerState: ...

    async def list_ledgers(
        self, *, after_ledger_id: int = -1, limit: int = 0, only_limbo: bool = False
    ) -> LedgerList: ...

    async def delete_hint(self, refs: Sequence[LedgerRef]) -> None: ...

    async def clear_limbo(self, ref: LedgerRef) -> LedgerState: ...

    async def describe(self) -> Description: ...

    async def list_entries(self, ref: LedgerRef, first: int, last: int) -> EntryRanges:
        """Which of the entries `first` to `last` the bookie has, up to `until` of the answer."""
        ...


class BookieClients(Protocol):
    """Connections to bookies, made when first needed and shared by everyone in the process."""

    def client(self, bookie_id: str) -> BookieClient:
        """Never fails: an unknown bookie is unreachable."""
        ...

    async def close(self) -> None:
        """Everything pending ends as unreachable; idempotent."""
        ...
