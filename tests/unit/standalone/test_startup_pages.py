"""A broker's HTTP port says that it lives before there is a broker, and is free the moment there is one."""

from __future__ import annotations

import asyncio
import socket
import urllib.error
import urllib.request

import uvloop
from magnetar.standalone.startup_pages import NoBrokerYet
from magnetar.testing.free_ports import free_ports

# uvloop opens a pipe with its first loop and keeps it for the process: before any test counts descriptors.
uvloop.run(asyncio.sleep(0))


def get(port: int, path: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=30) as response:
            return response.status, response.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


def test_it_lives_is_not_ready_and_leaves_its_port_at_once() -> None:
    (port,) = free_ports(1)

    async def main() -> None:
        stand_in = NoBrokerYet("a reason")
        await stand_in.start("127.0.0.1", port)
        assert await asyncio.to_thread(get, port, "/livez") == (200, "ok\n")
        assert await asyncio.to_thread(get, port, "/readyz") == (503, "not ready: a reason\n")
        await stand_in.close()
        # As the broker's own HTTP does, in the same turn of the loop.
        socket.create_server(("127.0.0.1", port)).close()
        await stand_in.close()

    uvloop.run(main())
