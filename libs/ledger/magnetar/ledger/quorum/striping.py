"""Arithmetic of write sets: the placement of entries on bookies, and quorums.

An ensemble has E positions. Entry n belongs to the Qw positions from n modulo E on (its write set), and is
confirmed once Qa of them have it durably, in order and without gaps (storage contract, section 3).
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from magnetar.common.errors import DataCorruption
from magnetar.common.metadata.values import LedgerMetadata


@dataclass(frozen=True, slots=True)
class Striping:
    """Ensemble size, write quorum and ack quorum of a ledger. Raises ValueError unless E >= Qw >= Qa >= 1."""

    ensemble_size: int
    write_quorum: int
    ack_quorum: int

    def __post_init__(self) -> None:
        if not self.ensemble_size >= self.write_quorum >= self.ack_quorum >= 1:
            raise ValueError(
                f"ensemble size {self.ensemble_size}, write quorum {self.write_quorum} and ack quorum "
                f"{self.ack_quorum} do not go together: each must be at least the next, the last at least 1"
            )

    @property
    def striped(self) -> bool:
        """Whether bookies of the ensemble have only some of the entries (E > Qw)."""
        return self.ensemble_size > self.write_quorum

    @property
    def absences_needed(self) -> int:
        """Number of bookies of a write set that must certainly lack an entry to prove it unconfirmed."""
        return self.write_quorum - self.ack_quorum + 1

    def is_absent(self, absent: int, torn: int) -> bool:
        """Returns whether an entry returned by none of its write set was certainly not confirmed.

        `absent` of them certainly lack it; `torn` of them could have had it only in a torn last group. At
        most Qa - 1 of the latter can have confirmed it, by losing synced data.
        """
        return absent + max(0, torn - (self.ack_quorum - 1)) >= self.absences_needed

    def write_set(self, entry_id: int) -> tuple[int, ...]:
        """Returns the positions that hold an entry; the first one moves with each entry."""
        size = self.ensemble_size
        start = entry_id % size
        return tuple((start + i) % size for i in range(self.write_quorum))

    def write_sets(self) -> list[frozenset[int]]:
        """Returns every possible write set."""
        if not self.striped:
            return [frozenset(range(self.ensemble_size))]
        return [frozenset(self.write_set(start)) for start in range(self.ensemble_size)]

    def holds(self, position: int, entry_id: int) -> bool:
        """Returns whether a position belongs to an entry's write set."""
        return (position - entry_id) % self.ensemble_size < self.write_quorum

    def stretch_end(self, position: int, entry_id: int, last: int) -> int:
        """Returns the last entry, at most `last`, of the unbroken stretch from `entry_id` on at a position
        that holds `entry_id`.
        """
        if not self.striped:
            return last
        # Entry n is the last but (position - n) modulo E before one outside the position's share.
        return min(last, entry_id + (position - entry_id) % self.ensemble_size)

    def shares(self, position: int, first: int, last: int) -> Iterator[tuple[int, int]]:
        """Yields the entries from `first` to `last` of a position as unbroken stretches (first, last), in
        order.
        """
        entry_id = first
        while entry_id <= last:
            if self.holds(position, entry_id):
                end = self.stretch_end(position, entry_id, last)
                yield entry_id, end
                entry_id = end + 1
            else:
                # The next entry it holds begins a stretch: n with (position - n) modulo E = Qw - 1.
                entry_id += (position - self.write_quorum + 1 - entry_id) % self.ensemble_size

    def leaves_no_ack_quorum(self, positions: Collection[int]) -> bool:
        """Returns whether every write set has fewer than Qa positions outside `positions`.

        Then a writer accepted only by the others confirms nothing (enough are fenced), and each confirmed
        entry is on one of `positions` (enough answered for the LAC).
        """
        reached = frozenset(positions)
        return all(len(write_set - reached) < self.ack_quorum for write_set in self.write_sets())


@dataclass(frozen=True, slots=True)
class Fragment:
    """The bookies of entries from `first_entry_id` up to the next fragment."""

    first_entry_id: int
    bookie_ids: tuple[str, ...]


class LedgerLayout:
    """Striping and fragments of one ledger. A writer or a recovery changes it; readers share it."""

    __slots__ = ("_firsts", "fragments", "striping")

    def __init__(self, striping: Striping, fragments: Sequence[Fragment]) -> None:
        self.striping = striping
        self.fragments = list(fragments)
        self._firsts = [fragment.first_entry_id for fragment in fragments]

    @classmethod
    def of(cls, value: LedgerMetadata) -> LedgerLayout:
        """Returns the layout in a ledger's metadata. Raises DataCorruption if it is inconsistent."""
        try:
            striping = Striping(value.ensemble_size, value.write_quorum, value.ack_quorum)
        except ValueError as error:
            raise DataCorruption(f"metadata of ledger {value.ref.id}: {error}") from error
        fragments = [Fragment(f.first_entry_id, tuple(f.bookie_ids)) for f in value.fragments]
        firsts = [fragment.first_entry_id for fragment in fragments]
        if not fragments or firsts[0] != 0 or any(a >= b for a, b in pairwise(firsts)):
            raise DataCorruption(f"metadata of ledger {value.ref.id}: its fragments begin at {firsts}")
        for fragment in fragments:
            if len(set(fragment.bookie_ids)) != len(fragment.bookie_ids) or (
                len(fragment.bookie_ids) != striping.ensemble_size
            ):
                raise DataCorruption(
                    f"metadata of ledger {value.ref.id}: the fragment from {fragment.first_entry_id} on "
                    f"names {list(fragment.bookie_ids)}, not {striping.ensemble_size} different bookies"
                )
        return cls(striping, fragments)

    def write_to(self, value: LedgerMetadata) -> None:
        """Replaces the fragments in a ledger's metadata."""
        del value.fragments[:]
        for fragment in self.fragments:
            value.fragments.add(first_entry_id=fragment.first_entry_id, bookie_ids=fragment.bookie_ids)

    @property
    def last_fragment(self) -> Fragment:
        return self.fragments[-1]

    def fragment_of(self, entry_id: int) -> Fragment:
        """Returns the fragment that holds an entry."""
        return self.fragments[bisect_right(self._firsts, entry_id) - 1]

    def fragment_end(self, entry_id: int, last: int) -> int:
        """Returns the last entry, at most `last`, of the fragment that holds `entry_id`."""
        index = bisect_right(self._firsts, entry_id)
        return last if index == len(self._firsts) else min(last, self._firsts[index] - 1)

    def bookies_of(self, entry_id: int) -> list[str]:
        """Returns the write set of an entry."""
        bookie_ids = self.fragment_of(entry_id).bookie_ids
        return [bookie_ids[position] for position in self.striping.write_set(entry_id)]

    def change_ensemble(self, first_entry_id: int, bookie_ids: Sequence[str]) -> None:
        """Assigns entries from `first_entry_id` on, never below the last fragment's first one, to these
        bookies.
        """
        last = self.fragments[-1]
        assert first_entry_id >= last.first_entry_id, "earlier fragments are confirmed"
        assert len(bookie_ids) == len(last.bookie_ids) == len(set(bookie_ids)), "an ensemble keeps its size"
        fragment = Fragment(first_entry_id, tuple(bookie_ids))
        if first_entry_id == last.first_entry_id:
            self.fragments[-1] = fragment
        else:
            self.fragments.append(fragment)
            self._firsts.append(first_entry_id)
