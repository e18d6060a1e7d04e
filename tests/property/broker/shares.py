"""Fairness over turns of one message each: consumers that can all take the next message get equally many."""

from __future__ import annotations

from collections.abc import Collection, Hashable
from typing import Generic, TypeVar

T = TypeVar("T", bound=Hashable)


class Shares(Generic[T]):
    """Turns by consumer since all of those that are counted could take every message.

    One that cannot take any more is left out from then on; the others still have equal shares. One that comes
    back starts everything anew: it may be early or late in the round.
    """

    def __init__(self) -> None:
        self._turns: dict[T, int] = {}

    def joined(self, consumer: T) -> None:
        """A newcomer comes last in the round, as one that has just had its turn."""
        self._turns[consumer] = max(self._turns.values(), default=0)

    def count(self, taker: T, could_take: Collection[T]) -> None:
        """One message went to `taker`, which `could_take` like all others of its level in there."""
        assert taker in could_take
        if self._turns.keys() >= set(could_take):
            self._turns = {each: turns for each, turns in self._turns.items() if each in could_take}
        else:
            self._turns = dict.fromkeys(could_take, 0)
        self._turns[taker] += 1
        turns = self._turns.values()
        assert max(turns) - min(turns) <= 1, f"shares of consumers with permits: {sorted(turns)}"

    def forget(self) -> None:
        """Something happened that is not a turn of one message: begin anew."""
        self._turns.clear()
