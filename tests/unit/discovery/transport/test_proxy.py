"""Connections that are carried to brokers, and those that are not."""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, cast

import pytest
from magnetar.common.obs.metrics import REGISTRY
from magnetar.common.wire import commands
from magnetar.common.wire.frame import encode_command
from magnetar.common.wire.pulsar_pb2 import BaseCommand, ServerError
from magnetar.discovery.config import ListenerConfig
from magnetar.discovery.transport import broker_access, splice
from structlog.testing import capture_logs

from tests.unit.discovery.front import (
    Front,
    RawClient,
    config,
    connect_command,
    until,
    with_front,
)


def address_of(front: Front) -> str:
    return f"127.0.0.1:{front.b.port}"


def sample(name: str, **labels: str) -> float:
    return REGISTRY.get_sample_value(name, labels) or 0.0


async def to_b(front: Front) -> RawClient:
    """A client that is connected to broker b."""
    client = await front.client(connect=connect_command(address_of(front)))
    assert (await client.next()).connected.server_version == "a broker"
    return client


@pytest.mark.parametrize("form", ["{}", "pulsar://{}", "pulsar://{}/"])
def test_a_client_shakes_hands_with_the_broker_itself(form: str) -> None:
    async def body(front: Front) -> None:
        wanted = form.format(address_of(front))
        client = await front.client(connect=connect_command(wanted))
        assert (await client.next()).connected.server_version == "a broker"
        hello = front.b.received[0].connect
        assert (hello.client_version, hello.protocol_version) == ("a client", 19)
        assert hello.auth_method_name == "none"
        assert not hello.HasField("proxy_to_broker_url")
        assert front.a.received == []

    with_front(body)


def test_a_connect_goes_on_with_its_own_credentials_and_without_what_a_proxy_says() -> None:
    async def body(front: Front) -> None:
        connect = connect_command(address_of(front))
        sent = connect.connect
        sent.auth_method_name, sent.auth_data = "token", b"secret"
        sent.original_principal, sent.proxy_version = "root", "forged"
        sent.original_auth_method, sent.original_auth_data = "token", "more"
        client = await front.client(connect=connect)
        assert (await client.next()).type == BaseCommand.CONNECTED
        hello = front.b.received[0].connect
        assert (hello.auth_method_name, hello.auth_data) == ("token", b"secret")
        for name in ("original_principal", "original_auth_method", "original_auth_data", "proxy_version"):
            assert not hello.HasField(name), name

    with_front(body)


def test_a_connect_with_method_tls_reaches_no_broker_without_certificates() -> None:
    """Unchanged, over a link with the certificate of discovery, it would make the client discovery."""

    async def body(front: Front) -> None:
        connect = connect_command(address_of(front))
        connect.connect.auth_method_name = "tls"
        client = await front.client(connect=connect)
        assert (await client.next()).error.error == ServerError.AuthenticationError
        await client.ended()
        assert front.a.connections == front.b.connections == []

    with_front(body)


def test_any_address_that_a_broker_registered_leads_to_it() -> None:
    async def body(front: Front) -> None:
        registration = front.b.registration()
        registration.listeners["outside"].broker_url = "pulsar://Gate-B:6650"
        registration.listeners["outside"].broker_url_tls = "pulsar+ssl://gate-b:6651"
        await front.register(registration)
        for wanted in ("gate-b:6650", "gate-b:6651", "GATE-b:6650"):
            client = await front.client(connect=connect_command(wanted))
            assert (await client.next()).type == BaseCommand.CONNECTED
        assert len(front.b.connections) == 3

    with_front(body)


@pytest.mark.parametrize(
    "wanted",
    [
        "127.0.0.1:22",
        "metadata.internal:2379",
        "pulsar://127.0.0.1:{http}",
        "http://127.0.0.1:{b}",
        "127.0.0.1",
        "127.0.0.1:{b}@elsewhere:80",
        "127.0.0.1:{b}/../x",
        "b:8080",
        "x" * 70_000,
    ],
)
def test_nothing_but_a_broker_of_the_cluster_is_reached(wanted: str) -> None:
    """Refused with an error that says why, one line in the log and one more on the counter."""

    async def body(front: Front) -> None:
        before = sample("magnetar_discovery_proxy_refused_total", reason="unknown_broker")
        with capture_logs() as logged:
            text = wanted.format(http=8080, b=front.b.port)
            client = await front.client(connect=connect_command(text))
            error = (await client.next()).error
            await client.ended()
        assert error.error == ServerError.NotAllowedError
        assert "not the address of a broker of this cluster" in error.message
        assert len(error.message) < 1_000
        assert [line["event"] for line in logged] == ["refused a proxied connection"]
        assert sample("magnetar_discovery_proxy_refused_total", reason="unknown_broker") == before + 1
        assert front.a.connections == front.b.connections == []

    with_front(body)


def test_a_broker_that_left_is_reached_no_more() -> None:
    async def body(front: Front) -> None:
        await to_b(front)
        await front.store.delete("/magnetar/test/v1/brokers/available/b%3A8080")
        await until(lambda: front.discovery.directory.get("b:8080") is None)
        client = await front.client(connect=connect_command(address_of(front)))
        assert (await client.next()).error.error == ServerError.NotAllowedError

    with_front(body)


def test_a_broker_that_does_not_listen_is_said_to_be_unreachable() -> None:
    async def body(front: Front) -> None:
        registration = front.b.registration()
        with socket.create_server(("127.0.0.1", 0)) as closed:
            port = closed.getsockname()[1]
        registration.addresses.broker_url = f"pulsar://127.0.0.1:{port}"
        await front.register(registration)
        client = await front.client(connect=connect_command(f"127.0.0.1:{port}"))
        error = (await client.next()).error
        assert error.error == ServerError.ServiceNotReady
        assert "b:8080" in error.message
        await client.ended()

    with_front(body)


@pytest.mark.parametrize(
    "host", ["a..b", "x" * 64, "\u00e4" * 80, "a b"], ids=["empty label", "long label", "idna", "space"]
)
def test_a_broker_whose_address_cannot_be_is_said_to_be_unreachable(host: str) -> None:
    async def body(front: Front) -> None:
        registration = front.b.registration()
        registration.addresses.broker_url = f"pulsar://{host}:6650"
        await front.register(registration)
        client = await front.client(connect=connect_command(f"{host}:6650"))
        assert (await client.next()).error.error == ServerError.ServiceNotReady
        await client.ended()
        assert len(front.discovery._listener) == 0

    with_front(body)


def test_a_bug_on_the_way_to_a_broker_does_not_leave_the_client_waiting(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fails(broker: object, url: str) -> tuple[str, int]:
        raise RuntimeError("a bug")

    monkeypatch.setattr(broker_access, "reached_at", fails)

    async def body(front: Front) -> None:
        client = await front.client(connect=connect_command(address_of(front)))
        assert "RuntimeError" in (await client.next()).error.message
        await client.ended()
        assert len(front.discovery._listener) == 0

    with_front(body)


def test_everything_passes_both_ways_unchanged_also_what_came_with_the_connect() -> None:
    payload = bytes(range(256)) * 4096

    async def body(front: Front) -> None:
        echoed = asyncio.Event()

        async def echo(client: RawClient) -> None:
            received = await client.raw(len(payload))
            client.writer.write(received)
            await client.writer.drain()
            echoed.set()
            await client.ended()

        front.b.on_connected = echo
        before = sample("magnetar_discovery_proxied_bytes_total", source="brokers")
        client = RawClient(*await asyncio.open_connection("127.0.0.1", front.discovery.port))
        front.opened.callback(client.writer.close)
        # Bytes that are no frames at all: nobody looks at them.
        client.writer.write(encode_command(connect_command(address_of(front))) + payload)
        assert (await client.next()).type == BaseCommand.CONNECTED
        assert await client.raw(len(payload)) == payload
        assert echoed.is_set()
        assert sample("magnetar_discovery_proxied_bytes_total", source="brokers") >= before + len(payload)

    with_front(body)


def test_a_broker_that_ends_ends_its_client_at_once_after_its_last_bytes() -> None:
    async def body(front: Front) -> None:
        client = await to_b(front)
        front.b.connections[0].writer.write(commands.PING)
        front.b.connections[0].writer.close()
        assert (await client.next()).type == BaseCommand.PING
        await client.ended()
        await until(lambda: len(front.discovery._proxy) == 0)

    with_front(body)


def test_a_broker_that_is_killed_ends_its_client_at_once() -> None:
    async def body(front: Front) -> None:
        client = await to_b(front)
        reset(front.b.connections[0].writer)
        await client.ended()

    with_front(body)


def test_a_client_that_is_gone_ends_its_connection_to_the_broker() -> None:
    async def body(front: Front) -> None:
        client = await to_b(front)
        reset(client.writer)
        await until(lambda: front.b.open_connections == 0)
        await until(lambda: len(front.discovery._proxy) == 0)

    with_front(body)


def reset(writer: asyncio.StreamWriter) -> None:
    """End it as a killed process with unread bytes does."""
    sock = writer.get_extra_info("socket")
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()


def test_a_client_that_has_said_all_still_hears_the_rest() -> None:
    async def body(front: Front) -> None:
        async def answer_after_the_end(client: RawClient) -> None:
            await client.ended()
            client.writer.write(b"the rest")

        front.b.on_connected = answer_after_the_end
        client = await to_b(front)
        client.writer.write_eof()
        assert await client.reader.read() == b"the rest"

    with_front(body)


def test_a_broker_that_does_not_end_after_its_client_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(splice, "LAST_WORDS_S", 0.2)

    async def body(front: Front) -> None:
        client = await to_b(front)
        broker = front.b.connections[0]
        client.writer.write_eof()
        await client.ended()
        await until(lambda: broker.reader.at_eof())

    with_front(body)


def test_a_side_that_does_not_read_stops_the_other() -> None:
    """What lies between them is bounded: their own socket buffers and a little of ours."""

    async def body(front: Front) -> None:
        endless = b"x" * 65_536
        sent = 0

        async def flood(client: RawClient) -> None:
            nonlocal sent
            while True:
                client.writer.write(endless)
                sent += len(endless)
                await client.writer.drain()
                await asyncio.sleep(0)

        front.b.on_connected = flood
        client = await front.client(connect=connect_command(address_of(front)))
        client.writer.transport.pause_reading()  # type: ignore[attr-defined]
        settled = -1
        while settled != sent:
            settled = sent
            await asyncio.sleep(0.3)
        (carried,) = front.discovery._proxy._splices
        assert carried._client is not None
        assert carried._client.get_write_buffer_size() <= splice.BUFFER_BYTES_MAX + 512 * 1024
        client.writer.transport.resume_reading()  # type: ignore[attr-defined]
        reading = asyncio.create_task(client.reader.readexactly(settled + (4 << 20)))
        await asyncio.wait_for(reading, 30)
        assert sent > settled

    with_front(body)


def test_a_silent_broker_is_given_up_and_one_that_pings_is_not() -> None:
    async def body(front: Front) -> None:
        async def ping_for_ever(client: RawClient) -> None:
            while True:
                client.writer.write(commands.PING)
                await asyncio.sleep(0.05)

        silent = await to_b(front)
        front.b.on_connected = ping_for_ever
        living = await to_b(front)
        await silent.ended()
        for _ in range(20):
            assert (await living.next()).type == BaseCommand.PING

    with_front(body, config(read_timeout_ms=1_000))


def test_a_client_that_reads_nothing_is_given_up() -> None:
    """The broker gives it up, too, but that is not heard while nothing of the broker is read."""

    async def body(front: Front) -> None:
        async def flood(client: RawClient) -> None:
            while True:
                client.writer.write(b"x" * 65_536)
                await client.writer.drain()
                await asyncio.sleep(0)

        front.b.on_connected = flood
        client = await front.client(connect=connect_command(address_of(front)))
        client.writer.transport.pause_reading()  # type: ignore[attr-defined]
        await until(lambda: len(front.discovery._proxy) == 1)
        await until(lambda: len(front.discovery._proxy) == 0)
        await until(lambda: front.b.open_connections == 0)

    with_front(body, config(read_timeout_ms=1_000))


def test_slow_transfer_is_not_considered_stuck() -> None:
    @dataclass
    class Transport:
        waiting: int = 0
        reading: bool = True

        def get_write_buffer_size(self) -> int:
            return self.waiting

        def is_reading(self) -> bool:
            return self.reading

    async def main() -> None:
        carried = splice.Splice(lambda _: None)
        client, broker = Transport(), Transport()
        carried._client, carried._broker = cast(Any, client), cast(Any, broker)
        assert not carried.stuck(), "it has only begun"
        assert carried.stuck(), "the broker says nothing"
        carried.broker_heard = True
        client.waiting, broker.reading = 100, False
        assert not carried.stuck(), "the broker has said something"
        client.waiting = 99
        assert not carried.stuck(), "the client has taken something"
        assert carried.stuck(), "the client takes nothing"

    asyncio.run(main())


def test_connections_to_brokers_count_against_the_limit() -> None:
    async def body(front: Front) -> None:
        await to_b(front)
        await to_b(front)
        refused = await front.client(connect=connect_command())
        error = (await refused.next()).error
        assert error.error == ServerError.TooManyRequests
        assert "maxConcurrentInboundConnections=2" in error.message
        await refused.ended()

    settings = config()
    listener = ListenerConfig(service_port=0, connections_max=2)
    with_front(body, replace(settings, listener=listener))


@pytest.fixture(autouse=True)
def gauges_are_back_where_they_were() -> Iterator[None]:
    kinds = ("asking", "to_brokers")
    before = [sample("magnetar_discovery_connections", kind=kind) for kind in kinds]
    yield
    assert [sample("magnetar_discovery_connections", kind=kind) for kind in kinds] == before
