"""Pauses between attempts to reach a broker: doubled each time, with jitter so that clients spread out."""

from __future__ import annotations

import random
from typing import Final

FIRST_S: Final = 0.1
MOST_S: Final = 60.0
_JITTER: Final = 0.2


class BackOff:
    """The pauses of one series of attempts, in seconds; `reset` begins a new series."""

    __slots__ = ("_first_s", "_most_s", "_next_s", "_random")

    def __init__(
        self, first_s: float = FIRST_S, most_s: float = MOST_S, rng: random.Random | None = None
    ) -> None:
        self._first_s = self._next_s = first_s
        self._most_s = most_s
        self._random = rng.random if rng is not None else random.random

    def next_s(self) -> float:
        """Returns the next pause: up to 20 percent less than the doubled one."""
        pause_s = self._next_s
        self._next_s = min(pause_s * 2, self._most_s)
        return pause_s * (1 - _JITTER * self._random())

    def reset(self) -> None:
        """Begins again with the first pause."""
        self._next_s = self._first_s
