"""HTTP client for the admin API of other brokers, for calls about topics that several brokers own.

It has one connection pool, a bounded number of concurrent calls, and a deadline for each. Errors are raised
as on this broker: a refusal with its status and reason, and anything that may succeed later as
ServiceNotReady.
"""

from __future__ import annotations

import asyncio
import json
import os
import ssl
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, Final, TypeVar
from urllib.parse import urlencode

import aiohttp
from aiohttp import web
from magnetar.broker.admin.edge.call import PRINCIPAL
from magnetar.broker.admin.edge.errors import Refused
from magnetar.broker.admin.edge.owners import AUTHORITATIVE
from magnetar.common.errors import ConfigError, ServiceNotReady, TopicNotFound
from magnetar.common.metadata.values import BrokerRegistration
from magnetar.common.obs import request_ids
from magnetar.common.obs.metrics import REGISTRY
from magnetar.common.security.http_headers import AUTH_METHOD, ORIGINAL_PRINCIPAL
from magnetar.common.security.identity import TLS
from magnetar.common.security.tls.broker_client_config import BrokerClientConfig
from magnetar.common.security.tls.client_context import ClientTls
from prometheus_client import Counter
from yarl import URL

T = TypeVar("T")

CALLS_MAX: Final = 64
"""Concurrent calls to other brokers; more of them wait."""

CALLS_PER_BROKER_MAX: Final = 16
"""Concurrent connections to one broker."""

CALL_S: Final = 60.0
"""Time limit of one call with its response; closing or truncating a topic may take long."""

CONNECT_S: Final = 3.0

LOOK_S: Final = 0.5
"""Interval of checks whether the called broker is still in the cluster."""

IDLE_S: Final = 15.0
"""Idle time after which a connection is closed; shorter than that of brokers."""

ANSWER_BYTES_MAX: Final = 64 << 20
"""Longest response that is accepted."""

AUTHORIZATION: Final = "Authorization"

NOTHING: Final = object()
"""Marks a request without a body."""

FAILED: Final = Counter(
    "magnetar_admin_peer_calls_failed",
    "Failed calls to the admin API of other brokers, by status; 0: no response.",
    ["status"],
    registry=REGISTRY,
)


class Peers:
    """Calls other brokers. Create it on the event loop that uses it; it is idle until `ask`, ended by
    `close`.
    """

    def __init__(
        self,
        is_up: Callable[[str, int], bool],
        *,
        call_s: float = CALL_S,
        client: BrokerClientConfig | None = None,
    ) -> None:
        """`is_up` tells by id and run whether a broker is still in the cluster. `client` says whether they
        are called with TLS, and what is trusted then.
        """
        self._is_up = is_up
        self._client = client or BrokerClientConfig()
        self._tls: ClientTls | None = None
        self._call_s = call_s
        self._slots = asyncio.Semaphore(CALLS_MAX)
        self._session: aiohttp.ClientSession | None = None

    async def ask(
        self,
        broker: BrokerRegistration,
        method: str,
        raw_path: str,
        query: Mapping[str, str] | None = None,
        body: Any = NOTHING,
        *,
        caller: web.Request | None = None,
    ) -> Any:
        """Returns the JSON response of the broker; None when the response is empty.

        `raw_path` is percent-encoded. `caller` is the request that this call serves: its credentials go on,
        so that the other broker decides by the same role. Raises Refused, TopicNotFound (404), and
        ServiceNotReady, also when the broker does not respond.
        """
        base = self._base(broker.addresses)
        if not base:
            raise ServiceNotReady(f"broker {broker.broker_id} has no HTTP address")
        url = URL(f"{base}{raw_path}?{urlencode({**(query or {}), AUTHORITATIVE: 'true'})}", encoded=True)
        data = None if body is NOTHING else json.dumps(body).encode()
        headers = {"Content-Type": "application/json"} if data is not None else {}
        headers |= self._credentials(caller)
        if (request_id := request_ids.current()) is not None:
            headers[request_ids.HEADER] = request_id
        try:
            async with asyncio.timeout(self._call_s), self._slots:
                status, answer = await self._while_up(broker, self._exchange(method, url, data, headers))
        except (TimeoutError, aiohttp.ClientError, OSError) as error:
            FAILED.labels("0").inc()
            raise ServiceNotReady(
                f"broker {broker.broker_id} did not answer ({self._why(error)}); retry"
            ) from error
        if status < 300:
            return _value(answer, broker)
        FAILED.labels(str(status)).inc()
        raise _refusal(status, _reason(answer), broker)

    def _credentials(self, caller: web.Request | None) -> dict[str, str]:
        """The caller's own Authorization; else our credentials with the caller's role beside them.

        Method tls never goes on: beside our certificate it would make the caller this broker.
        """
        principal = None if caller is None else caller.get(PRINCIPAL)
        original = None if principal is None else principal.original
        method = None if caller is None else caller.headers.get(AUTH_METHOD)
        if caller is not None and method != TLS and AUTHORIZATION in caller.headers:
            found = {AUTHORIZATION: caller.headers[AUTHORIZATION]}
            if method is not None:
                found[AUTH_METHOD] = method
            return found if original is None else {**found, ORIGINAL_PRINCIPAL: original}
        try:
            token = self._client.token()
        except OSError as error:
            raise ServiceNotReady(f"the token for other brokers cannot be read: {error.strerror}") from error
        found = {AUTHORIZATION: f"Bearer {token}"} if token else {}
        if principal is not None and principal.role is not None:
            found[ORIGINAL_PRINCIPAL] = original or principal.role
        return found

    async def _exchange(
        self, method: str, url: URL, data: bytes | None, headers: Mapping[str, str]
    ) -> tuple[int, bytes]:
        request = self._opened().request(
            method, url, data=data, headers=headers, allow_redirects=False, ssl=self._context(url)
        )
        async with request as response:
            return response.status, await _whole(response)

    def _base(self, addresses: BrokerRegistration.Addresses) -> str:
        """The address to call: with TLS where that is wanted and there is one, or where nothing else is."""
        first, second = addresses.http_url, addresses.http_url_tls
        if self._client.tls_enabled:
            first, second = second, first
        return (first or second).rstrip("/")

    def _context(self, url: URL) -> ssl.SSLContext | bool:
        """TLS of a call; nothing is loaded without a call with TLS. Raises ServiceNotReady."""
        if url.scheme != "https":
            return True
        if self._tls is None:
            try:
                self._tls = ClientTls(self._client.files())
            except ConfigError as error:
                raise ServiceNotReady(f"other brokers cannot be called with TLS: {error}") from error
        return self._tls.context()

    async def _while_up(self, broker: BrokerRegistration, work: Coroutine[Any, Any, T]) -> T:
        """Returns the result of `work`. Raises ServiceNotReady once the broker leaves the cluster, because
        other brokers own its topics then.
        """
        task = asyncio.create_task(work)
        task.add_done_callback(_heard)
        try:
            while not (await asyncio.wait([task], timeout=LOOK_S))[0]:
                if not self._is_up(broker.broker_id, broker.run):
                    FAILED.labels("0").inc()
                    raise ServiceNotReady(
                        f"broker {broker.broker_id} left the cluster before it answered; retry"
                    )
            return task.result()
        finally:
            task.cancel()

    async def close(self) -> None:
        """Ends every call; idempotent."""
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    def _why(self, error: Exception) -> str:
        if isinstance(error, TimeoutError):
            return str(error) or f"no response within {self._call_s:g} s"
        number = error.errno if isinstance(error, OSError) else None
        return os.strerror(number) if number and number > 0 else str(error) or type(error).__name__

    def _opened(self) -> aiohttp.ClientSession:
        if self._session is None:
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(
                    limit=CALLS_MAX, limit_per_host=CALLS_PER_BROKER_MAX, keepalive_timeout=IDLE_S
                ),
                timeout=aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_S),
                cookie_jar=aiohttp.DummyCookieJar(),
                # Each request names its content type; nothing is negotiated.
                skip_auto_headers=("Accept-Encoding",),
            )
        return self._session


def _heard(task: asyncio.Task[Any]) -> None:
    """Retrieves the exception of a finished task, which may have no waiter any more."""
    if not task.cancelled():
        task.exception()


PEERS: Final = web.AppKey("peers", Peers)


async def _whole(response: aiohttp.ClientResponse) -> bytes:
    pieces: list[bytes] = []
    size = 0
    async for piece in response.content.iter_chunked(1 << 16):
        size += len(piece)
        if size > ANSWER_BYTES_MAX:
            raise aiohttp.ClientPayloadError(f"its response has more than {ANSWER_BYTES_MAX} bytes")
        pieces.append(piece)
    return b"".join(pieces)


def _value(answer: bytes, broker: BrokerRegistration) -> Any:
    if not answer:
        return None
    try:
        return json.loads(answer)
    except ValueError as error:
        raise ServiceNotReady(f"broker {broker.broker_id} answered with invalid JSON: {error}") from error


def _reason(answer: bytes) -> str:
    try:
        return str(json.loads(answer)["reason"])
    except (ValueError, KeyError, TypeError):
        return answer.decode(errors="replace")[:300] or "no reason given"


def _refusal(status: int, reason: str, broker: BrokerRegistration) -> Exception:
    match status:
        case 404:
            return TopicNotFound(reason)
        case 502 | 503 | 504 | 307:
            return ServiceNotReady(f"broker {broker.broker_id}: {reason}")
        case 500:
            return Refused(500, f"broker {broker.broker_id}: {reason}")
    return Refused(status, reason)
