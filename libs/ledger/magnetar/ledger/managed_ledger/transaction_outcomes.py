"""How transactions ended, as bitmaps of their numbers: a long open transaction has its coordinator's low
watermark stand still, and the outcomes of all later ones are kept until then.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from magnetar.common.naming.txn_id import Action, TxnId
from magnetar.ledger.managed_ledger.ack_state import ENTRY_IDS_MAX
from pyroaring import BitMap

_BITS: Final = 32
_LOW: Final = (1 << _BITS) - 1


class Outcomes:
    """Outcomes by transaction. Consecutive numbers with the same outcome take no memory of their own."""

    __slots__ = ("_count", "_numbers")

    def __init__(self) -> None:
        self._numbers: dict[tuple[int, int, bool], BitMap] = {}
        # By coordinator, high half of the number, and whether it aborted: the low halves. Keys have no member
        # of an enum, because hashing one is a call of Python code.
        self._count = 0

    def add(self, txn: TxnId, action: Action) -> None:
        """Adds an outcome; it replaces no other one."""
        numbers, low = self._numbers_of(txn.most, txn.least >> _BITS, action), txn.least & _LOW
        if low not in numbers:
            numbers.add(low)
            self._count += 1

    def add_numbers(self, coordinator: int, high: int, action: Action, numbers: BitMap) -> None:
        """Adds what `numbers` yielded, or a part of it."""
        known = self._numbers_of(coordinator, high, action)
        before = len(known)
        known.update(numbers)
        self._count += len(known) - before

    def _numbers_of(self, coordinator: int, high: int, action: Action) -> BitMap:
        key = (coordinator, high, action is Action.ABORT)
        found = self._numbers.get(key)
        if found is None:
            found = self._numbers[key] = BitMap()
        return found

    def get(self, txn: TxnId) -> Action | None:
        """Returns how a transaction ended; None if that is not known."""
        most, high, low = txn.most, txn.least >> _BITS, txn.least & _LOW
        numbers = self._numbers.get((most, high, False))
        if numbers is not None and low in numbers:
            return Action.COMMIT
        numbers = self._numbers.get((most, high, True))
        return Action.ABORT if numbers is not None and low in numbers else None

    def __contains__(self, txn: TxnId) -> bool:
        return self.get(txn) is not None

    def __len__(self) -> int:
        return self._count

    def forget(self, coordinator: int, through: int) -> None:
        """Drops the outcomes of a coordinator's numbers up to one."""
        high, low = through >> _BITS, through & _LOW
        for key in [each for each in self._numbers if each[0] == coordinator and each[1] <= high]:
            numbers = self._numbers[key]
            before = len(numbers)
            numbers.remove_range(0, ENTRY_IDS_MAX if key[1] < high else low + 1)
            self._count -= before - len(numbers)
            if numbers:
                numbers.run_optimize()
            else:
                del self._numbers[key]

    def numbers(self) -> Iterator[tuple[int, int, Action, BitMap]]:
        """Yields (coordinator, high half of the numbers, action, low halves); read-only."""
        for (coordinator, high, aborted), numbers in self._numbers.items():
            yield coordinator, high, Action.ABORT if aborted else Action.COMMIT, numbers

    def by_transaction(self) -> dict[TxnId, Action]:
        """Returns all outcomes; large."""
        return {
            TxnId(coordinator, high << _BITS | low): action
            for coordinator, high, action, numbers in self.numbers()
            for low in numbers
        }
