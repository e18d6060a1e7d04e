"""Placement of a ledger's entries by its metadata, and the repairs it needs. No I/O.

Auto-recovery decides by these functions what it marks and copies, and brokers explain by the same ones.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass

from magnetar.common.metadata.values import LedgerMetadata
from magnetar.ledger.quorum.ledger_metadata import OPEN_GAP_END
from magnetar.ledger.quorum.striping import Striping


@dataclass(frozen=True, slots=True)
class FragmentRange:
    """Consecutive entries on one ensemble. `last` is final: the range never grows."""

    first: int
    last: int
    bookie_ids: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Move:
    """A lost bookie's share of a fragment, to be copied to a replacement bookie."""

    fragment: FragmentRange
    lost: str


@dataclass(frozen=True, slots=True)
class Fill:
    """Entries that a running bookie of their fragment lacks, to be copied to it."""

    fragment: FragmentRange
    bookie_id: str
    first: int
    last: int


@dataclass(frozen=True, slots=True)
class Plan:
    """The repairs that are possible now, and the reasons why the ledger stays under-replicated after them."""

    moves: list[Move]
    fills: list[Fill]
    void_gaps: bool
    """Some gaps belong to bookies that their fragment no longer names; they only need to be removed."""
    tail_lacks: bool
    """The last fragment is open or under recovery, and names a lost bookie or has a gap without end. The
    writer or the recovering client repairs it, while there is one.
    """
    waiting: bool
    """Some gaps belong to bookies that are down but not lost."""

    @property
    def is_empty(self) -> bool:
        """Returns whether the ledger needs no repair."""
        return not (self.moves or self.fills or self.void_gaps or self.tail_lacks or self.waiting)


def striping_of(metadata: LedgerMetadata) -> Striping:
    return Striping(metadata.ensemble_size, metadata.write_quorum, metadata.ack_quorum)


def is_closed(metadata: LedgerMetadata) -> bool:
    return metadata.state == LedgerMetadata.CLOSED


def settled_fragments(metadata: LedgerMetadata) -> Iterator[FragmentRange]:
    """Returns the non-empty fragments with a known end: all of a closed ledger, all but the last of
    another.
    """
    fragments = metadata.fragments
    for number, fragment in enumerate(fragments):
        first = fragment.first_entry_id
        if number + 1 < len(fragments):
            last = fragments[number + 1].first_entry_id - 1
        elif is_closed(metadata):
            last = metadata.last_entry_id
        else:
            return
        if first <= last:
            yield FragmentRange(first, last, tuple(fragment.bookie_ids))


def open_fragment(metadata: LedgerMetadata) -> LedgerMetadata.Fragment | None:
    """Returns the fragment without a known end; None for a closed ledger and for one without fragments."""
    return None if is_closed(metadata) or not metadata.fragments else metadata.fragments[-1]


def bookies_in_use(metadata: LedgerMetadata) -> set[str]:
    """Returns every bookie that stores, or may receive, entries of the ledger."""
    used = {bookie for fragment in settled_fragments(metadata) for bookie in fragment.bookie_ids}
    tail = open_fragment(metadata)
    return used if tail is None else used.union(tail.bookie_ids)


def members_to_replace(
    metadata: LedgerMetadata, given_up: Collection[str], known: Collection[str], up: Collection[str]
) -> list[str]:
    """Returns the bookies of the ledger that the auditor marks as missing: given up, or without identity and
    registration. In id order.
    """
    return sorted(
        bookie
        for bookie in bookies_in_use(metadata)
        if bookie in given_up or (bookie not in known and bookie not in up)
    )


def needs_mark(metadata: LedgerMetadata, missing: Collection[str]) -> bool:
    """Returns whether the auditor marks the ledger: it has missing bookies, gaps, or an unfinished recovery,
    whose client may be gone.
    """
    return bool(missing) or bool(metadata.gaps) or metadata.state == LedgerMetadata.IN_RECOVERY


def lost_of(missing: Collection[str], leaving: Collection[str], up: Collection[str]) -> set[str]:
    """Returns those bookies of a mark that a replication worker replaces: down, or being decommissioned."""
    return {bookie for bookie in missing if bookie in leaving or bookie not in up}


def has_room(metadata: LedgerMetadata, writable: Collection[str], leaving: Collection[str]) -> bool:
    """Returns whether a whole ensemble can be had without the bookies being decommissioned; otherwise an
    idle open ledger is not fenced.
    """
    return len(set(writable).difference(leaving)) >= metadata.ensemble_size


def without_source(metadata: LedgerMetadata, move: Move, up: Collection[str]) -> bool:
    """Returns whether some entries of a move have no other running bookie to copy them from."""
    fragment, striping = move.fragment, striping_of(metadata)
    position = fragment.bookie_ids.index(move.lost)
    if move.lost in up:
        return False
    last = min(fragment.last, fragment.first + striping.ensemble_size - 1)
    return any(
        not any(fragment.bookie_ids[other] in up for other in striping.write_set(entry))
        for entry in range(fragment.first, last + 1)
        if striping.holds(position, entry)
    )


@dataclass(frozen=True, slots=True)
class Lacking:
    """Consecutive entries with fewer copies than their write quorum."""

    first: int
    last: int | None
    """None: the end is not known, because the ledger is not closed."""
    copies: int
    """The most copies that one of them lacks."""


def lacking_copies(metadata: LedgerMetadata, up: Collection[str]) -> list[Lacking]:
    """Returns the entries that are not on all bookies of their write set: one is down, or has a gap there.
    In order; neighbors that lack equally many are one range.
    """
    found: list[Lacking] = []
    for fragment in [*settled_fragments(metadata), *_open_range(metadata)]:
        edges = {fragment.first}
        for gap in metadata.gaps:
            edges |= {gap.first_entry_id, gap.last_entry_id + 1}
        inner = sorted(edge for edge in edges if fragment.first <= edge <= fragment.last)
        for first, end in zip(inner, [*inner[1:], fragment.last + 1], strict=True):
            copies = _copies_lacking(metadata, fragment, first, end - 1, up)
            if not copies:
                continue
            last = None if end > OPEN_GAP_END else end - 1
            before = found[-1] if found else None
            if before is not None and before.last == first - 1 and before.copies == copies:
                found[-1] = Lacking(before.first, last, copies)
            else:
                found.append(Lacking(first, last, copies))
    return found


def _open_range(metadata: LedgerMetadata) -> list[FragmentRange]:
    tail = open_fragment(metadata)
    return [] if tail is None else [FragmentRange(tail.first_entry_id, OPEN_GAP_END, tuple(tail.bookie_ids))]


def _copies_lacking(
    metadata: LedgerMetadata, fragment: FragmentRange, first: int, last: int, up: Collection[str]
) -> int:
    """Returns the most copies that an entry from `first` to `last` lacks; gaps cover all of them or none."""
    without = {
        position
        for position, bookie in enumerate(fragment.bookie_ids)
        if bookie not in up
        or any(
            gap.bookie_id == bookie and gap.first_entry_id <= first <= gap.last_entry_id
            for gap in metadata.gaps
        )
    }
    striping = striping_of(metadata)
    last = min(last, first + striping.ensemble_size - 1)  # write sets repeat from there on
    return max(len(without.intersection(striping.write_set(entry))) for entry in range(first, last + 1))


def plan_repair(metadata: LedgerMetadata, lost: Collection[str], up: Collection[str]) -> Plan:
    """Plans the repair of a ledger. A bookie being decommissioned is in `lost`, and may be in `up`."""
    moves, fills = [], []
    settled = list(settled_fragments(metadata))
    for fragment in settled:
        moves += [Move(fragment, bookie) for bookie in fragment.bookie_ids if bookie in lost]
    waiting = void = False
    tail = open_fragment(metadata)
    tail_lacks = metadata.state == LedgerMetadata.IN_RECOVERY or (
        tail is not None and any(bookie in lost for bookie in tail.bookie_ids)
    )
    for gap in metadata.gaps:
        covered = 0
        for fragment in settled:
            first, last = max(gap.first_entry_id, fragment.first), min(gap.last_entry_id, fragment.last)
            if first > last or gap.bookie_id not in fragment.bookie_ids:
                continue
            covered += last - first + 1
            if gap.bookie_id in lost:
                continue  # the move takes care of it
            if gap.bookie_id in up:
                fills.append(Fill(fragment, gap.bookie_id, first, last))
            else:
                waiting = True
        if tail is not None and gap.last_entry_id >= tail.first_entry_id and gap.bookie_id in tail.bookie_ids:
            first = max(gap.first_entry_id, tail.first_entry_id)
            covered += gap.last_entry_id - first + 1
            if gap.last_entry_id == OPEN_GAP_END:
                tail_lacks = True
            elif gap.bookie_id in up and gap.bookie_id not in lost:
                # Entries in a gap are confirmed, so they may be copied although more may follow.
                whole = FragmentRange(tail.first_entry_id, gap.last_entry_id, tuple(tail.bookie_ids))
                fills.append(Fill(whole, gap.bookie_id, first, gap.last_entry_id))
            else:
                waiting = True
        void |= covered < gap.last_entry_id - gap.first_entry_id + 1
    return Plan(moves, fills, void, tail_lacks, waiting)


def with_move(metadata: LedgerMetadata, move: Move, replacement: str) -> LedgerMetadata | None:
    """Returns the metadata after a move, without the lost bookie's gaps in that fragment.

    None if the fragment has changed: then nothing may be written.
    """
    if move.fragment not in settled_fragments(metadata) or replacement in move.fragment.bookie_ids:
        return None
    after = _copy(metadata)
    for fragment in after.fragments:
        if fragment.first_entry_id == move.fragment.first:
            at = list(fragment.bookie_ids).index(move.lost)
            fragment.bookie_ids[at] = replacement
    _strike_out(after, move.lost, move.fragment.first, move.fragment.last)
    return after


def with_fill(metadata: LedgerMetadata, fill: Fill) -> LedgerMetadata | None:
    """Returns the metadata after a gap is filled; None if its entries now belong to other bookies."""
    if fill.bookie_id not in _ensemble_at(metadata, fill.first):
        return None
    after = _copy(metadata)
    _strike_out(after, fill.bookie_id, fill.first, fill.last)
    return after


def without_void_gaps(metadata: LedgerMetadata) -> LedgerMetadata:
    """Returns the metadata without gaps of bookies that the fragment does not name."""
    after = _copy(metadata)
    ends = [f.first_entry_id - 1 for f in metadata.fragments[1:]]
    ends.append(metadata.last_entry_id if is_closed(metadata) else OPEN_GAP_END)
    for fragment, end in zip(metadata.fragments, ends, strict=True):
        for bookie in {gap.bookie_id for gap in metadata.gaps}.difference(fragment.bookie_ids):
            _strike_out(after, bookie, fragment.first_entry_id, end)
    if is_closed(metadata):
        for bookie in {gap.bookie_id for gap in metadata.gaps}:
            _strike_out(after, bookie, metadata.last_entry_id + 1, OPEN_GAP_END)
    return after


def _ensemble_at(metadata: LedgerMetadata, entry_id: int) -> Iterable[str]:
    found: Iterable[str] = ()
    for fragment in metadata.fragments:
        if fragment.first_entry_id > entry_id:
            break
        found = fragment.bookie_ids
    return found


def _strike_out(metadata: LedgerMetadata, bookie_id: str, first: int, last: int) -> None:
    """Removes a range from a bookie's gaps."""
    kept = []
    for gap in metadata.gaps:
        if gap.bookie_id != bookie_id or gap.last_entry_id < first or gap.first_entry_id > last:
            kept.append(gap)
            continue
        if gap.first_entry_id < first:
            kept.append(
                LedgerMetadata.Gap(
                    bookie_id=bookie_id, first_entry_id=gap.first_entry_id, last_entry_id=first - 1
                )
            )
        if gap.last_entry_id > last:
            kept.append(
                LedgerMetadata.Gap(
                    bookie_id=bookie_id, first_entry_id=last + 1, last_entry_id=gap.last_entry_id
                )
            )
    del metadata.gaps[:]
    metadata.gaps.extend(kept)


def _copy(metadata: LedgerMetadata) -> LedgerMetadata:
    after = LedgerMetadata()
    after.CopyFrom(metadata)
    return after
