"""A discovery on the loop that production uses, over simulated metadata, before brokers that only pretend."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass, field

import uvloop
from magnetar.common.metadata.keys import Keys
from magnetar.common.metadata.values import BrokerRegistration, BundleOwner, Namespace, encode
from magnetar.common.naming.bundle_range import split_ring
from magnetar.common.naming.namespace_name import NamespaceName
from magnetar.common.wire import commands
from magnetar.common.wire.command_stream import CommandStream
from magnetar.common.wire.frame import encode_command
from magnetar.common.wire.pulsar_pb2 import BaseCommand, CommandConnect, FeatureFlags
from magnetar.discovery.config import DiscoveryConfig, ListenerConfig, MetadataConfig, ProxyConfig
from magnetar.discovery.discovery import Discovery
from magnetar.sim.metadata import SimMetadataServer, SimMetadataStore

KEYS = Keys("test")
NAMESPACE = NamespaceName.parse("public/default")
TOPIC = "persistent://public/default/t"

# uvloop opens a pipe with its first loop and keeps it for the process: before any test counts descriptors.
uvloop.run(asyncio.sleep(0))

Answer = Callable[[BaseCommand], bytes | None]


def connect_command(to: str = "") -> BaseCommand:
    """A client's Connect, to be connected to a broker where one is named."""
    connect = CommandConnect(client_version="a client", protocol_version=19, auth_method_name="none")
    if to:
        connect.proxy_to_broker_url = to
    return BaseCommand(type=BaseCommand.CONNECT, connect=connect)


class RawClient:
    """Frames by hand."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer
        self._stream = CommandStream(6 << 20)

    def send(self, *sent: BaseCommand) -> None:
        self.writer.write(b"".join(map(encode_command, sent)))

    async def next(self) -> BaseCommand:
        """The next command. Raises EOFError when the connection ends before it."""
        while True:
            command = self._stream.next_command()
            if command is not None:
                return command
            data = await asyncio.wait_for(self.reader.read(65_536), 30)
            if not data:
                raise EOFError
            self._stream.receive_data(data)

    async def raw(self, count: int) -> bytes:
        """So many bytes behind the last command; no command is to be had any more."""
        first = self._stream.rest()
        return first + await asyncio.wait_for(self.reader.readexactly(count - len(first)), 30)

    async def ask(self, *sent: BaseCommand) -> BaseCommand:
        self.send(*sent)
        return await self.next()

    async def ended(self) -> None:
        """Return once the other side has ended the connection."""
        try:
            while await asyncio.wait_for(self.reader.read(65_536), 30):
                pass
        except ConnectionError:
            pass


@dataclass
class FakeBroker:
    """Shakes hands and answers what its `answers` say; keeps what it was sent."""

    broker_id: str
    answers: dict[int, Answer] = field(default_factory=dict)
    received: list[BaseCommand] = field(default_factory=list)
    connections: list[RawClient] = field(default_factory=list)
    port: int = 0
    on_connected: Callable[[RawClient], Awaitable[None]] | None = None
    """Takes over behind the handshake."""
    _tasks: set[asyncio.Task[None]] = field(default_factory=set)

    async def start(self, opened: AsyncExitStack) -> None:
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]

        def end() -> None:
            server.close()
            for task in self._tasks:
                task.cancel()

        opened.callback(end)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        client = RawClient(reader, writer)
        self.connections.append(client)
        try:
            hello = await client.next()
            self.received.append(hello)
            writer.write(commands.connected("a broker", 19, 5 << 20, FeatureFlags()))
            if self.on_connected is not None:
                await self.on_connected(client)
                return
            while True:
                command = await client.next()
                self.received.append(command)
                answer = self.answers.get(command.type)
                data = answer(command) if answer is not None else None
                if data is not None:
                    writer.write(data)
        except (EOFError, ConnectionError, asyncio.CancelledError):
            pass
        finally:
            self._tasks.discard(task)
            writer.close()

    @property
    def open_connections(self) -> int:
        return len(self._tasks)

    def registration(self, run: int = 1) -> BrokerRegistration:
        value = BrokerRegistration(broker_id=self.broker_id, run=run)
        value.addresses.broker_url = f"pulsar://127.0.0.1:{self.port}"
        value.addresses.http_url = f"http://{self.broker_id}"
        return value


@dataclass
class Front:
    """What a test has."""

    discovery: Discovery
    store: SimMetadataStore
    a: FakeBroker
    b: FakeBroker
    opened: AsyncExitStack

    async def client(self, *, connect: BaseCommand | None = None) -> RawClient:
        """Connected; the handshake is done unless its Connect is given."""
        client = RawClient(*await asyncio.open_connection("127.0.0.1", self.discovery.port))
        self.opened.callback(client.writer.close)
        if connect is not None:
            client.send(connect)
        else:
            assert (await client.ask(connect_command())).type == BaseCommand.CONNECTED
        return client

    async def register(self, value: BrokerRegistration) -> None:
        await self.store.put(KEYS.broker(value.broker_id), encode(value))
        await until(lambda: self.discovery.directory.get(value.broker_id) == _as_stored(value))

    async def own(self, broker: FakeBroker, run: int = 1, namespace: NamespaceName = NAMESPACE) -> None:
        """Every bundle of the namespace is that broker's."""
        for bundle in split_ring(4):
            owner = BundleOwner(broker_id=broker.broker_id, run=run)
            await self.store.put(KEYS.bundle_owner(namespace, bundle), encode(owner))
        owners = self.discovery.finder.owners
        await until(
            lambda: all(
                (found := owners.owner_of(namespace, bundle)) is not None
                and found.broker_id == broker.broker_id
                for bundle in split_ring(4)
            )
        )


def _as_stored(value: BrokerRegistration) -> BrokerRegistration:
    return BrokerRegistration.FromString(encode(value))


async def until(done: Callable[[], bool]) -> None:
    async with asyncio.timeout(30):
        while not done():  # noqa: ASYNC110 -- what is waited for has no event
            await asyncio.sleep(0.005)


def config(**of_proxy: object) -> DiscoveryConfig:
    return DiscoveryConfig(
        listener=ListenerConfig(service_port=0, web_service_port=0),
        metadata=MetadataConfig(cluster_name="test", url="etcd:127.0.0.1:2379"),
        proxy=ProxyConfig(**of_proxy),  # type: ignore[arg-type]
    )


def with_front(body: Callable[[Front], Awaitable[None]], settings: DiscoveryConfig | None = None) -> None:
    """Run `body` with a discovery of a cluster of two brokers, `a` and `b`, and one namespace."""

    async def main() -> None:
        async with AsyncExitStack() as opened:
            store = SimMetadataStore(SimMetadataServer(), random.Random(1))
            opened.push_async_callback(store.close)
            a, b = FakeBroker("a:8080"), FakeBroker("b:8080")
            for broker in (a, b):
                await broker.start(opened)
                await store.put(KEYS.broker(broker.broker_id), encode(broker.registration()))
            await store.put(KEYS.namespace(NAMESPACE), encode(Namespace(bundle_count=4)))
            discovery = Discovery(settings or config(), store, KEYS, random.Random(1))
            opened.push_async_callback(discovery.close)
            await discovery.start()
            await body(Front(discovery, store, a, b, opened))

    uvloop.run(main())
