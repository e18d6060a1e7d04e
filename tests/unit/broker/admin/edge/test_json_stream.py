"""Long answers are made in slices, and the event loop turns between them."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

import aiohttp
import pytest
from aiohttp import web
from magnetar.broker.admin.edge.json_stream import TURN, stream_json, with_members
from magnetar.common.runtime.work_slices import SLICE_S
from yarl import URL

from tests.unit.common.runtime.ticking_clock import TickingClock


def test_members_are_pieces_of_one_object() -> None:
    pieces = list(with_members({"total": 2}, 'a "name"', [("x", {"y": 1}), ("z", [2])]))
    assert len(pieces) == 4
    assert json.loads("".join(pieces)) == {"total": 2, 'a "name"': {"x": {"y": 1}, "z": [2]}}
    assert json.loads("".join(with_members({}, "none", []))) == {"none": {}}


def test_others_have_their_turn_after_each_slice_of_an_answer() -> None:
    async def body() -> None:
        turns: list[int] = []
        made = 0

        async def somebody_else() -> None:
            while True:
                turns.append(made)
                await asyncio.sleep(0)

        def pieces() -> Iterator[str]:
            nonlocal made
            for _ in range(100):
                made += 1
                yield "x" * 1000

        async def handler(request: web.Request) -> web.StreamResponse:
            other = asyncio.create_task(somebody_else())
            try:
                return await stream_json(request, pieces(), TickingClock(SLICE_S))
            finally:
                other.cancel()

        assert len(await _answer_of(handler)) == 100_000
        seen = [count for count in sorted(set(turns)) if count]
        assert seen == list(range(1, 101)), "each piece took a slice"

    asyncio.run(body())


def test_long_responses_are_written_one_at_a_time() -> None:
    async def body() -> None:
        looks = 0

        async def somebody_else() -> None:
            nonlocal looks
            while True:
                looks += 1
                await asyncio.sleep(0)

        slices: dict[int, int] = {}

        def pieces() -> Iterator[str]:
            for _ in range(50):
                slices[looks] = slices.get(looks, 0) + 1
                yield "x"

        async def handler(request: web.Request) -> web.StreamResponse:
            return await stream_json(request, pieces(), TickingClock(SLICE_S))

        other = asyncio.create_task(somebody_else())
        async with _served(handler) as url, aiohttp.ClientSession() as client:

            async def ask() -> str:
                async with client.get(url) as response:
                    return await response.text()

            assert await asyncio.gather(*(ask() for _ in range(20))) == ["x" * 50] * 20
        other.cancel()
        assert sum(slices.values()) == 20 * 50
        assert max(slices.values()) == 1, "others had a turn between any two slices"

    asyncio.run(body())


def test_unread_response_is_abandoned(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("magnetar.broker.admin.edge.json_stream.WRITE_S", 0.1)

    async def body() -> None:
        given_up = asyncio.Event()

        def pieces() -> Iterator[str]:
            while True:
                yield "x" * 100_000

        async def handler(request: web.Request) -> web.StreamResponse:
            try:
                return await stream_json(request, pieces())
            finally:
                given_up.set()

        async with _served(handler) as url:
            where = URL(url)
            reader, writer = await asyncio.open_connection(where.host, where.port, limit=1024)
            writer.write(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
            await asyncio.wait_for(given_up.wait(), 20)
            assert reader is not None
            writer.transport.abort()
            await asyncio.sleep(0)

    asyncio.run(body())


async def _answer_of(handler: object) -> str:
    async with _served(handler) as url, aiohttp.ClientSession() as client, client.get(url) as response:
        assert response.content_type == "application/json"
        return await response.text()


@asynccontextmanager
async def _served(handler: object) -> AsyncIterator[str]:
    """The URL where `handler` answers."""
    app = web.Application()
    app[TURN] = asyncio.Lock()
    app.router.add_get("/", handler)  # type: ignore[arg-type]
    runner = web.AppRunner(app)
    await runner.setup()
    with socket.create_server(("127.0.0.1", 0)) as listening:
        await web.SockSite(runner, listening).start()
        try:
            yield f"http://127.0.0.1:{listening.getsockname()[1]}/"
        finally:
            await runner.cleanup()
