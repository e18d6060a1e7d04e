"""One watcher's queue: bounded, ended once, woken from either side."""

from __future__ import annotations

import asyncio

import pytest
from magnetar.common.errors import WatchLost
from magnetar.common.metadata.store import WatchEvent
from magnetar.common.metadata.watch_queue import WatchQueue


def event(key: str, version: int = 1) -> WatchEvent:
    return WatchEvent(key, b"", version)


def test_only_newer_events_under_the_prefix_are_queued() -> None:
    async def main() -> None:
        queue = WatchQueue("/a/", lambda _: None, after=5)
        queue.push(event("/a/old", 5))
        queue.push(event("/b/x", 6))
        queue.push(event("/a/new", 6))
        queue.close()
        assert [seen.key async for seen in queue] == ["/a/new"]

    asyncio.run(main())


def test_a_waiting_reader_is_woken_by_an_event() -> None:
    async def main() -> None:
        queue = WatchQueue("/", lambda _: None)
        reader = asyncio.ensure_future(queue.__anext__())
        await asyncio.sleep(0)
        queue.push(event("/a"))
        assert (await reader).key == "/a"

    asyncio.run(main())


def test_one_event_too_many_drops_what_is_queued_and_ends_the_watch_once() -> None:
    async def main() -> None:
        ended: list[WatchQueue] = []
        queue = WatchQueue("/", ended.append, events_max=2)
        for key in "/a", "/b", "/c", "/d":
            queue.push(event(key))
        for _ in range(2):
            with pytest.raises(WatchLost, match="more than 2 changes"):
                await queue.__anext__()
        await queue.aclose()
        queue.lose("again")
        assert ended == [queue]

    asyncio.run(main())


def test_a_reader_that_is_cancelled_loses_nothing() -> None:
    async def main() -> None:
        queue = WatchQueue("/", lambda _: None)
        reader = asyncio.ensure_future(queue.__anext__())
        await asyncio.sleep(0)
        reader.cancel()
        await asyncio.sleep(0)
        queue.push(event("/a"))
        assert (await queue.__anext__()).key == "/a"

    asyncio.run(main())


def test_a_waiting_reader_learns_that_the_watch_was_lost() -> None:
    async def main() -> None:
        queue = WatchQueue("/", lambda _: None)
        reader = asyncio.ensure_future(queue.__anext__())
        await asyncio.sleep(0)
        queue.lose("its revision was compacted")
        with pytest.raises(WatchLost, match="compacted"):
            await reader

    asyncio.run(main())
