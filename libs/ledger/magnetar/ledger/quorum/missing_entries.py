"""Finds missing replicas of confirmed entries of a ledger without a writer.

The old writer would have resent refused entries and recorded missing ones; now only the bookies know. A
bookie that refused entry 5 and accepted 6 to 9 has a gap that its last entry does not show, so each is
queried for its entries. One that does not answer counts as lacking its whole share; auto-recovery compares
that when it is back.

A bookie that received consecutive entries reports that when it is fenced, and is queried only about entries
from before its start: a takeover without failures costs nothing here.
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
"""Number of gaps of a bookie in a fragment above which they are recorded as one, from the first to the last.
"""

Range = tuple[int, int]


@dataclass(frozen=True, slots=True)
class MissingEntries:
    """Finds the gaps for one recovery, after its re-write of the tail, in the confirmed entries before it."""

    ref: LedgerRef
    layout: LedgerLayout
    """The layout left by the old writer."""
    clients: BookieClients
    states: Mapping[int, LedgerState]
    """Answers of fenced bookies, by their position in the last fragment."""
    patience_s: float
    """Time in seconds to wait for bookies."""

    async def gaps(self, last_confirmed: int) -> list[Gap]:
        """Returns the entries that each bookie lacks, or may lack, up to the last confirmed one."""
        asked = [
            self._of_share(fragment, position, last)
            for fragment, last in self._fragments(last_confirmed)
            for position in range(len(fragment.bookie_ids))
        ]
        return [gap for gaps in await asyncio.gather(*asked) for gap in gaps]

    def _fragments(self, last_confirmed: int) -> list[tuple[Fragment, int]]:
        """Yields the fragments, each with its last confirmed entry."""
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
        """Returns the bookie's answer to the fence; None without one."""
        bookie_ids = self.layout.last_fragment.bookie_ids
        return self.states.get(bookie_ids.index(bookie_id)) if bookie_id in bookie_ids else None

    async def _held(self, client: BookieClient, first: int, last: int) -> list[Range]:
        """Returns the entries that a bookie reports in time."""
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
    """Returns the missing entries of a position. In a striped ledger this includes entries of other positions
    in between, so that a bookie lacking everything has one gap rather than one per stripe.
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
