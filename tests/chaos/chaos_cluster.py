"""The cluster that faults are struck on: three members of etcd, bookies and brokers, and two discoveries."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

from tests.chaos.network import Network
from tests.cluster.discovery_process import DiscoveryProcess
from tests.cluster.etcd_members import EtcdMembers
from tests.cluster.processes import BrokerProcess, Cluster, Placing, all_here
from tests.cluster.whole_cluster import SHORT_SESSION, WholeCluster
from tests.integration.rest import Rest

BROKERS = 3
DISCOVERIES = 2
NAMESPACE = "public/chaos"
ONCE_NAMESPACE = "public/chaos-once"
"""Where messages are deduplicated."""
BANK_NAMESPACE = "public/chaos-bank"
"""Where transactions move balances; messages are deduplicated as well."""
TRANSACTIONS = {"transactionCoordinatorEnabled": "true", "acknowledgmentAtBatchIndexLevelEnabled": "true"}
BUNDLES = 16


class ChaosCluster(WholeCluster):
    """As other tests have it, but for its etcd, and each process may have an address of its own."""

    def __init__(self, directory: Path, *, etcd_members: int = 3, network: Network | None = None) -> None:
        placing: Placing = all_here if network is None else network.place
        self.network = network
        self.used: set[str] = set()
        """Service URLs of brokers that serve topics of the workload, as clients know it."""
        self.members = EtcdMembers(directory / "etcd", etcd_members, placing)
        Cluster.__init__(self, directory, etcd=self.members, placing=placing)
        for _ in range(BROKERS):
            self.broker({**SHORT_SESSION, **TRANSACTIONS})
        names = [f"discovery-{number + 1}" for number in range(DISCOVERIES)]
        self.discoveries = [
            DiscoveryProcess(directory, name, self.etcd.url, place=placing(name)) for name in names
        ]

    @staticmethod
    @contextlib.contextmanager
    def up(directory: Path, *, etcd_members: int = 3, partitions: bool = False) -> Iterator[ChaosCluster]:
        """All of it, which serves, in a network that can be cut or not; killed at the end."""
        with Network.made() if partitions else contextlib.nullcontext() as network:
            cluster = ChaosCluster(directory, etcd_members=etcd_members, network=network)
            try:
                cluster.start()
                yield cluster
            finally:
                cluster.kill()

    def start(self) -> None:
        """All serves, and the namespaces of the workload are cut so that every broker has some of them."""
        super().start()
        make_namespaces(Rest(self.brokers[0].endpoint))

    @property
    def used_brokers(self) -> list[BrokerProcess]:
        """Brokers that would be missed."""
        return [one for one in self.brokers if one.endpoint.service_url in self.used] or self.brokers

    def cut(self, one: str, *others: str) -> None:
        """By the names of processes."""
        assert self.network is not None, "the cluster has no network of its own"
        self.network.cut(one, *others)

    def heal(self) -> None:
        assert self.network is not None
        self.network.heal()


def make_namespaces(rest: Rest) -> None:
    """Those of the workload."""
    for namespace in (NAMESPACE, ONCE_NAMESPACE, BANK_NAMESPACE):
        rest.do("PUT", f"/namespaces/{namespace}", {"bundles": {"numBundles": BUNDLES}})
    for namespace in (ONCE_NAMESPACE, BANK_NAMESPACE):
        rest.do("POST", f"/namespaces/{namespace}/deduplication", True)
