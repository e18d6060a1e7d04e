"""The port for jobs, which loads gRPC at the first connection and loses nobody by it."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from magnetar.common.runtime.blocking import ThreadPool
from magnetar.standalone import lazy_grpc
from magnetar.standalone.lazy_grpc import GrpcEdge, LazyGrpc

HOST = "127.0.0.1"


class Echo:
    """Stands for a gRPC server: listens by itself, and sends back what it gets behind its greeting."""

    def __init__(self) -> None:
        self.accepted = 0
        self._server: asyncio.Server | None = None

    async def start(self, host: str, port: int) -> int:
        self._server = await asyncio.start_server(self._answer, host, port)
        return port

    async def close(self) -> None:
        if self._server is not None:
            self._server.close()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.accepted += 1
        try:
            writer.write(b"hello ")
            while chunk := await reader.read(1 << 16):
                writer.write(chunk)
                await writer.drain()
        finally:
            writer.close()


def with_port(
    body: Callable[[LazyGrpc, int], Awaitable[None]],
    load: Callable[[], Callable[[], GrpcEdge]] = lambda: Echo,
) -> None:
    async def run() -> None:
        pool = ThreadPool(1, "test")
        lazy = LazyGrpc(load, pool)
        port = lazy.start(HOST, 0)
        try:
            async with asyncio.timeout(60):
                await body(lazy, port)
        finally:
            await lazy.close()
            await lazy.close()
            pool.close()

    asyncio.run(run())


async def exchange(port: int, data: bytes = b"ping") -> bytes:
    """What comes back until the other side has ended."""
    reader, writer = await asyncio.open_connection(HOST, port)
    try:
        writer.write(data)
        writer.write_eof()
        return await reader.read()
    finally:
        writer.close()


def test_nothing_is_loaded_before_the_first_connection() -> None:
    async def body(lazy: LazyGrpc, port: int) -> None:
        await asyncio.sleep(0)
        assert lazy._edge is None
        assert await exchange(port) == b"hello ping"
        assert lazy._edge is not None

    with_port(body)


def test_connections_made_while_it_loads_are_all_answered_and_later_ones_are_its_own() -> None:
    go = threading.Event()

    def load() -> Callable[[], GrpcEdge]:
        assert go.wait(30)
        return Echo

    async def body(lazy: LazyGrpc, port: int) -> None:
        early = [asyncio.create_task(exchange(port, b"%d" % number)) for number in range(20)]
        while len(lazy._waiting) < 20:  # noqa: ASYNC110 -- nothing tells that they are accepted
            await asyncio.sleep(0.01)
        go.set()
        assert await asyncio.gather(*early) == [b"hello %d" % number for number in range(20)]
        assert not lazy._waiting
        carried = len(lazy._carriers)
        assert await exchange(port, b"late") == b"hello late"
        assert len(lazy._carriers) <= carried, "it is not carried"
        edge = lazy._edge
        assert isinstance(edge, Echo)
        assert edge.accepted == 21

    with_port(body, load)


def test_a_carried_connection_carries_much_in_both_directions() -> None:
    async def body(lazy: LazyGrpc, port: int) -> None:
        data = bytes(range(256)) * 40_000
        reader, writer = await asyncio.open_connection(HOST, port)

        async def send() -> None:
            writer.write(data)
            await writer.drain()
            writer.write_eof()

        sending = asyncio.create_task(send())
        assert await reader.read(-1) == b"hello " + data
        await sending
        writer.close()

    with_port(body)


def test_connections_beyond_the_limit_are_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lazy_grpc, "_CARRIED_MAX", 1)
    go = threading.Event()

    def load() -> Callable[[], GrpcEdge]:
        assert go.wait(30)
        return Echo

    async def body(lazy: LazyGrpc, port: int) -> None:
        first = asyncio.create_task(exchange(port))
        while not lazy._waiting:  # noqa: ASYNC110 -- nothing tells that it is accepted
            await asyncio.sleep(0.01)
        try:
            assert await exchange(port) == b""
        except OSError:
            pass
        go.set()
        assert await first == b"hello ping"

    with_port(body, load)


def test_close_before_or_during_loading_frees_the_port() -> None:
    async def at_once(lazy: LazyGrpc, port: int) -> None:
        await lazy.close()
        with pytest.raises(OSError, match="Connect"):
            await exchange(port)

    async def loading(lazy: LazyGrpc, port: int) -> None:
        early = asyncio.create_task(exchange(port))
        while lazy._loading is None:  # noqa: ASYNC110 -- the moment between accepting and loading is meant
            await asyncio.sleep(0)
        await lazy.close()
        (outcome,) = await asyncio.gather(early, return_exceptions=True)
        assert outcome == b"" or isinstance(outcome, OSError)
        with pytest.raises(OSError, match="Connect"):
            await exchange(port)

    with_port(at_once)
    with_port(loading)


def test_failed_load_refuses_connections_and_is_logged_once(monkeypatch: pytest.MonkeyPatch) -> None:
    logged: list[str] = []

    def note(event: str, **_: object) -> None:
        logged.append(event)

    def missing() -> Callable[[], GrpcEdge]:
        raise ImportError("grpc")

    monkeypatch.setattr(lazy_grpc._log, "exception", note, raising=False)

    async def body(lazy: LazyGrpc, port: int) -> None:
        for _ in range(2):
            try:
                assert await exchange(port) == b""
            except OSError:
                pass
        assert logged == ["the port for jobs cannot be served"]

    with_port(body, missing)


def test_out_of_descriptors_it_waits_and_does_not_spin(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lazy_grpc, "_PAUSE_S", 0.05)
    refusals: list[int] = []

    class Exhausted:
        """The listening socket, which cannot accept at first."""

        def __init__(self, real: object) -> None:
            self._real = real

        def __getattr__(self, name: str) -> object:
            return getattr(self._real, name)

        def accept(self) -> object:
            if len(refusals) < 3:
                refusals.append(1)
                raise OSError(24, "Too many open files")
            return self._real.accept()  # type: ignore[attr-defined]

    async def body(lazy: LazyGrpc, port: int) -> None:
        lazy._socket = Exhausted(lazy._socket)  # type: ignore[assignment]
        assert await exchange(port) == b"hello ping"
        assert len(refusals) == 3

    with_port(body)


STARTS_WITHOUT_GRPC = """
import asyncio, sys
from pathlib import Path
from magnetar.common.config.loader import load
from magnetar.standalone.config import StandaloneConfig
from magnetar.standalone.standalone import Standalone

async def main() -> None:
    ports = ("brokerServicePort=0", "webServicePort=0", "magnetarControlPort=0")
    given = (*ports, "magnetarSegmentSizeBytes=1048576")
    made = Standalone(load(StandaloneConfig, overrides=given).value, Path(sys.argv[1]))
    await made.start()
    loaded = [name for name in sys.modules if name.split(".")[0] in ("grpc", "pyarrow", "fsspec")]
    of_jobs = ("magnetar.common.offload.offload_pb2", "magnetar.broker.offload.object_sweep")
    loaded += [name for name in sys.modules if name in of_jobs]
    assert not loaded, loaded
    from magnetar.common.offload.offload_client import OffloadChannel
    def ask() -> object:
        with OffloadChannel(made.jobs_address) as channel:
            return channel.wanted()
    assert not (await asyncio.to_thread(ask)).ledgers
    await made.close()

asyncio.run(main())
"""


def test_a_standalone_starts_without_grpc_and_answers_jobs_all_the_same(tmp_path: Path) -> None:
    command = [sys.executable, "-c", STARTS_WITHOUT_GRPC, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
