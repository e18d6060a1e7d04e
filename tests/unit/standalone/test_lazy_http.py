"""The HTTP port that loads what is behind it at the first connection."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import aiohttp
import pytest
from magnetar.broker.config import BrokerConfig
from magnetar.common.runtime.blocking import ThreadPool
from magnetar.common.security.tls.accepting import PortTls
from magnetar.common.security.tls.ports import TlsPorts
from magnetar.standalone import lazy_http
from magnetar.standalone.lazy_http import Edge, LazyHttp

from tests.unit.common.security.tls.peers import Files

BROKER = cast(
    Any,
    SimpleNamespace(
        config=BrokerConfig(),
        topics={},
        connections=0,
        namespaces=None,
        not_ready=None,
        authenticator=None,
        leaving=None,
        cluster=None,
        authorizer=SimpleNamespace(enabled=False),
    ),
)


def load_edge() -> Callable[[], Edge]:
    from magnetar.broker.admin.edge.server import HttpEdge
    from magnetar.broker.admin.table import routes

    return partial(HttpEdge, BROKER, routes(BROKER))


def with_http(
    body: Callable[[LazyHttp, str], Awaitable[None]], load: Callable[[], Callable[[], Edge]] = load_edge
) -> None:
    async def run() -> None:
        pool = ThreadPool(1, "test")
        http = LazyHttp(load, pool)
        port = http.start("127.0.0.1", 0)
        try:
            await body(http, f"http://127.0.0.1:{port}")
        finally:
            await http.close()
            await http.close()
            pool.close()

    asyncio.run(run())


async def health(base: str, tls: ssl.SSLContext | bool = True) -> tuple[int, str]:
    timeout = aiohttp.ClientTimeout(total=30)
    async with (
        aiohttp.ClientSession(timeout=timeout) as client,
        client.get(f"{base}/admin/v2/brokers/ready", ssl=tls) as response,
    ):
        return response.status, await response.text()


def test_nothing_is_loaded_before_the_first_connection() -> None:
    async def body(http: LazyHttp, base: str) -> None:
        await asyncio.sleep(0)
        assert http._edge is None
        assert await health(base) == (200, "ok")
        assert http._edge is not None

    with_http(body)


def test_connections_made_while_it_loads_are_all_answered() -> None:
    async def body(http: LazyHttp, base: str) -> None:
        answers = await asyncio.gather(*(health(base) for _ in range(20)))
        assert answers == [(200, "ok")] * 20

    with_http(body)


def test_close_before_the_first_connection_frees_the_port() -> None:
    async def body(http: LazyHttp, base: str) -> None:
        await http.close()
        with pytest.raises(aiohttp.ClientConnectorError):
            await health(base)

    with_http(body)


def test_a_close_that_is_given_up_frees_the_port() -> None:
    class Endless:
        async def start(self, listening: socket.socket, tls: PortTls | None = None) -> None:
            pass

        async def close(self) -> None:
            await asyncio.Event().wait()

    async def body(http: LazyHttp, base: str) -> None:
        port = int(base.rpartition(":")[2])
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        while http._edge is None:  # noqa: ASYNC110 -- nothing tells that it is loaded
            await asyncio.sleep(0.01)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.1):
                await http.close()
        writer.close()
        socket.create_server(("127.0.0.1", port)).close()

    with_http(body, lambda: Endless)


def test_closing_while_it_loads_waits_and_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    async def body(http: LazyHttp, base: str) -> None:
        request = asyncio.ensure_future(health(base))
        while http._loading is None:  # noqa: ASYNC110 -- the moment between accepting and loading is meant
            await asyncio.sleep(0)
        await http.close()
        # Accepted just in time, or not any more: never left hanging.
        (outcome,) = await asyncio.gather(request, return_exceptions=True)
        assert outcome == (200, "ok") or isinstance(outcome, aiohttp.ClientError)

    with_http(body)


def test_a_framework_that_does_not_load_refuses_connections_and_is_logged(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    logged: list[str] = []

    def missing() -> Callable[[], Edge]:
        raise ImportError("aiohttp")

    monkeypatch.setattr(lazy_http._log, "exception", logged.append, raising=False)

    async def body(http: LazyHttp, base: str) -> None:
        with pytest.raises(aiohttp.ClientError):
            await health(base)
        assert len(logged) == 1

    with_http(body, missing)


@pytest.mark.parametrize("first", [0, 1])
def test_a_plain_port_and_one_with_tls_are_served_whichever_is_called_first(
    tmp_path: Path, first: int
) -> None:
    async def run() -> None:
        files = Files(tmp_path)
        tls = TlsPorts(files.config)
        pool = ThreadPool(1, "test")
        http = LazyHttp(load_edge, pool)
        plain = f"http://127.0.0.1:{http.start('127.0.0.1', 0)}"
        secure = f"https://127.0.0.1:{http.start('127.0.0.1', 0, tls.web)}"
        try:
            for base in (plain, secure)[:: -1 if first else 1]:
                assert await health(base, files.client()) == (200, "ok")
        finally:
            await http.close()
            await tls.close()
            pool.close()

    asyncio.run(run())
