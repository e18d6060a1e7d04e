"""`magnetar admin brokers` and `magnetar admin broker-stats`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final
from urllib.parse import quote

import click
from magnetar.cli.admin.http_client import NOTHING, ask, show
from magnetar.cli.admin.output import on_terminal, show_rows

if TYPE_CHECKING:
    from magnetar.cli.admin.target import Target

_BROKERS: Final = "/admin/v2/brokers"
_CONFIGURATION: Final = f"{_BROKERS}/configuration"
_STATS: Final = "/admin/v2/broker-stats"

_CONFIG = click.option("--config", required=True, metavar="KEY", help="Setting name.")


@click.group()
def brokers() -> None:
    """Brokers."""


@brokers.command(name="list")
@click.argument("cluster", metavar="[cluster-name]", required=False)
@click.pass_obj
def list_brokers(target: Target, cluster: str | None) -> None:
    """List the active brokers."""
    path = _BROKERS if cluster is None else f"{_BROKERS}/{quote(cluster, safe='')}"
    show(target, "Brokers", ask(target, "GET", path).value)


@brokers.command(name="leader-broker")
@click.pass_obj
def leader_broker(target: Target) -> None:
    """Show the leader broker, which assigns bundles. A standalone is its own leader."""
    show(target, "Leader", ask(target, "GET", f"{_BROKERS}/leaderBroker").value)


@brokers.command()
@click.argument("cluster", metavar="cluster-name")
@click.option("--url", "-u", "broker", required=True, metavar="HOST:PORT", help="HTTP address of the broker.")
@click.pass_obj
def namespaces(target: Target, cluster: str, broker: str) -> None:
    """List the bundles that a broker owns."""
    path = f"{_BROKERS}/{quote(cluster, safe='')}/{quote(broker, safe='')}/ownedNamespaces"
    found = ask(target, "GET", path).value
    if found and on_terminal(target):
        rows = [
            {"bundle": name}
            | {key: {True: "yes", False: "no"}.get(value, value) for key, value in status.items()}
            for name, status in found.items()
        ]
        show_rows(target, f"Bundles of {broker}", tuple(rows[0]), rows)
    else:
        show(target, f"Bundles of {broker}", found)


@brokers.command(name="update-dynamic-config")
@_CONFIG
@click.option("--value", required=True, help="New value.")
@click.pass_obj
def update_dynamic_config(target: Target, config: str, value: str) -> None:
    """Change a dynamic setting on all brokers, effective immediately."""
    ask(target, "POST", f"{_CONFIGURATION}/{quote(config, safe='')}/{quote(value, safe='')}")


@brokers.command(name="delete-dynamic-config")
@_CONFIG
@click.pass_obj
def delete_dynamic_config(target: Target, config: str) -> None:
    """Reset a dynamic setting to the value each broker was started with."""
    ask(target, "DELETE", f"{_CONFIGURATION}/{quote(config, safe='')}")


@brokers.command(name="list-dynamic-config")
@click.pass_obj
def list_dynamic_config(target: Target) -> None:
    """List the dynamic settings, which can change while brokers run."""
    show(target, "Dynamic settings", ask(target, "GET", _CONFIGURATION).value)


@brokers.command(name="get-all-dynamic-config")
@click.pass_obj
def get_all_dynamic_config(target: Target) -> None:
    """List the dynamic settings that were changed."""
    show(target, "Changed settings", ask(target, "GET", f"{_CONFIGURATION}/values").value)


@brokers.command(name="get-runtime-config")
@click.pass_obj
def get_runtime_config(target: Target) -> None:
    """Show every setting of the broker with its current value."""
    show(target, "Settings", ask(target, "GET", f"{_CONFIGURATION}/runtime").value)


@brokers.command(name="get-internal-config")
@click.pass_obj
def get_internal_config(target: Target) -> None:
    """Show the addresses of the metadata store and of ledger storage."""
    show(target, "Internal configuration", ask(target, "GET", f"{_BROKERS}/internal-configuration").value)


@brokers.command()
@click.option("--topic-version", type=click.Choice(["V1", "V2"]), default=None, help="No effect.")
@click.option("--broker-id", default=None, help="Broker, as `brokers list` names it.")
@click.pass_obj
def healthcheck(target: Target, topic_version: str | None, broker_id: str | None) -> None:
    """Check a broker: it stores a message and reads it back."""
    query = {"topicVersion": topic_version, "brokerId": broker_id}
    show(target, "Health", ask(target, "GET", f"{_BROKERS}/health", query=query).value)


@brokers.command(name="backlog-quota-check")
@click.pass_obj
def backlog_quota_check(target: Target) -> None:
    """Check all backlogs now and enforce their quotas."""
    ask(target, "GET", f"{_BROKERS}/backlog-quota-check")


@brokers.command()
@click.pass_obj
def version(target: Target) -> None:
    """Show the version of the broker."""
    show(target, "Version", ask(target, "GET", f"{_BROKERS}/version").value)


@brokers.command()
@click.option(
    "--max-concurrent-unload-per-sec",
    "-m",
    type=click.IntRange(min=0),
    default=0,
    show_default=True,
    help="No effect: topics are closed as fast as storage confirms them.",
)
@click.option("--forced-terminate-topic", "-f", is_flag=True, help="No effect.")
@click.pass_obj
def shutdown(target: Target, max_concurrent_unload_per_sec: int, forced_terminate_topic: bool) -> None:
    """Shut the broker down gracefully."""
    query = {
        "maxConcurrentUnloadPerSec": max_concurrent_unload_per_sec,
        "forcedTerminateTopic": forced_terminate_topic,
    }
    ask(target, "POST", f"{_BROKERS}/shutdown", NOTHING, query, only_there=True)


@click.group()
def broker_stats() -> None:
    """Show statistics of one broker."""


_INDENT = click.option("--indent", "-i", is_flag=True, help="No effect: output is always indented.")


@broker_stats.command(name="monitoring-metrics")
@_INDENT
@click.pass_obj
def monitoring_metrics(target: Target, indent: bool) -> None:
    """Show metrics of the broker and of each namespace."""
    show(target, "Metrics", ask(target, "GET", f"{_STATS}/metrics").value)


@broker_stats.command()
@_INDENT
@click.pass_obj
def mbeans(target: Target, indent: bool) -> None:
    """Show an empty list: there is no Java virtual machine."""
    show(target, "MBeans", ask(target, "GET", f"{_STATS}/mbeans").value)


@broker_stats.command()
@_INDENT
@click.pass_obj
def topics(target: Target, indent: bool) -> None:
    """Show statistics of every loaded topic, by namespace and bundle."""
    show(target, "Topics", ask(target, "GET", f"{_STATS}/topics").value)


@broker_stats.command(name="allocator-stats")
@click.argument("allocator", metavar="default|ml-cache")
@click.pass_obj
def allocator_stats(target: Target, allocator: str) -> None:
    """Show memory use of the process or of the entry cache."""
    value = ask(target, "GET", f"{_STATS}/allocator-stats/{quote(allocator, safe='')}").value
    show(target, f"Memory: {allocator}", value)


@broker_stats.command(name="load-report")
@click.pass_obj
def load_report(target: Target) -> None:
    """Show the load report: the broker's traffic and resource use."""
    show(target, "Load", ask(target, "GET", f"{_STATS}/load-report").value)
