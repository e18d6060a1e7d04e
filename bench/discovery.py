"""`python -m bench.discovery`: what a discovery process can do, and what it costs.

Lookups of owned topics over a few connections, as many in flight as each may have, and one at a time; memory
with idle connections; and the proxied throughput from a broker that sends continuously. etcd, a discovery and
a stand-in for the broker are started for it, on this machine.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import shutil
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, cast

import uvloop
from magnetar.common.wire import commands
from magnetar.testing.free_ports import free_ports

from bench.figures import percentile
from bench.footprint import idle
from bench.frames import simple_frame
from bench.target import Target, report
from tests.cluster.discovery_process import DiscoveryProcess, pretend
from tests.etcd_server import EtcdServer
from tests.integration.harness import Endpoint, temporary_directory

BROKER: Final = "bench:8080"
TOPICS: Final = 10_000
WINDOW: Final = 100
CONNECTING_AT_ONCE: Final = 200
CARRIED_CHUNK: Final = b"x" * 65_536


@dataclass(frozen=True, slots=True)
class Scale:
    """How much of each."""

    connections: int
    idle_connections: int
    seconds: float


@contextlib.contextmanager
def discovery(broker_port: int) -> Iterator[DiscoveryProcess]:
    """A discovery over an etcd that names one broker, the owner of public/default."""
    directory = temporary_directory()
    etcd = EtcdServer(directory / "etcd", fsync=False)
    process = DiscoveryProcess(
        directory,
        "discovery",
        "",
        {"maxConcurrentInboundConnections": "0", "keepAliveIntervalSeconds": "300"},
    )
    try:
        etcd.start()
        process.settings["metadataStoreUrl"] = etcd.url
        endpoint = Endpoint(f"pulsar://127.0.0.1:{broker_port}", "http://127.0.0.1:1", "test")
        pretend(etcd.url, {BROKER: endpoint}, {"public/default": BROKER})
        process.start()
        yield process
    finally:
        process.kill()
        etcd.kill()
        shutil.rmtree(directory, ignore_errors=True)


class Asking(asyncio.Protocol):
    """One connection that keeps a window of lookups in flight; answers are counted by their frames."""

    def __init__(self, window: int) -> None:
        self.window = window
        self.answered = 0
        self.ms: list[float] = []
        self.ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._received = b""
        self._sent_at: list[float] = []
        self._next = 0
        self._asking = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._transport.write(simple_frame("connect", client_version="bench", protocol_version=20))

    def ask(self) -> None:
        """From now on the window is kept full."""
        self._asking = True
        self._send(self.window)

    def stop(self) -> None:
        self._asking = False
        self._transport.abort()

    def _send(self, count: int) -> None:
        now = time.perf_counter()
        frames = []
        for _ in range(count):
            self._next += 1
            topic = f"persistent://public/default/topic-{self._next % TOPICS}"
            frames.append(simple_frame("lookupTopic", topic=topic, request_id=self._next))
        self._sent_at += [now] * count
        self._transport.write(b"".join(frames))

    def data_received(self, data: bytes) -> None:
        received = self._received + data
        position = count = 0
        while len(received) - position >= 4:
            end = position + 4 + int.from_bytes(received[position : position + 4], "big")
            if end > len(received):
                break
            position = end
            count += 1
        self._received = received[position:]
        if not self.ready.done():
            self.ready.set_result(None)
            return
        if not self._asking:
            return
        now = time.perf_counter()
        self.answered += count
        self.ms += [(now - sent) * 1e3 for sent in self._sent_at[:count]]
        del self._sent_at[:count]
        self._send(count)


async def lookups(port: int, connections: int, window: int, seconds: float) -> tuple[float, list[float]]:
    """(answers a second, milliseconds of each)."""
    loop = asyncio.get_running_loop()
    asking = []
    for _ in range(connections):
        _, protocol = await loop.create_connection(lambda: Asking(window), "127.0.0.1", port)
        await protocol.ready
        asking.append(protocol)
    for one in asking:
        one.ask()
    await asyncio.sleep(seconds / 5)
    before, since = sum(one.answered for one in asking), time.perf_counter()
    for one in asking:
        one.ms.clear()
    await asyncio.sleep(seconds)
    answered, took = sum(one.answered for one in asking) - before, time.perf_counter() - since
    for one in asking:
        one.stop()
    return answered / took, [ms for one in asking for ms in one.ms]


async def hold(port: int, count: int, to: str = "") -> list[asyncio.StreamWriter]:
    """Open this many connections that complete their handshake and stay idle."""
    frame = simple_frame(
        "connect", client_version="bench", protocol_version=20, proxy_to_broker_url=to or None
    )

    async def one() -> asyncio.StreamWriter:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(frame)
        if not await reader.read(4_096):
            raise ConnectionError("the connection was refused")
        return writer

    held: list[asyncio.StreamWriter] = []
    while len(held) < count:
        held += await asyncio.gather(*(one() for _ in range(min(CONNECTING_AT_ONCE, count - len(held)))))
    return held


def release(held: Sequence[asyncio.StreamWriter]) -> None:
    for writer in held:
        writer.transport.abort()


async def play_broker(flood: asyncio.Event) -> tuple[asyncio.Server, int]:
    """Completes handshakes; once `flood` is set, sends to every new client at full speed."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError):
            await reader.read(4_096)
            writer.write(commands.connected("bench", 20, 5 << 20))
            while flood.is_set():
                writer.write(CARRIED_CHUNK)
                await writer.drain()
                await asyncio.sleep(0)
            await reader.read()

    (port,) = free_ports(1)
    return await asyncio.start_server(serve, "127.0.0.1", port), port


async def carried(port: int, to: str, seconds: float) -> float:
    """Megabytes a second from the broker through discovery to one client."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1 << 20)
    writer.write(simple_frame("connect", client_version="bench", proxy_to_broker_url=to))
    end, taken, since = time.perf_counter() + seconds, 0, time.perf_counter()
    while time.perf_counter() < end:
        taken += len(await reader.read(1 << 20))
    writer.transport.abort()
    return taken / (time.perf_counter() - since) / 1e6


async def measure(scale: Scale) -> dict[str, float]:
    flood = asyncio.Event()
    server, broker_port = await play_broker(flood)
    figures: dict[str, float] = {}
    context = discovery(broker_port)
    process = await asyncio.to_thread(context.__enter__)
    try:
        target = Target(process.endpoint.service_url, process.endpoint.http_url, process.pid)
        to = f"127.0.0.1:{broker_port}"
        figures |= await asyncio.to_thread(idle, target, 2.0)
        for name, destination in (("asking", ""), ("to a broker", to)):
            held = await hold(process.port, scale.idle_connections, destination)
            await asyncio.sleep(1)
            figures[f"RSS MB with {scale.idle_connections} {name}"] = target.rss_bytes() / 1e6
            release(held)
            await asyncio.sleep(1)
        cpu, since = target.cpu_seconds(), time.perf_counter()
        rate, _ = await lookups(process.port, scale.connections, WINDOW, scale.seconds)
        figures["lookups/s"] = rate
        figures["CPU % meanwhile"] = (target.cpu_seconds() - cpu) / (time.perf_counter() - since) * 100
        _, ms = await lookups(process.port, 1, 1, scale.seconds)
        figures["one at a time p50 ms"] = percentile(ms, 0.5)
        figures["one at a time p99 ms"] = percentile(ms, 0.99)
        flood.set()
        figures["carried MB/s"] = await carried(process.port, to, scale.seconds)
    finally:
        server.close()
        await asyncio.to_thread(context.__exit__, None, None, None)
    return figures


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--connections", type=int, default=8, help="that ask at once (default 8)")
    parser.add_argument("--idle", type=int, default=9_000, help="idle connections (default 9,000)")
    parser.add_argument("--seconds", type=float, default=5.0, help="of each load (default 5)")
    options = parser.parse_args(argv)
    print(f"discovery, {os.cpu_count()} cores, over loopback:")
    report("discovery", uvloop.run(measure(Scale(options.connections, options.idle, options.seconds))))


if __name__ == "__main__":
    main()
