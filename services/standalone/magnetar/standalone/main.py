"""The `magnetar` command. What a command does is imported when it runs, so that the others start quickly."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
from magnetar.standalone.admin import admin
from magnetar.standalone.command_options import load_structlog_without_rich, run_service, service_options


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="magnetar", prog_name="magnetar")
def main() -> None:
    """Magnetar: publish-subscribe messaging that speaks the protocol of Apache Pulsar."""


@main.command()
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

    Clients connect to pulsar://127.0.0.1:6650; HTTP is on port 8080.
    """
    load_structlog_without_rich()
    from magnetar.standalone.config import StandaloneConfig
    from magnetar.standalone.standalone import Standalone

    run_service(
        "standalone", StandaloneConfig, lambda config: Standalone(config, data_dir.absolute()), options
    )


@main.command()
@service_options
def broker(**options: Any) -> None:
    """Run a broker over bookies and etcd.

    Needs clusterName and metadataStoreUrl; the first broker of a cluster serves, others stand by.
    """
    load_structlog_without_rich()
    from magnetar.standalone.cluster_broker import ClusterBroker
    from magnetar.standalone.cluster_config import ClusterBrokerConfig

    run_service("broker", ClusterBrokerConfig, ClusterBroker, options)


@main.command()
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


main.add_command(admin)
