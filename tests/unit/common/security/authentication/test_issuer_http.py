"""Documents of issuers over HTTP: bounded, and never from another host than was asked."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from aiohttp import web
from magnetar.common.security.authentication import issuer_http
from magnetar.common.security.authentication.config import OpenIdConfig
from magnetar.common.security.authentication.issuer_http import IssuerHttp

from tests.unit.common.security.authentication.signing import run

CONFIG = OpenIdConfig(connect_timeout_ms=2_000, read_timeout_ms=300)


def serve(
    handler: Callable[[web.Request], Awaitable[web.StreamResponse]],
    body: Callable[[IssuerHttp, str], Awaitable[None]],
) -> None:
    """Run `body` with the address of a server that answers so."""

    async def main() -> None:
        app = web.Application()
        app.router.add_get("/{path:.*}", handler)
        runner = web.AppRunner(app, shutdown_timeout=0.1)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        http = IssuerHttp(CONFIG)
        try:
            await body(http, f"http://127.0.0.1:{runner.addresses[0][1]}")
        finally:
            await http.close()
            await http.close()
            await runner.cleanup()

    run(main())


def test_a_document_is_returned_also_after_a_redirect_on_the_same_host() -> None:
    async def answer(request: web.Request) -> web.StreamResponse:
        if request.path == "/moved":
            return web.Response(status=302, headers={"Location": "/here"})
        return web.Response(body=request.path.encode())

    async def body(http: IssuerHttp, url: str) -> None:
        assert await http.fetch(f"{url}/moved") == b"/here"

    serve(answer, body)


@pytest.mark.parametrize(
    ("location", "said"),
    [("http://127.0.0.1:1/", "redirects to another host"), ("/loop", "redirects more than 3 times")],
)
def test_other_redirects_are_not_followed(location: str, said: str) -> None:
    asked: list[str] = []

    async def answer(request: web.Request) -> web.StreamResponse:
        asked.append(request.path)
        return web.Response(status=307, headers={"Location": location})

    async def body(http: IssuerHttp, url: str) -> None:
        with pytest.raises(ValueError, match=said):
            await http.fetch(url)
        assert len(asked) <= 4

    serve(answer, body)


def test_errors_and_documents_that_are_too_long_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(issuer_http, "DOCUMENT_BYTES_MAX", 1_000)

    async def answer(request: web.Request) -> web.StreamResponse:
        return web.Response(status=404) if request.path == "/none" else web.Response(body=b"x" * 1_001)

    async def body(http: IssuerHttp, url: str) -> None:
        with pytest.raises(ValueError, match="status 404"):
            await http.fetch(f"{url}/none")
        with pytest.raises(ValueError, match="more than 1000 bytes"):
            await http.fetch(f"{url}/long")

    serve(answer, body)


def test_an_issuer_that_cannot_be_reached_or_does_not_answer_is_an_error_of_the_system() -> None:
    async def answer(request: web.Request) -> web.StreamResponse:
        await asyncio.sleep(0.5)
        return web.Response()

    async def body(http: IssuerHttp, url: str) -> None:
        with pytest.raises(OSError, match="cannot be reached"):
            await http.fetch(url)
        with pytest.raises(OSError, match="cannot be reached"):
            await http.fetch("http://127.0.0.1:1/")
        await asyncio.sleep(0.4)  # until the answer that was too late is given up

    serve(answer, body)


def test_certificates_that_cannot_be_read_stop_the_start() -> None:
    with pytest.raises(ValueError, match="openIDTokenIssuerTrustCertsFilePath"):
        IssuerHttp(OpenIdConfig(trust_certs="/no/such/file"))
