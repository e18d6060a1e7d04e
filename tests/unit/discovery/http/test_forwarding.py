"""HTTP carried to brokers: what arrives there, what comes back, and where nothing is carried to."""

from __future__ import annotations

import asyncio
import gzip
import io
import socket
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field

import aiohttp
import pytest
from aiohttp import web
from magnetar.discovery.http import forwarding
from structlog.testing import capture_logs

from tests.unit.discovery.front import FakeBroker, Front, config, until, with_front
from tests.unit.discovery.http.http_port import http_port

STATS = "/admin/v2/persistent/public/default/t/stats"
CLUSTERS = "/admin/v2/clusters"

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@dataclass
class Asked:
    """A request as a broker got it."""

    method: str
    target: str
    headers: Mapping[str, str]
    body: bytes


@dataclass
class HttpBroker:
    """The HTTP port of a broker that only pretends."""

    url: str
    handler: Handler | None = None
    asked: list[Asked] = field(default_factory=list)

    async def answer(self, request: web.BaseRequest) -> web.StreamResponse:
        assert isinstance(request, web.Request)
        self.asked.append(Asked(request.method, request.raw_path, request.headers, await request.read()))
        if self.handler is not None:
            return await self.handler(request)
        return web.Response(text=f"from {self.url}")


async def serving(front: Front, broker: FakeBroker) -> HttpBroker:
    """An HTTP port for one of the front's brokers, registered."""
    app = web.Application()
    found = HttpBroker("")
    app.router.add_route("*", "/{rest:.*}", found.answer)
    runner = web.AppRunner(app)
    await runner.setup()
    front.opened.push_async_callback(runner.cleanup)
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    found.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    await at(front, broker, found.url)
    return found


async def at(front: Front, broker: FakeBroker, url: str) -> None:
    """The broker says that its HTTP is there."""
    registration = broker.registration()
    registration.addresses.http_url = url
    await front.register(registration)


class Caller:
    """A client that reaches nothing but discovery: it follows no redirects."""

    def __init__(self, session: aiohttp.ClientSession, base: str) -> None:
        self._session, self.base = session, base

    async def __call__(
        self, path: str, method: str = "GET", *, body: bytes | None = None, **headers: str
    ) -> tuple[int, str, Mapping[str, str]]:
        async with self._session.request(
            method,
            self.base + path,
            data=None if body is None else io.BytesIO(body),
            headers={name.replace("_", "-"): value for name, value in headers.items()},
            allow_redirects=False,
        ) as answer:
            return answer.status, await answer.text(), answer.headers


def with_carrier(body: Callable[[Front, Caller], Awaitable[None]], **of_proxy: object) -> None:
    async def serve(front: Front) -> None:
        async with http_port(front) as (session, base):
            await body(front, Caller(session, base))

    with_front(serve, config(through_service_url=True, **of_proxy))


def test_a_request_arrives_at_the_owner_as_it_was_and_its_answer_comes_back_as_it_is() -> None:
    async def body(front: Front, call: Caller) -> None:
        a, b = await serving(front, front.a), await serving(front, front.b)
        await front.own(front.b)

        async def created(request: web.Request) -> web.Response:
            return web.Response(status=201, text='{"a": 1}', headers={"X-Of-Broker": "yes"})

        b.handler = created
        asked = f"{STATS}?getPreciseBacklog=true&x=a%2Bb"
        for method in ("PUT", "POST", "DELETE"):
            status, text, headers = await call(
                asked, method, body=b'{"b": 2}', Authorization="Bearer x", X_Request_ID="an-id", TE="gzip"
            )
            assert (status, text, headers["X-Of-Broker"]) == (201, '{"a": 1}', "yes")
            assert headers["X-Request-ID"] == "an-id"
            got = b.asked.pop()
            assert (got.method, got.target, got.body) == (method, asked, b'{"b": 2}')
            assert got.headers["Authorization"] == "Bearer x"
            assert got.headers["X-Request-ID"] == "an-id"
            assert got.headers["Host"] == b.url.removeprefix("http://")
            assert "TE" not in got.headers
        status, text, headers = await call(STATS, "HEAD")
        assert (status, text, headers["Content-Length"]) == (201, "", "8")
        assert a.asked == []

    with_carrier(body)


def test_a_page_of_discovery_itself_may_ask_and_one_of_another_site_may_not() -> None:
    async def body(front: Front, call: Caller) -> None:
        b = await serving(front, front.b)
        await front.own(front.b)
        status, text, _ = await call(STATS, "POST", Origin="https://somewhere.example")
        assert (status, "another site" in text, b.asked) == (403, True, [])
        status, _, _ = await call(STATS, "POST", Origin=call.base)
        assert status == 200
        assert "Origin" not in b.asked.pop().headers, "to the broker it would be another site's"

    with_carrier(body)


def test_request_for_any_broker_goes_to_the_next_reachable_one() -> None:
    async def body(front: Front, call: Caller) -> None:
        await serving(front, front.a)
        with socket.create_server(("127.0.0.1", 0)) as nobody:
            port = nobody.getsockname()[1]
        await at(front, front.b, f"http://127.0.0.1:{port}")
        assert [(await call(CLUSTERS))[0] for _ in range(4)] == [200] * 4
        await front.own(front.b)
        status, text, _ = await call(STATS)
        assert status == 503
        assert "b:8080 cannot be reached" in text

    with_carrier(body)


def test_a_broker_that_names_another_one_is_followed_with_the_body() -> None:
    async def body(front: Front, call: Caller) -> None:
        a, b = await serving(front, front.a), await serving(front, front.b)
        await front.own(front.a)

        async def elsewhere(request: web.Request) -> web.Response:
            return web.Response(status=307, headers={"Location": f"{b.url}{STATS}?authoritative=true"})

        a.handler = elsewhere
        status, text, _ = await call(STATS, "POST", body=b"x")
        assert (status, text) == (200, f"from {b.url}")
        assert [(each.target, each.body) for each in b.asked] == [(f"{STATS}?authoritative=true", b"x")]

        async def back(request: web.Request) -> web.Response:
            return web.Response(status=307, headers={"Location": f"{a.url}{STATS}"})

        b.handler = back
        status, text, _ = await call(STATS, "POST", body=b"x")
        assert status == 508
        assert "redirected this request" in text
        assert len(a.asked) + len(b.asked) == 2 + forwarding.HOPS_MAX

    with_carrier(body)


def test_nothing_but_brokers_is_reached() -> None:
    async def body(front: Front, call: Caller) -> None:
        a = await serving(front, front.a)
        await front.own(front.a)
        inside = await serving(front, front.b)
        await at(front, front.b, "http://b:8080")  # so that what listens there is no broker's any more

        async def inward(request: web.Request) -> web.Response:
            return web.Response(status=307, headers={"Location": f"{inside.url}/secret"})

        a.handler = inward
        status, _, headers = await call(STATS)
        assert (status, headers["Location"]) == (307, f"{inside.url}/secret")
        assert inside.asked == []

    with_carrier(body)


def test_a_brokers_address_that_leads_to_discovery_ends_at_the_second_pass() -> None:
    async def body(front: Front, call: Caller) -> None:
        await at(front, front.a, call.base)
        await front.own(front.a)
        status, text, _ = await call(STATS)
        assert status == 508
        assert "forwarding loop" in text
        # Nor does it go around for ever where the caller, or a proxy before, says `Via` too.
        status, text, _ = await call(STATS, Via="1.1 somebody")
        assert status == 508
        assert "forwarding loop" in text

    with_carrier(body)


def test_a_long_answer_comes_whole_and_one_that_broke_off_is_not_taken_for_whole() -> None:
    async def body(front: Front, call: Caller) -> None:
        a = await serving(front, front.a)
        await front.own(front.a)
        pieces = 100

        async def long(request: web.Request) -> web.StreamResponse:
            response = web.StreamResponse()
            await response.prepare(request)
            for _ in range(pieces):
                await response.write(b"x" * 50_000)
            if request.query:
                assert request.transport is not None
                request.transport.abort()
            return response

        a.handler = long
        status, text, _ = await call(STATS)
        assert (status, len(text)) == (200, pieces * 50_000)
        with pytest.raises(aiohttp.ClientError):
            await call(f"{STATS}?break=off")

    with_carrier(body)


def test_a_broker_that_says_nothing_is_given_up() -> None:
    async def body(front: Front, call: Caller) -> None:
        a = await serving(front, front.a)
        await front.own(front.a)
        silence = asyncio.Event()

        async def silent(request: web.Request) -> web.Response:
            await silence.wait()
            return web.Response()

        a.handler = silent
        status, text, _ = await call(STATS)
        assert status == 504
        assert "a:8080 did not answer" in text
        silence.set()

    with_carrier(body, read_timeout_ms=50)


def test_a_body_that_no_broker_would_take_goes_to_none() -> None:
    async def body(front: Front, call: Caller) -> None:
        a = await serving(front, front.a)
        await front.own(front.a)
        status, text, _ = await call(STATS, "POST", body=b"x" * (forwarding.BODY_BYTES_MAX + 1))
        assert (status, a.asked) == (413, [])
        assert "Too Large" in text

    with_carrier(body)


def test_a_body_that_does_not_come_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forwarding, "BODY_S", 0.05)

    async def body(front: Front, call: Caller) -> None:
        await serving(front, front.a)
        await front.own(front.a)
        reader, writer = await asyncio.open_connection("127.0.0.1", int(call.base.rpartition(":")[2]))
        writer.write(f"POST {STATS} HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\nx".encode())
        answer = await asyncio.wait_for(reader.readuntil(b"\r\n"), 30)
        assert answer.startswith(b"HTTP/1.1 408 ")
        # The connection ends when the rest has come, which is waited for ten seconds.
        writer.write(b"x" * 8)
        await asyncio.wait_for(reader.read(), 30)
        writer.close()

    with_carrier(body)


def test_a_compressed_body_arrives_as_it_was_and_is_not_even_looked_at() -> None:
    async def body(front: Front, call: Caller) -> None:
        app = web.Application()
        arrived: list[bytes] = []

        async def kept(request: web.BaseRequest) -> web.StreamResponse:
            arrived.append(await request.read())
            assert request.headers["Content-Encoding"] == "gzip"
            return web.Response()

        app.router.add_route("*", "/{rest:.*}", kept)
        runner = web.AppRunner(app, auto_decompress=False)
        await runner.setup()
        front.opened.push_async_callback(runner.cleanup)
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        await at(front, front.a, f"http://127.0.0.1:{runner.addresses[0][1]}")
        await front.own(front.a)
        for sent in (gzip.compress(b"{}"), b"not gzip at all"):
            status, _, _ = await call(STATS, "POST", body=sent, Content_Encoding="gzip")
            assert (status, arrived.pop()) == (200, sent)

    with_carrier(body)


@pytest.mark.parametrize("how", ["Content-Length: 9\r\n\r\n", "Transfer-Encoding: chunked\r\n\r\n9\r\n"])
def test_a_caller_who_leaves_within_a_body_fills_no_log(how: str) -> None:
    async def body(front: Front, call: Caller) -> None:
        a = await serving(front, front.a)
        await front.own(front.a)
        with capture_logs() as logged:
            reader, writer = await asyncio.open_connection("127.0.0.1", int(call.base.rpartition(":")[2]))
            head, _, start = how.partition("\r\n\r\n")
            writer.write(
                f"POST {STATS} HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\n{head}\r\n\r\n".encode()
            )
            # So that it is in process when the rest comes.
            assert b"100 Continue" in await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 30)
            writer.write(f"{start}x".encode())
            writer.close()
            await writer.wait_closed()
            assert (await call(STATS))[0] == 200
        assert [each.method for each in a.asked] == ["GET"]
        assert [each for each in logged if each["log_level"] not in ("debug", "info")] == []

    with_carrier(body)


def test_bodies_take_no_more_memory_than_is_set_aside_for_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forwarding, "BODIES_BYTES_MAX", forwarding.BODY_BYTES_MAX + 10)

    async def body(front: Front, call: Caller) -> None:
        a = await serving(front, front.a)
        await front.own(front.a)
        port = int(call.base.rpartition(":")[2])
        # Of one whose length is not told, the most is expected.
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        head = f"POST {STATS} HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\n"
        writer.write(f"{head}Transfer-Encoding: chunked\r\n\r\n".encode())
        await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 30)
        statuses = {(await call(STATS, "POST", body=b"x" * size))[0] for size in (1, 10)}
        assert statuses == {200}
        status, text, _ = await call(STATS, "POST", body=b"x" * 11)
        assert status == 503
        assert "try again" in text
        assert (await call(STATS))[0] == 200
        writer.write(b"1\r\ny\r\n0\r\n\r\n")
        assert (await asyncio.wait_for(reader.readuntil(b"\r\n"), 30)).split(b" ")[1] == b"200"
        writer.close()
        assert (await call(STATS, "POST", body=b"x" * 11))[0] == 200
        assert sorted(len(each.body) for each in a.asked) == [0, 1, 1, 10, 11]

    with_carrier(body)


def test_health_and_redirects_to_nowhere_are_as_ever() -> None:
    async def body(front: Front, call: Caller) -> None:
        assert (await call("/readyz"))[0] == 200
        for broker in ("a", "b"):
            await front.store.delete(f"/magnetar/test/v1/brokers/available/{broker}%3A8080")
        await until(lambda: not front.discovery.directory.all())
        status, text, _ = await call(CLUSTERS)
        assert (status, text) == (503, '{"reason": "no broker is available; try again"}')
        assert (await call("/admin/v2/persistent/public/default/%FF/stats"))[0] == 412

    with_carrier(body)
