"""Connections of the HTTP port: how many there may be, and how long one may keep the broker waiting."""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import uvloop
from magnetar.broker.admin.edge import call, server
from magnetar.broker.admin.routes.topics import stats_pages
from magnetar.common.http import connections
from yarl import URL

from tests.unit.broker.admin.fake_broker import serve

if TYPE_CHECKING:
    from tests.unit.broker.admin.conftest import Serving
    from tests.unit.broker.admin.fake_broker import Http

# uvloop opens a pipe with its first loop and keeps it for the process: before any test counts descriptors.
uvloop.run(asyncio.sleep(0))

REQUEST = b"GET /health HTTP/1.1\r\nHost: a\r\n\r\n"


class Raw:
    """A connection that is written by hand."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    @classmethod
    async def to(cls, http: Http) -> Raw:
        url = URL(http.base)
        return cls(*await asyncio.open_connection(url.host, url.port))

    async def answer(self) -> tuple[int, dict[str, str], bytes]:
        """Status, headers and body of the next answer."""
        head = (await asyncio.wait_for(self.reader.readuntil(b"\r\n\r\n"), 20)).decode()
        first, *lines = head.strip().split("\r\n")
        headers = dict(line.lower().split(": ", 1) for line in lines)
        body = await self.reader.readexactly(int(headers.get("content-length", 0)))
        return int(first.split()[1]), headers, body

    async def begin(self) -> None:
        """Have a request in process, of whose body only the beginning has come."""
        self.writer.write(
            b"PUT /admin/v2/tenants/slow HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\n"
            b"Content-Length: 9\r\n\r\n"
        )
        assert (await self.answer())[0] == 100
        self.writer.write(b"{")

    async def ended(self) -> bytes:
        """What comes until the broker closes."""
        return await asyncio.wait_for(self.reader.read(), 20)

    async def close(self) -> None:
        self.writer.close()
        with suppress(ConnectionError):
            await self.writer.wait_closed()


def test_one_over_the_bound_takes_the_place_of_the_oldest_that_asks_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "CONNECTIONS_MAX", 3)

    async def body(http: Http) -> None:
        busy = await Raw.to(http)
        await busy.begin()
        silent, asked = await Raw.to(http), await Raw.to(http)
        asked.writer.write(REQUEST)
        assert (await asked.answer())[0] == 200
        # Whoever holds connections open must not keep those out who look whether this broker lives.
        probes = [await Raw.to(http) for _ in range(2)]
        for probe in probes:
            probe.writer.write(REQUEST)
            assert (await probe.answer())[0] == 200
        for oldest in (silent, asked):
            assert await oldest.ended() == b""
        busy.writer.write(b"1234567}")
        assert (await busy.answer())[0] == 400
        for each in (busy, silent, asked, *probes):
            await each.close()

    uvloop.run(serve(tmp_path, body))


def test_connections_over_the_bound_are_told_so_and_closed_while_all_others_ask_something(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "CONNECTIONS_MAX", 2)

    async def body(http: Http) -> None:
        first, second = await Raw.to(http), await Raw.to(http)
        for each in (first, second):
            await each.begin()
        third = await Raw.to(http)
        status, headers, text = await third.answer()
        assert status == 503
        assert headers["content-type"] == "application/json"
        assert "2 HTTP connections" in json.loads(text)["reason"]
        assert await third.ended() == b""
        second.writer.write(b"1234567}")
        assert (await second.answer())[0] == 400
        again = await Raw.to(http)
        again.writer.write(REQUEST)
        assert (await again.answer())[0] == 200
        for each in (first, second, third, again):
            await each.close()

    uvloop.run(serve(tmp_path, body))  # the loop that production uses, and its transports


@pytest.mark.parametrize(
    "sent", [b"", b"GET /health HTTP/1.1\r\nHost:", REQUEST], ids=["nothing", "half a request", "a request"]
)
def test_a_connection_that_says_nothing_more_is_closed(
    serving: Serving, monkeypatch: pytest.MonkeyPatch, sent: bytes
) -> None:
    monkeypatch.setattr(connections, "IDLE_S", 0.2)

    async def body(http: Http) -> None:
        silent = await Raw.to(http)
        silent.writer.write(sent)
        answer = await silent.ended()
        assert answer.startswith(b"HTTP/1.1 200" if sent == REQUEST else b"")
        assert bool(answer) == (sent == REQUEST)
        await silent.close()

    serving(body)


def test_a_body_that_does_not_arrive_is_not_waited_for(
    serving: Serving, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(call, "BODY_S", 0.1)

    async def body(http: Http) -> None:
        slow = await Raw.to(http)
        slow.writer.write(b"PUT /admin/v2/tenants/slow HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\n{")
        status, _, text = await slow.answer()
        assert status == 408
        assert "body" in json.loads(text)["reason"]
        await slow.close()
        assert "slow" not in await http.ask("/tenants")

    serving(body)


def test_client_that_does_not_read_a_response_is_disconnected(
    serving: Serving, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "WRITE_S", 0.2)

    async def body(http: Http) -> None:
        size = len((await http.get("/openapi.json"))[1])
        raw = await Raw.to(http)
        raw.writer.transport.pause_reading()  # type: ignore[attr-defined]
        # More of it than sockets hold.
        raw.writer.write(b"GET /openapi.json HTTP/1.1\r\nHost: a\r\n\r\n" * 40)
        await asyncio.sleep(0.5)
        raw.writer.transport.resume_reading()  # type: ignore[attr-defined]
        with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
            await raw.reader.readexactly(40 * size)
        await raw.close()
        assert (await http.get("/health"))[0] == 200

    serving(body)


@pytest.mark.parametrize(
    ("raw", "status"),
    [
        (b"nonsense\r\n\r\n", 400),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n", 400),
        (b"GET /health HTTP/1.1\r\nHost: a\r\nContent-Length: x\r\n\r\n", 400),
        (b"GET /health HTTP/1.1\r\nHost: a\r\nX: " + b"y" * 100_000 + b"\r\n\r\n", 400),
        (b"GET /?" + b"x" * 100_000 + b" HTTP/1.1\r\nHost: a\r\n\r\n", 400),
        (b"PUT /admin/v2/tenants/t HTTP/1.1\r\nHost: a\r\nExpect: wonders\r\nContent-Length: 0\r\n\r\n", 417),
    ],
    ids=lambda value: repr(value)[:60],
)
def test_bytes_that_are_not_http_are_refused_with_a_reason(serving: Serving, raw: bytes, status: int) -> None:
    async def body(http: Http) -> None:
        connection = await Raw.to(http)
        connection.writer.write(raw)
        found, headers, text = await connection.answer()
        assert found == status
        assert headers["content-type"].startswith("application/json")
        assert json.loads(text)["reason"]
        await connection.close()

    serving(body)


@pytest.mark.parametrize(
    "path", ["/metrics", "/openapi.json", "/docs", "/admin/v2/tenants", "/admin/v2/nosuch"]
)
def test_an_answer_to_head_has_no_body_and_the_next_one_follows(serving: Serving, path: str) -> None:
    async def body(http: Http) -> None:
        raw = await Raw.to(http)
        raw.writer.write(f"HEAD {path} HTTP/1.1\r\nHost: a\r\n\r\n".encode())
        head = await asyncio.wait_for(raw.reader.readuntil(b"\r\n\r\n"), 20)
        assert head.startswith(b"HTTP/1.1 404" if "nosuch" in path else b"HTTP/1.1 200")
        raw.writer.write(REQUEST)
        assert (await raw.answer())[2] == b"ok"
        await raw.close()

    serving(body)


def test_requests_sent_in_one_go_are_answered_in_their_order(serving: Serving) -> None:
    async def body(http: Http) -> None:
        raw = await Raw.to(http)
        for path in ("/health", "/admin/v2/tenants", "/admin/v2/clusters"):
            raw.writer.write(f"GET {path} HTTP/1.1\r\nHost: a\r\n\r\n".encode())
        assert (await raw.answer())[2] == b"ok"
        assert json.loads((await raw.answer())[2]) == ["acme", "public", "pulsar"]
        assert json.loads((await raw.answer())[2]) == ["standalone"]
        await raw.close()

    serving(body)


@pytest.mark.parametrize("pieces", [0, 1, 100_000])
def test_an_answer_that_breaks_off_ends_with_its_connection(
    serving: Serving, monkeypatch: pytest.MonkeyPatch, pieces: int
) -> None:
    def broken(*_: object) -> Iterator[str]:
        yield from itertools.repeat("12, ", pieces)
        raise ValueError("secret detail")

    monkeypatch.setattr(stats_pages, "with_members", broken)

    async def body(http: Http) -> None:
        raw = await Raw.to(http)
        raw.writer.write(
            b"GET /admin/magnetar/v1/namespaces/acme/demo/topics/stats HTTP/1.1\r\nHost: a\r\n\r\n"
        )
        answer = await raw.ended()
        assert answer.count(b"HTTP/1.1") <= 1
        body = answer.partition(b"\r\n\r\n")[2]  # a header, too, may end in 0
        assert not body.endswith(b"0\r\n\r\n"), "nobody takes it for a whole answer"
        assert b"secret" not in answer
        await raw.close()

    serving(body)


def test_the_bound_is_that_of_pulsar() -> None:
    assert connections.CONNECTIONS_MAX == 2048
    assert server.REQUESTS_MAX < connections.CONNECTIONS_MAX
