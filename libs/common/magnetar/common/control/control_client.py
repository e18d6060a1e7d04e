"""Calls to other brokers, over one lazily opened connection per broker that begins with a Hello.

A broker is addressed by its registration in metadata. A restarted broker is another run: calls meant for the
earlier run fail with AnotherRun, detected by either side. The Hello's answer must match the registration.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeVar

import grpc
from google.protobuf.message import Message
from magnetar.common.control.control_errors import AnotherRun, BrokerUnreachable, from_wire
from magnetar.common.control.control_pb2 import HelloRequest
from magnetar.common.control.methods import (
    ERROR_KEY,
    HELLO,
    MESSAGE_BYTES_MAX,
    RUN_KEY,
    VERSION_KEY,
    Method,
)
from magnetar.common.control.versions import OURS, Versions
from magnetar.common.errors import MagnetarError, ServiceNotReady, TooManyRequests
from magnetar.common.metadata.values import BrokerRegistration
from magnetar.common.obs import request_ids
from magnetar.common.obs.metrics import REGISTRY
from magnetar.common.rpc.options import channel_options
from magnetar.common.runtime.task_owner import TaskOwner
from magnetar.common.security.services.credentials import ServiceCredentials
from prometheus_client import Counter

CONNECTIONS_MAX: Final = 2_048
"""Limit of open connections; the least recently used one is closed to make room. The leader calls all brokers
in turn: with fewer connections than brokers, it would open one for each call. One takes 50 kB.
"""

CALLS_MAX: Final = 2_000
"""Limit of concurrent calls; more fail with TooManyRequests."""

CONNECT_TIMEOUT_S: Final = 2.0
RECONNECT_MAX_S: Final = 1.0

DRAIN_S: Final = 60.0
"""Seconds that calls have to end on a channel with earlier credentials: the longest call's deadline."""

PAUSE_S: Final = 0.1
"""Wait in seconds before the first retry; doubles for each further retry."""

FAILED: Final = Counter(
    "magnetar_control_failed_calls",
    "Calls of the control plane to other brokers that failed, by method and error.",
    ["method", "error"],
    registry=REGISTRY,
)

Request = TypeVar("Request", bound=Message)
Response = TypeVar("Response", bound=Message)


@dataclass(frozen=True, slots=True)
class Caller:
    """The calling process: a broker with its run, or a name for logs."""

    name: str
    release: str
    run: int = 0
    versions: Versions = OURS


@dataclass(slots=True, eq=False)
class _Connection:
    """A connection to one run of one broker."""

    broker_id: str
    run: int
    address: str
    channel: Any
    generation: int
    """Generation of our credentials with which the channel was opened."""
    hello: asyncio.Task[int | MagnetarError]
    """The result of the Hello: the agreed protocol version, or the error."""
    calls: int = 0


class ControlClient:
    """Calls other brokers. Create it on the event loop that uses it; the owner calls `close`."""

    def __init__(
        self,
        caller: Caller,
        *,
        connections_max: int = CONNECTIONS_MAX,
        calls_max: int = CALLS_MAX,
        connect: Callable[[str], Any] | None = None,
        tls: ServiceCredentials | None = None,
    ) -> None:
        """`tls`: our certificate for brokers. Its holder watches the files. After a renewal, calls use
        another channel, and those under way end on the earlier one.
        """
        self._caller = caller
        self._connections_max = connections_max
        self._calls_max = calls_max
        self._calls = 0
        self._tls = tls
        self._connect = connect or self._channel
        self._connections: dict[str, _Connection] = {}
        """The open connections, least recently used first."""
        self._tasks = TaskOwner("control client")
        self._closed = False

    async def call(
        self,
        broker: BrokerRegistration,
        method: Method[Request, Response],
        request: Request,
        *,
        deadline_s: float | None = None,
    ) -> Response:
        """Calls a broker and returns its answer. `deadline_s` can only shorten the method's own deadline.

        Raises the broker's named error; BrokerUnreachable if it does not answer, CallTimedOut if not in time;
        AnotherRun; NotInteroperable; NotSupportedYet for a call that its release does not have;
        TooManyRequests at the limit.
        """
        limit_s = method.deadline_s if deadline_s is None else min(deadline_s, method.deadline_s)
        deadline = asyncio.get_running_loop().time() + limit_s
        try:
            return await self._call(broker, method, request, deadline)
        except Exception as error:
            FAILED.labels(method.name, type(error).__name__).inc()
            raise

    async def version(self, broker: BrokerRegistration) -> int:
        """Returns the protocol version agreed with the broker. Raises as `call`."""
        deadline = asyncio.get_running_loop().time() + HELLO.deadline_s
        return await self._greeted(self._connection(broker), deadline)

    async def close(self) -> None:
        """Ends every call with BrokerUnreachable; idempotent."""
        self._closed = True
        connections = list(self._connections.values())
        self._connections.clear()
        for connection in connections:
            await connection.channel.close()
        await self._tasks.close()

    # --- internal ---

    async def _call(
        self,
        broker: BrokerRegistration,
        method: Method[Request, Response],
        request: Request,
        deadline: float,
    ) -> Response:
        if self._calls >= self._calls_max:
            raise TooManyRequests(f"{self._calls} calls to other brokers are under way, try again")
        connection = self._connection(broker)
        self._calls += 1
        connection.calls += 1
        try:
            version = await self._greeted(connection, deadline)
            said = (
                (RUN_KEY, str(broker.run)),
                (VERSION_KEY, str(version)),
                *request_ids.call_metadata(),
            )
            return await _exchange(connection.channel, broker.broker_id, method, request, deadline, said)
        except AnotherRun:
            self._forget(connection)
            raise
        finally:
            connection.calls -= 1
            self._calls -= 1

    def _connection(self, broker: BrokerRegistration) -> _Connection:
        if self._closed:
            raise BrokerUnreachable("this process is stopping and calls no other broker")
        if not broker.control_address:
            raise ServiceNotReady(f"broker {broker.broker_id} does not say where it can be called")
        known = self._connections.pop(broker.broker_id, None)
        if known is not None and (known.run, known.address) != (broker.run, broker.control_address):
            self._end(known)
            known = None
        if known is not None and known.generation != self._generation():
            self._tasks.spawn(known.channel.close(DRAIN_S), f"drain {broker.broker_id}")
            known = None
        if known is None:
            self._make_room()
            known = self._open(broker)
        self._connections[broker.broker_id] = known
        return known

    def _open(self, broker: BrokerRegistration) -> _Connection:
        channel = self._connect(broker.control_address)
        hello = self._tasks.spawn(self._hello(broker, channel), f"hello to {broker.broker_id}")
        connection = _Connection(
            broker.broker_id, broker.run, broker.control_address, channel, self._generation(), hello
        )
        hello.add_done_callback(lambda task: self._after_hello(connection, task))
        return connection

    def _channel(self, address: str) -> Any:
        options = channel_options(MESSAGE_BYTES_MAX, CONNECT_TIMEOUT_S, RECONNECT_MAX_S)
        if self._tls is None:
            return grpc.aio.insecure_channel(address, options=options)
        return grpc.aio.secure_channel(address, self._tls.channel(), options=options)

    def _generation(self) -> int:
        return 0 if self._tls is None else self._tls.generation

    def _after_hello(self, connection: _Connection, task: asyncio.Task[int | MagnetarError]) -> None:
        """Drops a connection whose Hello failed; the next call opens a new one."""
        if not task.cancelled() and not isinstance(task.result(), int):
            self._forget(connection)

    def _make_room(self) -> None:
        if len(self._connections) < self._connections_max:
            return
        idle = next((each for each in self._connections.values() if not each.calls), None)
        if idle is None:
            raise TooManyRequests(f"{len(self._connections)} brokers are being called, try again")
        self._forget(idle)

    def _forget(self, connection: _Connection) -> None:
        if self._connections.get(connection.broker_id) is connection:
            del self._connections[connection.broker_id]
        self._end(connection)

    def _end(self, connection: _Connection) -> None:
        connection.hello.cancel()
        if not self._closed:
            self._tasks.spawn(connection.channel.close(), f"leave {connection.broker_id}")

    async def _greeted(self, connection: _Connection, deadline: float) -> int:
        """Exchanges Hellos and returns the agreed protocol version."""
        hello = connection.hello
        if not hello.done():
            try:
                async with asyncio.timeout_at(deadline):
                    await asyncio.wait((hello,))
            except TimeoutError:
                raise BrokerUnreachable(f"broker {connection.broker_id} did not answer in time") from None
        if hello.cancelled():
            raise BrokerUnreachable(f"the connection to broker {connection.broker_id} was given up")
        found = hello.result()
        if isinstance(found, MagnetarError):
            raise type(found)(str(found))
        return found

    async def _hello(self, broker: BrokerRegistration, channel: Any) -> int | MagnetarError:
        us = self._caller
        request = HelloRequest(
            caller=us.name,
            run=us.run,
            release=us.release,
            oldest_version=us.versions.oldest,
            newest_version=us.versions.newest,
        )
        deadline = asyncio.get_running_loop().time() + HELLO.deadline_s
        try:
            found = await _exchange(channel, broker.broker_id, HELLO, request, deadline, ())
            if found.broker_id != broker.broker_id or found.run != broker.run:
                return AnotherRun(
                    f"at {broker.control_address} is run {found.run:x} of broker {found.broker_id}, not run "
                    f"{broker.run:x} of {broker.broker_id}: look it up again"
                )
            theirs = Versions(found.oldest_version, found.newest_version)
            return us.versions.agree(theirs, f"broker {found.broker_id} (release {found.release})")
        except MagnetarError as error:
            return error


async def _exchange(
    channel: Any,
    broker_id: str,
    method: Method[Request, Response],
    request: Request,
    deadline: float,
    said: Sequence[tuple[str, str]],
) -> Response:
    """Makes the call, and retries it as far as the method and the deadline allow."""
    loop = asyncio.get_running_loop()
    exchange = channel.unary_unary(method.path, method.request.SerializeToString, method.response.FromString)
    what = f"{method.name} of broker {broker_id}"
    attempt, pause_s = 1, PAUSE_S
    while True:
        try:
            answer = await exchange(request, timeout=max(0.0, deadline - loop.time()), metadata=said)
        except grpc.aio.AioRpcError as error:
            name = _error_name(error)
            last = attempt >= method.attempts or loop.time() + pause_s >= deadline
            if name or error.code() not in method.repeat_on or last:
                raise from_wire(error.code(), name, error.details() or "", what) from error
        except grpc.aio.UsageError as error:
            raise BrokerUnreachable(f"{what}: {error}") from None
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise
            raise BrokerUnreachable(f"{what}: the connection was closed meanwhile") from None
        else:
            assert isinstance(answer, method.response)
            return answer
        await asyncio.sleep(pause_s)
        attempt, pause_s = attempt + 1, 2 * pause_s


def _error_name(error: grpc.aio.AioRpcError) -> str:
    for key, value in error.trailing_metadata() or ():
        if key == ERROR_KEY:
            return value if isinstance(value, str) else value.decode("latin-1")
    return ""
