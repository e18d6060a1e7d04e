"""The ledger interface: what a managed ledger needs of storage, local or replicated.

`local_store` (the segment log in this process; Qw = Qa = 1) and, in a cluster, the quorum client (bookies
over gRPC) implement it and pass the same contract tests. Appending never awaits: `LedgerWriter.append` is a
plain call, and durability comes back as one advancing watermark per ledger.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol

from magnetar.common.errors import StorageError
from magnetar.common.metadata.store import Op

RUN_CHUNK: Final = 1
"""Run flag: its entries are chunks of larger messages (Send.is_chunk)."""

RUN_MARKER: Final = 2
"""Run flag: its entries are markers, skipped in dispatch and in counts of messages."""


@dataclass(frozen=True, slots=True)
class LedgerRef:
    """A ledger's name: its id and a random 64-bit key that is sent with every operation.

    The key guards against ids that are used again after metadata was restored from a backup.
    """

    id: int
    key: int


@dataclass(slots=True, eq=False)
class Run:
    """One or more consecutive entries of one ledger: the unit of work from the socket to the disk and back.

    `entries` are the clients' bytes as they came (magic, checksum, metadata, payload), one immutable `bytes`
    each, shared by everyone who handles the run; nobody changes the list after `append`. The rest is the
    envelope, kept once per run:

    - `publish_time_ms`: when the broker took it, ms since 1970 UTC;
    - `first_index`: the topic-wide index of its first message;
    - `message_counts`: messages by entry, None when every entry is one message;
    - `flags`: RUN_CHUNK, RUN_MARKER.

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

    def __post_init__(self) -> None:
        if self.byte_length < 0:
            self.byte_length = sum(map(len, self.entries))

    @property
    def last_entry_id(self) -> int:
        return self.first_entry_id + len(self.entries) - 1

    @property
    def messages(self) -> int:
        """How many messages the run holds."""
        return len(self.entries) if self.message_counts is None else sum(self.message_counts)

    def slice(self, first_entry_id: int, last_entry_id: int) -> Run:
        """The part from one entry to another, both inclusive, within the run; shares the entries' bytes."""
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
        )


@dataclass(frozen=True, slots=True)
class ClosedLedger:
    """A ledger that takes no more entries: where it ends. `last_entry_id` is -1 when it is empty."""

    ref: LedgerRef
    last_entry_id: int
    byte_length: int


class LedgerWriter(Protocol):
    """The only writer of one ledger."""

    @property
    def ref(self) -> LedgerRef: ...

    @property
    def last_confirmed(self) -> int:
        """The last add confirmed (LAC): every entry up to it is durable; -1 when none is."""
        ...

    def append(self, run: Run) -> int:
        """Take a run; returns the entry id of its first entry and sets `run.ledger_id`, `run.first_entry_id`.

        A plain call: never waits, never calls back from inside. The run belongs to the ledger from here on.
        Raises LedgerFenced, LedgerClosed, LogFull, LogFailed or Backpressure at once; then no id was given.
        """
        ...

    async def close(self, with_ops: Callable[[ClosedLedger], Sequence[Op]] | None = None) -> ClosedLedger:
        """Wait for confirmation of all appends, then close by compare-and-set.

        `with_ops` gives metadata operations to commit in the same transaction. After a failure of the ledger
        it closes at `last_confirmed`. Raises LedgerFenced when the ledger is no longer open in metadata, and
        VersionMismatch when a guard among `with_ops` fails (the ledger then stays as it was).
        """
        ...


@dataclass(slots=True)
class LedgerListener:
    """Callbacks of a writer to its owner, on the event loop, never from inside `append`."""

    on_confirmed: Callable[[int], None]
    """The watermark advanced to this last add confirmed."""

    on_failed: Callable[[StorageError, int], None]
    """Once: (error, last confirmed). Entries above are unknown until the ledger is closed there."""


class LedgerReader(Protocol):
    """Reads one ledger. Safe to use beside its writer, and from many tasks at once."""

    @property
    def ref(self) -> LedgerRef: ...

    @property
    def last_confirmed(self) -> int:
        """The last entry that may be read: follows the writer while the ledger is open."""
        ...

    @property
    def copies(self) -> int:
        """How many copies of each entry there are to be."""
        ...

    async def read(self, first: int, last: int, max_bytes: int) -> list[Run]:
        """Entries `first` to `last` inclusive, in order, as runs that begin and end within the range.

        Fewer only for `max_bytes` (of entry bytes), but at least one entry. Raises NoSuchEntry beyond
        `last_confirmed`, EntryUnreadable or EntryUnknown when that is the fate of entry `first`; a damaged
        entry further on ends the answer before it.
        """
        ...


@dataclass(frozen=True, slots=True)
class Obstacle:
    """A condition that prevents a store from writing."""

    reason: str
    seen_to_end: bool
    """The next look sees that it is over; otherwise only another write can show that."""


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
        """A new ledger, its id above every id given before.

        Its metadata and the operations that `with_ops` gives for it are committed in one transaction: raises
        VersionMismatch, and no ledger exists, when one of their guards fails.
        """
        ...

    async def open(self, ref: LedgerRef) -> LedgerReader:
        """Read a ledger as it is; never used to decide what exists. Raises NoSuchLedger."""
        ...

    async def recover(
        self, ref: LedgerRef, with_ops: Callable[[ClosedLedger], Sequence[Op]] | None = None
    ) -> tuple[LedgerReader, ClosedLedger]:
        """Fence the ledger, find its end, close it by compare-and-set together with `with_ops`; then read it.

        Idempotent: on a closed ledger only `with_ops` is committed. Raises NoSuchLedger, VersionMismatch.
        """
        ...

    async def delete(self, ref: LedgerRef, with_ops: Sequence[Op] = ()) -> None:
        """Remove the ledger's metadata (and commit `with_ops`); its bytes go later, by garbage collection.

        Deleting a ledger that is gone is no error.
        """
        ...

    def obstacle(self, ack_quorum: int) -> Obstacle | None:
        """Why nothing can be stored now, with this ack quorum, as far as the write path knows; None while
        something can be.

        Waits for nothing and asks no other process, so it may be called at any time.
        """
        ...
