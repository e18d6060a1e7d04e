"""HTTP: redirects to brokers, metrics and health."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from contextlib import suppress

import aiohttp
import pytest
import yarl
from magnetar.common.http import connections
from magnetar.discovery import metadata_pulse
from magnetar.discovery.http import server
from structlog.testing import capture_logs

from tests.unit.discovery.front import Front, until, with_front
from tests.unit.discovery.http.http_port import http_port

STATS = "/admin/v2/persistent/public/default/t/stats"


class Browser:
    """Asks without following redirects."""

    def __init__(self, session: aiohttp.ClientSession, base: str) -> None:
        self._session, self.base = session, base

    async def __call__(self, path: str, method: str = "GET", **more: object) -> tuple[int, str]:
        """(status, where to go or the body)."""
        async with self._session.request(
            method,
            self.base + path,
            allow_redirects=False,
            **more,  # type: ignore[arg-type]
        ) as answer:
            return answer.status, answer.headers.get("Location") or await answer.text()


def with_http(body: Callable[[Front, Browser], Awaitable[None]]) -> None:
    async def serve(front: Front) -> None:
        async with http_port(front) as (session, base):
            await body(front, Browser(session, base))

    with_front(serve)


def test_a_call_about_a_topic_goes_to_its_owner_with_path_and_query_as_they_were() -> None:
    async def body(front: Front, browse: Browser) -> None:
        await front.own(front.b)
        for path in (
            f"{STATS}?getPreciseBacklog=true&x=a%2Bb",
            "/lookup/v2/topic/persistent/public/default/t?authoritative=true",
            "/admin/v2/persistent/public/default/a%20b/stats",
            "/topics/persistent/public/default/t",
        ):
            assert await browse(path) == (307, f"http://b:8080{path}")
        for method in ("PUT", "POST", "DELETE", "HEAD"):
            assert await browse(STATS, method, data=b"x") == (307, f"http://b:8080{STATS}")

    with_http(body)


def test_other_calls_go_to_brokers_in_turn_but_to_none_that_is_about_to_go() -> None:
    async def body(front: Front, browse: Browser) -> None:
        path = "/admin/v2/clusters?x=1"
        found = [await browse(path) for _ in range(4)]
        assert {status for status, _ in found} == {307}
        assert {url for _, url in found} == {f"http://a:8080{path}", f"http://b:8080{path}"}
        registration = front.a.registration()
        registration.draining = True
        await front.register(registration)
        assert {await browse(path) for _ in range(4)} == {(307, f"http://b:8080{path}")}

    with_http(body)


def test_a_lookup_for_an_advertised_listener_goes_to_the_broker_as_that_listener_knows_it() -> None:
    async def body(front: Front, browse: Browser) -> None:
        registration = front.a.registration()
        registration.listeners["outside"].http_url = "http://gate:80"
        await front.register(registration)
        await front.own(front.a)
        path = "/lookup/v2/topic/persistent/public/default/t"
        assert await browse(f"{path}?listenerName=outside") == (
            307,
            f"http://gate:80{path}?listenerName=outside",
        )
        assert await browse(path, headers={"X-Pulsar-ListenerName": "outside"}) == (
            307,
            f"http://gate:80{path}",
        )
        assert await browse(path) == (307, f"http://a:8080{path}")
        status, why = await browse(f"{path}?listenerName=nowhere")
        assert status == 503
        assert "nowhere" in why

    with_http(body)


@pytest.mark.parametrize(
    ("path", "status", "why"),
    [
        ("/admin/v2/persistent/public/nowhere/t/stats", 404, "public/nowhere"),
        ("/admin/v2/persistent/public/default/%FF/stats", 412, "UTF-8"),
        ("/admin/v2/persistent/public/default/t/stats", 503, "look up again"),
        ("/elsewhere", 404, "/elsewhere"),
    ],
)
def test_unknown_paths_are_answered_as_by_pulsar(path: str, status: int, why: str) -> None:
    async def body(front: Front, browse: Browser) -> None:
        async with (
            aiohttp.ClientSession() as session,
            session.get(yarl.URL(browse.base + path, encoded=True), allow_redirects=False) as answer,
        ):
            assert answer.status == status
            assert why in (await answer.json())["reason"]

    with_http(body)


def test_a_redirect_that_comes_back_ends() -> None:
    async def body(front: Front, browse: Browser) -> None:
        registration = front.a.registration()
        registration.addresses.http_url = browse.base
        await front.register(registration)
        await front.own(front.a)
        status, why = await browse(STATS)
        assert status == 508
        assert "a:8080" in why

    with_http(body)


def test_without_any_broker_it_says_so() -> None:
    async def body(front: Front, browse: Browser) -> None:
        for broker in ("a", "b"):
            await front.store.delete(f"/magnetar/test/v1/brokers/available/{broker}%3A8080")
        status, why = 307, ""
        while status == 307:
            status, why = await browse("/admin/v2/clusters")
        assert (status, why) == (503, '{"reason": "no broker is available; try again"}')

    with_http(body)


def test_health_and_metrics_are_its_own() -> None:
    async def body(front: Front, browse: Browser) -> None:
        assert await browse("/health") == (200, "ok")
        assert await browse("/status.html") == (200, "OK")
        assert await browse("/livez") == await browse("/readyz") == (200, "ok\n")
        await front.client()
        status, page = await browse("/metrics")
        assert status == 200
        assert 'magnetar_discovery_connections{kind="asking"} 1.0' in page
        assert "process_resident_memory_bytes" in page
        lines = dict(line.rsplit(" ", 1) for line in page.splitlines() if not line.startswith("#"))
        assert float(lines["pulsar_proxy_active_connections"]) == sum(
            float(value)
            for name, value in lines.items()
            if name.startswith("magnetar_discovery_connections{")
        )
        for pulsars, ours in (
            ("new_connections", "connections_accepted"),
            ("rejected_connections", "connections_refused"),
        ):
            assert lines[f"pulsar_proxy_{pulsars}_total"] == lines[f"magnetar_discovery_{ours}_total"]
        assert "pulsar_proxy_binary_bytes_total" in lines
        front.discovery.not_ready = "a reason"
        assert await browse("/health") == (503, "not ready: a reason")
        assert await browse("/readyz") == (503, "not ready: a reason\n")
        assert await browse("/livez") == (200, "ok\n")
        assert (await browse(STATS))[0] == 503

    with_http(body)


def test_that_metadata_does_not_answer_is_said_while_clients_are_served_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(metadata_pulse, "LOOK_S", 0.02)

    async def body(front: Front, browse: Browser) -> None:
        await front.own(front.b)
        with capture_logs() as logged:
            front.store.faults.unreachable = True
            await until(lambda: front.discovery.metadata_pulse.silent)
            status, said = await browse("/health")
            assert (status, said.partition(",")[0]) == (200, "ok")
            assert "metadata has not answered" in said
            assert "magnetar_discovery_metadata_answers 0.0" in (await browse("/metrics"))[1]
            assert (await browse(STATS))[0] == 307
            front.store.faults.unreachable = False
            await until(lambda: not front.discovery.metadata_pulse.silent)
        events = [line["event"] for line in logged if "metadata" in line["event"]]
        assert events == ["metadata does not answer; serving the last known owners", "metadata answers again"]
        assert await browse("/health") == (200, "ok")
        assert "magnetar_discovery_metadata_answers 1.0" in (await browse("/metrics"))[1]

    with_http(body)


def test_requests_at_once_are_bounded_but_for_those_about_discovery_itself(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(server, "REQUESTS_MAX", 0)

    async def body(front: Front, browse: Browser) -> None:
        status, why = await browse("/admin/v2/clusters")
        assert status == 503
        assert "try again" in why
        assert await browse("/health") == (200, "ok")
        assert await browse("/livez") == await browse("/readyz") == (200, "ok\n")
        assert (await browse("/metrics"))[0] == 200

    with_http(body)


async def raw(browse: Browser, data: bytes) -> bytes:
    """All that is answered to these bytes until the connection ends."""
    reader, writer = await asyncio.open_connection("127.0.0.1", yarl.URL(browse.base).port)
    try:
        writer.write(data)
        return await asyncio.wait_for(reader.read(), 30)
    finally:
        writer.close()


def test_absolute_request_target_keeps_path_and_query() -> None:
    async def body(front: Front, browse: Browser) -> None:
        await front.own(front.b)
        for host in ("http://elsewhere", "http://elsewhere:80", "x://@elsewhere"):
            target = f"GET {host}{STATS}?a=%2f HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
            answer = await raw(browse, target.encode())
            assert f"Location: http://b:8080{STATS}?a=%2f\r\n".encode() in answer

    with_http(body)


@pytest.mark.parametrize(
    "sent",
    [b"nonsense\r\n\r\n", b"GET /health?\xff HTTP/1.1\r\nHost: x\r\n\r\n"],
    ids=["nonsense", "no UTF-8"],
)
def test_bytes_that_are_not_http_are_refused_and_not_logged(
    sent: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    async def body(front: Front, browse: Browser) -> None:
        head, _, text = (await raw(browse, sent)).partition(b"\r\n\r\n")
        assert b" 400 " in head
        assert "as HTTP/1.1" in json.loads(text)["reason"]

    with_http(body)
    assert [line for line in caplog.records if line.name.startswith("aiohttp")] == []


def test_idle_connections_keep_no_client_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "CONNECTIONS_MAX", 1)

    async def body(front: Front, browse: Browser) -> None:
        held = asyncio.create_task(raw(browse, b"GET /livez HTTP/1.1\r\nHost:"))
        page = ""
        while "magnetar_discovery_http_connections_refused_total 1.0" not in page:
            status, page = await browse("/metrics")
            assert status == 200
        with suppress(ConnectionResetError):
            assert await held == b""

    with_http(body)


@pytest.mark.parametrize("sent", [b"", b"GET /health HTTP/1.1\r\nHost:"], ids=["nothing", "half a request"])
def test_a_connection_that_says_nothing_more_is_closed(monkeypatch: pytest.MonkeyPatch, sent: bytes) -> None:
    monkeypatch.setattr(connections, "IDLE_S", 0.1)

    async def body(front: Front, browse: Browser) -> None:
        assert await raw(browse, sent) == b""

    with_http(body)
