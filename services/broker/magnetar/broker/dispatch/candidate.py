"""The part of a consumer that a dispatcher needs."""

from __future__ import annotations

from typing import Protocol

from magnetar.broker.reason import Reason


class Candidate(Protocol):
    """A consumer that may be given entries."""

    @property
    def priority_level(self) -> int:
        """0 is the highest; a lower level gets messages only when no better one can take any."""
        ...

    @property
    def capacity(self) -> int:
        """Messages it can take right now: its permits, or 0 when something holds it back."""
        ...

    @property
    def held_back_by(self) -> Reason | None:
        """The reason why `capacity` is 0, for an operator; None when it is not 0."""
        ...
