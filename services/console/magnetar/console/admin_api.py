"""HTTP client of the admin API, which passes on the token of the visitor that each call is made for.

Its connections are shared by all visitors; credentials belong to a call, never to a connection. Concurrent
calls, their times and the bytes of an answer are bounded.
"""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import urlencode, urljoin

import aiohttp
from magnetar.common.errors import ConfigError
from magnetar.common.obs import request_ids
from magnetar.common.security.tls.client_context import ClientTls
from magnetar.console.cluster_access import ClusterAccess
from magnetar.console.errors import AdminRefused, AdminUnreachable, LoginRequired
from yarl import URL

CALLS_MAX: Final = 32
"""Concurrent calls; more of them wait."""

CALL_S: Final = 30.0
"""Time limit of one call with its answer, in seconds."""

FETCH_S: Final = 5.0
"""Time limit of a fetch outside of the admin API, in seconds."""

CONNECT_S: Final = 5.0

ANSWER_BYTES_MAX: Final = 64 << 20
"""Longest answer that is read, in bytes; a namespace with a million topics has less."""

REDIRECTS_MAX: Final = 5

_FOLLOWED: Final = (307, 308)
_REQUIRED: Final = "Authentication required"
"""The reason of a 401 for missing or refused credentials; other reasons name a missing right."""

NOTHING: Final = object()
"""Marks a call without a body."""


class AdminApi:
    """Calls an admin API. Create it on the event loop that uses it; end it with `close`."""

    def __init__(self, access: ClusterAccess) -> None:
        self.url = access.admin_url.rstrip("/")
        self._files = access.tls
        self._tls: ClientTls | None = None
        self._slots = asyncio.Semaphore(CALLS_MAX)
        self._session: aiohttp.ClientSession | None = None

    async def close(self) -> None:
        """Close all connections. Idempotent."""
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    async def call(self, token: str, method: str, url: str, data: bytes | None) -> Any:
        """Returns the value of an answer: JSON, else text; None for an empty one.

        Redirects to the broker that is meant are followed. Raises LoginRequired, AdminRefused,
        AdminUnreachable.
        """
        headers = {"Accept": "application/json"}
        if data is not None:
            headers["Content-Type"] = "application/json"
        if token:
            headers["Authorization"] = f"Bearer {token}"
        if (request_id := request_ids.current()) is not None:
            headers[request_ids.HEADER] = request_id
        for _ in range(REDIRECTS_MAX):
            try:
                async with asyncio.timeout(CALL_S), self._slots:
                    status, answer, location = await self._exchange(method, url, data, headers)
            except (TimeoutError, aiohttp.ClientError, ConfigError, OSError) as error:
                raise AdminUnreachable(
                    f"the admin API at {self.url} does not answer: {_why(error)}"
                ) from error
            if status not in _FOLLOWED or not location:
                return _value(status, answer, token)
            before, url = url, urljoin(url, location)
            # The token goes along: never elsewhere than to HTTP servers, and not from TLS to plain text.
            loses_tls = before.startswith("https:") and not url.startswith("https:")
            if loses_tls or not url.startswith(("https://", "http://")):
                raise AdminUnreachable(f"the admin API at {self.url} redirects to {url[:200]}: not followed")
        raise AdminUnreachable(f"the admin API at {self.url} redirects more than {REDIRECTS_MAX} times")

    async def fetch(self, url: str) -> tuple[int, str]:
        """Returns status and text of a URL outside of the admin API, which gets no token; redirects are not
        followed. Raises AdminUnreachable.
        """
        if not url.startswith(("https://", "http://")):
            raise AdminUnreachable(f"{url[:200]!r} is not a URL of HTTP")
        try:
            async with asyncio.timeout(FETCH_S), self._slots:
                status, answer, _ = await self._exchange("GET", url, None, {})
        except (TimeoutError, aiohttp.ClientError, ConfigError, OSError) as error:
            raise AdminUnreachable(f"{url[:200]} does not answer: {_why(error)}") from error
        return status, answer.decode(errors="replace")

    async def _exchange(
        self, method: str, url: str, data: bytes | None, headers: Mapping[str, str]
    ) -> tuple[int, bytes, str]:
        if self._session is None:
            timeout = aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_S)
            connector = aiohttp.TCPConnector(limit=CALLS_MAX)
            self._session = aiohttp.ClientSession(
                connector=connector, timeout=timeout, cookie_jar=aiohttp.DummyCookieJar()
            )
        tls: ssl.SSLContext | bool = await self._context() if url.startswith("https:") else True
        async with self._session.request(
            method, URL(url, encoded=True), data=data, headers=headers, allow_redirects=False, ssl=tls
        ) as response:
            answer = bytearray()
            async for chunk in response.content.iter_any():
                answer += chunk
                if len(answer) > ANSWER_BYTES_MAX:
                    raise OSError(f"an answer of more than {ANSWER_BYTES_MAX} bytes")
            return response.status, bytes(answer), response.headers.get("Location", "")

    async def _context(self) -> ssl.SSLContext:
        """Returns the context for a connection by TLS. Raises ConfigError."""
        if self._tls is None:
            # The platform's authorities take a fifth of a second: not on the loop, which may have messages.
            self._tls = await asyncio.to_thread(ClientTls, self._files)
        return self._tls.context()


@dataclass(frozen=True, slots=True)
class Caller:
    """The admin API as one visitor may use it."""

    api: AdminApi
    token: str
    """The visitor's token; empty without one."""

    async def get(self, path: str, **query: object) -> Any:
        """Returns the value at a path, which is percent-encoded. Raises as `AdminApi.call`."""
        return await self.ask("GET", path, query=query)

    async def find(self, path: str, **query: object) -> Any:
        """Returns the value at a path; None when there is none (404). Raises as `AdminApi.call`."""
        try:
            return await self.ask("GET", path, query=query)
        except AdminRefused as error:
            if error.status == 404:
                return None
            raise

    async def ask(
        self, method: str, path: str, body: Any = NOTHING, query: Mapping[str, object] | None = None
    ) -> Any:
        """Returns the value of an answer. Raises as `AdminApi.call`."""
        given = {name: _text(value) for name, value in (query or {}).items()}
        url = f"{self.api.url}{path}" + (f"?{urlencode(given)}" if given else "")
        data = None if body is NOTHING else json.dumps(body).encode()
        return await self.api.call(self.token, method, url, data)


def _value(status: int, answer: bytes, token: str) -> Any:
    try:
        value = json.loads(answer) if answer else None
    except ValueError:
        value = answer.decode(errors="replace")
    if status < 300:
        return value
    reason = str(value.get("reason", value)) if isinstance(value, dict) else str(value or "no reason given")
    if status == 401 and (not token or reason == _REQUIRED):
        raise LoginRequired(reason)
    raise AdminRefused(status, reason[:1000])


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _why(error: BaseException) -> str:
    if isinstance(error, TimeoutError):
        return "no answer in time"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return str(error)[:300] or type(error).__name__
