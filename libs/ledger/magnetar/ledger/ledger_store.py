"""The ledger interface between managed ledgers and storage, local or replicated.

`local_store` (the segment log in this process; Qw = Qa = 1) and, in a cluster, the quorum client (bookies
over gRPC) implement it and pass the same contract tests. Appending never awaits: `LedgerWriter.append` is a
plain call, and durability is reported as one advancing position per ledger.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol

from magnetar.common.errors import StorageError
from magnetar.common.metadata.store import Op
from magnetar.common.naming.txn_id import TxnId

RUN_CHUNK: Final = 1
"""Run flag: its entries are chunks of larger messages (Send.is_chunk)."""

RUN_MARKER: Final = 2
"""Run flag: its entries are markers, skipped in dispatch and in counts of messages."""

RUN_TXN: Final = 4
"""Run flag: its entries belong to one transaction, whose id is in the run's envelope."""


@dataclass(frozen=True, slots=True)
class LedgerRef:
    """A ledger's id and a random 64-bit key that is sent with every operation.

    The key protects against ids reused after metadata was restored from a backup.
    """

    id: int
    key: int


@dataclass(slots=True, eq=False)
class Run:
    """One or more consecutive entries of one ledger: the unit of work from the socket to the disk and back.

    `entries` are the clients' bytes as they came (magic, checksum, metadata, payload), one immutable `bytes`
    each, shared by all components that handle the run; the list is immutable after `append`. The rest is the
    envelope, kept once per run:

    - `publish_time_ms`: when the broker took it, ms since 1970 UTC;
    - `first_index`: the topic-wide index of its first message;
    - `message_counts`: messages by entry, None when every entry is one message;
    - `flags`: RUN_CHUNK, RUN_MARKER, RUN_TXN;
    - `txn`: the transaction of all its entries, exactly when RUN_TXN is set.

    `ledger_id` and `first_entry_id` are set by `LedgerWriter.append` or by the reader; -1 before.
    """

    entries: list[bytes]
    publish_time_ms: int = 0
    first_index: int = 0
    message_counts: Sequence[int] | None = None
    flags: int = 0
    ledger_id: int = -1
    first_entry_id: int = -1
    byte_length: int = field(default=-1)
    txn: TxnId | None = None

    def __post_init__(self) -> None:
        if self.byte_length < 0:
            self.byte_length = sum(map(len, self.entries))

    @property
    def last_entry_id(self) -> int:
        return self.first_entry_id + len(self.entries) - 1

    @property
    def messages(self) -> int:
        """Number of messages in the run."""
        return len(self.entries) if self.message_counts is None else sum(self.message_counts)

    def slice(self, first_entry_id: int, last_entry_id: int) -> Run:
        """Returns the part between two entries, both inclusive, within the run; shares the entries' bytes."""
        start, stop = first_entry_id - self.first_entry_id, last_entry_id - self.first_entry_id + 1
        assert 0 <= start < stop <= len(self.entries), "slice within the run"
        if stop - start == len(self.entries):
            return self
        counts = self.message_counts
        return Run(
            entries=self.entries[start:stop],
            publish_time_ms=self.publish_time_ms,
            first_index=self.first_index + (start if counts is None else sum(counts[:start])),
            message_counts=None if counts is None else counts[start:stop],
            flags=self.flags,
            ledger_id=self.ledger_id,
            first_entry_id=first_entry_id,
            txn=self.txn,
        )


@dataclass(frozen=True, slots=True)
class ClosedLedger:
    """A closed ledger's end. `last_entry_id` is -1 if it is empty."""

    ref: LedgerRef
    last_entry_id: int
    byte_length: int


@dataclass(frozen=True, slots=True)
class WriteReport:
    """How a confirmation came about. Times are monotonic seconds."""

    sent_s: float
    """When the oldest run that it confirms was passed to the disk, or to the bookies."""
    durable_s: float
    """When the confirmation was known."""
    acked_by: tuple[str, ...] = ()
    """Bookies that had acknowledged that run; empty for a local ledger."""
    awaited: tuple[str, ...] = ()
    """Bookies whose acknowledgement was still awaited."""
    joined: tuple[str, ...] = ()
    """Bookies that took the place of failed ones while that run was written."""


class LedgerWriter(Protocol):
    """The single writer of one ledger."""

    @property
    def ref(self) -> LedgerRef: ...

    @property
    def last_confirmed(self) -> int:
        """The last add confirmed (LAC): every entry up to it is durable; -1 when none is."""
        ...

    def append(self, run: Run) -> int:
        """Appends a run; returns the entry id of its first entry and sets `run.ledger_id`,
        `run.first_entry_id`.

        A plain call: never waits, never calls back from inside. The ledger owns the run from here on. Raises
        LedgerFenced, LedgerClosed, LogFull, LogFailed or Backpressure at once; then no id was assigned.
        """
        ...

    async def close(self, with_ops: Callable[[ClosedLedger], Sequence[Op]] | None = None) -> ClosedLedger:
        """Waits for confirmation of all appends, then closes by compare-and-set.

        `with_ops` returns metadata operations for the same transaction. After a failure of the ledger it
        closes at `last_confirmed`. Raises LedgerFenced if the ledger is no longer open in metadata, and
        VersionMismatch if a guard among `with_ops` fails (the ledger is then unchanged).
        """
        ...

    def write_report(self) -> WriteReport | None:
        """Returns how the confirmation came about that is being reported; only within `on_confirmed`.

        None outside of it, as for runs that are confirmed by the ledger's close.
        """
        ...


@dataclass(slots=True)
class LedgerListener:
    """Callbacks of a writer to its owner, on the event loop, never from inside `append`."""

    on_confirmed: Callable[[int], None]
    """Called with the new last add confirmed."""

    on_failed: Callable[[StorageError, int], None]
    """Called once with (error, last confirmed). Entries above are unknown until the ledger is closed there.
    """


class LedgerReader(Protocol):
    """Reads one ledger. Safe to use beside its writer, and from many tasks at once."""

    @property
    def ref(self) -> LedgerRef: ...

    @property
    def last_confirmed(self) -> int:
        """The last readable entry: follows the writer while the ledger is open."""
        ...

    @property
    def copies(self) -> int:
        """The configured number of copies of each entry."""
        ...

    async def read(self, first: int, last: int, max_bytes: int) -> list[Run]:
        """Returns entries `first` to `last` inclusive, in order, as runs that begin and end within the range.

        Fewer only for `max_bytes` (of entry bytes), but at least one entry. Raises NoSuchEntry beyond
        `last_confirmed`, EntryUnreadable or EntryUnknown for entry `first`; a later damaged entry ends the
        answer before it.
        """
        ...


@dataclass(frozen=True, slots=True)
class Obstacle:
    """A condition that prevents a store from writing."""

    reason: str
    seen_to_end: bool
    """Whether the next check detects its end; otherwise only another write can."""


class LedgerStore(Protocol):
    """Creates, opens and deletes ledgers."""

    async def create(
        self,
        listener: LedgerListener,
        *,
        ensemble_size: int,
        write_quorum: int,
        ack_quorum: int,
        properties: dict[str, str],
        with_ops: Callable[[LedgerRef], Sequence[Op]] | None = None,
    ) -> LedgerWriter:
        """Creates a ledger with an id above all earlier ones.

        Its metadata and the operations from `with_ops` are committed in one transaction: raises
        VersionMismatch, and no ledger exists, if one of their guards fails.
        """
        ...

    async def open(self, ref: LedgerRef) -> LedgerReader:
        """Opens a ledger for reading in its current state; never used to decide what exists. Raises
        NoSuchLedger.
        """
        ...

    async def recover(
        self, ref: LedgerRef, with_ops: Callable[[ClosedLedger], Sequence[Op]] | None = None
    ) -> tuple[LedgerReader, ClosedLedger]:
        """Fences the ledger, finds its end, closes it by compare-and-set together with `with_ops`; returns a
        reader.

        Idempotent: on a closed ledger only `with_ops` is committed. Raises NoSuchLedger, VersionMismatch.
        """
        ...

    async def delete(self, ref: LedgerRef, with_ops: Sequence[Op] = ()) -> None:
        """Removes the ledger's metadata (and commits `with_ops`); garbage collection frees its bytes later.

        Deleting a missing ledger is not an error.
        """
        ...

    async def disk_usage(self, copies: int) -> float | None:
        """Returns the used share (0 to 1) of the disks that new entries of so many copies would go to: of the
        fullest one, if the emptiest are chosen. None if too few disks are known.
        """
        ...

    def obstacle(self, ack_quorum: int) -> Obstacle | None:
        """Returns the reason why nothing can be stored now with this ack quorum; None while writes work as
        far as is known.

        Neither waits nor calls another process, so it may be called at any time.
        """
        ...
