"""One connection to a broker: requests with their responses, and frames for its producers and consumers."""

from __future__ import annotations

import asyncio
import itertools
import ssl
from collections.abc import Callable
from typing import Any, Final, Protocol, cast

from magnetar.client.errors import ClientError, ConnectionLost, NoCredentials, Refused
from magnetar.common.errors import ProtocolError
from magnetar.common.wire.command_parser import command_field
from magnetar.common.wire.commands import PING, PONG, PROTOCOL_VERSION, request_id_of
from magnetar.common.wire.frame import MESSAGE_BYTES_MAX, Frame, FrameDecoder, encode_command
from magnetar.common.wire.pulsar_pb2 import (
    AuthData,
    BaseCommand,
    CommandAuthResponse,
    CommandConnect,
    CommandLookupTopicResponse,
    CommandPartitionedTopicMetadataResponse,
    FeatureFlags,
)

CLIENT_VERSION: Final = "magnetar"
KEEP_ALIVE_S: Final = 30.0
RECEIVED_BYTES_MAX: Final = 128 * 1024 * 1024
"""Maximum frame size in bytes; a larger frame ends the connection, whatever limit the broker has."""

_OF_PRODUCER: Final = frozenset({"send_receipt", "send_error", "close_producer"})
_OF_COORDINATOR: Final = frozenset(
    {"tcClientConnectResponse", "newTxnResponse", "addPartitionToTxnResponse", "endTxnResponse"}
)
"""Answers that carry an error in themselves."""
_OF_CONSUMER: Final = frozenset({"message", "close_consumer", "reachedEndOfTopic", "active_consumer_change"})


class Listener(Protocol):
    """A producer or consumer on a connection."""

    def on_frame(self, field: str, frame: Frame) -> None:
        """Receives a frame addressed to it; `field` is the command's field name. Must not block."""

    def on_lost(self, error: ClientError) -> None:
        """Called once when the connection ended."""


class Connection(asyncio.Protocol):
    """A connection created by `connect` and owned by the Client."""

    def __init__(
        self,
        address: str,
        auth_method: str,
        secret: bytes,
        auth_data: bytes | Callable[[], bytes],
        proxy_to: str,
    ) -> None:
        """`secret` is sent with Connect, what `auth_data` gives answers challenges."""
        self.address = address
        self.message_bytes_max = MESSAGE_BYTES_MAX
        self.lost: ClientError | None = None
        self.producers: dict[int, Listener] = {}
        self.consumers: dict[int, Listener] = {}
        self._auth_data = auth_data
        self._hello = CommandConnect(
            client_version=CLIENT_VERSION,
            protocol_version=PROTOCOL_VERSION,
            feature_flags=FeatureFlags(supports_auth_refresh=True, supports_partial_producer=True),
        )
        if auth_method:
            self._hello.auth_method_name = auth_method
            self._hello.auth_data = secret
        if proxy_to:
            self._hello.proxy_to_broker_url = proxy_to
        loop = asyncio.get_running_loop()
        self._ready: asyncio.Future[None] = loop.create_future()
        self._ready.add_done_callback(lambda done: done.cancelled() or done.exception())
        self._answers: dict[int, asyncio.Future[BaseCommand]] = {}
        self._request_ids = itertools.count(1)
        self._decoder = FrameDecoder(RECEIVED_BYTES_MAX)
        self._transport: asyncio.Transport | None = None
        self._writable = asyncio.Event()
        self._heard = True
        self._keep_alive: asyncio.TimerHandle | None = None
        self._answering: asyncio.Task[None] | None = None

    async def request(self, command: BaseCommand, subject: str = "", timeout_s: float = 30.0) -> BaseCommand:
        """Sends a command with a new request id and returns the response. Raises Refused, ConnectionLost."""
        if self.lost is not None:
            raise self.lost
        request_id = next(self._request_ids)
        body: Any = getattr(command, command_field(command))
        body.request_id = request_id
        answer: asyncio.Future[BaseCommand] = asyncio.get_running_loop().create_future()
        self._answers[request_id] = answer
        try:
            self.write(encode_command(command))
            async with asyncio.timeout(timeout_s):
                return await answer
        except TimeoutError:
            raise ConnectionLost(f"{self.address} did not answer within {timeout_s:g} s") from None
        except Refused as error:
            raise Refused(error.code, error.reason, subject) from None
        finally:
            self._answers.pop(request_id, None)

    def write(self, data: bytes) -> None:
        """Sends bytes; ignored on a lost connection."""
        if self._transport is not None and self.lost is None:
            self._transport.write(data)

    async def drained(self) -> None:
        """Waits until most written bytes have left the send buffer."""
        await self._writable.wait()

    def close(self) -> None:
        self._end(ConnectionLost(f"the connection to {self.address} was closed here"))

    async def ready(self) -> None:
        """Waits until the broker answered Connected. Raises Refused, ConnectionLost."""
        await self._ready

    # asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(high=4 * 1024 * 1024)
        self._writable.set()
        self.write(encode_command(BaseCommand(type=BaseCommand.CONNECT, connect=self._hello)))
        self._keep_alive = asyncio.get_running_loop().call_later(KEEP_ALIVE_S, self._look_alive)

    def data_received(self, data: bytes) -> None:
        self._heard = True
        try:
            for frame in self._decoder.receive_data(data):
                self._take(frame)
        except ProtocolError as error:
            self._end(ConnectionLost(f"{self.address} sent what is no frame: {error}"))

    def connection_lost(self, exc: Exception | None) -> None:
        reason = f": {exc}" if exc else ""
        self._end(ConnectionLost(f"the connection to {self.address} ended{reason}"))

    def pause_writing(self) -> None:
        self._writable.clear()

    def resume_writing(self) -> None:
        self._writable.set()

    def _take(self, frame: Frame) -> None:
        command = frame.command
        field = command_field(command)
        if field in _OF_CONSUMER or field in _OF_PRODUCER:
            body: Any = getattr(command, field)
            listener = (
                self.consumers.get(body.consumer_id)
                if field in _OF_CONSUMER
                else self.producers.get(body.producer_id)
            )
            if listener is not None:
                listener.on_frame(field, frame)
        elif field == "ping":
            self.write(PONG)
        elif field == "connected":
            self.message_bytes_max = command.connected.max_message_size or MESSAGE_BYTES_MAX
            if not self._ready.done():
                self._ready.set_result(None)
        elif field == "authChallenge":
            if self._answering is None or self._answering.done():
                self._answering = asyncio.ensure_future(self._answer_challenge())
        else:
            self._take_answer(field, command)

    async def _answer_challenge(self) -> None:
        try:
            secret = await _secret(self._auth_data)
        except OSError:
            # It cannot be had now; the former secret is refused if it has expired.
            secret = self._hello.auth_data
        answer = AuthData(auth_method_name=self._hello.auth_method_name, auth_data=secret)
        response = CommandAuthResponse(client_version=CLIENT_VERSION, response=answer)
        self.write(encode_command(BaseCommand(type=BaseCommand.AUTH_RESPONSE, authResponse=response)))

    def _take_answer(self, field: str, command: BaseCommand) -> None:
        if field == "error" and not self._ready.done():
            self._ready.set_exception(Refused(command.error.error, command.error.message, self.address))
            return
        request_id = request_id_of(command)
        waiting = self._answers.get(request_id) if request_id is not None else None
        if waiting is None or waiting.done():
            return
        refused = _refusal(field, command)
        if refused is None:
            waiting.set_result(command)
        else:
            waiting.set_exception(refused)

    def _look_alive(self) -> None:
        """Closes the connection when nothing arrived for two intervals although a ping was sent."""
        if not self._heard:
            self._end(ConnectionLost(f"{self.address} is silent"))
            return
        self._heard = False
        self.write(PING)
        self._keep_alive = asyncio.get_running_loop().call_later(KEEP_ALIVE_S, self._look_alive)

    def _end(self, error: ClientError) -> None:
        if self.lost is not None:
            return
        self.lost = error
        self._writable.set()
        if self._keep_alive is not None:
            self._keep_alive.cancel()
        if self._answering is not None:
            self._answering.cancel()
        if self._transport is not None:
            self._transport.close()
        if not self._ready.done():
            self._ready.set_exception(error)
        for waiting in self._answers.values():
            if not waiting.done():
                waiting.set_exception(error)
        listeners = [*self.producers.values(), *self.consumers.values()]
        self.producers.clear()
        self.consumers.clear()
        for listener in listeners:
            listener.on_lost(error)


def _refusal(field: str, command: BaseCommand) -> Refused | None:
    if field == "error":
        return Refused(command.error.error, command.error.message)
    if field == "lookupTopicResponse":
        looked_up = command.lookupTopicResponse
        if looked_up.response == CommandLookupTopicResponse.Failed:
            return Refused(looked_up.error, looked_up.message)
    if field == "partitionMetadataResponse":
        partitions = command.partitionMetadataResponse
        if partitions.response == CommandPartitionedTopicMetadataResponse.Failed:
            return Refused(partitions.error, partitions.message)
    if field in _OF_COORDINATOR:
        answer: Any = getattr(command, field)
        if answer.HasField("error"):
            return Refused(answer.error, answer.message)
    return None


async def _secret(auth_data: bytes | Callable[[], bytes]) -> bytes:
    """Return the secret; its supplier may block and runs in a thread. Raises OSError."""
    return await asyncio.to_thread(auth_data) if callable(auth_data) else auth_data


async def connect(
    host: str,
    port: int,
    *,
    auth_method: str = "",
    auth_data: bytes | Callable[[], bytes] = b"",
    proxy_to: str = "",
    tls: ssl.SSLContext | None = None,
    timeout_s: float = 10.0,
) -> Connection:
    """Opens a connection and waits for Connected. Raises Refused, NoCredentials, ConnectionLost.

    The time to get credentials does not count for `timeout_s`.
    """
    address = f"{host}:{port}"
    made: Connection | None = None
    try:
        secret = await _secret(auth_data)
    except OSError as reason:
        named = f"{reason.filename}: " if reason.filename else ""
        raise NoCredentials(f"no credentials for {address}: {named}{reason.strerror or reason}") from reason
    try:
        async with asyncio.timeout(timeout_s):
            _, made = await asyncio.get_running_loop().create_connection(
                lambda: Connection(address, auth_method, secret, auth_data, proxy_to), host, port, ssl=tls
            )
            await made.ready()
            return made
    except TimeoutError:
        error: ClientError = ConnectionLost(f"{address} did not answer within {timeout_s:g} s")
    except (OSError, UnicodeError) as reason:  # The last: a host that can have no address.
        text = getattr(reason, "strerror", None) or reason
        error = ConnectionLost(f"cannot connect to {address}: {text}")
    except ClientError as refused:
        error = refused
    if made is not None:
        made.close()
    raise error
