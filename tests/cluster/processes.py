"""A cluster as real processes: etcd, bookies and brokers, on free loopback ports, in temporary directories.

    with Cluster.running(tmp_path, bookies=3) as cluster:
        broker = cluster.broker()
        broker.start()

Each process can be killed, paused and started again, on the same ports and data. Logs stay in the cluster's
directory, one a process.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from pathlib import Path

from tests.etcd_server import EtcdServer
from tests.integration.harness import MagnetarProcess, free_endpoint, free_ports

CLUSTER_NAME = "test"

SMALL_DISKS = {
    "magnetarSegmentSizeBytes": str(16 << 20),
    "journalSyncData": "true",
}
"""Settings of bookies in tests."""


class BookieProcess(MagnetarProcess):
    """One `magnetar bookie`."""

    def __init__(self, directory: Path, number: int, etcd_url: str, settings: Mapping[str, str]) -> None:
        port, http_port = free_ports(2)
        self.bookie_id = f"bookie-{number}"
        self.address = f"127.0.0.1:{port}"
        self.http_url = f"http://127.0.0.1:{http_port}"
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
                "bookiePort": str(port),
                "httpServerPort": str(http_port),
                "ledgerDirectories": str(self.data_dir),
                **settings,
            },
        )


class BrokerProcess(MagnetarProcess):
    """One `magnetar broker`; healthy once it is the owner and serves."""

    def __init__(self, directory: Path, name: str, etcd_url: str, settings: Mapping[str, str]) -> None:
        self.endpoint, ports = free_endpoint(CLUSTER_NAME)
        super().__init__(
            directory,
            name,
            ["broker"],
            f"{self.endpoint.http_url}/health",
            {"clusterName": CLUSTER_NAME, "metadataStoreUrl": etcd_url, **ports, **settings},
        )


class Cluster:
    """etcd and bookies, started and ended together, and the brokers that are made over them."""

    def __init__(
        self,
        directory: Path,
        *,
        bookies: int = 3,
        bookie_settings: Mapping[str, str] | None = None,
        etcd_fsync: bool = False,
    ) -> None:
        self.directory = directory
        self.etcd = EtcdServer(directory / "etcd", fsync=etcd_fsync)
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
        bookie = BookieProcess(self.directory, number, self.etcd.url, self._bookie_settings)
        self.bookies.append(bookie)
        return bookie

    def broker(self, settings: Mapping[str, str] | None = None) -> BrokerProcess:
        """One more broker, which is not started."""
        name = f"broker-{len(self.brokers) + 1}"
        broker = BrokerProcess(self.directory, name, self.etcd.url, settings or {})
        self.brokers.append(broker)
        return broker

    def kill(self) -> None:
        """SIGKILL to every process of the cluster, brokers first."""
        for process in (*self.brokers, *self.bookies):
            process.kill()
        self.etcd.kill()
