"""The client interface of one bookie, between the quorum protocol and the transport.

The real transport is gRPC; libs/sim has a network that delays, drops, duplicates and reorders. Nothing is
retried here: the caller decides whether to use another bookie.
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
    """No answer from a bookie, or none in time: the outcome of the request is unknown."""

    retriable = True


class BookieElsewhere(BookieUnreachable):
    """The address now belongs to another bookie, or to another disk of the same one: the intended one is not
    there.
    """


@dataclass(frozen=True, slots=True, eq=False)
class EncodedAppend:
    """A run encoded once and sent to each bookie of its write set.

    `wire` is one `appends` field of an AppendBatch, tag and length included, so that a batch is the
    concatenation of its appends.
    """

    ref: LedgerRef
    first_entry_id: int
    entry_count: int
    wire: bytes


AppendDone = Callable[["Code.ValueType", str], None]
"""Called with (code, reason) once per append, on the loop, never from inside `append`."""


@dataclass(frozen=True, slots=True)
class ReadAnswer:
    """One bookie's part of a range: records in order, and the reason why it ends."""

    records: Sequence[Record]
    code: Code.ValueType
    """OK: the request or max_bytes was fulfilled."""
    stopped_at: int
    """Otherwise the entry that `code` applies to."""
    reason: str
    torn: bool = False
    """With ENTRY_UNKNOWN: confirmed there only if the disk lost synced data (`ReadPart.torn`)."""


class BookieClient(Protocol):
    """Calls to one bookie. Each may raise BookieUnreachable; codes concern ledgers and entries."""

    @property
    def bookie_id(self) -> str: ...

    @property
    def pending_bytes(self) -> int:
        """Bytes appended and not answered yet."""
        ...

    def append(self, append: EncodedAppend, done: AppendDone) -> None:
        """Sends an append; a plain call, batched with others of the loop turn.

        `done` gets OK once the bookie has it durably, UNREACHABLE if the outcome will never be known.
        """
        ...

    def write_lac(self, ref: LedgerRef, lac: int) -> None:
        """Sends a ledger's LAC when no append will carry it soon; a plain call, a hint without an answer."""
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
        """Returns which of the entries `first` to `last` the bookie has, up to `until` of the answer."""
        ...


class BookieClients(Protocol):
    """Connections to bookies, opened on demand and shared in the process."""

    def client(self, bookie_id: str) -> BookieClient:
        """Returns the client of a bookie. Never fails: calls to an unknown bookie raise BookieUnreachable."""
        ...

    async def close(self) -> None:
        """Ends everything pending as unreachable; idempotent."""
        ...
