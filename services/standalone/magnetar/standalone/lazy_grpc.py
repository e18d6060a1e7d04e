"""A port for jobs that listens from the start and loads gRPC at the first connection.

A standalone without jobs never imports gRPC and stays small. gRPC cannot take over a listening socket.
Connections made before it has loaded are forwarded to it; it accepts all later ones itself.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from typing import Final, Protocol

from magnetar.common.obs.logs import get_logger
from magnetar.common.runtime.blocking import BlockingPool
from magnetar.common.runtime.task_owner import TaskOwner

_log = get_logger(__name__)

_BACKLOG: Final = 128

_CARRIED_MAX: Final = 256
"""Maximum forwarded connections; further ones are closed, and clients reconnect."""

_CHUNK_BYTES: Final = 256 << 10

_PAUSE_S: Final = 1.0
"""Delay after a failed accept, in seconds."""


class GrpcEdge(Protocol):
    """A gRPC server that is not started yet."""

    async def start(self, host: str, port: int) -> int: ...
    async def close(self) -> None: ...


class LazyGrpc:
    """A listening socket on loopback that starts a gRPC server at the first connection."""

    def __init__(self, load: Callable[[], Callable[[], GrpcEdge]], pool: BlockingPool) -> None:
        """`load` imports gRPC in a thread and returns a factory, which makes the server on the event loop."""
        self._load_edge = load
        self._pool = pool
        self._socket: socket.socket | None = None
        self._host, self._port = "", 0
        self._waiting: list[socket.socket] = []
        self._loading: asyncio.Task[None] | None = None
        self._edge: GrpcEdge | None = None
        self._carriers = TaskOwner("forwarded connections of jobs")
        self._closed = False

    def start(self, host: str, port: int) -> int:
        """Listen and return the port; `port` 0 picks a free one. Raises OSError."""
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._socket = listening = socket.create_server((host, port), family=family, backlog=_BACKLOG)
        listening.setblocking(False)
        self._host, self._port = host, int(listening.getsockname()[1])
        asyncio.get_running_loop().add_reader(listening, self._first_connection)
        return self._port

    async def close(self) -> None:
        """Stop listening and end running calls. Idempotent."""
        self._closed = True
        self._stop_listening()
        if self._loading is not None:
            await asyncio.wait([self._loading])
        edge, self._edge = self._edge, None
        if edge is not None:
            await edge.close()
        await self._carriers.close()
        for connection in self._waiting:
            connection.close()
        self._waiting.clear()

    # --- inside ---

    def _first_connection(self) -> None:
        self._accept()
        if self._loading is None and self._waiting:
            self._loading = asyncio.get_running_loop().create_task(self._load(), name="load gRPC")

    def _accept(self) -> None:
        """Accept connections; they wait until the server has started."""
        while self._socket is not None:
            try:
                connection, _ = self._socket.accept()
            except BlockingIOError:
                return  # nothing else does
            except OSError as error:
                # Out of descriptors, for example: an immediate retry would be a busy loop.
                _log.error("accept failed on the port for jobs", error=str(error))
                self._pause()
                return
            if len(self._waiting) < _CARRIED_MAX:
                connection.setblocking(False)
                self._waiting.append(connection)
            else:
                connection.close()

    def _pause(self) -> None:
        loop, listening = asyncio.get_running_loop(), self._socket
        if listening is not None:
            loop.remove_reader(listening)
            loop.call_later(_PAUSE_S, self._listen_again)

    def _listen_again(self) -> None:
        if self._socket is not None:
            asyncio.get_running_loop().add_reader(self._socket, self._first_connection)

    def _stop_listening(self) -> None:
        listening, self._socket = self._socket, None
        if listening is not None:
            asyncio.get_running_loop().remove_reader(listening)
            listening.close()

    async def _load(self) -> None:
        try:
            edge = (await self._pool.run(self._load_edge))()
            if self._closed:
                return
            self._accept()
            # Followed at once by the next line, so that clients are refused only briefly.
            self._stop_listening()
            self._edge = edge
            await edge.start(self._host, self._port)
        except Exception:
            _log.exception("the port for jobs cannot be served", port=self._port)
            self._stop_listening()
            for connection in self._waiting:
                connection.close()
        else:
            for connection in self._waiting:
                self._carriers.spawn(self._carry(connection), "carry a connection")
        self._waiting.clear()

    async def _carry(self, connection: socket.socket) -> None:
        try:
            theirs = await asyncio.open_connection(sock=connection, limit=_CHUNK_BYTES)
            try:
                ours = await asyncio.open_connection(self._host, self._port, limit=_CHUNK_BYTES)
            except OSError:
                theirs[1].close()
                return
            try:
                async with asyncio.TaskGroup() as group:
                    group.create_task(_pump(theirs[0], ours[1]))
                    group.create_task(_pump(ours[0], theirs[1]))
            finally:
                theirs[1].close()
                ours[1].close()
        except OSError:
            pass  # Either side has disconnected; closing the other connection reports it.


async def _pump(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
    """Copy bytes until the source ends, then end the sink."""
    try:
        while chunk := await source.read(_CHUNK_BYTES):
            sink.write(chunk)
            await sink.drain()
        if sink.can_write_eof():
            sink.write_eof()
    except OSError:
        sink.close()
