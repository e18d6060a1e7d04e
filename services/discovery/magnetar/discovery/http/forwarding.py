"""Forwards HTTP requests to brokers, for clients that cannot reach brokers directly.

As in the binary protocol, only brokers registered in metadata are called, at their registered addresses.
Redirects between brokers are followed here, because the client cannot follow them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from typing import Final
from urllib.parse import urlsplit

import aiohttp
import yarl
from aiohttp import web
from magnetar.common.cluster.broker_directory import BrokerDirectory
from magnetar.common.errors import ServiceNotReady
from magnetar.common.http.connections import WRITE_S
from magnetar.common.http.error_bodies import refused
from magnetar.common.metadata.values import BrokerRegistration
from magnetar.common.obs import request_ids
from magnetar.common.obs.log_limit import LogLimit
from magnetar.common.obs.logs import get_logger
from magnetar.common.security.http_headers import AUTH_METHOD, ORIGINAL_PRINCIPAL
from magnetar.discovery.config import ProxyConfig
from magnetar.discovery.http.carried_credentials import carried_credentials
from magnetar.discovery.transport.broker_access import BrokerAccess

log = get_logger(__name__)

BODY_BYTES_MAX: Final = 1 << 20
"""Maximum body size, in bytes, as in brokers. Bodies are buffered: a broker may redirect the request."""

BODIES_BYTES_MAX: Final = 32 << 20
"""Maximum total bytes of pending bodies, so that slow callers cannot exhaust memory."""

BODY_S: Final = 20.0
"""Timeout of receiving a body, in seconds."""

HOPS_MAX: Final = 4
"""Maximum redirects of one request: ownership may change meanwhile."""

CALLS_MAX: Final = 256
IDLE_S: Final = 15.0
"""Seconds that an idle connection to a broker is kept for reuse; brokers keep it longer."""

PIECE_BYTES: Final = 1 << 16

_VIA: Final = "magnetar-discovery"
"""Header that marks a forwarded request, so that a discovery detects a loop."""

_OF_ONE_CONNECTION: Final = frozenset(
    {
        "connection",
        "keep-alive",
        "proxy-authenticate",
        "proxy-authorization",
        "proxy-connection",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
    }
)
# The request id may be another one here. Discovery has checked the origin: a broker has another name, so that
# every page would be one of another site.
_OF_ONE_REQUEST: Final = _OF_ONE_CONNECTION | {
    "host", "origin", "content-length", "expect", request_ids.HEADER.lower(),
    "authorization", AUTH_METHOD.lower(), ORIGINAL_PRINCIPAL.lower(),
}  # fmt: skip

Headers = list[tuple[str, str]]


class HttpForwarder:
    """Forwards requests to brokers and returns their responses. `close` ends its connections."""

    def __init__(self, directory: BrokerDirectory, config: ProxyConfig, access: BrokerAccess) -> None:
        self._directory = directory
        self._access = access
        self._config = config
        self._session: aiohttp.ClientSession | None = None
        self._unreachable = LogLimit()
        self._bodies_bytes = 0

    async def carry(
        self, request: web.Request, brokers: Sequence[BrokerRegistration], asked: str
    ) -> web.StreamResponse:
        """Return the response of the first reachable broker of `brokers` to the path and query `asked`.

        Raises ServiceNotReady when none is reachable, HTTPException when the body does not arrive.
        """
        # All values: callers and proxies add header lines.
        if any(_VIA in via for via in request.headers.getall("Via", ())):
            return refused(
                508,
                "forwarding loop: a broker registered the HTTP address of a discovery; set its "
                "advertisedAddress",
            )
        expected = _body_bytes(request)
        if self._bodies_bytes + expected > BODIES_BYTES_MAX:
            full = refused(503, f"request bodies use {BODIES_BYTES_MAX >> 20} MiB already; try again")
            full.force_close()
            return full
        self._bodies_bytes += expected
        try:
            return await self._carry(request, brokers, asked)
        finally:
            self._bodies_bytes -= expected

    async def _carry(
        self, request: web.Request, brokers: Sequence[BrokerRegistration], asked: str
    ) -> web.StreamResponse:
        try:
            async with asyncio.timeout(BODY_S):
                body = await request.read()
        except TimeoutError:
            late = refused(408, f"the body did not arrive in {BODY_S:g} s")
            late.force_close()
            return late
        credentials = carried_credentials(request, as_proxy=self._access.as_proxy)
        headers = [
            *_passed_on(request.headers.items(), _OF_ONE_REQUEST),
            *credentials.headers,
            ("Via", f"1.1 {_VIA}"),
        ]
        if (request_id := request_ids.current()) is not None:
            headers.append((request_ids.HEADER, request_id))
        for _ in range(HOPS_MAX):
            answer = await self._first_answer(
                request.method, brokers, asked, headers, body, as_proxy=credentials.as_proxy
            )
            if isinstance(answer, web.Response):
                return answer
            async with answer:
                onward = self._onward(answer)
                if onward is None:
                    return await _handed_back(request, answer)
            broker, asked = onward
            brokers = (broker,)
        return refused(508, f"brokers redirected this request {HOPS_MAX} times; try again")

    async def close(self) -> None:
        """Close all connections to brokers. Idempotent."""
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    async def _first_answer(
        self,
        method: str,
        brokers: Sequence[BrokerRegistration],
        asked: str,
        headers: Headers,
        body: bytes,
        *,
        as_proxy: bool,
    ) -> aiohttp.ClientResponse | web.Response:
        why = "no broker is available"
        for broker in brokers:
            try:
                # Only a failed connect guarantees that the request was not executed; then another broker is
                # tried.
                return await self._opened().request(
                    method,
                    yarl.URL(self._url(broker).rstrip("/") + asked, encoded=True),
                    headers=headers,
                    data=body or None,
                    allow_redirects=False,
                    ssl=self._access.context(shows_certificate=as_proxy) or True,
                )
            except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError, ValueError) as error:
                why = f"broker {broker.broker_id} cannot be reached: {error}"
                if count := self._unreachable.note(asyncio.get_running_loop().time()):
                    log.warning(
                        "forwarding an HTTP request to a broker failed",
                        broker=broker.broker_id,
                        why=why,
                        requests=count,
                    )
            except TimeoutError:
                limit_s = self._config.read_timeout_ms / 1000
                return refused(504, f"broker {broker.broker_id} did not answer within {limit_s:g} s")
            except aiohttp.ClientError as error:
                return refused(
                    502, f"broker {broker.broker_id} closed the connection before it answered: {error}"
                )
        raise ServiceNotReady(f"{why}; try again")

    def _url(self, broker: BrokerRegistration) -> str:
        addresses = broker.addresses
        url = addresses.http_url_tls if self._access.uses_tls else addresses.http_url
        if not url:
            raise ValueError("it registered no HTTP address" + (" with TLS" if self._access.uses_tls else ""))
        return url

    def _onward(self, answer: aiohttp.ClientResponse) -> tuple[BrokerRegistration, str] | None:
        """Return the broker, and path and query, of a redirect; None for other responses."""
        location = answer.headers.get("Location", "") if answer.status in (307, 308) else ""
        if not location:
            return None
        netloc = _netloc(location)
        for broker in self._directory.all():
            if netloc in {_netloc(url) for url in _http_urls(broker)}:
                _, _, rest = location.partition("://")
                _, slash, path = rest.partition("/")
                return broker, slash + path
        return None

    def _opened(self) -> aiohttp.ClientSession:
        if self._session is None:
            read_s = self._config.read_timeout_ms / 1000
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=CALLS_MAX, keepalive_timeout=IDLE_S),
                timeout=aiohttp.ClientTimeout(
                    total=None,
                    sock_connect=self._config.connect_timeout_ms / 1000,
                    sock_read=read_s or None,
                ),
                cookie_jar=aiohttp.DummyCookieJar(),
                # Request and response bodies are forwarded unchanged.
                auto_decompress=False,
                skip_auto_headers=("Accept", "Accept-Encoding", "Content-Type", "User-Agent"),
            )
        return self._session


async def _handed_back(request: web.Request, answer: aiohttp.ClientResponse) -> web.StreamResponse:
    response = web.StreamResponse(
        status=answer.status,
        reason=answer.reason,
        headers=_passed_on(answer.headers.items(), _OF_ONE_CONNECTION),
    )
    await response.prepare(request)
    try:
        async for piece in answer.content.iter_chunked(PIECE_BYTES):
            async with asyncio.timeout(WRITE_S):
                await response.write(piece)
    except (aiohttp.ClientError, TimeoutError):
        # The status is already sent: only an aborted connection can signal an incomplete response.
        if request.transport is not None:
            request.transport.abort()
    return response


def _body_bytes(request: web.Request) -> int:
    """Return the maximum size of a request's body; an unknown length counts as the limit."""
    if not request.can_read_body:
        return 0
    told = request.content_length
    return BODY_BYTES_MAX if told is None else min(told, BODY_BYTES_MAX)


def _passed_on(headers: Iterable[tuple[str, str]], left_out: Iterable[str]) -> Headers:
    """Return the headers without hop-by-hop headers, including those listed in Connection."""
    given = list(headers)
    own = set(left_out)
    for name, value in given:
        if name.lower() == "connection":
            own.update(named.strip().lower() for named in value.split(","))
    return [(name, value) for name, value in given if name.lower() not in own]


def _http_url(broker: BrokerRegistration) -> str:
    url = broker.addresses.http_url
    if not url:
        raise ServiceNotReady(f"broker {broker.broker_id} has no HTTP address")
    return url


def _http_urls(broker: BrokerRegistration) -> list[str]:
    found = (broker.addresses, *broker.listeners.values())
    return [url for each in found for url in (each.http_url, each.http_url_tls) if url]


def _netloc(url: str) -> str:
    try:
        return urlsplit(url).netloc.lower()
    except ValueError:
        return ""
