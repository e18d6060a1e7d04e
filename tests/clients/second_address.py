"""A second address of a TLS port: its certificate does not name it, and it resolves back to no name."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Iterator
from typing import Final

ADDRESS: Final = "127.0.0.2"
"""Java resolves an address back before it compares names: 127.0.0.1 would become `localhost`."""
START_SECONDS_MAX: Final = 20.0


@contextlib.contextmanager
def loop_in_a_thread(name: str) -> Iterator[asyncio.AbstractEventLoop]:
    """An event loop that runs in a thread until the block ends."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, name=name, daemon=True)
    thread.start()
    try:
        yield loop
    finally:
        asyncio.run_coroutine_threadsafe(_cancel_all(), loop).result(START_SECONDS_MAX)
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


async def _cancel_all() -> None:
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)


@contextlib.contextmanager
def also_at(port: int) -> Iterator[None]:
    """Carry connections of ADDRESS to 127.0.0.1, on the same port, until the block ends."""
    with loop_in_a_thread("second address") as loop:
        start = asyncio.start_server(lambda reader, writer: _carry(reader, writer, port), ADDRESS, port)
        server = asyncio.run_coroutine_threadsafe(start, loop).result(START_SECONDS_MAX)
        try:
            yield
        finally:
            loop.call_soon_threadsafe(server.close)


async def _carry(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, port: int) -> None:
    there_reader, there_writer = await asyncio.open_connection("127.0.0.1", port)
    await asyncio.gather(_copy(reader, there_writer), _copy(there_reader, writer))


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError), contextlib.closing(writer):
        while data := await reader.read(65_536):
            writer.write(data)
            await writer.drain()
