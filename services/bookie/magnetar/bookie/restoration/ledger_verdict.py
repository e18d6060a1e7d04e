"""Errors of restored metadata about one ledger, from bookies' entries: no I/O.

A copy of metadata names the bookies that a ledger had then. Since then a writer may have gone on with others,
and auto-recovery may have given a lost bookie's share to another one. So what is missing where metadata looks
for it, and lies elsewhere, is to be brought home, before anything decides where the ledger ends. A ledger
that was deleted since may be gone from some of its bookies already, which are certain then that it has no
entries: they get them again, or they could end it before those that the others have still.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from magnetar.bookie.autorecovery.fragments import (
    FragmentRange,
    is_closed,
    open_fragment,
    settled_fragments,
    striping_of,
)
from magnetar.common.metadata.values import LedgerMetadata
from magnetar.ledger.bookie_protocol.bookie_pb2 import LedgerState


@dataclass(frozen=True, slots=True)
class Share:
    """Entries that the bookie at one position of a fragment should have, and may lack."""

    fragment: FragmentRange
    position: int
    others: tuple[str, ...]
    """Bookies that metadata does not name for the fragment, and that hold some of it."""
    settled: bool
    """The fragment's end is known; if not, it is taken to end with the last entry that anybody holds."""

    @property
    def bookie_id(self) -> str:
        return self.fragment.bookie_ids[self.position]


@dataclass(frozen=True, slots=True)
class Verdict:
    """The repair of a ledger."""

    shares: tuple[Share, ...]
    """To be brought home, in order."""
    missing: bool
    """Entries that metadata has, or cursors of a topic, are on no bookie that was asked: deleted since the
    copy, most likely."""


def judge(ledger: LedgerMetadata, held: Mapping[str, LedgerState], asked: Collection[str]) -> Verdict:
    """`held`: what each bookie that holds entries of the ledger said of it. `asked`: all that were asked."""
    shares: list[Share] = []
    # The head of a topic names a cursor ledger once there is a snapshot in it; one that is closed without any
    # was found empty by a broker.
    cursors = ledger.properties.get("kind") == "cursors"
    missing = cursors and is_closed(ledger) and bool(ledger.fragments) and ledger.last_entry_id < 0
    for fragment in settled_fragments(ledger):
        at_home, others = _holders(fragment.bookie_ids, held, fragment.first)
        missing |= not at_home and not others
        for position, bookie_id in enumerate(fragment.bookie_ids):
            if bookie_id not in at_home and others:
                shares.append(Share(fragment, position, others, settled=True))
    tail = open_fragment(ledger)
    if tail is not None:
        bookie_ids = tuple(tail.bookie_ids)
        at_home, others = _holders(bookie_ids, held, tail.first_entry_id)
        last = max((held[each].last_entry_id for each in (*at_home, *others)), default=-1)
        missing |= last < 0 and not shares and cursors
        # With others, those at home may have stopped anywhere before: all of it is brought to all of them.
        fragment = FragmentRange(tail.first_entry_id, last, bookie_ids)
        positions = range(len(bookie_ids)) if others else _in_the_way(ledger, fragment, at_home, asked)
        shares += [Share(fragment, position, others, settled=False) for position in positions]
    return Verdict(tuple(shares), missing)


def _in_the_way(
    ledger: LedgerMetadata, fragment: FragmentRange, at_home: Collection[str], asked: Collection[str]
) -> Sequence[int]:
    """Positions that have nothing of what they should have of an open fragment, when they are enough to say
    that it was never there, although others at home have it."""
    striping = striping_of(ledger)
    empty = [
        position
        for position, bookie_id in enumerate(fragment.bookie_ids)
        if bookie_id in asked
        and bookie_id not in at_home
        and any(striping.shares(position, fragment.first, fragment.last))
    ]
    return empty if len(empty) >= striping.absences_needed else ()


def _holders(
    bookie_ids: tuple[str, ...], held: Mapping[str, LedgerState], first: int
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Holders of entries from `first` on: (those in the ensemble, others)."""
    able = [each for each in sorted(held) if held[each].last_entry_id >= first]
    at_home = tuple(each for each in able if each in bookie_ids)
    return at_home, tuple(each for each in able if each not in bookie_ids)
