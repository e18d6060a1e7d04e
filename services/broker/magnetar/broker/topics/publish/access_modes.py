"""Producer access modes: which producers may publish to a topic, as pure state.

Either any number of producers share a topic, or one holds it and others may wait for it. Each new holder has
the next topic epoch, and a client that comes back says which epoch it had: when the topic's is higher,
somebody held the topic in between, and the client is fenced for ever (messaging contract, access modes).

A holder holds from the decision on, also while its epoch is being written: nobody comes between the two. So
whoever takes a topic asks, once that is done, whether it still is the holder.
"""

from __future__ import annotations

from collections import deque
from enum import Enum
from typing import Generic, TypeVar

from magnetar.common.wire.pulsar_pb2 import ProducerAccessMode

P = TypeVar("P")

SHARED = ProducerAccessMode.Shared
EXCLUSIVE = ProducerAccessMode.Exclusive
WAIT_FOR_EXCLUSIVE = ProducerAccessMode.WaitForExclusive
EXCLUSIVE_WITH_FENCING = ProducerAccessMode.ExclusiveWithFencing


class Decision(Enum):
    """Outcome of a producer's admission to a topic."""

    JOINS = "joins"
    """It publishes beside others."""
    TAKES = "takes"
    """It is the holder now."""
    FENCES = "fences"
    """It is the holder now, and all other producers are closed."""
    WAITS = "waits"
    BUSY = "busy"
    """A shared one finds a holder, or others who wait for the topic."""
    FENCED = "fenced"
    """An exclusive producer finds another holder, now or since its own epoch."""


class AccessModes(Generic[P]):
    """One topic's exclusive side: its holder, and who waits, in the order in which they came.

    Those who share the topic are their topic's to know; it says with each call whether there are any.
    """

    __slots__ = ("holder", "waiting")

    def __init__(self) -> None:
        self.holder: P | None = None
        self.waiting: deque[P] = deque()

    @property
    def idle(self) -> bool:
        """Whether no producer holds the topic or waits for it."""
        return self.holder is None and not self.waiting

    def arrive(
        self,
        newcomer: P,
        mode: ProducerAccessMode.ValueType,
        *,
        claimed_epoch: int,
        topic_epoch: int,
        shared: bool,
    ) -> Decision:
        """Decide about a newcomer, and count it in.

        `claimed_epoch`: the one it had, 0 for none. On FENCES those who waited are still there: see
        `fence_waiting`.
        """
        if mode == SHARED:
            return Decision.JOINS if self.idle else Decision.BUSY
        if is_stale(claimed_epoch, topic_epoch):
            return Decision.FENCED
        taken = shared or not self.idle
        if taken and mode == EXCLUSIVE:
            return Decision.FENCED
        if taken and mode == WAIT_FOR_EXCLUSIVE:
            self.waiting.append(newcomer)
            return Decision.WAITS
        self.holder = newcomer
        return Decision.FENCES if taken else Decision.TAKES

    def fence_waiting(self) -> list[P]:
        """Forget those who wait; returns them."""
        fenced = list(self.waiting)
        self.waiting.clear()
        return fenced

    def leave(self, who: P, *, shared: bool) -> P | None:
        """Removes a producer, whether it held the topic, shared it (then `shared` is without it) or waited.

        Returns who is the holder in its place, if it waited until now.
        """
        if self.holder is who:
            self.holder = None
        elif who in self.waiting:
            self.waiting.remove(who)
        if self.holder is not None or shared or not self.waiting:
            return None
        self.holder = self.waiting.popleft()
        return self.holder


def is_stale(claimed_epoch: int, topic_epoch: int) -> bool:
    """Whether another client held the topic after this one. An epoch is at least 1; 0 is none."""
    return 0 < claimed_epoch < topic_epoch
