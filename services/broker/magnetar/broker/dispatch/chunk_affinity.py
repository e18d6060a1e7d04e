"""Sends all chunks of one message to one consumer of a Shared subscription.

The first delivered chunk of a message binds the message (by uuid) to its consumer; the last chunk, or the
consumer's disconnect, ends the binding. Delivery is oldest first, so a later chunk of an unknown message
means that the first chunk was acknowledged or its binding dropped: any consumer gets it, and its client
handles the rest.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Generic, TypeVar

C = TypeVar("C")

BOUND_MESSAGES_MAX = 10_000
"""Maximum number of messages remembered; beyond it the oldest is forgotten."""


class ChunkAffinity(Generic[C]):
    """Maps chunked messages to the consumers that get their chunks."""

    __slots__ = ("_bound",)

    def __init__(self) -> None:
        self._bound: OrderedDict[str, C] = OrderedDict()

    def target(self, uuid: str, candidate: C) -> C:
        """Returns the consumer that has this message's chunks; `candidate` when none has."""
        return self._bound.get(uuid, candidate)

    def delivered(self, uuid: str, chunk_id: int, chunks: int, consumer: C) -> None:
        """Remembers that this chunk went to `consumer`; the last chunk ends the binding."""
        if chunk_id >= chunks - 1:
            self._bound.pop(uuid, None)
            return
        self._bound[uuid] = consumer
        if len(self._bound) > BOUND_MESSAGES_MAX:
            self._bound.popitem(last=False)

    def forget(self, consumer: C) -> None:
        """Unbinds the messages of a consumer that left; they are redelivered from their first chunk."""
        for uuid in [uuid for uuid, holder in self._bound.items() if holder is consumer]:
            del self._bound[uuid]
