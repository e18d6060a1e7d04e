"""Every process of a cluster is replaced by one of the next release, one after the other, under traffic.

The next release is this one that says so: a broker and a discovery that speak one version more of the control
protocol, a bookie whose protocol is one further. What it is to be careful about when it talks to this one is
in the unit tests of two versions; here the order of docs/operations.md is followed, on real processes.
"""

from __future__ import annotations

import asyncio
import itertools
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pulsar
import pytest
from magnetar.common.metadata.open_store import open_metadata_store
from magnetar.common.metadata.values import BookieRegistration, BrokerRegistration, decode

from tests.cluster.ledger_client import KEYS
from tests.cluster.processes import CLUSTER_NAME
from tests.cluster.test_faults_bookies import QUICK
from tests.cluster.whole_cluster import WholeCluster
from tests.integration.harness import MagnetarProcess, eventually, magnetar_command

TOPIC: Final = "persistent://public/default/upgraded"
RECEIVE_MS_MAX: Final = 60_000
SECONDS_MAX: Final = 120.0
DEDUPLICATED: Final = {"brokerDeduplicationEnabled": "true"}

NEXT_RELEASE: Final = """\
from magnetar.common.control import versions

versions.VERSION, versions.OURS = 2, versions.Versions(1, 2)

from magnetar.ledger.bookie_protocol import bookie_client

bookie_client.PROTOCOL_VERSION = 2
"""


class Writer(threading.Thread):
    """Publishes numbers, each once the one before is confirmed, until it is told to end."""

    def __init__(self, url: str) -> None:
        super().__init__(daemon=True)
        self.confirmed = 0
        self.error: BaseException | None = None
        self.ending = threading.Event()
        self._url = url

    def run(self) -> None:
        logger = pulsar.ConsoleLogger(pulsar.LoggerLevel.Error)
        client = pulsar.Client(self._url, operation_timeout_seconds=60, logger=logger)
        try:
            client.subscribe(TOPIC, "all").close()  # nothing is trimmed before it is read
            producer = client.create_producer(
                TOPIC, producer_name="writer", batching_enabled=False, send_timeout_millis=0
            )
            for number in itertools.count():
                if self.ending.is_set():
                    return
                producer.send(b"%d" % number)
                self.confirmed = number + 1
        except BaseException as error:
            self.error = error
        finally:
            client.close()

    def goes_on(self) -> None:
        """Until it has confirmed more than it had."""
        at = self.confirmed
        eventually(lambda: self.error is not None or self.confirmed > at + 20, "messages are confirmed")
        assert self.error is None, self.error


@contextmanager
def writing(url: str) -> Iterator[Writer]:
    writer = Writer(url)
    writer.start()
    try:
        yield writer
    finally:
        writer.ending.set()
        writer.join(SECONDS_MAX)
    assert not writer.is_alive(), "it waits for a confirmation for ever"
    assert writer.error is None, writer.error


def under_replicated(cluster: WholeCluster) -> str:
    command = [*magnetar_command(), "admin", "--metadata", cluster.etcd.url, "--cluster", CLUSTER_NAME]
    done = subprocess.run(
        [*command, "--json", "bookies", "under-replicated"], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def versions(cluster: WholeCluster) -> set[int]:
    """The protocol versions that processes say they speak, in metadata."""

    async def read() -> set[int]:
        metadata = await open_metadata_store(cluster.etcd.url)
        try:
            brokers = (await metadata.children(KEYS.brokers_prefix)).items
            bookies = (await metadata.children(KEYS.bookies_prefix)).items
        finally:
            await metadata.close()
        found = {decode(BrokerRegistration, item.value).control_version for item in brokers}
        return found | {decode(BookieRegistration, item.value).protocol_version for item in bookies}

    return asyncio.run(read())


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[WholeCluster]:
    with WholeCluster.serving(
        tmp_path, brokers=2, discoveries=2, bookie_settings=QUICK, broker_settings=DEDUPLICATED
    ) as cluster:
        yield cluster


@pytest.mark.full
def test_rolling_upgrade_of_every_process_loses_no_message(cluster: WholeCluster, tmp_path: Path) -> None:
    release = tmp_path / "next-release"
    release.mkdir()
    (release / "sitecustomize.py").write_text(NEXT_RELEASE)

    def upgrade(process: MagnetarProcess) -> None:
        process.stop()
        process.environment["PYTHONPATH"] = str(release)
        process.start()

    assert versions(cluster) == {1}
    with writing(cluster.endpoint.service_url) as writer:
        writer.goes_on()
        for bookie in cluster.bookies:
            upgrade(bookie)
            writer.goes_on()
            eventually(lambda: under_replicated(cluster) == "[]", "every ledger has its copies")
        for broker in cluster.brokers:
            upgrade(broker)
            cluster.mend()  # until all know of it
            assert versions(cluster) == ({1, 2} if broker is cluster.brokers[0] else {2})
            writer.goes_on()
        for discovery in cluster.discoveries:
            upgrade(discovery)
            writer.goes_on()
    client = pulsar.Client(cluster.endpoint.service_url, operation_timeout_seconds=60)
    try:
        reader = client.create_reader(TOPIC, pulsar.MessageId.earliest)
        found = []
        while reader.has_message_available():
            found.append(int(reader.read_next(RECEIVE_MS_MAX).data()))
    finally:
        client.close()
    assert found == list(range(len(found))), "in order, each once"
    assert len(found) >= writer.confirmed > 100
