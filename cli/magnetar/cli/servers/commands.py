"""`magnetar standalone`, `broker`, `bookie`, `discovery`, `console`. A command imports its server."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
from magnetar.cli.servers.options import run_service, service_options
from magnetar.cli.structlog_import import load_structlog_without_rich
from magnetar.standalone.process import loading


@click.command()
@service_options
@click.option(
    "--data-dir",
    type=click.Path(path_type=Path),
    default=Path("data"),
    show_default=True,
    help="Directory of messages and metadata; created if missing.",
)
@click.option(
    "--workers",
    type=click.IntRange(1, 64),
    default=1,
    show_default=True,
    metavar="N",
    help="Number of processes that share the topics behind the same ports; each uses one core.",
)
@click.option("--worker", hidden=True)
def standalone(data_dir: Path, workers: int, worker: str | None, **options: Any) -> None:
    """Run a broker with storage in one process, or in several.

    Clients connect to pulsar://127.0.0.1:6650; HTTP is on port 8080; offload jobs and Spark connect to port
    6750.
    """
    if workers > 1:
        _run_shared_standalone(data_dir.absolute(), workers, worker, options)
    with loading():
        load_structlog_without_rich()
        from magnetar.standalone.config import StandaloneConfig
        from magnetar.standalone.standalone import Standalone

    run_service(
        "standalone", StandaloneConfig, lambda config: Standalone(config, data_dir.absolute()), options
    )


def _run_shared_standalone(data_dir: Path, workers: int, worker: str | None, options: dict[str, Any]) -> None:
    """Run the processes of a standalone with workers, or one of them, and end this process."""
    with loading():
        load_structlog_without_rich()
        from magnetar.standalone.shared_config import SharedStandaloneConfig

        if worker is None:
            from magnetar.standalone.standalone_workers import StandaloneWorkers
        else:
            from magnetar.standalone.standalone_worker import StandaloneWorker
            from magnetar.standalone.worker_plan import plan_of

    if worker is None:
        run_service(
            "standalone",
            SharedStandaloneConfig,
            lambda config: StandaloneWorkers(config, data_dir, workers),
            options,
        )
    else:
        plan = plan_of(worker)
        run_service(
            "standalone",
            SharedStandaloneConfig,
            lambda config: StandaloneWorker(config, data_dir, plan),
            options,
            {"worker": plan.number},
        )


@click.command()
@service_options
@click.option(
    "--workers",
    type=click.IntRange(1, 64),
    default=1,
    show_default=True,
    metavar="N",
    help="Number of brokers, one process each; ports increase by one per broker.",
)
@click.option("--worker", type=int, hidden=True)
def broker(workers: int, worker: int | None, **options: Any) -> None:
    """Run a broker that uses bookies and etcd.

    Requires clusterName and metadataStoreUrl. Clients connect to port 6650; HTTP is on port 8080; other
    brokers and discoveries connect to port 6750. The brokers of a cluster share its topics.
    """
    if workers > 1 or worker is not None:
        _run_workers(workers, worker, options)
    with loading():
        load_structlog_without_rich()
        from magnetar.standalone.cluster_broker import ClusterBroker
        from magnetar.standalone.cluster_config import ClusterBrokerConfig

    run_service("broker", ClusterBrokerConfig, ClusterBroker, options)


def _run_workers(workers: int, worker: int | None, options: dict[str, Any]) -> None:
    """Run the broker processes, or one of them, and end this process."""
    with loading():
        load_structlog_without_rich()
        from magnetar.standalone.cluster_config import ClusterBrokerConfig

        if worker is None:
            from magnetar.standalone.workers import Workers
        else:
            from magnetar.standalone.worker import Worker

    if worker is None:
        run_service("broker", ClusterBrokerConfig, lambda config: Workers(config, workers), options)
    else:
        fields = {"worker": worker}
        run_service("broker", ClusterBrokerConfig, lambda config: Worker(config, worker), options, fields)


@click.command()
@service_options
def bookie(**options: Any) -> None:
    """Run a bookie, which stores entries for brokers.

    Requires clusterName, metadataServiceUri and, to be reachable from other hosts, advertisedAddress. Brokers
    connect over gRPC to port 3181; HTTP is on port 8000.
    """
    with loading():
        load_structlog_without_rich()
        from magnetar.bookie.config import BookieConfig
        from magnetar.standalone.bookie import BookieProcess

    run_service("bookie", BookieConfig, BookieProcess, options)


@click.command()
@service_options
@click.option(
    "--admin-url",
    envvar="MAGNETAR_ADMIN_URL",
    metavar="URL",
    help="Admin API of the cluster: a broker's or discovery's HTTP port; same as webServiceUrl.",
)
@click.option(
    "--service-url",
    envvar="MAGNETAR_SERVICE_URL",
    metavar="URL",
    help="Service URL for clients, by which messages are read; same as brokerServiceUrl.",
)
def console(admin_url: str | None, service_url: str | None, **options: Any) -> None:
    """Run the console, which shows a cluster in a browser.

    HTTP is on port 8090. The console has no rights of its own: visitors log in with their tokens.
    """
    with loading():
        load_structlog_without_rich()
        from magnetar.console.config import ConsoleConfig
        from magnetar.standalone.console import ConsoleProcess

    given = {"webServiceUrl": admin_url, "brokerServiceUrl": service_url}
    options["overrides"] += tuple(f"{key}={value}" for key, value in given.items() if value is not None)
    run_service("console", ConsoleConfig, ConsoleProcess, options)


@click.command()
@service_options
def discovery(**options: Any) -> None:
    """Run a discovery service, which directs clients to the brokers of their topics.

    Requires clusterName and metadataStoreUrl. Clients connect to port 6650; HTTP on 8080 redirects to
    brokers.
    """
    with loading():
        load_structlog_without_rich()
        from magnetar.discovery.config import DiscoveryConfig
        from magnetar.standalone.discovery import DiscoveryProcess

    run_service("discovery", DiscoveryConfig, DiscoveryProcess, options)
