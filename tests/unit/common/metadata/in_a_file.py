"""A metadata store in a file, for tests of what stands on one."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

from magnetar.common.metadata.sqlite_store import SqliteMetadataStore


def with_store(path: Path, act: Callable[[SqliteMetadataStore], Awaitable[None]]) -> None:
    """Run `act` over the store in this file, which is made when it is not there and closed afterwards."""

    async def run() -> None:
        store = await SqliteMetadataStore.open(path)
        try:
            await act(store)
        finally:
            await store.close()

    asyncio.run(run())
