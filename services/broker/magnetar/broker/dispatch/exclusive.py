"""Exclusive: one consumer, every entry, in order.

Promise: entries go to the only consumer in the order of the topic; after a disconnect the next consumer
starts again after the mark-delete position, without what was acknowledged individually. A second consumer is
refused while the first one lives (Pulsar's concepts, Exclusive).
"""

from __future__ import annotations

from typing import Generic, TypeVar

from magnetar.broker.dispatch.candidate import Candidate

C = TypeVar("C", bound=Candidate)


class ExclusiveDispatcher(Generic[C]):
    """Chooses the one consumer of an Exclusive subscription, if it can take messages."""

    __slots__ = ("_consumer",)

    def __init__(self) -> None:
        self._consumer: C | None = None

    @property
    def consumers(self) -> list[C]:
        return [] if self._consumer is None else [self._consumer]

    def add(self, consumer: C) -> None:
        assert self._consumer is None, "the subscription refuses a second consumer before it gets here"
        self._consumer = consumer

    def remove(self, consumer: C) -> None:
        if self._consumer is consumer:
            self._consumer = None

    def next(self) -> tuple[C, int] | None:
        """Returns the consumer and how many messages it may take now; None when it can take none."""
        consumer = self._consumer
        if consumer is None:
            return None
        capacity = consumer.capacity
        return (consumer, capacity) if capacity > 0 else None
