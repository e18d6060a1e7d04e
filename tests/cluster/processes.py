"""A cluster as real processes: etcd, bookies and brokers, on free loopback ports, in temporary directories.

    with Cluster.running(tmp_path, bookies=3) as cluster:
        broker = cluster.broker()
        broker.start()

Each process can be killed, paused and started again, on the same ports and data. Logs stay in the cluster's
directory, one a process.
"""

from __future__ import annotations

import contextlib
import json
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from magnetar.testing.free_ports import free_ports

from tests.etcd_server import EtcdServer
from tests.integration.harness import HERE, MagnetarProcess, Place, free_endpoint

CLUSTER_NAME = "test"

SMALL_DISKS = {
    "magnetarSegmentSizeBytes": str(16 << 20),
    "journalSyncData": "true",
}
"""Settings of bookies in tests."""

Placing = Callable[[str], Place]
"""Says by its name where a process is to run."""


def all_here(name: str) -> Place:
    """Beside the tests."""
    return HERE


class BookieProcess(MagnetarProcess):
    """One `magnetar bookie`."""

    def __init__(
        self,
        directory: Path,
        number: int,
        etcd_url: str,
        settings: Mapping[str, str],
        placing: Placing = all_here,
    ) -> None:
        port, http_port = free_ports(2)
        self.bookie_id = f"bookie-{number}"
        place = placing(self.bookie_id)
        self.address = f"{place.address}:{port}"
        self.http_url = f"http://{place.address}:{http_port}"
        self.data_dir = directory / self.bookie_id
        super().__init__(
            directory,
            self.bookie_id,
            ["bookie"],
            f"{self.http_url}/health",
            {
                "clusterName": CLUSTER_NAME,
                "metadataServiceUri": etcd_url,
                "bookieId": self.bookie_id,
                "bindAddress": place.address,
                "bookiePort": str(port),
                "httpServerPort": str(http_port),
                "ledgerDirectories": str(self.data_dir),
                **settings,
            },
            place=place,
        )


class BrokerProcess(MagnetarProcess):
    """One `magnetar broker`; healthy once it serves."""

    def __init__(
        self,
        directory: Path,
        name: str,
        etcd_url: str,
        settings: Mapping[str, str],
        placing: Placing = all_here,
    ) -> None:
        place = placing(name)
        self.endpoint, ports = free_endpoint(CLUSTER_NAME, place.address)
        (control_port,) = free_ports(1)
        self.jobs_address = f"{place.address}:{settings.get('magnetarControlPort', control_port)}"
        """Where offload jobs call it."""
        super().__init__(
            directory,
            name,
            ["broker"],
            f"{self.endpoint.http_url}/admin/v2/brokers/ready",
            {
                "clusterName": CLUSTER_NAME,
                "metadataStoreUrl": etcd_url,
                **ports,
                "bindAddress": place.address,
                "magnetarControlPort": str(control_port),
                **settings,
            },
            place=place,
        )

    def where(self, topic: str) -> str:
        """The service URL of the broker that serves a topic, as this one says; "" when it cannot say."""
        url = f"{self.endpoint.http_url}/lookup/v2/topic/{topic.replace('://', '/')}"
        try:
            with urllib.request.urlopen(url, timeout=30) as response:
                return str(json.load(response)["brokerUrl"])
        except (urllib.error.URLError, OSError):
            return ""

    def serves(self, topic: str) -> bool:
        """Whether it says so."""
        return self.where(topic) == self.endpoint.service_url


class Cluster:
    """etcd and bookies, started and ended together, and the brokers that are made over them."""

    def __init__(
        self,
        directory: Path,
        *,
        bookies: int = 3,
        bookie_settings: Mapping[str, str] | None = None,
        etcd_fsync: bool = False,
        etcd: EtcdServer | None = None,
        placing: Placing = all_here,
    ) -> None:
        self.directory = directory
        self.etcd = etcd or EtcdServer(directory / "etcd", fsync=etcd_fsync)
        self.placing = placing
        self.bookies: list[BookieProcess] = []
        self.brokers: list[BrokerProcess] = []
        self._bookie_settings = {**SMALL_DISKS, **(bookie_settings or {})}
        for _ in range(bookies):
            self.add_bookie()

    @staticmethod
    @contextlib.contextmanager
    def running(
        directory: Path, *, bookies: int = 3, bookie_settings: Mapping[str, str] | None = None
    ) -> Iterator[Cluster]:
        """A cluster without brokers, all of it killed at the end."""
        cluster = Cluster(directory, bookies=bookies, bookie_settings=bookie_settings)
        try:
            cluster.start()
            yield cluster
        finally:
            cluster.kill()

    def start(self) -> None:
        """Start etcd, then the bookies, all at once; returns when all of them serve."""
        self.etcd.start()
        for bookie in self.bookies:
            bookie.launch()
        for bookie in self.bookies:
            bookie.wait_until_healthy()

    def add_bookie(self) -> BookieProcess:
        """One more bookie, which is not started."""
        number = len(self.bookies) + 1
        bookie = BookieProcess(self.directory, number, self.etcd.url, self._bookie_settings, self.placing)
        self.bookies.append(bookie)
        return bookie

    def broker(self, settings: Mapping[str, str] | None = None) -> BrokerProcess:
        """One more broker, which is not started."""
        name = f"broker-{len(self.brokers) + 1}"
        broker = BrokerProcess(self.directory, name, self.etcd.url, settings or {}, self.placing)
        self.brokers.append(broker)
        return broker

    def kill(self) -> None:
        """SIGKILL to every process of the cluster, brokers first."""
        for process in (*self.brokers, *self.bookies):
            process.kill()
        self.etcd.kill()
