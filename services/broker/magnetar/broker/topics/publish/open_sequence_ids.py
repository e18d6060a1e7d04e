"""Sequence ids of one producer name in open transactions, as pure state.

Such an id is stored, and nothing is decided yet: a commit makes it a persisted one, an abort forgets it.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import Final

from magnetar.common.naming.txn_id import TxnId

NONE: Final = -1
"""Highest sequence id where there is none."""

RANGES_MAX: Final = 1_000
"""Ranges kept for one transaction. Beyond them the last one is stretched: ids that other transactions sent in
between then count as sent by this one.
"""


class OpenSequenceIds:
    """Sequence ids by transaction, as ranges: the messages of one producer usually follow each other."""

    __slots__ = ("_by_txn",)

    def __init__(self) -> None:
        self._by_txn: dict[TxnId, list[tuple[int, int]]] = {}

    def __bool__(self) -> bool:
        return bool(self._by_txn)

    @property
    def highest(self) -> int:
        """The highest id of all transactions; NONE without any."""
        return max((ranges[-1][1] for ranges in self._by_txn.values()), default=NONE)

    def add(self, txn: TxnId, first: int, last: int) -> None:
        """Adds the ids from `first` to `last`, inclusive: those of a batch, or one id twice."""
        ranges = self._by_txn.get(txn)
        if ranges is None:
            self._by_txn[txn] = [(first, last)]
            return
        before_first, before_last = ranges[-1]
        if first < before_first:
            self._insert(ranges, first, last)
        elif first <= before_last + 1 or len(ranges) >= RANGES_MAX:
            ranges[-1] = before_first, max(before_last, last)
        else:
            ranges.append((first, last))

    @staticmethod
    def _insert(ranges: list[tuple[int, int]], first: int, last: int) -> None:
        """Adds ids below the last range, which only a client with sequence ids of its own sends."""
        ranges.append((first, last))
        ranges.sort()
        joined = [ranges[0]]
        for start, end in ranges[1:]:
            before_start, before_end = joined[-1]
            if start <= before_end + 1:
                joined[-1] = before_start, max(before_end, end)
            else:
                joined.append((start, end))
        if len(joined) > RANGES_MAX:
            joined[-2:] = [(joined[-2][0], joined[-1][1])]
        ranges[:] = joined

    def sent_by(self, txn: TxnId, sequence_id: int) -> bool:
        """Whether this transaction has a message with that id."""
        ranges = self._by_txn.get(txn)
        if ranges is None:
            return False
        index = bisect_right(ranges, (sequence_id, _ENDLESS)) - 1
        return index >= 0 and sequence_id <= ranges[index][1]

    def sent_by_any(self, sequence_id: int) -> bool:
        """Whether some open transaction has a message with that id."""
        return any(self.sent_by(txn, sequence_id) for txn in self._by_txn)

    def end(self, txn: TxnId) -> int:
        """Forgets a transaction; returns its highest id, NONE without any."""
        ranges = self._by_txn.pop(txn, None)
        return NONE if ranges is None else ranges[-1][1]


_ENDLESS: Final = 1 << 64
