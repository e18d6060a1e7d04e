"""The runs of one ledger that are with its bookies: who answered, what is confirmed, what may be let go.

A pure core: no clock, no client, no loop. One `PendingAdd` stands for a run (for an entry, when ledgers are
striped), its bookies for bits by their position in the ensemble. Two queues, in entry order:

- `unconfirmed`: not durable on Qa of the write set, or behind something that is not;
- `incomplete`: confirmed (at or below the LAC), and some bookie of the write set has not answered yet.

An entry leaves once all of its write set answered or nothing is awaited any more of those who did not: they
were replaced, or what they lack is recorded (storage contract, section 3).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

from magnetar.ledger.bookie_protocol.bookie_client import EncodedAppend


class PendingAdd:
    """Entries `first` to `last`, sent as one append. `awaited` and `acked` are sets of positions, as bits."""

    __slots__ = ("acked", "append", "awaited", "first", "last", "refused", "sent_s", "size")

    def __init__(
        self, first: int, last: int, size: int, awaited: int, append: EncodedAppend, sent_s: float
    ) -> None:
        self.first = first
        self.last = last
        self.size = size
        self.awaited = awaited
        self.acked = 0
        self.append = append
        self.sent_s = sent_s
        self.refused = False
        """Whether a bookie refused it as damaged or too large."""


class AppendBudget:
    """Limits bytes in flight for all ledgers of a process: `pending`, of which `lagging` are behind
    the LAC.
    """

    __slots__ = ("lagging", "maximum", "pending")

    def __init__(self, maximum: int) -> None:
        self.maximum = maximum
        self.pending = self.lagging = 0


class PendingAdds:
    """Pending adds of one ledger. `clear` returns their share of the budget."""

    __slots__ = (
        "ack_quorum",
        "budget",
        "byte_length",
        "incomplete",
        "lagging",
        "last_confirmed",
        "owed",
        "pending",
        "unconfirmed",
    )

    def __init__(self, ack_quorum: int, budget: AppendBudget) -> None:
        self.ack_quorum = ack_quorum
        self.budget = budget
        self.unconfirmed: deque[PendingAdd] = deque()
        self.incomplete: deque[PendingAdd] = deque()
        self.last_confirmed = -1
        self.byte_length = 0
        """Total of the confirmed entries."""
        self.pending = self.lagging = 0
        self.owed: dict[int, tuple[int, int]] = {}
        """Positions, as bits, that lack some confirmed and released entries. To be recorded in the ledger's
        metadata.
        """

    def __iter__(self) -> Iterator[PendingAdd]:
        """Iterates over all, in entry order."""
        yield from self.incomplete
        yield from self.unconfirmed

    def __bool__(self) -> bool:
        return bool(self.unconfirmed or self.incomplete)

    def add(self, add: PendingAdd) -> None:
        """Adds a run that is being sent to bookies."""
        self.unconfirmed.append(add)
        self.pending += add.size
        self.budget.pending += add.size

    def advance(self) -> int:
        """Confirms entries durable on Qa and releases complete ones; returns the last add confirmed."""
        unconfirmed, incomplete, quorum = self.unconfirmed, self.incomplete, self.ack_quorum
        while unconfirmed and unconfirmed[0].acked.bit_count() >= quorum:
            add = unconfirmed.popleft()
            self.last_confirmed = add.last
            self.byte_length += add.size
            if add.awaited:
                incomplete.append(add)
                self.lagging += add.size
                self.budget.lagging += add.size
            else:
                self._leave(add)
        while incomplete and not incomplete[0].awaited:
            self._let_go()
        return self.last_confirmed

    def owe_oldest(self) -> None:
        """Releases the oldest confirmed run; bookies lacking it are noted in `owed`."""
        add = self.incomplete[0]
        self._owe(add, add.awaited)
        self._let_go()

    def lacking(self, bit: int) -> tuple[int, int] | None:
        """Returns the first and last confirmed entry that a bookie has not acknowledged."""
        found = self.owed.get(bit)
        for add in self.incomplete:
            if add.awaited & bit:
                found = (found[0] if found else add.first, add.last)
        return found

    def await_replaced(self, bits: int, write_set_mask: list[int]) -> None:
        """Replaces the bookies of these positions above the LAC: previous acknowledgements no longer count,
        new ones are awaited.
        """
        size = len(write_set_mask)
        for add in self.unconfirmed:
            add.acked &= ~bits
            add.awaited |= bits & write_set_mask[add.first % size]

    def recorded(self, bits: int, below: int) -> None:
        """Stops awaiting these bookies below an entry: their gap is recorded."""
        for add in self.incomplete:
            if add.last < below:
                add.awaited &= ~bits
        for bit, (first, last) in list(self.owed.items()):
            if bit & bits:
                if last < below:
                    del self.owed[bit]
                else:
                    self.owed[bit] = (max(first, below), last)

    def absent(self, bits: int) -> None:
        """Stops awaiting these bookies, whose gap from some entry on is recorded."""
        for add in self:
            add.awaited &= ~bits
        for bit in [bit for bit in self.owed if bit & bits]:
            del self.owed[bit]

    def clear(self) -> None:
        """Removes everything; missing confirmed entries stay noted in `owed`."""
        for add in self.incomplete:
            self._owe(add, add.awaited)
        self.budget.pending -= self.pending
        self.budget.lagging -= self.lagging
        self.pending = self.lagging = 0
        self.unconfirmed.clear()
        self.incomplete.clear()

    def _let_go(self) -> None:
        add = self.incomplete.popleft()
        self.lagging -= add.size
        self.budget.lagging -= add.size
        self._leave(add)

    def _leave(self, add: PendingAdd) -> None:
        self.pending -= add.size
        self.budget.pending -= add.size

    def _owe(self, add: PendingAdd, bits: int) -> None:
        while bits:
            bit = bits & -bits
            bits ^= bit
            found = self.owed.get(bit)
            self.owed[bit] = (found[0] if found else add.first, add.last)
