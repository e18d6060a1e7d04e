"""Commands of `magnetar admin topics` about placement, storage, compaction and offload."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

import click
from magnetar.cli.admin.http_client import ask, show, subscription_path, topic_path
from magnetar.cli.admin.topics.subscriptions import MESSAGE_ID
from magnetar.cli.option_values import SIZE

if TYPE_CHECKING:
    from magnetar.cli.admin.target import Target

_TOPIC = click.argument("topic", metavar="persistent://tenant/namespace/topic")
_SUBSCRIPTION = click.option("--subscription", "-s", required=True, help="Subscription name.")
_WAIT = click.option("--wait-complete", "-w", "wait", is_flag=True, help="Wait until it ends.")
_LOOK_EVERY_S: Final = 1.0


@click.command()
@_TOPIC
@click.pass_obj
def truncate(target: Target, topic: str) -> None:
    """Delete all messages of a topic, read or unread; subscriptions continue at the end."""
    ask(target, "DELETE", f"{topic_path(topic)}/truncate")


@click.command(name="trim-topic")
@_TOPIC
@click.pass_obj
def trim_topic(target: Target, topic: str) -> None:
    """Delete acknowledged entries beyond the retention limits."""
    ask(target, "POST", f"{topic_path(topic)}/trim")


@click.command(name="info-internal")
@_TOPIC
@click.pass_obj
def info_internal(target: Target, topic: str) -> None:
    """Show the stored metadata of the ledgers and cursors of a topic."""
    show(target, f"Metadata of {topic}", ask(target, "GET", f"{topic_path(topic)}/internal-info").value)


@click.command(name="get-message-id")
@_TOPIC
@click.option(
    "--datetime",
    "-d",
    "moment",
    required=True,
    help="Time such as 2026-11-21T19:30:00Z, or milliseconds since 1970.",
)
@click.pass_obj
def get_message_id(target: Target, topic: str, moment: str) -> None:
    """Show the id of the first message at or after a time."""
    path = f"{topic_path(topic)}/messageid/{_milliseconds(moment)}"
    show(target, f"The first message of {topic} since {moment}", ask(target, "GET", path).value)


def _milliseconds(moment: str) -> int:
    from datetime import UTC, datetime

    if moment.isdigit():
        return int(moment)
    try:
        at = datetime.fromisoformat(moment)
    except ValueError as error:
        raise click.BadParameter(f"invalid time {moment!r}; write it as 2026-11-21T19:30:00Z") from error
    return int((at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp() * 1000)


@click.command(name="get-backlog-size")
@_TOPIC
@click.option(
    "--messageId",
    "-m",
    "message_id",
    type=MESSAGE_ID,
    default="earliest",
    show_default=True,
    help="First message: ledger:entry, earliest or latest.",
)
@click.pass_obj
def get_backlog_size(target: Target, topic: str, message_id: Mapping[str, int]) -> None:
    """Show the size of the backlog from a message on, in bytes."""
    show(
        target, f"Bytes of {topic}", ask(target, "PUT", f"{topic_path(topic)}/backlogSize", message_id).value
    )


@click.command(name="analyze-backlog")
@_TOPIC
@_SUBSCRIPTION
@click.option(
    "--position", "-p", "message_id", type=MESSAGE_ID, default="earliest", help="First message to count."
)
@click.pass_obj
def analyze_backlog(target: Target, topic: str, subscription: str, message_id: Mapping[str, int]) -> None:
    """Read the whole backlog of a subscription and count its messages."""
    path = f"{subscription_path(topic, subscription)}/analyzeBacklog"
    show(target, f"Backlog of {subscription}", ask(target, "POST", path, message_id).value)


@click.command(name="get-replicated-subscription-status")
@_TOPIC
@_SUBSCRIPTION
@click.pass_obj
def get_replicated(target: Target, topic: str, subscription: str) -> None:
    """Show whether a subscription is replicated."""
    path = f"{subscription_path(topic, subscription)}/replicatedSubscriptionStatus"
    show(target, f"Is {subscription} replicated", ask(target, "GET", path).value)


@click.command(name="set-replicated-subscription-status")
@_TOPIC
@_SUBSCRIPTION
@click.option("--enable/--disable", "-e/-d", "enabled", default=None, help="Enable or disable replication.")
@click.pass_obj
def set_replicated(target: Target, topic: str, subscription: str, enabled: bool | None) -> None:
    """Enable or disable replication of a subscription."""
    if enabled is None:
        raise click.UsageError("give either --enable or --disable")
    ask(target, "POST", f"{subscription_path(topic, subscription)}/replicatedSubscriptionStatus", enabled)


@click.command()
@_TOPIC
@click.pass_obj
def compact(target: Target, topic: str) -> None:
    """Start a compaction of a topic, or of all its partitions."""
    ask(target, "PUT", f"{topic_path(topic)}/compaction")
    print(f"Topic compaction requested for {topic}")


@click.command(name="compaction-status")
@_TOPIC
@_WAIT
@click.pass_obj
def compaction_status(target: Target, topic: str, wait: bool) -> None:
    """Show the last compaction of a topic, and when the next one runs."""
    show(target, f"Compaction of {topic}", _status(target, f"{_own_path(topic)}/compaction", wait))


def _own_path(topic: str) -> str:
    return topic_path(topic).replace("/admin/v2/", "/admin/magnetar/v1/", 1)


@click.command()
@_TOPIC
@click.option(
    "--size-threshold", "-s", "size", type=SIZE, required=True, help="Bytes to keep on bookies, such as 10M."
)
@click.pass_obj
def offload(target: Target, topic: str, size: int) -> None:
    """Mark the oldest ledgers of a topic for offload by the next job; see magnetar offload run."""
    path = topic_path(topic)
    ledgers = ask(target, "GET", f"{path}/internalStats").value["ledgers"]
    kept = 0
    for ledger in reversed(ledgers):
        kept += ledger["size"]
        if kept > size:
            before = {"ledgerId": ledger["ledgerId"], "entryId": ledger["entries"]}
            ask(target, "PUT", f"{path}/offload", before)
            print(
                f"Offload triggered for {topic} for messages before {ledger['ledgerId']}:{ledger['entries']}"
            )
            return
    print("Nothing to offload")


@click.command(name="offload-status")
@_TOPIC
@_WAIT
@click.pass_obj
def offload_status(target: Target, topic: str, wait: bool) -> None:
    """Show the offload status of a topic."""
    show(target, f"Offload of {topic}", _status(target, f"{topic_path(topic)}/offload", wait))


def _status(target: Target, path: str, wait: bool) -> Any:
    found = ask(target, "GET", path).value
    while wait and found["status"] == "RUNNING":
        time.sleep(_LOOK_EVERY_S)
        found = ask(target, "GET", path).value
    return found


@click.command()
@_TOPIC
@click.pass_obj
def lookup(target: Target, topic: str) -> None:
    """Show the owner broker of a topic."""
    show(target, topic, _served_at(target, topic))


@click.command(name="partitioned-lookup")
@_TOPIC
@click.option("--sort-by-broker", "-s", "by_broker", is_flag=True, help="Group partitions by broker.")
@click.pass_obj
def partitioned_lookup(target: Target, topic: str, by_broker: bool) -> None:
    """Show the owner brokers of the partitions of a topic."""
    count = ask(target, "GET", f"{topic_path(topic)}/partitions").value["partitions"]
    names = [f"{topic}-partition-{index}" for index in range(count)]
    found = {name: _served_at(target, name) for name in names}
    if by_broker:
        show(
            target,
            topic,
            {url: [name for name in names if found[name] == url] for url in dict.fromkeys(found.values())},
        )
    else:
        show(target, topic, found)


def _served_at(target: Target, topic: str) -> str:
    return str(ask(target, "GET", _lookup_path(topic)).value["brokerUrl"])


@click.command(name="bundle-range")
@_TOPIC
@click.pass_obj
def bundle_range(target: Target, topic: str) -> None:
    """Show the bundle of a topic."""
    show(target, topic, ask(target, "GET", f"{_lookup_path(topic)}/bundle").value)


def _lookup_path(topic: str) -> str:
    return topic_path(topic).replace("/admin/v2/", "/lookup/v2/topic/", 1)


COMMANDS: Final = (
    truncate,
    trim_topic,
    info_internal,
    get_message_id,
    get_backlog_size,
    analyze_backlog,
    get_replicated,
    set_replicated,
    compact,
    compaction_status,
    offload,
    offload_status,
    lookup,
    partitioned_lookup,
    bundle_range,
)
