"""Configuration text of Apache's processes: ZooKeeper, bookies and brokers of a cluster on loopback."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from bench.clusters.quorums import ACK_QUORUM, ENSEMBLE, SESSION_MS, WRITE_QUORUM

CLUSTER: Final = "anchor"

ZOOKEEPER_JVM: Final = ("-Xms256m", "-Xmx256m")
BOOKIE_JVM: Final = ("-Xms512m", "-Xmx512m", "-XX:MaxDirectMemorySize=512m")
BROKER_JVM: Final = ("-Xms1g", "-Xmx1g", "-XX:MaxDirectMemorySize=1g")
SETUP_JVM: Final = ("-Xmx256m",)

_CHANGED_IN_A_CLUSTER: Final = ("managedLedgerDefault", "loadBalancerEnabled", "journal", "clusterName")
"""Beginnings of settings of the standalone that are others for a broker."""


def properties(values: Mapping[str, object]) -> str:
    """Settings as lines."""
    return "".join(f"{key}={value}\n" for key, value in values.items())


def zookeeper(data: Path, port: int) -> str:
    """ZooKeeper of one member; unlike by default it waits for no quorum, and syncs like by default."""
    return properties(
        {
            "dataDir": data,
            "clientPort": port,
            "clientPortAddress": "127.0.0.1",
            "admin.enableServer": "false",
            "tickTime": 2_000,
        }
    )


def bookie(shared: str, directory: Path, port: int, zookeeper_port: int) -> str:
    """A bookie: the settings that all bookies share, then its own."""
    own = {
        "bookiePort": port,
        "metadataServiceUri": f"zk+hierarchical://127.0.0.1:{zookeeper_port}/ledgers",
        "zkTimeout": SESSION_MS,
        "journalDirectories": directory / "journal",
        "ledgerDirectories": directory / "ledgers",
    }
    return shared + "\n" + properties(own)


def broker(standalone: str, port: int, web_port: int, zookeeper_port: int) -> str:
    """A broker: the settings of the measured standalone without those of one copy, then a cluster's."""
    kept = [line for line in standalone.splitlines() if not line.startswith(_CHANGED_IN_A_CLUSTER)]
    own = {
        "clusterName": CLUSTER,
        "metadataStoreUrl": f"zk:127.0.0.1:{zookeeper_port}",
        "configurationMetadataStoreUrl": f"zk:127.0.0.1:{zookeeper_port}",
        "metadataStoreSessionTimeoutMillis": SESSION_MS,
        "brokerServicePort": port,
        "webServicePort": web_port,
        "managedLedgerDefaultEnsembleSize": ENSEMBLE,
        "managedLedgerDefaultWriteQuorum": WRITE_QUORUM,
        "managedLedgerDefaultAckQuorum": ACK_QUORUM,
        # A split or a move would interrupt the measured topics.
        "loadBalancerEnabled": "true",
        "loadBalancerAutoBundleSplitEnabled": "false",
        "loadBalancerSheddingEnabled": "false",
    }
    kept = [line for line in kept if line.partition("=")[0] not in own]
    return "\n".join(kept) + "\n" + properties(own)


def metadata_setup(zookeeper_port: int, port: int, web_port: int) -> tuple[str, ...]:
    """Arguments of PulsarClusterMetadataSetup."""
    store = f"zk:127.0.0.1:{zookeeper_port}"
    return (
        *("--cluster", CLUSTER, "--metadata-store", store, "--configuration-metadata-store", store),
        *("--web-service-url", f"http://127.0.0.1:{web_port}"),
        *("--broker-service-url", f"pulsar://127.0.0.1:{port}"),
    )
