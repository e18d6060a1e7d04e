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
    """One ledger as far as this log goes. Everything in it is about durable records, but for `fenced` and
    `last_taken`."""

    ref: LedgerRef
    last_entry_id: int = -1
    """Highest durable entry."""
    last_taken: int = -1
    """Highest entry of a record that the log took, durable or not (`append_record` only)."""
    lac: int = -1
    """Highest last add confirmed that a durable record carries, or that was told since without one."""
    byte_length: int = 0
    """Bytes of its durable entries."""
    row_first: int = 0
    row_end: int = 0
    """Entries `row_first` to before `row_end` are here without a hole: the last row that was seen to come
    since the log was opened."""
    fenced: bool = False
    """Appends are refused; true from the moment of asking for it, before the mark is durable."""
    fence_durable: bool = False
    doubt: int = 0
    """Its last limbo mark, packed (`file_codec_v1.pack_doubt`); 0: never had one."""
    failed: StorageError | None = None
    """A group with entries of it failed: their fate is unknown, and it takes no more."""
    uses_reserve: bool = False
    """Its appends may use half the space that is kept free: cursors, since consuming gives space back."""
    pending: int = 0
    """Records of it that wait for their group."""
    barriers: list[tuple[int, asyncio.Future[None]]] | None = None
    """(records still to be settled, who waits for them)"""
    segments: list[Segment] = field(default_factory=list)
    """Where its records are, oldest first."""
    on_durable: Callable[[int], None] | None = None
    """Called with the highest durable entry, once per group."""
    on_failed: Callable[[StorageError], None] | None = None
    """Called once."""

    @property
    def limbo(self) -> bool:
        """Missing entries here are unknown rather than absent (storage contract, section 3)."""
        return is_limbo(self.doubt)

    @property
    def torn(self) -> bool:
        """In limbo, and all that may be missing was in a last group that was torn: confirmed only if the disk
        lost what it had synced."""
        return is_limbo(self.doubt) and bool(self.doubt & LIMBO_TORN)

    def next_limbo(self, *, torn: bool) -> int:
        """The mark that puts it in limbo: a doubt about more than a torn group stays one about more."""
        torn = torn and (self.torn or not self.limbo)
        return pack_doubt((self.doubt >> 1) + 1 | 1, LIMBO_TORN if torn else 0)

    @property
    def has_copies(self) -> bool:
        """Whether some entries may be stored twice: two segments hold the same range of them."""
        lines = [segment.line(self.ref) for segment in self.segments]
        ranges = sorted((line.base, line.last_entry_id) for line in lines if line is not None and line.runs)
        return any(base <= last for (_, last), (base, _) in pairwise(ranges))

    def stored(self, first_entry_id: int, entry_count: int) -> None:
        """Note that a run has become durable."""
        end = first_entry_id + entry_count
        self.last_entry_id = max(self.last_entry_id, end - 1)
        if self.row_first <= first_entry_id <= self.row_end and self.row_end:
            self.row_end = max(self.row_end, end)
        elif first_entry_id > self.row_end or not self.row_end:
            self.row_first, self.row_end = first_entry_id, end

    def stored_in(self, segment: Segment) -> None:
        """Note that a segment holds a record of it."""
        if not self.segments or self.segments[-1] is not segment:
            self.segments.append(segment)

    async def settled(self) -> None:
        """Wait until every record taken so far is durable or failed."""
        if not self.pending:
            return
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if self.barriers is None:
            self.barriers = []
        self.barriers.append((self.pending, waiter))
        await waiter

    def settle(self) -> None:
        """One record became durable or failed; a ledger's records settle in order."""
        self.pending -= 1
        if self.barriers is not None:
            waiting = [(left - 1, waiter) for left, waiter in self.barriers]
            self.barriers = [each for each in waiting if each[0]] or None
            for left, waiter in waiting:
                if not left and not waiter.done():
                    waiter.set_result(None)
