"""Streaming of long JSON responses in slices of a millisecond, so that messages are served in between."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final

from aiohttp import web
from magnetar.common.runtime.work_slices import Slices

TURN: Final = web.AppKey("turn", asyncio.Lock)
"""Lock of an application, held while a long response is worked on, for one slice and the turn of others after
it.

So the work between two turns of the event loop is one slice, however many long responses are requested.
"""

WRITE_S: Final = 30.0
"""Time limit for the socket to accept a piece of a long response; slower readers are disconnected."""

_WRITE_BYTES: Final = 64 * 1024


def with_members(around: Mapping[str, Any], name: str, members: Iterable[tuple[str, Any]]) -> Iterator[str]:
    """Yields the pieces of a JSON object whose last member `name` is an object of these members."""
    yield f"{json.dumps(around)[:-1]}{', ' if around else ''}{json.dumps(name)}: {{"
    yield from _members(members)
    yield "}}"


def object_of(members: Iterable[tuple[str, Any]]) -> Iterator[str]:
    """Yields the pieces of a JSON object of these members."""
    yield "{"
    yield from _members(members)
    yield "}"


def _members(members: Iterable[tuple[str, Any]]) -> Iterator[str]:
    for at, (key, value) in enumerate(members):
        yield f"{', ' if at else ''}{json.dumps(key)}: {json.dumps(value)}"


async def stream_json(
    request: web.Request, pieces: Iterable[str], work_clock: Callable[[], float] = time.perf_counter
) -> web.StreamResponse:
    """Responds with JSON that is produced while it is sent; a piece should take some tenths of a millisecond.

    Anything that may be refused must be checked before the first piece, because then the status is sent.
    """
    response = web.StreamResponse(headers={"Content-Type": "application/json"})
    await response.prepare(request)
    if request.method == "HEAD":
        return response
    turn, remaining = request.app[TURN], iter(pieces)
    slices = Slices(work_clock, 1)
    ended = False
    while not ended:
        held: list[str] = []
        size = 0
        while not ended and size < _WRITE_BYTES:
            async with turn:
                slices.begin()
                for piece in remaining:
                    held.append(piece)
                    size += len(piece)
                    if size >= _WRITE_BYTES or slices.over():
                        break
                else:
                    ended = True
                await asyncio.sleep(0)
        await _write(request, response, "".join(held).encode())
    await response.write_eof()
    return response


async def _write(request: web.Request, response: web.StreamResponse, data: bytes) -> None:
    """Writes a piece. Raises ConnectionResetError when the reader accepts none of it for too long."""
    try:
        async with asyncio.timeout(WRITE_S):
            await response.write(data)
    except TimeoutError as error:
        if request.transport is not None:
            request.transport.abort()
        raise ConnectionResetError("the reader is too slow") from error
