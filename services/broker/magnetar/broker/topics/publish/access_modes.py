"""Producer access modes: which producers may publish to a topic, as pure state.

Either any number of producers share a topic, or one holds it exclusively and others may wait for it. Each new
holder gets the next topic epoch, and a reconnecting client sends its earlier epoch: when the topic's is
higher, another producer has held the topic in between, and the client stays fenced (messaging contract,
access modes).

A producer is the holder from the decision on, even while its epoch is being written: no other producer is
admitted in between. After the write, the caller must check that the producer is still the holder.
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
    """Result of a producer's request for access to a topic."""

    JOINS = "joins"
    """It publishes beside other shared producers."""
    TAKES = "takes"
    """It becomes the holder."""
    FENCES = "fences"
    """It becomes the holder, and all other producers are closed."""
    WAITS = "waits"
    BUSY = "busy"
    """A shared producer is refused: the topic has a holder, or producers wait for it."""
    FENCED = "fenced"
    """An exclusive producer is refused: another producer holds the topic, or has held it since its own
    epoch.
    """


class AccessModes(Generic[P]):
    """Exclusive access to one topic: its holder, and the waiting producers in order of arrival.

    The topic tracks its shared producers; it passes with each call whether there are any.
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
        """Decides about a new producer and registers it.

        `claimed_epoch`: its earlier epoch, 0 for none. On FENCES the waiting producers are still registered:
        see `fence_waiting`.
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
        """Removes the waiting producers; returns them."""
        fenced = list(self.waiting)
        self.waiting.clear()
        return fenced

    def leave(self, who: P, *, shared: bool) -> P | None:
        """Removes a holder, shared or waiting producer; for a shared one, `shared` is computed without it.

        Returns the waiting producer that becomes the holder in its place, if any.
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
    """Whether another producer has held the topic after this one. An epoch is at least 1; 0 is none."""
    return 0 < claimed_epoch < topic_epoch
