"""A TCP proxy on the test's own loop that resets connections at random bytes, or slows them down."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator
from dataclasses import dataclass, field


@dataclass(slots=True)
class TcpProxy:
    """Carries connections from `address` to `target`, on one port; faults may be changed at any time."""

    address: str
    target: str
    port: int
    rng: random.Random
    reset_bytes_max: int = 0
    """A connection is reset after at most so many bytes of both directions; 0: never."""
    piece_bytes: int = 65_536
    pause_s: float = 0.0
    """The pause after each piece."""
    resets: int = 0
    _tasks: set[asyncio.Task[None]] = field(default_factory=set)

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[TcpProxy]:
        """Listens until the end of the block."""
        server = await asyncio.start_server(self._accept, self.address, self.port)
        try:
            yield self
        finally:
            server.close()
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.ensure_future(self._carry(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            there_reader, there_writer = await asyncio.open_connection(self.target, self.port)
        except OSError:
            writer.transport.abort()
            return
        left = [self.rng.randint(1, self.reset_bytes_max) if self.reset_bytes_max else -1]
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._copy(reader, there_writer, left))
                group.create_task(self._copy(there_reader, writer, left))
        except* (OSError, EOFError):
            pass
        finally:
            writer.transport.abort()
            there_writer.transport.abort()

    async def _copy(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, left: list[int]
    ) -> None:
        while data := await reader.read(self.piece_bytes):
            if self.reset_bytes_max and 0 <= left[0] <= len(data):
                self.resets += 1
                writer.write(data[: left[0]])
                raise EOFError("reset")
            left[0] -= len(data) if left[0] > 0 else 0
            writer.write(data)
            await writer.drain()
            if self.pause_s:
                await asyncio.sleep(self.pause_s)
        raise EOFError("closed")
