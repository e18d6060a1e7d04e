"""Going through thousands of things while messages come first."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from typing import Final, TypeVar

AT_ONCE: Final = 100
"""Things that are looked at before others run."""

T = TypeVar("T")


async def unhurried(items: Iterable[T]) -> AsyncIterator[T]:
    """The items, and in between a turn for others, who may change what they come from: give a copy."""
    for number, item in enumerate(items, 1):
        yield item
        if number % AT_ONCE == 0:
            await asyncio.sleep(0)
