"""Measurements of one service: handshakes, and memory of connections."""

from __future__ import annotations

import ssl
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import Final

from bench.connection import Connection, connect
from bench.frames import simple_frame
from bench.security.services import Service

AT_ONCE: Final = 4
"""Clients that connect one after the other; handshakes release the interpreter."""
TRAFFIC_BYTES: Final = 128 * 1024
SETTLE_S: Final = 3.0

CPU_MS: Final = "ms of CPU each"
RATE: Final = "a second"
IDLE_KIB: Final = "KiB, idle"
USED_KIB: Final = f"KiB, after {TRAFFIC_BYTES >> 10} KiB came in"


def handshakes(service: Service, tls: bool, count: int) -> dict[str, float]:
    """CPU of the server for a connection that is opened and closed, and how many a second."""
    context = service.context() if tls else None
    _open_and_close(service, context, AT_ONCE)
    target = service.target(tls)
    cpu, began = target.cpu_seconds(), time.perf_counter()
    _open_and_close(service, context, count)
    seconds = time.perf_counter() - began
    return {CPU_MS: (target.cpu_seconds() - cpu) / count * 1e3, RATE: count / seconds}


def _open_and_close(service: Service, context: ssl.SSLContext | None, count: int) -> None:
    left = threading.Semaphore(count)

    def act() -> None:
        while left.acquire(blocking=False):
            service.socket(context).close()

    with ThreadPoolExecutor(AT_ONCE) as pool:
        for client in [pool.submit(act) for _ in range(AT_ONCE)]:
            client.result()


def memory(service: Service, tls: bool, connections: int) -> dict[str, float]:
    """Resident memory that a connection takes after its Connect, and after traffic; of a fresh service."""
    target = service.target(tls)
    pings = simple_frame("pong") * (TRAFFIC_BYTES // len(simple_frame("pong")))
    with ExitStack() as closing:

        def opened(count: int) -> list[Connection]:
            found = [connect(target) for _ in range(count)]
            for connection in found:
                closing.callback(connection.close)
            return found

        opened(AT_ONCE)  # what the first connection loads is not its own
        resident = _settled(target.rss_bytes)
        some = opened(connections)
        idle = _settled(target.rss_bytes)
        for connection in some:
            connection.hand_over_any().sendall(pings)
        used = _settled(target.rss_bytes)
    return {
        IDLE_KIB: (idle - resident) / connections / 1024,
        USED_KIB: (used - resident) / connections / 1024,
    }


def _settled(resident: Callable[[], int]) -> int:
    time.sleep(SETTLE_S)
    return resident()
