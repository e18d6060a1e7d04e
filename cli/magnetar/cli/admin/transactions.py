"""`magnetar admin transactions`: coordinators, transactions, and their state in topics."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, TypeVar
from urllib.parse import quote

import click
from magnetar.cli.admin.http_client import ask, show, topic_path
from magnetar.cli.admin.output import moment_text, on_terminal, show_rows
from magnetar.cli.option_values import SECONDS
from magnetar.cli.quantity_text import duration_text

if TYPE_CHECKING:
    from magnetar.cli.admin.target import Target

F = TypeVar("F", bound=Callable[..., Any])

_ROOT: Final = "/admin/v3/transactions"
_COORDINATORS: Final = ("coordinator", "broker")
_STATS: Final = ("coordinator", "state", "open", "last_number", "low_watermark", "recovered_at")
_SLOW: Final = ("transaction", "status", "open_for", "timeout", "owner", "publishes_to", "acknowledges_in")

_TOPIC = click.option(
    "--topic", "-t", required=True, metavar="persistent://tenant/namespace/topic", help="Topic, or partition."
)
_METADATA = click.option("--metadata", "-m", is_flag=True, help="Accepted, without effect.")
_WATERMARK = click.option(
    "--low-water-mark", "-l", "watermarks", is_flag=True, help="Show the low watermark of each coordinator."
)


def _coordinator(*, required: bool) -> Callable[[F], F]:
    return click.option(
        "--coordinator-id",
        "-c",
        "coordinator",
        type=click.IntRange(min=0),
        required=required,
        help="Id of the coordinator." if required else "Id of the coordinator; default: all.",
    )


def _transaction(command: F) -> F:
    """Adds the two halves of a transaction's id to a command."""
    least = click.option(
        "--least-sig-bits", "-l", "least", type=click.IntRange(min=0), required=True, help="Its number there."
    )
    most = click.option(
        "--most-sig-bits",
        "-m",
        "most",
        type=click.IntRange(min=0),
        required=True,
        help="Coordinator of the transaction: the first number of its id.",
    )
    return most(least(command))


def _subscription(*names: str) -> Callable[[F], F]:
    return click.option(*names, "-s", "subscription", required=True, help="Subscription name.")


def _path(route: str, topic: str, *more: object) -> str:
    """Returns the REST path of a topic's transactions. Raises BadParameter."""
    path = topic_path(topic)
    _, _, _, domain, *names = path.split("/")
    if domain != "persistent":
        raise click.BadParameter(f"{topic!r} is not persistent: only persistent topics have transactions")
    return "/".join([_ROOT, route, *names, *(quote(str(each), safe="") for each in more)])


@click.group()
def transactions() -> None:
    """Show transactions, their coordinators and participants, and abort them."""


@transactions.command(name="coordinators-list")
@click.pass_obj
def coordinators_list(target: Target) -> None:
    """List the transaction coordinators with the brokers that own them."""
    found = ask(target, "GET", f"{_ROOT}/coordinators").value
    if on_terminal(target):
        rows = [{"coordinator": each["id"], "broker": each["brokerServiceUrl"]} for each in found]
        show_rows(target, "Transaction coordinators", _COORDINATORS, rows)
    else:
        show(
            target, "Transaction coordinators", {str(each["id"]): each["brokerServiceUrl"] for each in found}
        )


@transactions.command(name="coordinator-stats")
@_coordinator(required=False)
@click.pass_obj
def coordinator_stats(target: Target, coordinator: int | None) -> None:
    """Show the statistics of a transaction coordinator, or of all of them."""
    query = {"coordinatorId": coordinator}
    found = ask(target, "GET", f"{_ROOT}/coordinatorStats", query=query).value
    if coordinator is not None:
        show(target, f"Transaction coordinator {coordinator}", found)
    elif on_terminal(target):
        rows = [_stats_row(int(each), stats) for each, stats in found.items()]
        show_rows(
            target, "Transaction coordinators", _STATS, sorted(rows, key=lambda row: row["coordinator"])
        )
    else:
        show(target, "Transaction coordinators", found)


def _stats_row(coordinator: int, stats: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "coordinator": coordinator,
        "state": stats["state"],
        "open": stats["ongoingTxnSize"],
        "last_number": stats["leastSigBits"],
        "low_watermark": stats["lowWaterMark"],
        "recovered_at": moment_text(stats["recoverEndTime"]),
    }


@transactions.command(name="coordinator-internal-stats")
@_coordinator(required=True)
@_METADATA
@click.pass_obj
def coordinator_internal_stats(target: Target, coordinator: int, metadata: bool) -> None:
    """Show the log of a transaction coordinator."""
    path = f"{_ROOT}/coordinatorInternalStats/{coordinator}"
    show(target, f"Log of coordinator {coordinator}", ask(target, "GET", path, query=_if(metadata)).value)


@transactions.command(name="scale-transactionCoordinators")
@click.option("--replicas", "-r", type=click.IntRange(min=1), required=True, help="New number; only more.")
@click.pass_obj
def scale(target: Target, replicas: int) -> None:
    """Raise the number of transaction coordinators."""
    ask(target, "POST", f"{_ROOT}/transactionCoordinator/replicas", replicas)


@transactions.command(name="transaction-metadata")
@_transaction
@click.pass_obj
def transaction_metadata(target: Target, most: int, least: int) -> None:
    """Show the state of a transaction, and the topics and subscriptions that take part."""
    found = ask(target, "GET", f"{_ROOT}/transactionMetadata/{most}/{least}").value
    show(target, f"Transaction ({most},{least})", found)


@transactions.command(name="slow-transactions")
@_coordinator(required=False)
@click.option(
    "--time",
    "-t",
    "timeout_s",
    type=SECONDS,
    required=True,
    help="Show transactions that may be open for longer than this (their timeout): 1s, 10m, 3h.",
)
@click.option(
    "--open-for", "open_s", type=SECONDS, default=None, help="And have been open for at least this."
)
@click.pass_obj
def slow_transactions(target: Target, coordinator: int | None, timeout_s: int, open_s: int | None) -> None:
    """List open transactions with a long timeout, the oldest first."""
    query = {"coordinatorId": coordinator, "openAtLeastMs": None if open_s is None else open_s * 1000}
    found = ask(target, "GET", f"{_ROOT}/slowTransactions/{timeout_s * 1000}", query=query).value
    if on_terminal(target):
        ordered = sorted(found.values(), key=lambda each: each["openTimestamp"])
        show_rows(target, "Slow transactions", _SLOW, [_slow_row(each) for each in ordered])
    else:
        show(target, "Slow transactions", found)


def _slow_row(found: Mapping[str, Any]) -> dict[str, Any]:
    acked = [f"{topic} {name}" for topic, names in found["ackedPartitions"].items() for name in names]
    return {
        "transaction": found["txnId"],
        "status": found["status"],
        "open_for": duration_text(max(0.0, time.time() - found["openTimestamp"] / 1000)),
        "timeout": duration_text(found["timeoutAt"] / 1000),
        "owner": found.get("owner", ""),
        "publishes_to": list(found["producedPartitions"]),
        "acknowledges_in": acked,
    }


@transactions.command(name="abort-transaction")
@_transaction
@click.pass_obj
def abort_transaction(target: Target, most: int, least: int) -> None:
    """Abort a transaction of any client."""
    ask(target, "POST", f"{_ROOT}/abortTransaction/{most}/{least}")


@transactions.command(name="transaction-buffer-stats")
@_TOPIC
@_WATERMARK
@click.option("--segment-stats", "-s", "segments", is_flag=True, help="Accepted; there are no segments.")
@click.pass_obj
def buffer_stats(target: Target, topic: str, watermarks: bool, segments: bool) -> None:
    """Show the open and aborted transactions of a topic, and up to where it can be read."""
    query = {"lowWaterMarks": watermarks or None, "segmentStats": segments or None}
    found = ask(target, "GET", _path("transactionBufferStats", topic), query=query).value
    show(target, f"Transactions of {topic}", found)


@transactions.command(name="buffer-snapshot-internal-stats")
@_TOPIC
@_METADATA
@click.pass_obj
def buffer_internal_stats(target: Target, topic: str, metadata: bool) -> None:
    """Show the ledger with the records of a topic's transactions."""
    path = _path("transactionBufferInternalStats", topic)
    show(target, f"Transaction records of {topic}", ask(target, "GET", path, query=_if(metadata)).value)


@transactions.command(name="transaction-in-buffer-stats")
@_transaction
@_TOPIC
@click.pass_obj
def in_buffer_stats(target: Target, most: int, least: int, topic: str) -> None:
    """Show the state of a transaction in a topic."""
    path = _path("transactionInBufferStats", topic, most, least)
    show(target, f"Transaction ({most},{least}) in {topic}", ask(target, "GET", path).value)


@transactions.command(name="pending-ack-stats")
@_TOPIC
@_subscription("--sub-name", "--subscription-name")
@_WATERMARK
@click.pass_obj
def pending_ack_stats(target: Target, topic: str, subscription: str, watermarks: bool) -> None:
    """Show the transactions with pending acknowledgements in a subscription."""
    path, query = _path("pendingAckStats", topic, subscription), {"lowWaterMarks": watermarks or None}
    show(target, f"Pending acknowledgements of {subscription}", ask(target, "GET", path, query=query).value)


@transactions.command(name="pending-ack-internal-stats")
@_TOPIC
@_subscription("--subscription-name", "--sub-name")
@_METADATA
@click.pass_obj
def pending_ack_internal_stats(target: Target, topic: str, subscription: str, metadata: bool) -> None:
    """Show the ledger with the records of a subscription's pending acknowledgements."""
    path = _path("pendingAckInternalStats", topic, subscription)
    show(target, f"Pending records of {subscription}", ask(target, "GET", path, query=_if(metadata)).value)


@transactions.command(name="transaction-in-pending-ack-stats")
@_transaction
@_TOPIC
@_subscription("--sub-name", "--subscription-name")
@click.pass_obj
def in_pending_ack_stats(target: Target, most: int, least: int, topic: str, subscription: str) -> None:
    """Show the pending acknowledgements of a transaction in a subscription."""
    path = _path("transactionInPendingAckStats", topic, subscription, most, least)
    show(target, f"Transaction ({most},{least}) in {subscription}", ask(target, "GET", path).value)


@transactions.command(name="position-stats-in-pending-ack")
@_TOPIC
@_subscription("--subscription-name", "--sub-name")
@click.option("--ledger-id", "-l", "ledger", type=int, required=True, help="Ledger id of the message.")
@click.option("--entry-id", "-e", "entry", type=int, required=True, help="Entry id of the message.")
@click.option("--batch-index", "-b", "index", type=int, default=None, help="Its index in a batch.")
@click.pass_obj
def position_stats(
    target: Target, topic: str, subscription: str, ledger: int, entry: int, index: int | None
) -> None:
    """Show whether a message is acknowledged, for good or in an open transaction."""
    path = _path("positionStatsInPendingAck", topic, subscription, ledger, entry)
    show(target, f"Message {ledger}:{entry}", ask(target, "GET", path, query={"batchIndex": index}).value)


def _if(metadata: bool) -> dict[str, object]:
    return {"metadata": metadata or None}
