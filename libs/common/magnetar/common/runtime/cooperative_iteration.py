"""Iteration over thousands of items that yields to the event loop at regular intervals."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from typing import Final, TypeVar

ITEMS_PER_TURN: Final = 100
"""Number of items between two yields to the event loop."""

T = TypeVar("T")


async def iterate_cooperatively(items: Iterable[T]) -> AsyncIterator[T]:
    """Yield the items; other tasks run in between and may change the source, so pass a copy."""
    for number, item in enumerate(items, 1):
        yield item
        if number % ITEMS_PER_TURN == 0:
            await asyncio.sleep(0)
