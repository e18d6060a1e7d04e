"""Limits of connections that have not authenticated, and the look at credentials of those that have."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Coroutine
from contextlib import suppress
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest
from magnetar.broker.client_endings import EndCode
from magnetar.broker.config import BrokerConfig
from magnetar.broker.handlers.client import Services
from magnetar.broker.listener_config import ListenerConfig
from magnetar.broker.transport.connection import UNAUTHENTICATED_FRAME_BYTES_MAX, Connection
from magnetar.broker.transport.listener import Listener
from magnetar.common.security.authentication.authenticator import Authenticator
from magnetar.common.security.authentication.config import AuthenticationConfig
from magnetar.common.security.proxy_protocol.config import ProxyProtocolConfig
from magnetar.common.security.proxy_protocol.header import Client as ProxiedClient
from magnetar.common.wire import pulsar_pb2 as pb

from tests.unit.broker.handlers.bare_services import bare_services
from tests.unit.broker.handlers.test_connect import OLD, Tokens, connect
from tests.unit.common.wire.frames import simple

CONNECT = simple(connect=connect().connect)


class Transport:
    """A socket of a host, which remembers what was written and whether it was closed."""

    def __init__(self, host: str) -> None:
        self.host = host
        self.written: list[bytes] = []
        self.closed = False
        self.reads = True

    def set_write_buffer_limits(self, high: int) -> None:
        """Nothing is bounded."""

    def get_extra_info(self, name: str) -> tuple[str, int] | None:
        return (self.host, 1) if name == "peername" else None

    def get_write_buffer_size(self) -> int:
        return 0

    def is_closing(self) -> bool:
        return self.closed

    def write(self, data: bytes) -> None:
        self.written.append(data)

    def pause_reading(self) -> None:
        self.reads = False

    def resume_reading(self) -> None:
        self.reads = True

    def close(self) -> None:
        self.closed = True

    def abort(self) -> None:
        self.closed = True


class World:
    """A listener with authentication, whose connections come from the test."""

    def __init__(self, *, authentication: AuthenticationConfig | None = None, **listener: Any) -> None:
        self.tasks: set[asyncio.Task[None]] = set()
        self.now_ms = 0
        clock = SimpleNamespace(monotonic=lambda: 0.0, wall_ms=lambda: self.now_ms)
        budget = SimpleNamespace(forget=lambda connection: None)
        self.services: Services = bare_services(clock, spawn=self._spawn, budget=budget)
        self.services.config = BrokerConfig(
            listener=ListenerConfig(**listener), authentication=authentication or AuthenticationConfig()
        )
        self.tokens = Tokens()
        if authentication is not None:
            self.services.authenticator = Authenticator(
                (self.tokens,), anonymous_role="", monotonic=lambda: 0.0, failure_delay_s=0
            )
        self.listener = Listener(self.services)

    def open(self, host: str = "10.0.0.1") -> tuple[Connection, Transport]:
        connection, transport = Connection(self.services, self.listener), Transport(host)
        connection.connection_made(cast(Any, transport))
        return connection, transport

    async def connected(self, host: str = "10.0.0.1") -> tuple[Connection, Transport]:
        connection, transport = self.open(host)
        connection.data_received(CONNECT)
        await asyncio.gather(*self.tasks)
        assert connection.client.connected
        return connection, transport

    def _spawn(self, work: Coroutine[Any, Any, None], name: str) -> None:
        task = asyncio.create_task(work)
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)


def limits(**more: Any) -> AuthenticationConfig:
    return AuthenticationConfig(enabled=True, **more)


def test_too_many_connections_of_one_address_are_refused_with_a_reason() -> None:
    async def main() -> None:
        world = World(connections_per_ip_max=2)
        first, _ = world.open()
        world.open()
        refused, transport = world.open()
        assert not refused.connected
        assert b"brokerMaxConnectionsPerIp=2" in b"".join(transport.written)
        assert world.open("10.0.0.2")[0].connected
        first.close("test", EndCode.BROKER_STOPPING)
        assert world.open()[0].connected
        await world.listener.close()

    asyncio.run(main())


@pytest.mark.parametrize(
    "limit", ["unauthenticated_connections_max", "unauthenticated_connections_per_ip_max"]
)
def test_connections_that_have_not_authenticated_are_bounded_apart_from_others(limit: str) -> None:
    async def main() -> None:
        world = World(authentication=limits(**{limit: 2}))
        for _ in range(5):
            await world.connected()
        first, _ = world.open()
        world.open()
        refused, transport = world.open()
        assert (refused.connected, transport.written) == (False, [])
        if limit.endswith("per_ip_max"):
            assert world.open("10.0.0.2")[0].connected
        first.connection_lost(None)
        assert world.open()[0].connected
        await world.listener.close()

    asyncio.run(main())


def test_without_authentication_there_is_no_such_bound() -> None:
    async def main() -> None:
        world = World()
        assert all(world.open()[0].connected for _ in range(200))
        await world.listener.close()

    asyncio.run(main())


def test_a_frame_is_small_until_the_client_is_connected() -> None:
    async def main() -> None:
        world = World(authentication=limits())
        too_large = struct.pack(">II", UNAUTHENTICATED_FRAME_BYTES_MAX, 10)
        connection, _ = world.open()
        connection.data_received(too_large)
        assert not connection.connected
        connection, _ = await world.connected()
        connection.data_received(too_large)
        assert connection.connected
        await world.listener.close()

    asyncio.run(main())


def test_messages_before_connected_break_the_protocol() -> None:
    async def main() -> None:
        ack = pb.CommandAck(
            consumer_id=1,
            ack_type=pb.CommandAck.Individual,
            message_id=[pb.MessageIdData(ledgerId=1, entryId=1)],
        )
        for world in (World(), World(authentication=limits())):
            connection, _ = world.open()
            connection.data_received(simple(ack=ack))
            assert not connection.connected
        world = World(authentication=limits())
        connection, _ = world.open()
        connection.data_received(CONNECT + simple(ack=ack))
        assert not connection.connected
        await asyncio.gather(*world.tasks)
        assert not connection.client.connected

    asyncio.run(main())


def test_a_client_that_does_not_connect_in_time_is_closed() -> None:
    async def main() -> None:
        world = World(authentication=limits(connect_timeout_ms=10))
        connection, _ = world.open()
        connected, _ = await world.connected()
        await asyncio.sleep(0.2)
        assert (connection.connected, connected.connected) == (False, True)
        await world.listener.close()

    asyncio.run(main())


def test_the_look_at_credentials_asks_for_fresh_ones_and_then_closes() -> None:
    async def main() -> None:
        world = World(authentication=limits(connect_timeout_ms=10, refresh_check_s=1))
        connection, transport = await world.connected()
        connection._look_s = 0.05
        world.now_ms = int(world.tokens.expiry[OLD] * 1000)
        sent = b""
        async with asyncio.timeout(10):
            while connection.connected:
                await asyncio.sleep(0.01)
                sent = b"".join(transport.written)
        assert sent.count(b"PulsarAuthRefresh") == 1
        assert transport.closed

    asyncio.run(main())


def test_nothing_is_read_while_credentials_are_checked() -> None:
    async def main() -> None:
        world = World(authentication=limits())
        connection, transport = world.open()
        assert transport.reads
        connection.data_received(CONNECT)
        assert not transport.reads
        await asyncio.gather(*world.tasks)
        assert connection.client.connected
        assert transport.reads
        refused, transport = world.open()
        refused.data_received(simple(connect=connect(b"wrong").connect))
        await asyncio.gather(*world.tasks)
        assert transport.closed
        assert not transport.reads, "a wrong password is answered, and nothing behind it is read"
        await world.listener.close()

    asyncio.run(main())


def test_the_client_of_a_proxy_header_is_counted_and_shown() -> None:
    async def main() -> None:
        world = World(connections_per_ip_max=1)
        made = []
        for host in ("192.0.2.1", "192.0.2.2", "192.0.2.1"):
            connection = Connection(world.services, world.listener, ProxiedClient(host, 7))
            connection.connection_made(cast(Any, Transport("10.0.0.1")))
            made.append(connection)
        assert [each.connected for each in made] == [True, True, False]
        assert made[0].address == "192.0.2.1:7"
        await world.listener.close()

    asyncio.run(main())


def test_ports_behind_a_load_balancer_read_its_header() -> None:
    async def main() -> None:
        world = World()
        behind = ProxyProtocolConfig(enabled=True, networks=("127.0.0.0/8",))
        world.services.config = replace(world.services.config, proxy_protocol=behind)
        listener = Listener(world.services)
        port = await listener.start("127.0.0.1", 0)
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"PROXY TCP4 192.0.2.7 10.0.0.1 51000 6650\r\n" + CONNECT)
        reader, refused = await asyncio.open_connection("127.0.0.1", port)
        refused.write(CONNECT)
        async with asyncio.timeout(20):
            with suppress(ConnectionResetError):
                assert await reader.read() == b""
            while not len(listener):  # noqa: ASYNC110
                await asyncio.sleep(0.005)
        assert [each.address for each in listener] == ["192.0.2.7:51000"]
        refused.close()
        await listener.close()
        writer.close()

    asyncio.run(main())
