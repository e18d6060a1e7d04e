"""Calls of object stores from the event loop; the calls block."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import Protocol, TypeVar

from magnetar.ledger.cold.objects import StoredObject

T = TypeVar("T")


class Store(Protocol):
    """The objects below one location, as `magnetar.ledger.cold.objects.ObjectStore` has them; calls block."""

    @property
    def location(self) -> str: ...

    def list(self, prefix: str = "") -> Iterable[StoredObject]:
        """Raises ObjectStoreError."""
        ...

    def read(self, path: str, offset: int, length: int) -> bytes:
        """Raises NoSuchObject, ObjectStoreError."""
        ...

    def delete(self, path: str) -> None:
        """Raises ObjectStoreError."""
        ...


OpenStore = Callable[[str], Store]
"""Opens the store of a location. Raises ConfigError with the remedy."""


async def in_thread(call: Callable[[threading.Event], T]) -> T:
    """Runs a blocking call in a thread; the call watches the event and ends soon once it is canceled."""
    stop = threading.Event()
    try:
        return await asyncio.to_thread(call, stop)
    finally:
        stop.set()


def until(stop: threading.Event, listing: Iterable[StoredObject]) -> Iterator[StoredObject]:
    """Yields from a listing until the event is set."""
    for each in listing:
        if stop.is_set():
            return
        yield each
