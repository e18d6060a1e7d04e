"""Examined entries of a Key_Shared subscription that wait for their consumer.

A consumer without permits delays only its own slots: dispatch looks ahead, and entries for that consumer wait
here, oldest first. Some are kept with their bytes, as far as memory allows; the others by position, to be
read again. Pure state, no I/O.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from operator import itemgetter
from typing import Any, Final

from magnetar.broker.subscriptions.consumers.consumer import fitting
from magnetar.ledger.ledger_store import Run

_ENTRY_BITS: Final = 32
_SLOT_BITS: Final = 16


def pack(ledger_id: int, entry_id: int, slot: int) -> int:
    """Packs an entry and its slot into one number; numbers sort like positions."""
    return (ledger_id << _ENTRY_BITS | entry_id) << _SLOT_BITS | slot


def unpack(packed: int) -> tuple[int, int, int]:
    """Unpacks (ledger id, entry id, slot)."""
    position = packed >> _SLOT_BITS
    return position >> _ENTRY_BITS, position & (1 << _ENTRY_BITS) - 1, packed & (1 << _SLOT_BITS) - 1


@dataclass(slots=True)
class Share:
    """The entries of one run that belong to one consumer: parallel sequences, entry ids ascending."""

    ledger_id: int
    entry_ids: Sequence[int]
    entries: Sequence[bytes]
    slots: Sequence[int]
    message_counts: Sequence[int] | None
    """Messages by entry; None when every entry is one message."""
    metadata: Sequence[bytes] | None
    """BrokerEntryMetadata by entry, for a client that requests it."""

    @property
    def first(self) -> int:
        """The first entry, packed."""
        return pack(self.ledger_id, self.entry_ids[0], self.slots[0])

    @property
    def messages(self) -> int:
        return len(self.entries) if self.message_counts is None else sum(self.message_counts)

    @property
    def byte_length(self) -> int:
        return sum(map(len, self.entries))

    def part(self, start: int, stop: int) -> Share:
        """Returns some of the entries, by index."""
        return Share(
            self.ledger_id,
            self.entry_ids[start:stop],
            self.entries[start:stop],
            self.slots[start:stop],
            None if self.message_counts is None else self.message_counts[start:stop],
            None if self.metadata is None else self.metadata[start:stop],
        )

    def packed(self) -> list[int]:
        """The entries by position, with their slots, packed."""
        ledger_id = self.ledger_id
        return [
            pack(ledger_id, entry_id, slot) for entry_id, slot in zip(self.entry_ids, self.slots, strict=True)
        ]


def share_of(
    run: Run, slots: Sequence[int], indexes: Sequence[int], metadata: Sequence[bytes] | None
) -> Share:
    """Returns some entries of a run, by index; `slots` and `metadata` are those of the whole run."""
    if len(indexes) == 1:
        # An itemgetter of one item returns no tuple.
        pick: Callable[[Sequence[Any]], Sequence[Any]] = itemgetter(slice(indexes[0], indexes[0] + 1))
    else:
        pick = itemgetter(*indexes)
    return Share(
        run.ledger_id,
        pick(range(run.first_entry_id, run.last_entry_id + 1)),
        pick(run.entries),
        pick(slots),
        None if run.message_counts is None else pick(run.message_counts),
        None if metadata is None else pick(metadata),
    )


class WaitingEntries:
    """Waiting entries of one consumer, in three parts taken in this order.

    `again`: by position, a heap: delivered before, or read long ago. `shares`: with their bytes, newer than
    the entries of the same slot in `again`. `beyond`: by position, newer than all others.
    """

    __slots__ = ("_again", "_beyond", "_shares", "_shares_count")

    def __init__(self) -> None:
        self._again: list[int] = []
        self._shares: deque[Share] = deque()
        self._shares_count = 0
        self._beyond: list[int] = []

    def __len__(self) -> int:
        return len(self._again) + self._shares_count + len(self._beyond)

    @property
    def reads_again(self) -> bool:
        """True when the oldest entries have to be read again before any other."""
        if not self._again and not self._shares and self._beyond:
            self._again, self._beyond = self._beyond, []
        return bool(self._again)

    @property
    def oldest(self) -> int | None:
        """The first waiting entry, packed."""
        if self.reads_again:
            return self._again[0]
        return self._shares[0].first if self._shares else None

    def add_again(self, packed: int) -> int:
        """Adds an entry that may be older than others; returns how many bytes were dropped because of it.

        The oldest entries are taken first, so shares that are older must lose their bytes and be read again,
        too.
        """
        dropped = 0
        if self._shares and packed >= self._shares[0].first:
            dropped = self.drop_bytes()
        heappush(self._again, packed)
        return dropped

    def add_share(self, share: Share) -> None:
        """Adds entries newer than all waiting ones; only while `keeps_bytes`."""
        self._shares.append(share)
        self._shares_count += len(share.entry_ids)

    def add_beyond(self, packed: Iterable[int]) -> None:
        """Adds entries newer than all waiting ones, ascending, without their bytes."""
        self._beyond.extend(packed)

    @property
    def keeps_bytes(self) -> bool:
        """False once entries without bytes wait behind the shares; newer ones are then added behind them."""
        return not self._beyond

    def take_again(self, count: int) -> list[tuple[int, int]]:
        """Removes and returns up to `count` (ledger id, entry id) to be read again, oldest first."""
        taken: list[tuple[int, int]] = []
        while self._again and len(taken) < count:
            ledger_id, entry_id, _ = unpack(heappop(self._again))
            taken.append((ledger_id, entry_id))
        return taken

    def take_share(self, messages_max: int) -> Share | None:
        """Removes and returns the oldest entries with their bytes, as many as fit; only when no entry has to
        be read again.
        """
        if not self._shares:
            return None
        share = self._shares[0]
        count = fitting(len(share.entries), share.message_counts, messages_max)
        if count == len(share.entry_ids):
            self._shares.popleft()
        else:
            self._shares[0] = share.part(count, len(share.entry_ids))
            share = share.part(0, count)
        self._shares_count -= count
        return share

    def drop_bytes(self) -> int:
        """Drops all bytes, so that every entry waits by position only; returns the number of bytes."""
        dropped = sum([share.byte_length for share in self._shares])
        for share in self._shares:
            self._again.extend(share.packed())
        self._again.extend(self._beyond)
        heapify(self._again)
        self._shares.clear()
        self._shares_count = 0
        self._beyond = []
        return dropped

    def take_all(self) -> list[int]:
        """Removes and returns all entries by position."""
        self.drop_bytes()
        everything, self._again = self._again, []
        return everything
