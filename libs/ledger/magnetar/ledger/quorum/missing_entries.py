"""Missing replicas of confirmed entries of a ledger without a writer.

The old writer would have sent again what a bookie refused, and recorded what a bookie lacked; only the
bookies know now. One that refused entry 5 and took 6 to 9 does not lag by its last entry: each is asked which
entries it has. One that does not say counts as lacking all that it should have; auto-recovery compares that
when it is back.

A bookie that saw the entries come one after the other says so when it is fenced, and is asked only about what
was there when it started: a takeover without trouble costs nothing here.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from magnetar.common.obs.logs import get_logger
from magnetar.ledger.bookie_protocol.bookie_client import BookieClient, BookieClients, BookieUnreachable
from magnetar.ledger.bookie_protocol.bookie_pb2 import NO_SUCH_ENTRY, OK, Code, LedgerState
from magnetar.ledger.ledger_store import LedgerRef
from magnetar.ledger.quorum.entry_rewrite import Gap
from magnetar.ledger.quorum.striping import Fragment, LedgerLayout, Striping

log = get_logger(__name__)

GAPS_OF_ONE_MAX: Final = 100
"""Holes of a bookie above which one gap is recorded for a fragment, from the first to the last."""

Range = tuple[int, int]


@dataclass(frozen=True, slots=True)
class MissingEntries:
    """Gaps found by one recovery: queried after it re-wrote the tail, about the confirmed entries before
    that.
    """

    ref: LedgerRef
    layout: LedgerLayout
    """The metadata that the old writer left."""
    clients: BookieClients
    states: Mapping[int, LedgerState]
    """Answers of fenced bookies, by their position in the last fragment."""
    patience_s: float
    """How long bookies are waited for."""

    async def gaps(self, last_confirmed: int) -> list[Gap]:
        """Entries that each bookie lacks, or may lack, up to the last confirmed one."""
        asked = [
            self._of_share(fragment, position, last)
            for fragment, last in self._fragments(last_confirmed)
            for position in range(len(fragment.bookie_ids))
        ]
        return [gap for gaps in await asyncio.gather(*asked) for gap in gaps]

    def _fragments(self, last_confirmed: int) -> list[tuple[Fragment, int]]:
        """Each with its last confirmed entry."""
        found = []
        for fragment in self.layout.fragments:
            if fragment.first_entry_id <= last_confirmed:
                last = self.layout.fragment_end(fragment.first_entry_id, last_confirmed)
                found.append((fragment, last))
        return found

    async def _of_share(self, fragment: Fragment, position: int, last: int) -> list[Gap]:
        bookie_id, striping = fragment.bookie_ids[position], self.layout.striping
        first = fragment.first_entry_id
        state = self._state_of(bookie_id)
        held: list[Range] = []
        until = last
        if state is not None and max(state.row_first_entry_id, first) <= last < state.row_end:
            until = state.row_first_entry_id - 1
            held.append((state.row_first_entry_id, last))
        if bookie_id not in self.layout.last_fragment.bookie_ids or state is not None:
            held = await self._held(self.clients.client(bookie_id), first, until) + held
        missing = _missing(striping, position, first, last, held)
        if len(missing) > GAPS_OF_ONE_MAX:
            missing = [(missing[0][0], missing[-1][1])]
        return [Gap(bookie_id, *each) for each in missing]

    def _state_of(self, bookie_id: str) -> LedgerState | None:
        """The bookie's answer to the fence; None without one."""
        bookie_ids = self.layout.last_fragment.bookie_ids
        return self.states.get(bookie_ids.index(bookie_id)) if bookie_id in bookie_ids else None

    async def _held(self, client: BookieClient, first: int, last: int) -> list[Range]:
        """Entries that a bookie reports in time."""
        held: list[Range] = []
        try:
            async with asyncio.timeout(self.patience_s):
                while first <= last:
                    answer = await client.list_entries(self.ref, first, last)
                    if answer.code not in (OK, NO_SUCH_ENTRY) or answer.until < first:
                        raise BookieUnreachable(f"{Code.Name(answer.code)} {answer.reason}".strip())
                    held += zip(answer.firsts, answer.lasts, strict=True)
                    first = answer.until + 1
        except (BookieUnreachable, TimeoutError) as error:
            log.warning(
                "a bookie did not say which entries of a recovered ledger it has",
                ledger=self.ref.id,
                bookie=client.bookie_id,
                first=first,
                last=last,
                reason=str(error) or f"no answer within {self.patience_s:g} s",
            )
        return held


def _missing(striping: Striping, position: int, first: int, last: int, held: Sequence[Range]) -> list[Range]:
    """Missing entries of a position. In a striped ledger it includes the entries of others in between, so
    that a bookie which lacks everything has one gap and not one for each stripe.
    """
    missing: list[Range] = []
    at = first
    for start, end in [*held, (last + 1, last + 1)]:
        if start > at:
            shares = list(striping.shares(position, at, start - 1))
            if shares:
                missing.append((shares[0][0], shares[-1][1]))
        at = max(at, end + 1)
    return missing
