"""`magnetar standalone`, `broker`, `bookie` and `discovery`. A server is imported when its command runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
from magnetar.cli.servers.options import run_service, service_options
from magnetar.cli.structlog_import import load_structlog_without_rich


@click.command()
@service_options
@click.option(
    "--data-dir",
    type=click.Path(path_type=Path),
    default=Path("data"),
    show_default=True,
    help="Where messages and metadata are kept; made when it is not there.",
)
def standalone(data_dir: Path, **options: Any) -> None:
    """Run broker and storage in this process.

    Clients connect to pulsar://127.0.0.1:6650; HTTP is on port 8080, offload jobs and Spark call port 6750.
    """
    load_structlog_without_rich()
    from magnetar.standalone.config import StandaloneConfig
    from magnetar.standalone.standalone import Standalone

    run_service(
        "standalone", StandaloneConfig, lambda config: Standalone(config, data_dir.absolute()), options
    )


@click.command()
@service_options
@click.option(
    "--workers",
    type=click.IntRange(1, 64),
    default=1,
    show_default=True,
    metavar="N",
    help="Run so many brokers, a process each; the second one's ports are one higher, and so on.",
)
@click.option("--worker", type=int, hidden=True)
def broker(workers: int, worker: int | None, **options: Any) -> None:
    """Run a broker over bookies and etcd.

    Needs clusterName and metadataStoreUrl. Clients connect to port 6650; HTTP is on port 8080, other brokers
    and discoveries call port 6750. Brokers of a cluster share its topics.
    """
    load_structlog_without_rich()
    if workers > 1 or worker is not None:
        _run_workers(workers, worker, options)
    from magnetar.standalone.cluster_broker import ClusterBroker
    from magnetar.standalone.cluster_config import ClusterBrokerConfig

    run_service("broker", ClusterBrokerConfig, ClusterBroker, options)


def _run_workers(workers: int, worker: int | None, options: dict[str, Any]) -> None:
    """Run all of them, or be one, and end the process."""
    from magnetar.standalone.cluster_config import ClusterBrokerConfig

    if worker is None:
        from magnetar.standalone.workers import Workers

        run_service("broker", ClusterBrokerConfig, lambda config: Workers(config, workers), options)
    else:
        from magnetar.standalone.worker import Worker

        fields = {"worker": worker}
        run_service("broker", ClusterBrokerConfig, lambda config: Worker(config, worker), options, fields)


@click.command()
@service_options
def bookie(**options: Any) -> None:
    """Run a bookie: storage for brokers, over gRPC.

    Needs clusterName, metadataServiceUri and, for a bookie that others reach, advertisedAddress. Brokers
    connect to port 3181; HTTP is on port 8000.
    """
    load_structlog_without_rich()
    from magnetar.bookie.config import BookieConfig
    from magnetar.standalone.bookie import BookieProcess

    run_service("bookie", BookieConfig, BookieProcess, options)


@click.command()
@service_options
def discovery(**options: Any) -> None:
    """Run a discovery: where topics are served, and a way to brokers.

    Needs clusterName and metadataStoreUrl. Clients connect to port 6650; HTTP on 8080 redirects to brokers.
    """
    load_structlog_without_rich()
    from magnetar.discovery.config import DiscoveryConfig
    from magnetar.standalone.discovery import DiscoveryProcess

    run_service("discovery", DiscoveryConfig, DiscoveryProcess, options)
