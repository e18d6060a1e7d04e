"""Compares a ledger's restored metadata with the entries that bookies hold; no I/O.

A backup names the ensembles of its time. Since then a writer may have changed ensembles, and auto-recovery
may have moved a lost bookie's share. So entries that are missing where metadata expects them, and stored
elsewhere, must be copied back before anything decides where the ledger ends. A ledger deleted since may be
gone from some of its bookies, which would report that it has no entries: they get them again, or a recovery
could end it before entries that the others still hold.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from magnetar.common.metadata.values import LedgerMetadata
from magnetar.ledger.bookie_protocol.bookie_pb2 import LedgerState
from magnetar.ledger.quorum.repair_plan import (
    FragmentRange,
    is_closed,
    open_fragment,
    settled_fragments,
    striping_of,
)


@dataclass(frozen=True, slots=True)
class Share:
    """The entries that the bookie at one position of a fragment should have, and may lack."""

    fragment: FragmentRange
    position: int
    others: tuple[str, ...]
    """Bookies outside the fragment's ensemble that hold some of its entries."""
    settled: bool
    """Whether the fragment's end is known; if not, it ends with the last entry that any bookie holds."""

    @property
    def bookie_id(self) -> str:
        return self.fragment.bookie_ids[self.position]


@dataclass(frozen=True, slots=True)
class Verdict:
    """The repairs that a ledger needs."""

    shares: tuple[Share, ...]
    """Shares to copy back, in order."""
    missing: bool
    """Entries in metadata, a topic's cursors or a coordinator's transactions, that no queried bookie holds:
    most likely deleted since the backup.
    """


def judge(ledger: LedgerMetadata, held: Mapping[str, LedgerState], asked: Collection[str]) -> Verdict:
    """Compares one ledger. `held` maps bookies with entries of the ledger to their reports; `asked` are all
    queried bookies.
    """
    shares: list[Share] = []
    # A head names a ledger of records once it contains a snapshot; a closed one without entries was found
    # empty by a broker.
    records = ledger.properties.get("kind") in ("cursors", "transactions")
    missing = records and is_closed(ledger) and bool(ledger.fragments) and ledger.last_entry_id < 0
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
        missing |= last < 0 and not shares and records
        # With copies elsewhere, those in the ensemble may end anywhere earlier: everything is copied to all
        # of them.
        fragment = FragmentRange(tail.first_entry_id, last, bookie_ids)
        positions = range(len(bookie_ids)) if others else _in_the_way(ledger, fragment, at_home, asked)
        shares += [Share(fragment, position, others, settled=False) for position in positions]
    return Verdict(tuple(shares), missing)


def _in_the_way(
    ledger: LedgerMetadata, fragment: FragmentRange, at_home: Collection[str], asked: Collection[str]
) -> Sequence[int]:
    """Returns positions of an open fragment without any entry of their share, if enough to make recovery
    conclude that it never existed, although others in the ensemble have it.
    """
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
    """Returns the bookies with entries of the fragment from `first`: (in its ensemble, others)."""
    able = [each for each in sorted(held) if held[each].last_entry_id >= first]
    at_home = tuple(each for each in able if each in bookie_ids)
    return at_home, tuple(each for each in able if each not in bookie_ids)
