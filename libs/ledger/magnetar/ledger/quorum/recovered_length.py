"""Byte length of a recovered ledger, without reading all of it.

Records do not carry the length of preceding ones. Bookies know how many bytes they hold, and the forward read
knows the tail: if bookies that should have every entry agree on the rest, that is the length. Otherwise the
ledger is read once. Used for statistics and quotas, never to decide what exists.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final

from magnetar.common.errors import StorageError
from magnetar.common.obs.logs import get_logger
from magnetar.ledger.bookie_protocol.bookie_pb2 import LedgerState
from magnetar.ledger.ledger_store import LedgerRef, Run
from magnetar.ledger.quorum.striping import LedgerLayout

log = get_logger(__name__)

READ_BYTES: Final = 1 << 20


class KnownLength:
    """The length of the ledger before `first`, where the forward read begins, plus the tail's length."""

    __slots__ = ("_claims", "_first", "_layout", "_ref", "_tail", "_tail_at")

    def __init__(
        self, ref: LedgerRef, layout: LedgerLayout, first: int, states: Mapping[int, LedgerState]
    ) -> None:
        self._ref = ref
        self._layout = layout
        self._first = first
        self._tail = 0
        self._claims: list[tuple[int, int]] = []
        if not layout.striping.striped:
            # The bookies of every fragment before anything was re-written.
            always = set(layout.fragments[0].bookie_ids).intersection(
                *(fragment.bookie_ids for fragment in layout.fragments)
            )
            bookie_ids = layout.last_fragment.bookie_ids
            self._claims = [
                (state.last_entry_id, state.byte_length)
                for position, state in states.items()
                if bookie_ids[position] in always and not state.limbo and state.last_entry_id >= first - 1
            ]
        self._tail_at = {last: 0 for last, _ in self._claims if last == first - 1}

    def add(self, runs: Sequence[Run]) -> None:
        """Adds the next entries of the tail."""
        for run in runs:
            for last, _ in self._claims:
                if run.first_entry_id <= last <= run.last_entry_id:
                    part = run.slice(run.first_entry_id, last)
                    self._tail_at[last] = self._tail + part.byte_length
            self._tail += run.byte_length

    def before(self) -> int | None:
        """Returns the bytes of the entries before the tail if enough bookies agree; otherwise None.

        Up to Qw - Qa bookies may lack a confirmed entry, so that it takes more than those, and at least Qa.
        """
        if self._first == 0:
            return 0
        claims = [
            byte_length - self._tail_at[last] for last, byte_length in self._claims if last in self._tail_at
        ]
        striping = self._layout.striping
        needed = max(striping.ack_quorum, striping.write_quorum - striping.ack_quorum + 1)
        return claims[0] if len(claims) >= needed and len(set(claims)) == 1 else None

    async def total(self, read: Callable[[int, int, int], Awaitable[list[Run]]]) -> int:
        """Returns the length of the whole ledger. `read` reads (first, last, max_bytes) of the entries before
        the tail; if that fails, the highest reported length is used and logged.
        """
        before = self.before()
        if before is None:
            try:
                before = await self._count(read)
            except StorageError as error:
                before = max((claim - self._tail_at.get(last, 0) for last, claim in self._claims), default=0)
                log.warning(
                    "the length of a recovered ledger is a guess: entries that were confirmed long ago can't "
                    "be read now",
                    ledger=self._ref.id,
                    error=str(error),
                    bytes=before + self._tail,
                )
        return before + self._tail

    async def _count(self, read: Callable[[int, int, int], Awaitable[list[Run]]]) -> int:
        total = at = 0
        while at < self._first:
            runs = await read(at, self._first - 1, READ_BYTES)
            total += sum(run.byte_length for run in runs)
            at = runs[-1].last_entry_id + 1
        return total
