"""The log's state of each ledger in memory."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import pairwise

from magnetar.common.errors import StorageError
from magnetar.ledger.ledger_store import LedgerRef
from magnetar.ledger.segment_log.codec_v1 import LIMBO_TORN
from magnetar.ledger.segment_log.file_codec_v1 import is_limbo, pack_doubt
from magnetar.ledger.segment_log.segment import Segment


@dataclass(slots=True, eq=False)
class LogLedger:
    """One ledger in this log. All fields concern durable records, except `fenced` and `last_taken`."""

    ref: LedgerRef
    last_entry_id: int = -1
    """Highest durable entry."""
    last_taken: int = -1
    """Highest entry of an accepted record, durable or not (`append_record` only)."""
    lac: int = -1
    """Highest last add confirmed in a durable record, or received since without one."""
    byte_length: int = 0
    """Bytes of its durable entries."""
    row_first: int = 0
    row_end: int = 0
    """Entries from `row_first` to before `row_end` are stored without a gap: the last sequence received since
    the log was opened.
    """
    fenced: bool = False
    """Whether appends are refused; true from the fence request on, before the mark is durable."""
    fence_durable: bool = False
    doubt: int = 0
    """Its last limbo mark, packed (`file_codec_v1.pack_doubt`); 0 without one."""
    failed: StorageError | None = None
    """Whether a group with its entries failed: their outcome is unknown, and it accepts no more."""
    uses_reserve: bool = False
    """Whether its appends may use half the reserve: cursors, since consuming frees space."""
    pending: int = 0
    """Number of its records that wait for their group."""
    barriers: list[tuple[int, asyncio.Future[None]]] | None = None
    """(number of records still to be settled, waiter)."""
    segments: list[Segment] = field(default_factory=list)
    """Segments with its records, oldest first."""
    on_durable: Callable[[int], None] | None = None
    """Called with the highest durable entry, once per group."""
    on_failed: Callable[[StorageError], None] | None = None
    """Called once."""

    @property
    def limbo(self) -> bool:
        """Whether missing entries here are unknown rather than absent (storage contract, section 3)."""
        return is_limbo(self.doubt)

    @property
    def torn(self) -> bool:
        """Whether it is in limbo and only a torn last group may have lost data: confirmed only if the disk
        lost synced data.
        """
        return is_limbo(self.doubt) and bool(self.doubt & LIMBO_TORN)

    def next_limbo(self, *, torn: bool) -> int:
        """Returns the mark that puts it in limbo; limbo beyond a torn group stays that."""
        torn = torn and (self.torn or not self.limbo)
        return pack_doubt((self.doubt >> 1) + 1 | 1, LIMBO_TORN if torn else 0)

    @property
    def has_copies(self) -> bool:
        """Returns whether some entries may be stored twice: two segments hold the same range of them."""
        lines = [segment.line(self.ref) for segment in self.segments]
        ranges = sorted((line.base, line.last_entry_id) for line in lines if line is not None and line.runs)
        return any(base <= last for (_, last), (base, _) in pairwise(ranges))

    def stored(self, first_entry_id: int, entry_count: int) -> None:
        """Records that a run has become durable."""
        end = first_entry_id + entry_count
        self.last_entry_id = max(self.last_entry_id, end - 1)
        if self.row_first <= first_entry_id <= self.row_end and self.row_end:
            self.row_end = max(self.row_end, end)
        elif first_entry_id > self.row_end or not self.row_end:
            self.row_first, self.row_end = first_entry_id, end

    def stored_in(self, segment: Segment) -> None:
        """Records that a segment holds a record of it."""
        if not self.segments or self.segments[-1] is not segment:
            self.segments.append(segment)

    async def settled(self) -> None:
        """Waits until every record accepted so far is durable or failed."""
        if not self.pending:
            return
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if self.barriers is None:
            self.barriers = []
        self.barriers.append((self.pending, waiter))
        await waiter

    def settle(self) -> None:
        """Records that one record became durable or failed; a ledger's records settle in order."""
        self.pending -= 1
        if self.barriers is not None:
            waiting = [(left - 1, waiter) for left, waiter in self.barriers]
            self.barriers = [each for each in waiting if each[0]] or None
            for left, waiter in waiting:
                if not left and not waiter.done():
                    waiter.set_result(None)
