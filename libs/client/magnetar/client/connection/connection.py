"""One connection to a broker: requests with their answers, and frames for its producers and consumers."""

from __future__ import annotations

import asyncio
import itertools
import logging
import ssl
from typing import Any, Final, Protocol, cast

from magnetar.client.authentication.methods import Authentication
from magnetar.client.connection.answers import refusal_of
from magnetar.client.connection.frames import Delivery, FrameReader, Receipts, Run
from magnetar.client.errors import (
    ClientError,
    ConnectionLost,
    NoCredentials,
    OperationTimeout,
    refusal,
)
from magnetar.common.errors import ProtocolError
from magnetar.common.wire.command_parser import command_field
from magnetar.common.wire.commands import PING, PONG, PROTOCOL_VERSION, request_id_of
from magnetar.common.wire.frame import FRAME_PADDING_BYTES, MESSAGE_BYTES_MAX, encode_command
from magnetar.common.wire.pulsar_pb2 import (
    AuthData,
    BaseCommand,
    CommandAuthResponse,
    CommandConnect,
    CommandSendError,
    CommandWatchTopicUpdate,
    FeatureFlags,
    MessageIdData,
)

_log = logging.getLogger(__name__)

CLIENT_VERSION: Final = "magnetar-client"
KEEP_ALIVE_S: Final = 30.0
CONNECT_TIMEOUT_S: Final = 10.0
RECEIVED_BYTES_MAX: Final = 128 * 1024 * 1024
"""Maximum frame size in bytes; a larger frame ends the connection, whatever limit the broker has."""
WRITE_BUFFER_BYTES: Final = 4 * 1024 * 1024
"""Unsent bytes of a connection above which producers that await wait."""


class OfProducer(Protocol):
    """A producer on a connection. Its methods must not block."""

    def on_receipt(self, sequence_id: int, message_id: MessageIdData) -> None:
        """The entry with that sequence id is stored."""

    def on_receipts(self, receipts: Receipts) -> None:
        """Entries that follow one another are stored."""

    def on_send_error(self, error: CommandSendError) -> None:
        """The broker did not store an entry."""

    def on_closed(self, reason: ClientError, assigned_url: str) -> None:
        """The broker closed it, or the connection ended; `assigned_url` names the new owner if known."""


class OfConsumer(Protocol):
    """A consumer on a connection. Its methods must not block."""

    def on_message(self, delivery: Delivery) -> None:
        """An entry arrived."""

    def on_run(self, run: Run) -> None:
        """Entries that follow one another arrived."""

    def on_active_change(self, is_active: bool) -> None:
        """It became the active consumer of its subscription, or no longer is."""

    def on_end_of_topic(self) -> None:
        """All messages of a terminated topic are delivered."""

    def on_closed(self, reason: ClientError, assigned_url: str) -> None:
        """The broker closed it, or the connection ended; `assigned_url` names the new owner if known."""


class OfWatcher(Protocol):
    """A watcher of a namespace's topics on a connection."""

    def on_topics(self, update: CommandWatchTopicUpdate) -> None:
        """Topics were created or deleted."""

    def on_closed(self, reason: ClientError, assigned_url: str) -> None:
        """The connection ended."""


class Connection(asyncio.Protocol):
    """A connection made by `connect`; writes of one turn of the event loop leave in one call."""

    def __init__(
        self, address: str, authentication: Authentication | None, secret: bytes, proxy_to: str, *, tls: bool
    ) -> None:
        """`secret` is sent with Connect; challenges ask `authentication` again."""
        self.address = address
        self.message_bytes_max = MESSAGE_BYTES_MAX
        self.protocol_version = 0
        """The broker's version of the protocol."""
        self.feature_flags = FeatureFlags()
        self.lost: ClientError | None = None
        self.producers: dict[int, OfProducer] = {}
        self.consumers: dict[int, OfConsumer] = {}
        self.watchers: dict[int, OfWatcher] = {}
        self.is_writable = True
        """Whether the send buffer has room."""
        self._tls = tls
        self._authentication = authentication
        self._hello = CommandConnect(
            client_version=CLIENT_VERSION,
            protocol_version=PROTOCOL_VERSION,
            feature_flags=FeatureFlags(
                supports_auth_refresh=True,
                supports_broker_entry_metadata=True,
                supports_partial_producer=True,
                supports_topic_watchers=True,
            ),
        )
        if authentication is not None:
            self._hello.auth_method_name = authentication.method
            self._hello.auth_data = secret
        if proxy_to:
            self._hello.proxy_to_broker_url = proxy_to
        self._loop = asyncio.get_running_loop()
        self._ready: asyncio.Future[None] = self._loop.create_future()
        self._ready.add_done_callback(lambda done: done.cancelled() or done.exception())
        self._answers: dict[int, tuple[str, asyncio.Future[BaseCommand]]] = {}
        self._request_ids = itertools.count(1)
        self._reader = FrameReader(RECEIVED_BYTES_MAX + FRAME_PADDING_BYTES)
        self._transport: asyncio.Transport | None = None
        self._unwritten: list[bytes] = []
        self._writers: list[asyncio.Future[None]] = []
        self._heard = True
        self._keep_alive: asyncio.TimerHandle | None = None
        self._answering: asyncio.Task[None] | None = None

    async def request(
        self, command: BaseCommand, subject: str = "", timeout_s: float | None = 30.0
    ) -> BaseCommand:
        """Sends a command with a new request id and returns its answer; a producer that waits for exclusive
        access has its answer once it has it. Raises Refused, ConnectionLost, OperationTimeout.
        """
        if self.lost is not None:
            raise self.lost
        request_id = next(self._request_ids)
        body: Any = getattr(command, command_field(command))
        body.request_id = request_id
        answer: asyncio.Future[BaseCommand] = self._loop.create_future()
        self._answers[request_id] = subject, answer
        try:
            self.write(encode_command(command))
            async with asyncio.timeout(timeout_s):
                return await answer
        except TimeoutError:
            raise OperationTimeout(
                f"{subject or self.address}: {self.address} did not answer {command_field(command)} within "
                f"{timeout_s:g} s"
            ) from None
        finally:
            self._answers.pop(request_id, None)

    def write(self, data: bytes) -> None:
        """Sends bytes at the end of this turn of the loop; ignored on a lost connection."""
        unwritten = self._unwritten
        if not unwritten:
            self._loop.call_soon(self._flush)
        unwritten.append(data)

    async def writable(self) -> None:
        """Waits until the send buffer has room, or the connection ended."""
        while not self.is_writable and self.lost is None:
            waiting: asyncio.Future[None] = self._loop.create_future()
            self._writers.append(waiting)
            await waiting

    def close(self) -> None:
        """Ends the connection after what is written."""
        self._flush()
        self.end(ConnectionLost(f"the connection to {self.address} was closed here"))

    async def ready(self) -> None:
        """Waits until the broker answered Connected. Raises Refused, ConnectionLost."""
        await self._ready

    def end(self, error: ClientError) -> None:
        """Ends the connection for a reason, which its requests, producers and consumers are told."""
        if self.lost is not None:
            return
        self.lost = error
        self._unwritten.clear()
        self.resume_writing()
        if self._keep_alive is not None:
            self._keep_alive.cancel()
        if self._answering is not None:
            self._answering.cancel()
        if self._transport is not None:
            self._transport.close()
        if not self._ready.done():
            self._ready.set_exception(error)
        for _, waiting in self._answers.values():
            if not waiting.done():
                waiting.set_exception(error)
        users: list[OfProducer | OfConsumer | OfWatcher] = [
            *self.producers.values(),
            *self.consumers.values(),
            *self.watchers.values(),
        ]
        self.producers.clear()
        self.consumers.clear()
        self.watchers.clear()
        for user in users:
            user.on_closed(error, "")

    # asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(high=WRITE_BUFFER_BYTES)
        self.write(encode_command(BaseCommand(type=BaseCommand.CONNECT, connect=self._hello)))
        self._keep_alive = self._loop.call_later(KEEP_ALIVE_S, self._look_alive)

    def data_received(self, data: bytes) -> None:
        self._heard = True
        try:
            frames = self._reader.receive_data(data)
        except ProtocolError as error:
            self.end(ConnectionLost(f"{self.address} sent an invalid frame: {error}"))
            return
        producers, consumers = self.producers, self.consumers
        for frame in frames:
            if isinstance(frame, Run):
                consumer = consumers.get(frame.consumer_id)
                if consumer is not None:
                    consumer.on_run(frame)
            elif isinstance(frame, Delivery):
                consumer = consumers.get(frame.consumer_id)
                if consumer is not None:
                    consumer.on_message(frame)
            elif isinstance(frame, Receipts):
                producer = producers.get(frame.producer_id)
                if producer is not None:
                    producer.on_receipts(frame)
            elif frame.type == BaseCommand.SEND_RECEIPT:
                receipt = frame.send_receipt
                producer = producers.get(receipt.producer_id)
                if producer is not None:
                    producer.on_receipt(receipt.sequence_id, receipt.message_id)
            else:
                self._take(frame)

    def connection_lost(self, exc: Exception | None) -> None:
        reason = f": {exc}" if exc else ""
        self.end(ConnectionLost(f"the connection to {self.address} ended{reason}"))

    def pause_writing(self) -> None:
        self.is_writable = False

    def resume_writing(self) -> None:
        self.is_writable = True
        writers, self._writers = self._writers, []
        for waiting in writers:
            if not waiting.done():
                waiting.set_result(None)

    def _flush(self) -> None:
        unwritten = self._unwritten
        if unwritten and self._transport is not None and self.lost is None:
            self._transport.write(unwritten[0] if len(unwritten) == 1 else b"".join(unwritten))
        unwritten.clear()

    def _take(self, command: BaseCommand) -> None:
        kind = command.type
        if kind == BaseCommand.PING:
            self.write(PONG)
        elif kind == BaseCommand.PONG:
            pass
        elif kind == BaseCommand.SEND_ERROR:
            producer = self.producers.get(command.send_error.producer_id)
            if producer is not None:
                producer.on_send_error(command.send_error)
        elif kind == BaseCommand.ACTIVE_CONSUMER_CHANGE:
            change = command.active_consumer_change
            if (consumer := self.consumers.get(change.consumer_id)) is not None:
                consumer.on_active_change(change.is_active)
        elif kind == BaseCommand.REACHED_END_OF_TOPIC:
            if (consumer := self.consumers.get(command.reachedEndOfTopic.consumer_id)) is not None:
                consumer.on_end_of_topic()
        elif kind in (BaseCommand.CLOSE_PRODUCER, BaseCommand.CLOSE_CONSUMER, BaseCommand.TOPIC_MIGRATED):
            self._take_close(command)
        elif kind == BaseCommand.WATCH_TOPIC_UPDATE:
            if (watcher := self.watchers.get(command.watchTopicUpdate.watcher_id)) is not None:
                watcher.on_topics(command.watchTopicUpdate)
        elif kind == BaseCommand.CONNECTED:
            self.message_bytes_max = command.connected.max_message_size or MESSAGE_BYTES_MAX
            self.protocol_version = command.connected.protocol_version
            self.feature_flags = command.connected.feature_flags
            if not self._ready.done():
                self._ready.set_result(None)
        elif kind == BaseCommand.AUTH_CHALLENGE:
            if self._answering is None or self._answering.done():
                self._answering = self._loop.create_task(self._answer_challenge())
        else:
            self._take_answer(command)

    def _take_close(self, command: BaseCommand) -> None:
        """Takes the end of one producer or consumer, with the broker that has the topic next."""
        user: OfProducer | OfConsumer | None
        if command.type == BaseCommand.CLOSE_PRODUCER:
            closed: Any = command.close_producer
            user = self.producers.pop(closed.producer_id, None)
            url = closed.assignedBrokerServiceUrlTls if self._tls else closed.assignedBrokerServiceUrl
        elif command.type == BaseCommand.CLOSE_CONSUMER:
            closed = command.close_consumer
            user = self.consumers.pop(closed.consumer_id, None)
            url = closed.assignedBrokerServiceUrlTls if self._tls else closed.assignedBrokerServiceUrl
        else:
            closed = command.topicMigrated
            is_producer = closed.resource_type == closed.Producer
            user = (self.producers if is_producer else self.consumers).pop(closed.resource_id, None)
            url = closed.brokerServiceUrlTls if self._tls else closed.brokerServiceUrl
        if user is not None:
            user.on_closed(ConnectionLost(f"{self.address} closed it; the topic moves or reloads"), url)

    async def _answer_challenge(self) -> None:
        try:
            secret = await _secret(self._authentication)
        except OSError as error:
            _log.warning("%s asks for fresh credentials, and there are none: %s", self.address, error)
            secret = self._hello.auth_data
        answer = AuthData(auth_method_name=self._hello.auth_method_name, auth_data=secret)
        response = CommandAuthResponse(client_version=CLIENT_VERSION, response=answer)
        self.write(encode_command(BaseCommand(type=BaseCommand.AUTH_RESPONSE, authResponse=response)))

    def _take_answer(self, command: BaseCommand) -> None:
        if command.type == BaseCommand.ERROR and not self._ready.done():
            self._ready.set_exception(refusal(command.error.error, command.error.message, self.address))
            return
        request_id = request_id_of(command)
        if request_id is None or (entry := self._answers.get(request_id)) is None:
            return
        subject, waiting = entry
        if waiting.done():
            return
        if command.type == BaseCommand.PRODUCER_SUCCESS and not command.producer_success.producer_ready:
            return  # It waits for exclusive access; the same answer follows when it has it.
        refused = refusal_of(command, subject)
        if refused is None:
            waiting.set_result(command)
        else:
            waiting.set_exception(refused)

    def _look_alive(self) -> None:
        """Closes the connection when nothing arrived for two intervals although a ping was sent."""
        if not self._heard:
            self.end(ConnectionLost(f"{self.address} is silent"))
            return
        self._heard = False
        self.write(PING)
        self._keep_alive = self._loop.call_later(KEEP_ALIVE_S, self._look_alive)


async def _secret(authentication: Authentication | None) -> bytes:
    """Returns the data of the credentials. Raises OSError."""
    if authentication is None:
        return b""
    return (
        await asyncio.to_thread(authentication.secret) if authentication.blocks else authentication.secret()
    )


async def connect(
    host: str,
    port: int,
    *,
    authentication: Authentication | None = None,
    proxy_to: str = "",
    tls: ssl.SSLContext | None = None,
    server_name: str | None = None,
    timeout_s: float = CONNECT_TIMEOUT_S,
) -> Connection:
    """Opens a connection and waits for Connected. Raises Refused, NoCredentials, ConnectionLost.

    `proxy_to` (host:port) asks a proxy to connect on to a broker; `server_name` is what TLS asks the peer for
    instead of `host`. The time to get credentials does not count for `timeout_s`.
    """
    address = f"{host}:{port}"
    made: Connection | None = None
    try:
        secret = await _secret(authentication)
    except OSError as reason:
        named = f"{reason.filename}: " if reason.filename else ""
        raise NoCredentials(f"no credentials for {address}: {named}{reason.strerror or reason}") from reason
    try:
        async with asyncio.timeout(timeout_s):
            _, made = await asyncio.get_running_loop().create_connection(
                lambda: Connection(address, authentication, secret, proxy_to, tls=tls is not None),
                host,
                port,
                ssl=tls,
                server_hostname=server_name if tls is not None else None,
            )
            await made.ready()
            return made
    except TimeoutError:
        error: ClientError = ConnectionLost(f"{address} did not answer within {timeout_s:g} s")
    except (OSError, UnicodeError) as reason:  # UnicodeError: a host that can have no address.
        text = getattr(reason, "strerror", None) or reason
        error = ConnectionLost(f"cannot connect to {address}: {text}")
    except ClientError as refused:
        error = refused
    except BaseException:
        if made is not None:
            made.close()
        raise
    if made is not None:
        made.close()
    raise error
