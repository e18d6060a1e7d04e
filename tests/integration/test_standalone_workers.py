"""`magnetar standalone --workers 2`: one address, one data directory, two processes."""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
import signal
import threading
import urllib.request
from collections.abc import Iterator
from contextlib import closing
from itertools import pairwise
from pathlib import Path

import pulsar
import pytest
from magnetar.client import Client
from magnetar.common.security.certificates import Authority
from magnetar.testing.free_ports import free_ports

from tests.integration.clients import drain, publish, receive
from tests.integration.harness import (
    StandaloneServer,
    eventually,
    external_endpoint,
    gone,
    temporary_directory,
)
from tests.integration.rest import Rest

pytestmark = pytest.mark.skipif(external_endpoint() is not None, reason="it starts its own server")

TOPICS = [f"persistent://public/default/shared-{number}" for number in range(12)]
PATIENT, BRIEF = "60000", "1000"
"""Sessions that outlast the restart of a worker on a busy machine, and that do not."""


class SharedStandalone(StandaloneServer):
    """A standalone with so many workers."""

    def with_workers(self, count: int) -> None:
        """Takes effect with the next start."""
        self.arguments = ["standalone", "--data-dir", str(self.data_dir), "--workers", str(count)]

    def start(self) -> None:
        before = self.printed().count("magnetar ready in")
        super().start()
        eventually(lambda: self.printed().count("magnetar ready in") > before, "all workers serve", 60.0)

    def printed(self) -> str:
        return self.log_path.read_text() if self.log_path.exists() else ""

    def worker_pid(self, worker: int) -> int:
        """Process id of a worker's last start, from the log."""
        return int(re.findall(rf'"worker": {worker}, "pid": (\d+)', self.printed())[-1])

    def kill_worker(self, worker: int) -> None:
        os.kill(self.worker_pid(worker), signal.SIGKILL)


@pytest.fixture
def shared() -> Iterator[SharedStandalone]:
    directory = temporary_directory()
    server = SharedStandalone(directory, {"metadataStoreSessionTimeoutMillis": PATIENT})
    server.with_workers(2)
    try:
        yield server
    finally:
        server.kill()
        shutil.rmtree(directory, ignore_errors=True)


def connected(server: SharedStandalone) -> closing[pulsar.Client]:
    return closing(pulsar.Client(server.endpoint.service_url, operation_timeout_seconds=60))


def where(server: SharedStandalone, topic: str) -> str:
    """The service URL of the worker that serves a topic."""
    url = f"{server.endpoint.http_url}/lookup/v2/topic/{topic.replace('://', '/')}"
    with urllib.request.urlopen(url, timeout=30) as response:
        return str(json.load(response)["brokerUrl"])


def numbered(topic: str, first: int, count: int) -> list[bytes]:
    return [f"{topic} {number}".encode() for number in range(first, first + count)]


def fill(server: SharedStandalone, first: int = 0) -> None:
    """Publishes five messages to every topic, under a subscription that is there before."""
    with connected(server) as client:
        for topic in TOPICS:
            client.subscribe(topic, "s", initial_position=pulsar.InitialPosition.Earliest).close()
            publish(client, topic, numbered(topic, first, 5))


def expect(server: SharedStandalone, count: int) -> None:
    """Every topic has so many messages, in order; none is acknowledged."""
    with connected(server) as client:
        for topic in TOPICS:
            reader = client.create_reader(topic, pulsar.MessageId.earliest)
            assert [reader.read_next(30_000).data() for _ in range(count)] == numbered(topic, 0, count)


def test_both_workers_serve_topics_behind_one_address(shared: SharedStandalone) -> None:
    shared.start()
    fill(shared)
    expect(shared, 5)
    own = {where(shared, topic) for topic in TOPICS}
    assert len(own) == 2
    assert shared.endpoint.service_url not in own
    api = Rest(shared.endpoint)
    assert len(api.get("/brokers")) == 2
    api.do("PUT", "/persistent/public/default/parts/partitions", 8)
    assert len({where(shared, f"persistent://public/default/parts-partition-{n}") for n in range(8)}) == 2
    with connected(shared) as client:
        consumer = client.subscribe("persistent://public/default/parts", "s")
        publish(client, "persistent://public/default/parts", numbered("p", 0, 40))
        assert sorted(drain(consumer, 40)) == sorted(numbered("p", 0, 40))
    for topic in TOPICS:  # each is answered by its owner, whichever worker takes the connection
        stats = api.get(f"/{topic.replace('://', '/')}/stats")
        assert stats["msgInCounter"] == 5
        assert stats["subscriptions"]["s"]["msgBacklog"] == 5

    async def by_magnetars_client() -> None:
        async with Client(shared.endpoint.service_url) as client:
            for topic in TOPICS:
                consumer = await client.subscribe(topic, "m", initial_position="earliest")
                got = [(await consumer.receive(timeout_s=30)).data for _ in range(5)]
                assert got == numbered(topic, 0, 5)
                await consumer.close()

    asyncio.run(by_magnetars_client())
    pids = [shared.worker_pid(worker) for worker in (0, 1)]
    shared.stop()
    assert all(map(gone, pids))


@pytest.mark.full
@pytest.mark.parametrize(("worker", "session_ms"), [(0, PATIENT), (1, PATIENT), (1, BRIEF)])
def test_a_worker_that_is_killed_while_publishers_write_loses_nothing(
    shared: SharedStandalone, worker: int, session_ms: str
) -> None:
    shared.settings["metadataStoreSessionTimeoutMillis"] = session_ms
    shared.start()
    fill(shared)
    acknowledged: dict[str, list[int]] = {topic: [] for topic in TOPICS}
    stop = threading.Event()

    def write(topic: str) -> None:
        with connected(shared) as client:
            producer = client.create_producer(topic, send_timeout_millis=60_000)
            number = 5
            while not stop.is_set():
                producer.send(f"{topic} {number}".encode())
                acknowledged[topic].append(number)
                number += 1

    threads = [threading.Thread(target=write, args=(topic,)) for topic in TOPICS]
    for thread in threads:
        thread.start()
    try:
        eventually(lambda: all(len(each) >= 20 for each in acknowledged.values()), "all write", 60.0)
        pid = shared.worker_pid(worker)
        shared.kill_worker(worker)
        before = {topic: len(each) for topic, each in acknowledged.items()}
        eventually(
            lambda: all(len(each) >= before[topic] + 20 for topic, each in acknowledged.items()),
            "all write again",
            60.0,
        )
        assert shared.worker_pid(worker) != pid
    finally:
        stop.set()
        for thread in threads:
            thread.join(90)
    with connected(shared) as client:
        for topic in TOPICS:
            consumer = client.subscribe(topic, "s")
            wanted = {int(data.split()[-1]) for data in numbered(topic, 0, 5)} | set(acknowledged[topic])
            got: set[int] = set()
            while not wanted <= got:
                got.add(int(receive(consumer).data().split()[-1]))
            consumer.close()
    if session_ms == PATIENT:  # the bundles waited for their worker
        assert len({where(shared, topic) for topic in TOPICS}) == 2
    shared.stop()


@pytest.mark.full
def test_workers_end_with_the_parent_process_and_a_start_finds_everything(shared: SharedStandalone) -> None:
    shared.start()
    fill(shared)
    pids = [shared.worker_pid(worker) for worker in (0, 1)]
    shared.kill()
    eventually(lambda: all(map(gone, pids)), "the workers have ended")
    shared.start()
    expect(shared, 5)
    shared.restart()
    expect(shared, 5)
    shared.stop()


@pytest.mark.full
def test_the_number_of_workers_may_change_with_every_start(shared: SharedStandalone) -> None:
    written = 0
    for count in (1, 3, 2, 1, 2):
        shared.with_workers(count)
        shared.start()
        fill(shared, written)
        written += 5
        expect(shared, written)
        shared.stop()
    assert sorted(each.name for each in Path(shared.data_dir).glob("ledgers*")) == [
        "ledgers",
        "ledgers-1",
        "ledgers-2",
    ]


@pytest.mark.full
def test_workers_share_ports_with_tls_and_send_clients_to_each_others(shared: SharedStandalone) -> None:
    authority = Authority("clients")
    leaf = authority.issue("broker", dns=["localhost"])
    files = {"ca": authority.certificate, "server": leaf.certificate, "key": leaf.key}
    for name, data in files.items():
        (shared.directory / f"{name}.pem").write_bytes(data)
    binary, web = free_ports(2)
    shared.settings |= {
        "advertisedAddress": "localhost",
        "brokerServicePortTls": str(binary),
        "webServicePortTls": str(web),
        "tlsCertificateFilePath": str(shared.directory / "server.pem"),
        "tlsKeyFilePath": str(shared.directory / "key.pem"),
    }
    shared.start()
    trusted = str(shared.directory / "ca.pem")
    client = pulsar.Client(
        f"pulsar+ssl://localhost:{binary}",
        tls_trust_certs_file_path=trusted,
        tls_validate_hostname=True,
        operation_timeout_seconds=60,
    )
    with closing(client):
        for topic in TOPICS:
            consumer = client.subscribe(topic, "s")
            publish(client, topic, numbered(topic, 0, 3))
            assert drain(consumer, 3) == numbered(topic, 0, 3)
    assert len({where(shared, topic) for topic in TOPICS}) == 2
    shared.stop()


@pytest.mark.full
def test_a_bundle_that_moves_takes_its_backlog_along(shared: SharedStandalone) -> None:
    shared.start()
    fill(shared)
    api = Rest(shared.endpoint)
    before = {topic: where(shared, topic) for topic in TOPICS}
    for worker in (0, 1):
        to = api.get("/brokers")[worker]
        bounds = api.get("/namespaces/public/default/bundles")["boundaries"]
        assert len(bounds) == 9
        for lower, upper in pairwise(bounds):
            path = f"/namespaces/public/default/{lower}_{upper}/unload?destinationBroker={to}"
            assert api.call("PUT", path).status in (204, 412)  # it may be there, or have no owner yet
        expect(shared, 5 + 5 * worker)
        fill(shared, 5 + 5 * worker)
        expect(shared, 10 + 5 * worker)
    after = {where(shared, topic) for topic in TOPICS}
    assert len(after) == 1
    assert len(set(before.values())) == 2
    shared.stop()


def test_a_port_that_is_taken_stops_the_start(shared: SharedStandalone, tmp_path: Path) -> None:
    shared.start()
    other = SharedStandalone(tmp_path, {})
    other.settings.update(shared.settings)
    other.with_workers(2)
    other.launch()
    assert other._process is not None
    assert other._process.wait(60) == 1
    assert "Address already in use" in other.printed()
    assert "worker started" not in other.printed()
