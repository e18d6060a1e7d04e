"""Magnetar's cluster with default settings: etcd that syncs, three bookies and two brokers."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from bench.brokers import MAGNETAR
from bench.clusters.quorums import BOOKIES, BROKERS, SPARE_BOOKIES
from bench.clusters.side import Side
from tests.cluster.processes import Cluster
from tests.etcd_server import EtcdServer

DEFAULT_SEGMENT: Final = {"magnetarSegmentSizeBytes": str(256 << 20)}
"""Tests have smaller ones."""

SAME_AS_THE_OTHER: Final = {
    # A split or a move would interrupt the measured topics.
    "loadBalancerAutoBundleSplitEnabled": "false",
    "loadBalancerSheddingEnabled": "false",
}


def magnetar_side(directory: Path) -> Side:
    """The cluster, of which nothing runs yet."""
    cluster = Cluster(
        directory, bookies=BOOKIES + SPARE_BOOKIES, bookie_settings=DEFAULT_SEGMENT, etcd_fsync=True
    )
    brokers = [cluster.broker(SAME_AS_THE_OTHER) for _ in range(BROKERS)]
    return Side(MAGNETAR, directory, Etcd(cluster.etcd), cluster.bookies, brokers)


class Etcd:
    """The server of tests as a process like the others."""

    name = "etcd"

    def __init__(self, server: EtcdServer) -> None:
        self._server = server
        self.launch = server.launch
        self.wait_until_healthy = server.wait_until_healthy
        self.stop = server.stop
        self.kill = server.kill
        self.log_tail = server.log_tail

    @property
    def pid(self) -> int:
        return self._server.pid

    @property
    def running(self) -> bool:
        return self._server.runs
