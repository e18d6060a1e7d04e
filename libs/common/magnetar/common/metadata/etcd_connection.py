"""Calls to an etcd cluster: member choice, retries and error mapping.

There is one channel per endpoint, used one at a time; after a member does not answer, another is used. grpc's
own retries are off, and only the generated stubs of etcd3aio are used because its clients retry: reads are
retried here within the request timeout; a write is sent once over an established connection, so "not sent"
and "not answered" are distinguishable.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, Final

import grpc
import grpc.aio
from etcd3aio import _protobuf as etcd
from magnetar.common.errors import ConfigError, MetadataError, UnknownOutcome
from magnetar.common.metadata import operations
from magnetar.common.metadata.etcd_access import EtcdAccess
from magnetar.common.obs.logs import get_logger
from magnetar.common.runtime.task_owner import TaskOwner

log = get_logger(__name__)

REQUEST_TIMEOUT_S: Final = 5.0

_DRAIN_S: Final = 10.0
"""Seconds that calls under way have on a channel whose credentials were replaced."""

_TOKEN_REFUSED: Final = "invalid auth token"
_RIGHTS_CHANGED: Final = "revision of auth store is old"
"""Texts by which etcd refuses a token that was valid once, and a call during which users or rights changed,
with or without a token; nothing was done then."""

# A member that failed is asked again only when no other could be reached within this.
_OTHERS_FIRST_S: Final = 1.0
_READ_BACKOFF_S: Final = 0.05
_READ_BACKOFF_MAX_S: Final = 0.5

# Applies to pages of a listing and bursts of watch events; a single value is at most 1 MiB.
_RECEIVE_BYTES_MAX: Final = 8 << 20

_CHANNEL_OPTIONS: Final = [
    ("grpc.enable_retries", 0),
    ("grpc.max_receive_message_length", _RECEIVE_BYTES_MAX),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 1_000),
    ("grpc.max_reconnect_backoff_ms", 1_000),
    # etcd accepts pings only on connections with streams, at most one every 5 s.
    ("grpc.keepalive_time_ms", 6_000),
    ("grpc.keepalive_timeout_ms", 4_000),
    ("grpc.keepalive_permit_without_calls", 0),
    ("grpc.http2.max_pings_without_data", 0),
    # Two stores in one process share no connection, so one cannot break the other's.
    ("grpc.use_local_subchannel_pool", 1),
]

_UNANSWERED: Final = frozenset(
    {
        grpc.StatusCode.UNAVAILABLE,
        grpc.StatusCode.DEADLINE_EXCEEDED,
        grpc.StatusCode.CANCELLED,
        grpc.StatusCode.UNKNOWN,
        grpc.StatusCode.INTERNAL,
    }
)
# With these codes and its own messages, etcd refuses before any change.
_REFUSED: Final = frozenset(
    {
        grpc.StatusCode.INVALID_ARGUMENT,
        grpc.StatusCode.NOT_FOUND,
        grpc.StatusCode.FAILED_PRECONDITION,
        grpc.StatusCode.OUT_OF_RANGE,
        grpc.StatusCode.PERMISSION_DENIED,
        grpc.StatusCode.UNAUTHENTICATED,
        grpc.StatusCode.RESOURCE_EXHAUSTED,
    }
)

Method = Callable[["EtcdEndpoint"], Any]


class EtcdRefusal(MetadataError):
    """etcd answered with a refusal; nothing was written. `code` is gRPC's."""

    def __init__(self, message: str, code: grpc.StatusCode) -> None:
        super().__init__(message)
        self.code = code


class EtcdEndpoint:
    """One member's address with its channel; connects on first use."""

    __slots__ = ("address", "auth", "channel", "kv", "lease", "watch")

    def __init__(self, address: str, credentials: grpc.ChannelCredentials | None) -> None:
        self.address = address
        self.open(credentials)

    def open(self, credentials: grpc.ChannelCredentials | None) -> None:
        """Make the channel and its stubs; those from before stay with the calls that use them."""
        self.channel = (
            grpc.aio.insecure_channel(self.address, options=_CHANNEL_OPTIONS)
            if credentials is None
            else grpc.aio.secure_channel(self.address, credentials, options=_CHANNEL_OPTIONS)
        )
        self.auth = etcd.AuthStub(self.channel)
        self.kv = etcd.KVStub(self.channel)
        self.lease = etcd.LeaseStub(self.channel)
        self.watch = etcd.WatchStub(self.channel)

    @property
    def is_ready(self) -> bool:
        """Returns whether a connection is established; starts connecting otherwise."""
        return self.channel.get_state(try_to_connect=True) is grpc.ChannelConnectivity.READY


class EtcdConnection:
    """The members of one cluster, for one event loop. A request takes at most twice `request_timeout_s`:
    once to be sent, once to be answered."""

    def __init__(
        self,
        endpoints: Sequence[str],
        request_timeout_s: float = REQUEST_TIMEOUT_S,
        access: EtcdAccess | None = None,
    ) -> None:
        """Raises ConfigError when a file of `access` cannot be read."""
        if not endpoints:
            raise ValueError("etcd needs at least one endpoint")
        self.request_timeout_s = request_timeout_s
        self._access = access = access or EtcdAccess()
        self._signature = access.signature()
        credentials = access.credentials()
        self._endpoints = [EtcdEndpoint(address, credentials) for address in endpoints]
        self._current = self._endpoints[0]
        self._failed: EtcdEndpoint | None = None
        self._token = ""
        self._replaced: set[grpc.aio.Channel] = set()
        """Channels with earlier credentials, until their calls had time to end."""
        self._tasks = TaskOwner("etcd connection")
        self._connecting: asyncio.Task[None] | None = None
        if access.tls:
            self._tasks.spawn(self._renew_credentials(), "renew credentials for etcd")

    @property
    def addresses(self) -> str:
        return ", ".join(endpoint.address for endpoint in self._endpoints)

    async def ready(self, timeout_s: float | None) -> EtcdEndpoint:
        """Returns an endpoint with an established connection; waits without limit if `timeout_s` is None.

        Raises MetadataError after the timeout: nothing was sent.
        """
        deadline = None if timeout_s is None else _now() + timeout_s
        while not self._current.is_ready:
            if self._connecting is None or self._connecting.done():
                self._connecting = self._tasks.spawn(self._connect(), "connect")
            remaining = None if deadline is None else deadline - _now()
            if remaining is not None and remaining <= 0:
                raise MetadataError(
                    f"no connection to etcd at {self.addresses} within {timeout_s:.3g} s; nothing was sent. "
                    f"Is it running and reachable?"
                )
            await asyncio.wait([self._connecting], timeout=remaining)
        return self._current

    def leave(self, endpoint: EtcdEndpoint) -> None:
        """Records that this endpoint did not answer, so the next request uses another, if there is one."""
        if endpoint is self._current:
            self._failed = endpoint
            after = self._endpoints.index(endpoint) + 1
            self._current = self._endpoints[after % len(self._endpoints)]

    async def call_metadata(self, endpoint: EtcdEndpoint) -> tuple[tuple[str, str], ...]:
        """Return what each call carries: the token, where a user is configured. Raises MetadataError."""
        access = self._access
        if not access.user:
            return ()
        if not self._token:
            request = etcd.AuthenticateRequest(name=access.user, password=access.password())
            try:
                answer = await endpoint.auth.Authenticate(request, timeout=self.request_timeout_s)
            except grpc.aio.AioRpcError as error:
                raise MetadataError(
                    f"etcd refused the user {access.user!r} (magnetarMetadataUser): {describe(error)}"
                ) from error
            self._token = answer.token
        return (("token", self._token),)

    def token_refused(self, error: grpc.aio.AioRpcError) -> bool:
        """Whether etcd refused the token, or a call because rights were changed: it may be repeated."""
        details = error.details() or ""
        refused = _RIGHTS_CHANGED in details or (
            bool(self._token)
            and (error.code() is grpc.StatusCode.UNAUTHENTICATED or _TOKEN_REFUSED in details)
        )
        if refused:
            self._token = ""
        return refused

    def drop_token(self) -> bool:
        """Forget the token, so that the next call requests another one; whether there was one."""
        had, self._token = bool(self._token), ""
        return had

    async def read(self, operation: str, method: Method, request: Any) -> Any:
        """Makes a retriable call. Raises MetadataError."""
        with operations.timed("get"):
            return await self._read(operation, method, request)

    async def _read(self, operation: str, method: Method, request: Any) -> Any:
        deadline = _now() + self.request_timeout_s
        backoff_s = _READ_BACKOFF_S
        while True:
            endpoint = await self.ready(deadline - _now())
            # Half of the time is reserved for another member, or another connection to this one.
            timeout_s = max(min(deadline - _now(), self.request_timeout_s / 2), 0.001)
            metadata = await self.call_metadata(endpoint)
            try:
                return await method(endpoint)(request, timeout=timeout_s, metadata=metadata)
            except grpc.aio.AioRpcError as error:
                if self.token_refused(error) and _now() < deadline:
                    continue
                if error.code() not in _UNANSWERED:
                    raise refusal(operation, error) from error
                self.leave(endpoint)
                if _now() + backoff_s >= deadline:
                    raise MetadataError(f"etcd did not answer: {operation}: {describe(error)}") from error
            await asyncio.sleep(backoff_s)
            backoff_s = min(backoff_s * 2, _READ_BACKOFF_MAX_S)

    async def write(self, operation: str, method: Method, request: Any) -> Any:
        """Makes a call once.

        Raises EtcdRefusal, or MetadataError if it could not be sent: nothing was written. Raises
        UnknownOutcome if no answer came.
        """
        operations.count_put(request.ByteSize())
        with operations.timed("put"):
            return await self._write(operation, method, request)

    async def _write(self, operation: str, method: Method, request: Any, *, repeated: bool = False) -> Any:
        endpoint = await self.ready(self.request_timeout_s)
        metadata = await self.call_metadata(endpoint)
        try:
            return await method(endpoint)(request, timeout=self.request_timeout_s, metadata=metadata)
        except grpc.aio.AioRpcError as error:
            if not repeated and self.token_refused(error):
                return await self._write(operation, method, request, repeated=True)
            if error.code() in _REFUSED and (error.details() or "").startswith("etcdserver:"):
                raise refusal(operation, error) from error
            self.leave(endpoint)
            raise UnknownOutcome(
                f"etcd did not answer, so the write may have happened: {operation}: {describe(error)}"
            ) from error

    async def close(self) -> None:
        """Lets calls in progress end by their own timeouts, then closes the channels."""
        await self._tasks.close()
        await self._close_replaced()
        for endpoint in self._endpoints:
            await endpoint.channel.close(self.request_timeout_s)

    async def _renew_credentials(self) -> None:
        """Replace the channels when certificates were replaced; streams on the old ones end and resume."""
        while True:
            await asyncio.sleep(self._access.refresh_s)
            try:
                signature = self._access.signature()
                if signature == self._signature:
                    continue
                credentials = self._access.credentials()
            except ConfigError as error:
                log.error("credentials for etcd not renewed; the earlier ones stay", reason=str(error))
                continue
            self._signature = signature
            log.info("credentials for etcd renewed", endpoints=self.addresses)
            for endpoint in self._endpoints:
                self._replaced.add(endpoint.channel)
                endpoint.open(credentials)
            await asyncio.sleep(_DRAIN_S)
            await self._close_replaced()

    async def _close_replaced(self) -> None:
        channels, self._replaced = self._replaced, set()
        for channel in channels:
            await channel.close()

    async def _connect(self) -> None:
        """Connects until one endpoint is ready, and makes it the current one."""
        others = [endpoint for endpoint in self._endpoints if endpoint is not self._failed]
        if len(others) < len(self._endpoints) and others and await self._race(others, _OTHERS_FIRST_S):
            return
        await self._race(self._endpoints, None)

    async def _race(self, endpoints: list[EtcdEndpoint], timeout_s: float | None) -> bool:
        """Returns whether one of the endpoints connected in time."""
        attempts = {
            asyncio.ensure_future(endpoint.channel.channel_ready()): endpoint for endpoint in endpoints
        }
        try:
            done, _ = await asyncio.wait(attempts, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for attempt in attempts:
                attempt.cancel()
            await asyncio.wait(attempts)
        for attempt in done:
            if not attempt.cancelled() and attempt.exception() is None:
                self._current = attempts[attempt]
                return True
        return False


def describe(error: grpc.aio.AioRpcError) -> str:
    return f"{error.code().name} {error.details() or ''}".rstrip()


def refusal(operation: str, error: grpc.aio.AioRpcError) -> EtcdRefusal:
    return EtcdRefusal(f"etcd refused: {operation}: {describe(error)}; nothing was written", error.code())


def _now() -> float:
    return asyncio.get_running_loop().time()
