"""Long answers in pieces of about a millisecond of work, so that messages get their turn in between."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final

from aiohttp import web
from magnetar.common.runtime.work_slices import Slices

TURN: Final = web.AppKey("turn", asyncio.Lock)
"""Of an application: held by whoever works on a long answer, for a slice and the turn of others behind it.

So the work between two turns of the event loop is one slice, however many long answers are asked for at once.
"""

WRITE_S: Final = 30.0
"""For a piece of a long answer to be taken by the socket; whoever reads more slowly is cut off."""

_WRITE_BYTES: Final = 64 * 1024


def with_members(around: Mapping[str, Any], name: str, members: Iterable[tuple[str, Any]]) -> Iterator[str]:
    """The pieces of an object that has, as its last member, an object of these members."""
    yield f"{json.dumps(around)[:-1]}{', ' if around else ''}{json.dumps(name)}: {{"
    for at, (key, value) in enumerate(members):
        yield f"{', ' if at else ''}{json.dumps(key)}: {json.dumps(value)}"
    yield "}}"


async def stream_json(
    request: web.Request, pieces: Iterable[str], work_clock: Callable[[], float] = time.perf_counter
) -> web.StreamResponse:
    """Answer JSON that is made while it is sent: a piece should be some tenths of a millisecond of work.

    Whatever could be refused has to be before the first piece: then the status is sent.
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
    """Raises ConnectionResetError when the reader takes none of it for too long."""
    try:
        async with asyncio.timeout(WRITE_S):
            await response.write(data)
    except TimeoutError as error:
        if request.transport is not None:
            request.transport.abort()
        raise ConnectionResetError("the reader is too slow") from error
