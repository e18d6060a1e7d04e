"""`magnetar explain clients` and `connection`: why clients were refused or closed lately."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlencode

import click
from magnetar.cli.admin.explain import own_path, plain_row
from magnetar.cli.admin.http_client import ask, show, topic_path
from magnetar.cli.admin.output import show_rows

if TYPE_CHECKING:
    from magnetar.cli.admin.target import Target

_COLUMNS: Final = ("code", "time", "kind", "name", "address", "reason", "next")


@click.command()
@click.argument("topic", metavar="persistent://tenant/namespace/topic")
@click.pass_obj
def clients(target: Target, topic: str) -> None:
    """Explain why clients of a topic were refused or closed in the last minutes, the latest first."""
    found = ask(target, "GET", f"{own_path(topic_path(topic))}/clients/explain").value
    if target.output == "json":
        show(target, topic, found)
        return
    parts = list(found["partitions"].values())
    rows = [
        {"topic": part["topic"], **_row(each)}
        for part in (found, *parts)
        for each in part["reasons"]
        if not parts or each["code"] != "nothing_ended"
    ]
    if not rows:
        rows = [{"topic": part["topic"], **_row(each)} for part in parts[:1] for each in part["reasons"]]
    columns = ("topic", *_COLUMNS) if parts else _COLUMNS
    title = f"Clients of {topic}: {found['producers']} producers and {found['consumers']} consumers now"
    show_rows(target, title, columns, rows)


@click.command()
@click.argument("address", metavar="ADDRESS|ID")
@click.pass_obj
def connection(target: Target, address: str) -> None:
    """Explain a connection of one broker, by host:port, host or id: what it does, or how it ended.

    The broker at --admin-url answers for its own connections.
    """
    path = f"/admin/magnetar/v1/connections/explain?{urlencode({'address': address})}"
    found = ask(target, "GET", path).value
    if target.output == "json":
        show(target, address, found)
        return
    title = f"Connections {address}: {found['open']} open; {found['ended']} ends lately"
    show_rows(target, title, _COLUMNS, [_row(each) for each in found["reasons"]])
    for each in found["connections"]:
        _show_opened(target, each)


def _row(reason: dict[str, Any]) -> dict[str, Any]:
    """Returns a reason as a row, with the client that it is about."""
    row, data = plain_row(reason), reason["data"]
    return {
        "code": row["code"],
        "time": row["since"],
        "kind": data.get("kind", ""),
        "name": data.get("name", ""),
        "address": data.get("address", ""),
        "reason": row["reason"],
        "next": row["next"],
    }


def _show_opened(target: Target, connection: dict[str, Any]) -> None:
    rows = [
        {
            "kind": kind,
            "topic": each["topic"],
            "subscription": each.get("subscription", ""),
            "name": each["name"],
            "since": each["connectedSince"],
            "state": _state(kind, each),
        }
        for kind, key in (("producer", "producers"), ("consumer", "consumers"))
        for each in connection[key]
    ]
    if rows:
        show_rows(target, f"Open on connection {connection['connectionId']}", tuple(rows[0]), rows)


def _state(kind: str, opened: dict[str, Any]) -> str:
    if kind == "producer":
        return f"{opened['messageRateIn']} messages/s, {opened['unconfirmed']} unconfirmed"
    held = opened["heldBackBy"]
    return f"{opened['unackedMessages']} unacknowledged" + (f", held back by {held}" if held else "")
