"""A discovery as a process: lookups with and without metadata, clients that come through it, its memory."""

from __future__ import annotations

import asyncio
import json
import re
import shutil
import socket
import ssl
import subprocess
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pulsar
import pytest
from magnetar.common.wire.frame import encode_command
from magnetar.common.wire.pulsar_pb2 import BaseCommand, CommandConnect, ServerError

from bench.connection import Connection, Refused
from tests.certificates import Authority, Pair
from tests.cluster.discovery_process import DiscoveryProcess, pretend
from tests.etcd_server import EtcdServer
from tests.integration.harness import (
    StandaloneServer,
    eventually,
    magnetar_command,
    temporary_directory,
)

NewDiscovery = Callable[..., DiscoveryProcess]

OWNED = "persistent://public/default/t"
UNOWNED = "persistent://public/unowned/t"

PINGS_LATE = {"keepAliveIntervalSeconds": "600"}
"""So that a machine which takes long to open all connections finds nothing in them but their end."""
CONNECTIONS = 1_000
CONNECTION_BYTES_MAX = 20_000
"""9,000 within 400 MB leaves 36 KB for each beside a process of 75 MB."""


@pytest.fixture(scope="module")
def broker() -> Iterator[StandaloneServer]:
    """One that knows nothing of the cluster and serves whoever comes."""
    directory = temporary_directory()
    server = StandaloneServer(directory, PINGS_LATE)
    try:
        server.start()
        yield server
    finally:
        server.kill()
        shutil.rmtree(directory, ignore_errors=True)


@pytest.fixture
def etcd(tmp_path: Path, broker: StandaloneServer) -> Iterator[EtcdServer]:
    """Says that the broker owns public/default, and nobody public/unowned."""
    with EtcdServer.running(tmp_path) as etcd:
        brokers = {"broker-1:8080": broker.endpoint}
        pretend(etcd.url, brokers, {"public/default": "broker-1:8080", "public/unowned": ""})
        yield etcd


@pytest.fixture
def new_discovery(tmp_path: Path, etcd: EtcdServer) -> Iterator[NewDiscovery]:
    made: list[DiscoveryProcess] = []

    def make(**settings: str) -> DiscoveryProcess:
        discovery = DiscoveryProcess(tmp_path, f"discovery-{len(made) + 1}", etcd.url, settings)
        made.append(discovery)
        discovery.start()
        return discovery

    yield make
    for discovery in made:
        discovery.kill()


def look_up(discovery: DiscoveryProcess, topic: str) -> None:
    """Raises Refused with the reason."""
    connection = Connection(discovery.endpoint.service_url)
    try:
        connection._look_up([topic])
    finally:
        connection.close()


def carries_a_message(client: pulsar.Client, topic: str) -> None:
    """Published by the client and received by it."""
    consumer = client.subscribe(topic, "s")
    client.create_producer(topic).send(b"x")
    assert consumer.receive(30_000).data() == b"x"


@pytest.mark.full
def test_without_metadata_owned_topics_are_found_and_others_fail_clearly_until_it_is_back(
    new_discovery: NewDiscovery, etcd: EtcdServer
) -> None:
    discovery = new_discovery()
    look_up(discovery, OWNED)
    with pytest.raises(Refused, match="no broker assigns bundle public/unowned"):
        look_up(discovery, UNOWNED)
    etcd.kill()
    try:
        began = time.monotonic()
        look_up(discovery, OWNED)
        with pytest.raises(Refused):
            look_up(discovery, UNOWNED)
        assert time.monotonic() - began < 30
        with urllib.request.urlopen(discovery.health_url, timeout=30) as answer:
            assert answer.status == 200
    finally:
        etcd.start()
    pretend(etcd.url, {}, {"public/new": "broker-1:8080"})
    deadline = time.monotonic() + 60
    while True:
        try:
            look_up(discovery, "persistent://public/new/t")
            break
        except Refused:
            assert time.monotonic() < deadline, "what came since is not known"
            time.sleep(0.1)
    discovery.stop()


@pytest.mark.full
def test_metadata_that_was_replaced_is_what_counts(
    new_discovery: NewDiscovery, etcd: EtcdServer, broker: StandaloneServer
) -> None:
    for number in range(20):
        etcd.etcdctl("put", "/elsewhere", str(number))
    discovery = new_discovery()
    look_up(discovery, OWNED)
    etcd.kill()
    shutil.rmtree(etcd.directory / "data")
    etcd.start()
    pretend(etcd.url, {"broker-2:8080": broker.endpoint}, {"public/other": "broker-2:8080"})

    def found(topic: str) -> bool:
        try:
            look_up(discovery, topic)
        except Refused:
            return False
        return True

    eventually(lambda: found("persistent://public/other/t") and not found(OWNED), "it is followed", 60.0)
    discovery.stop()


@pytest.mark.parametrize("through", ["true", "false"])
def test_apache_pulsars_client_publishes_and_consumes_through_discovery(
    new_discovery: NewDiscovery, broker: StandaloneServer, through: str
) -> None:
    discovery = new_discovery(magnetarProxyThroughServiceUrl=through)
    client = pulsar.Client(discovery.endpoint.service_url, operation_timeout_seconds=30)
    try:
        topic = f"persistent://public/default/through-{through}"
        consumer = client.subscribe(topic, "s")
        producer = client.create_producer(topic)
        for number in range(100):
            producer.send(b"%d" % number)
        for number in range(100):
            message = consumer.receive(30_000)
            assert message.data() == b"%d" % number
            consumer.acknowledge(message)
        with urllib.request.urlopen(f"{discovery.endpoint.http_url}/metrics", timeout=30) as answer:
            page = answer.read().decode()
        carried = 'magnetar_discovery_connections{kind="to_brokers"}' in page
        assert carried is (through == "true")
    finally:
        client.close()
    discovery.stop()


@contextmanager
def tls_ended_before(port: int, certificate: Pair) -> Iterator[int]:
    """What a load balancer does: the port where it has TLS with clients; what they say goes on to `port`."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificate.certificate, certificate.key)
    loop = asyncio.new_event_loop()

    async def pump(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
        try:
            with suppress(OSError):
                while data := await source.read(65_536):
                    target.write(data)
                    await target.drain()
        finally:
            target.close()

    async def carry(from_client: asyncio.StreamReader, to_client: asyncio.StreamWriter) -> None:
        from_server, to_server = await asyncio.open_connection("127.0.0.1", port)
        await asyncio.gather(pump(from_client, to_server), pump(from_server, to_client))

    async def close() -> None:
        server.close()
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await asyncio.sleep(0.1)  # connections that were closed end in the next turns of the loop

    server = loop.run_until_complete(asyncio.start_server(carry, "127.0.0.1", 0, ssl=context))
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        asyncio.run_coroutine_threadsafe(close(), loop).result(30)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(30)
        loop.close()


def test_a_client_with_tls_to_what_stands_before_discovery_is_carried_to_its_broker(
    new_discovery: NewDiscovery, tmp_path: Path
) -> None:
    authority = Authority(tmp_path)
    discovery = new_discovery(magnetarProxyThroughServiceUrl="true")
    with tls_ended_before(discovery.port, authority.issue("front")) as port:
        client = pulsar.Client(
            f"pulsar+ssl://127.0.0.1:{port}",
            operation_timeout_seconds=30,
            tls_trust_certs_file_path=str(authority.certificate),
        )
        try:
            carries_a_message(client, "persistent://public/default/over-tls")
        finally:
            client.close()


def test_a_client_that_looks_up_over_http_is_led_to_the_broker(new_discovery: NewDiscovery) -> None:
    client = pulsar.Client(new_discovery().endpoint.http_url, operation_timeout_seconds=30)
    try:
        carries_a_message(client, "persistent://public/default/over-http")
    finally:
        client.close()


def test_patterns_find_their_topics_through_discovery(new_discovery: NewDiscovery) -> None:
    discovery = new_discovery(magnetarProxyThroughServiceUrl="true")
    client = pulsar.Client(discovery.endpoint.service_url, operation_timeout_seconds=30)
    try:
        for number in range(3):
            client.create_producer(f"persistent://public/default/pattern-{number}").send(b"before")
        consumer = client.subscribe(
            re.compile("persistent://public/default/pattern-.*"),
            "s",
            initial_position=pulsar.InitialPosition.Earliest,
        )
        found = {consumer.receive(30_000).topic_name() for _ in range(3)}
        assert found == {f"persistent://public/default/pattern-{number}" for number in range(3)}
    finally:
        client.close()


@pytest.mark.full
def test_the_command_line_publishes_and_consumes_through_discovery(new_discovery: NewDiscovery) -> None:
    discovery = new_discovery(magnetarProxyThroughServiceUrl="true")

    def run(*arguments: str) -> str:
        command = [*magnetar_command(), *arguments, "--url", discovery.endpoint.service_url]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, done.stderr
        return done.stdout

    topic = "persistent://public/default/command-line"
    run("produce", topic, "-m", "hello")
    assert "hello" in run("consume", topic, "-s", "s", "-p", "Earliest", "-n", "1")


def test_the_admin_api_is_reached_through_discovery(
    new_discovery: NewDiscovery, broker: StandaloneServer
) -> None:
    discovery = new_discovery()
    client = pulsar.Client(broker.endpoint.service_url)
    client.create_producer(OWNED).send(b"x")
    client.close()
    base = discovery.endpoint.http_url
    with urllib.request.urlopen(f"{base}/admin/v2/{OWNED.replace('://', '/')}/stats", timeout=30) as answer:
        assert answer.url.startswith(broker.endpoint.http_url)
        assert json.load(answer)["msgInCounter"] >= 0
    with urllib.request.urlopen(f"{base}/admin/v2/namespaces/public", timeout=30) as answer:
        assert "public/default" in json.load(answer)
    with pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.urlopen(f"{base}/admin/v2/persistent/public/nowhere/t/stats", timeout=30)
    assert refused.value.code == 404
    refused.value.close()


@pytest.mark.full
def test_the_death_of_a_broker_ends_its_clients_connections_at_once(
    new_discovery: NewDiscovery, etcd: EtcdServer, tmp_path: Path
) -> None:
    discovery = new_discovery()
    dying = StandaloneServer(tmp_path / "dying")
    (tmp_path / "dying").mkdir()
    dying.start()
    try:
        pretend(etcd.url, {"broker-2:8080": dying.endpoint}, {"public/second": "broker-2:8080"})
        address = dying.endpoint.service_url.removeprefix("pulsar://")
        connect = BaseCommand(
            type=BaseCommand.CONNECT, connect=CommandConnect(client_version="t", proxy_to_broker_url=address)
        )
        deadline = time.monotonic() + 30
        while True:
            client = socket.create_connection(("127.0.0.1", discovery.port), timeout=30)
            client.sendall(encode_command(connect))
            answer = BaseCommand.FromString(client.recv(65_536)[8:])
            if answer.type == BaseCommand.CONNECTED:
                break
            # The registration is still on its way.
            assert answer.error.error == ServerError.NotAllowedError
            client.close()
            assert time.monotonic() < deadline
        dying.kill()
        killed = time.monotonic()
        assert client.recv(65_536) == b""
        assert time.monotonic() - killed < 5
        client.close()
    finally:
        dying.kill()


def resident_bytes(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * 4096


@pytest.mark.full
@pytest.mark.parametrize("carried", [False, True], ids=["asking", "carried to a broker"])
def test_idle_connections_cost_little_and_end_in_good_order(
    new_discovery: NewDiscovery, broker: StandaloneServer, carried: bool
) -> None:
    discovery = new_discovery(**PINGS_LATE)
    connect = CommandConnect(client_version="t", protocol_version=20)
    if carried:
        connect.proxy_to_broker_url = broker.endpoint.service_url.removeprefix("pulsar://")
    frame = encode_command(BaseCommand(type=BaseCommand.CONNECT, connect=connect))
    opened: list[socket.socket] = []

    def connect_many(count: int) -> None:
        for _ in range(count):
            one = socket.create_connection(("127.0.0.1", discovery.port), timeout=30)
            opened.append(one)
            one.sendall(frame)
            assert BaseCommand.FromString(one.recv(65_536)[8:]).type == BaseCommand.CONNECTED

    try:
        connect_many(100)
        before = resident_bytes(discovery.pid)
        connect_many(CONNECTIONS)
        each = (resident_bytes(discovery.pid) - before) / CONNECTIONS
        assert each < CONNECTION_BYTES_MAX
        assert before + 9_000 * CONNECTION_BYTES_MAX < 400e6
        discovery.stop()
        assert {one.recv(65_536) for one in opened} == {b""}
    finally:
        for one in opened:
            one.close()
