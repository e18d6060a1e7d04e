"""The delayed entries of one subscription that are due, in the order of their time up to a bound."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from itertools import islice
from typing import Final, NamedTuple

from magnetar.broker.subscriptions.entries.entry_reader import EntryReader
from magnetar.broker.subscriptions.entries.replay_set import ReplaySet
from magnetar.common.naming.position import Position
from magnetar.ledger.ledger_store import Run

IN_ORDER_MAX: Final = 20_000
"""Due entries kept in the order of their time; any beyond that are kept by position only."""


class DueEntries:
    """A queue of (ledger id, entry id); entries beyond the bound come last, by position."""

    __slots__ = ("_beyond", "_queue")

    def __init__(self) -> None:
        self._queue: deque[tuple[int, int]] = deque()
        self._beyond = ReplaySet()

    def __len__(self) -> int:
        return len(self._queue) + len(self._beyond)

    def __bool__(self) -> bool:
        return bool(self._queue) or bool(self._beyond)

    def add(self, entries: Iterable[tuple[int, int]]) -> None:
        """Adds entries that are due later than all that were added before."""
        for ledger_id, entry_id in entries:
            if self._beyond or len(self._queue) >= IN_ORDER_MAX:
                self._beyond.add(ledger_id, entry_id)
            else:
                self._queue.append((ledger_id, entry_id))

    def next(self, entries_max: int) -> list[tuple[int, int]]:
        """Returns the first entries, which stay in the queue until they are dropped."""
        if self._queue:
            return list(islice(self._queue, entries_max))
        if not self._beyond:
            return []
        ledger_id, first, last = self._beyond.first_range(entries_max)
        return [(ledger_id, entry_id) for entry_id in range(first, last + 1)]

    def drop(self, entries: list[tuple[int, int]]) -> None:
        """Removes the entries that `next` returned last, or the first ones of them."""
        if self._queue:
            for _ in entries:
                self._queue.popleft()
        else:
            for ledger_id, entry_id in entries:
                self._beyond.discard_range(ledger_id, entry_id, entry_id)

    def clear(self) -> None:
        self._queue.clear()
        self._beyond.clear()


class DueRead(NamedTuple):
    """The result of a read of due entries."""

    runs: list[Run]
    """One run for each entry, in the order of the request; none for entries that no longer exist."""
    examined: int
    """Number of requested entries, from the first on, that were examined; at least one."""
    unreadable: list[Position]


async def read_due(reader: EntryReader, entries: list[tuple[int, int]], bytes_max: int) -> DueRead:
    """Reads entries from storage, with one read for neighbors. Raises as `EntryReader.read`."""
    wanted = set(entries)
    looked_at: set[tuple[int, int]] = set()
    found: dict[tuple[int, int], Run] = {}
    unreadable: list[Position] = []
    runs: list[Run] = []
    for number, entry in enumerate(entries):
        if entry not in looked_at:
            if bytes_max <= 0:
                return DueRead(runs, number, unreadable)
            ledger_id, first = entry
            last = _last_nearby(entry, wanted)
            result = await reader.read(Position(ledger_id, first), last - first + 1, bytes_max)
            unreadable += result.unreadable
            for run in result.runs:
                bytes_max -= run.byte_length
                for entry_id in range(run.first_entry_id, run.last_entry_id + 1):
                    if (run.ledger_id, entry_id) in wanted:
                        found[run.ledger_id, entry_id] = run.slice(entry_id, entry_id)
            end = last + 1 if result.next.ledger_id != ledger_id else result.next.entry_id
            looked_at.update((ledger_id, entry_id) for entry_id in range(first, max(end, first + 1)))
        if entry in found:
            runs.append(found.pop(entry))
    return DueRead(runs, len(entries), unreadable)


def _last_nearby(entry: tuple[int, int], wanted: set[tuple[int, int]]) -> int:
    """Returns the last entry id of a read that begins with this entry."""
    ledger_id, last = entry
    while True:
        near = [n for n in range(last + 1, last + 1 + _GAP_ENTRIES) if (ledger_id, n) in wanted]
        if not near:
            return last
        last = near[-1]


_GAP_ENTRIES: Final = 8
"""Maximum gap of entries read in vain, instead of starting another read."""
