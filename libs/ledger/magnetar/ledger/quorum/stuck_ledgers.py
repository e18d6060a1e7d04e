"""Examination of ledgers whose end cannot be decided: certain entries, existing entries, uncertain bookies.

Queries bookies without fencing or changing anything. The result shows what a recovery would find: the
readable entries after the last add confirmed and, for the first missing one, which bookies are certain,
uncertain or unavailable. An operator with more knowledge (a disk is permanently lost) can end the ledger at
any of these entries (`LedgerRecovery.recover` with `decided_end`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from magnetar.common.metadata.values import LedgerMetadata
from magnetar.ledger.bookie_protocol.bookie_client import BookieClient, BookieClients, BookieUnreachable
from magnetar.ledger.bookie_protocol.bookie_pb2 import NO_SUCH_ENTRY, OK, LedgerState
from magnetar.ledger.ledger_store import LedgerRef
from magnetar.ledger.quorum.forward_read import LAST_ENTRY_ID
from magnetar.ledger.quorum.striping import LedgerLayout

ABSENT = "certain that it never had it"
TORN = "in doubt: it may have been in a group that was torn"
UNKNOWN = "in doubt: it may have had it"
AWAY = "does not answer"


@dataclass(frozen=True, slots=True)
class Examined:
    """The state of a ledger that is not closed, as reported by its bookies."""

    ref: LedgerRef
    last_confirmed: int
    """The last entry known to be confirmed: the ledger cannot end before it."""
    last_found: int
    """The last entry that some bookie can return."""
    said: dict[str, str]
    """Each write set bookie's answer about the entry after the last one found."""
    decided: bool
    """Whether a recovery can decide by itself that the ledger ends at the last entry found."""

    @property
    def in_doubt(self) -> list[str]:
        """Returns the bookies that may have held more entries."""
        return [bookie_id for bookie_id, what in self.said.items() if what != ABSENT]


async def examine(value: LedgerMetadata, clients: BookieClients) -> Examined:
    """Queries the bookies of a ledger's last fragment."""
    ref = LedgerRef(value.ref.id, value.ref.key)
    layout = LedgerLayout.of(value)
    fragment, striping = layout.last_fragment, layout.striping
    bookies = [clients.client(bookie_id) for bookie_id in fragment.bookie_ids]
    states = await asyncio.gather(*(_state(bookie, ref) for bookie in bookies))
    lac = max((state.lac for state in states if state is not None), default=-1)
    last_confirmed = max(fragment.first_entry_id - 1, lac)
    first = last_confirmed + 1
    held = [
        range_
        for ranges in await asyncio.gather(*(_held(b, ref, first) for b in bookies))
        for range_ in ranges
    ]
    last_found = last_confirmed
    for start, end in sorted(held):
        if start > last_found + 1:
            break
        last_found = max(last_found, end)
    positions = striping.write_set(last_found + 1)
    said = {bookies[position].bookie_id: _verdict(states[position]) for position in positions}
    verdicts = list(said.values())
    fenced = {position for position, state in enumerate(states) if state is not None}
    decided = striping.leaves_no_ack_quorum(fenced) and striping.is_absent(
        verdicts.count(ABSENT), verdicts.count(TORN)
    )
    return Examined(ref, last_confirmed, last_found, said, decided)


async def _state(bookie: BookieClient, ref: LedgerRef) -> LedgerState | None:
    try:
        state = await bookie.read_lac(ref)
    except BookieUnreachable:
        return None
    return state if state.code in (OK, NO_SUCH_ENTRY) else None


async def _held(bookie: BookieClient, ref: LedgerRef, first: int) -> Sequence[tuple[int, int]]:
    try:
        answer = await bookie.list_entries(ref, first, LAST_ENTRY_ID)
    except BookieUnreachable:
        return ()
    return list(zip(answer.firsts, answer.lasts, strict=True))


def _verdict(state: LedgerState | None) -> str:
    if state is None:
        return AWAY
    if not state.limbo:
        return ABSENT
    return TORN if state.torn else UNKNOWN
