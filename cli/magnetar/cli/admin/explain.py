"""`magnetar explain`: asks the brokers why something is as it is, and what to do next."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import click
from magnetar.cli.access_options import Access, access_options
from magnetar.cli.admin.admin_group import AS_JSON, AdminGroup
from magnetar.cli.admin.broker_options import broker_options
from magnetar.cli.admin.http_client import ask, namespace_path, show, subscription_path, topic_path
from magnetar.cli.admin.output import show_rows

if TYPE_CHECKING:
    from magnetar.cli.admin.target import Target

_TOPIC = click.argument("topic", metavar="persistent://tenant/namespace/topic")

_COLUMNS: Final = ("code", "since", "reason", "next")


@click.group(cls=AdminGroup)
@broker_options
@access_options
@click.pass_context
def explain(
    context: click.Context, admin_url: str, output: str, as_json: bool, access: Access, timeout_s: float
) -> None:
    """Ask why something stands still, is where it is, or takes space.

    Answers come from the code that decides. docs/explain.md lists all reasons.
    """
    from magnetar.cli.admin.target import broker_target

    if as_json or context.meta.get(AS_JSON):
        output = "json"
    context.obj = broker_target(admin_url, access, timeout_s, output)


def own_path(path: str) -> str:
    """Returns the path in this broker's own API for one in Pulsar's."""
    return path.replace("/admin/v2/", "/admin/magnetar/v1/", 1)


@explain.command()
@_TOPIC
@click.argument("name")
@click.pass_obj
def subscription(target: Target, topic: str, name: str) -> None:
    """Explain why a subscription delivers nothing now."""
    found = ask(target, "GET", f"{own_path(subscription_path(topic, name))}/explain").value
    if target.output == "json":
        show(target, name, found)
        return
    parts = found["partitions"]
    rows = [row for part in (parts.values() if parts else [found]) for row in _rows(part)]
    columns = ("topic", *_COLUMNS) if parts else _COLUMNS
    state = "moves" if found["moves"] else "stands still"
    show_rows(target, f"Subscription {name} of {topic} {state}, backlog {found['backlog']}", columns, rows)


def _rows(found: dict[str, Any]) -> list[dict[str, Any]]:
    """Returns a row for each reason; one that says so where nothing is in the way."""
    rows = [reason_row(each) for each in found["reasons"]]
    if found["moves"]:
        backlog = f"nothing stops it: {found['backlog']} entries are to be delivered"
        rows.insert(0, {"code": "moves", "since": "", "reason": backlog, "next": ""})
    return [{"topic": found["topic"], **row} for row in rows]


def reason_row(reason: dict[str, Any]) -> dict[str, Any]:
    """Returns a reason as a row of a table; a part of what is asked about is marked."""
    row = plain_row(reason)
    return row if reason["stops"] else {**row, "reason": f"(in part) {reason['text']}"}


def plain_row(reason: dict[str, Any]) -> dict[str, Any]:
    """Returns a reason as a row of a table, where none is about a part only."""
    return {
        "code": reason["code"],
        "since": reason["since"] or "",
        "reason": reason["text"],
        "next": reason["next"],
    }


@explain.command()
@_TOPIC
@click.pass_obj
def topic(target: Target, topic: str) -> None:
    """Explain why a topic is at its broker, and what would move it."""
    found = ask(target, "GET", f"{own_path(topic_path(topic))}/explain").value
    if target.output == "json":
        show(target, topic, found)
        return
    rows = [
        {"about": about, **plain_row(each)}
        for about, key in (("here", "reasons"), ("moves", "moves"))
        for each in found[key]
    ]
    place = found["broker"] or "no broker"
    if found["partitions"]:
        click.echo(
            f"Each of {found['partitions']} partitions has a place of its own: ask for {topic}-partition-0.",
            err=True,
        )
    show_rows(target, f"{topic}, in bundle {found['bundle']}, at {place}", ("about", *_COLUMNS), rows)


@explain.command()
@click.argument("name", metavar="tenant/namespace|persistent://tenant/namespace/topic")
@click.pass_obj
def storage(target: Target, name: str) -> None:
    """Explain what keeps the ledgers of a topic, or of all topics of a namespace.

    The bytes of all rows are those of the ledgers, one copy.
    """
    if "://" in name:
        topics = [name]
    else:
        path = namespace_path(name).replace("/namespaces/", "/persistent/", 1)
        topics = ask(target, "GET", path).value
    found = [ask(target, "GET", f"{own_path(topic_path(topic))}/storage/explain").value for topic in topics]
    if target.output == "json":
        show(target, name, found[0] if "://" in name else found)
        return
    parts = [part for each in found for part in (each["partitions"].values() or [each])]
    rows = [{"topic": part["topic"], **_ledger_row(row)} for part in parts for row in part["ledgers"]]
    total = sum(part["bytes"] for part in parts)
    columns: tuple[str, ...] = ("ledger", "bytes", "copies", "code", "reason", "next")
    if len(parts) != 1:
        columns = ("topic", *columns)
    show_rows(target, f"Ledgers of {name}, {total} bytes", columns, rows)


def _ledger_row(ledger: dict[str, Any]) -> dict[str, Any]:
    return {
        "ledger": ledger["ledgerId"],
        "bytes": ledger["bytes"],
        "copies": ledger["copies"],
        "code": ledger["code"],
        "reason": ledger["text"],
        "next": ledger["next"],
    }


@explain.command()
@_TOPIC
@click.pass_obj
def publishes(target: Target, topic: str) -> None:
    """Explain why publishes were slow in the last minute: the slowest ones, step by step."""
    found = ask(target, "GET", f"{own_path(topic_path(topic))}/publishes/explain").value
    if target.output == "json":
        show(target, topic, found)
        return
    parts = list(found["partitions"].values()) or [found]
    columns = ("topic", *_COLUMNS) if found["partitions"] else _COLUMNS
    rows = [{"topic": part["topic"], **reason_row(each)} for part in parts for each in part["reasons"]]
    show_rows(target, f"Publishes to {topic}", columns, rows)
    slow = [_slow_publish(each) for part in parts for each in part["publishes"]]
    if slow:
        show_rows(target, "The slowest of the last minute, one a second", tuple(slow[0]), slow)


def _slow_publish(publish: dict[str, Any]) -> dict[str, Any]:
    steps = ", ".join(f"{each['step']} {each['milliseconds']}" for each in publish["steps"])
    return {
        "time": publish["time"],
        "ms": publish["milliseconds"],
        "producer": publish["producer"],
        "address": publish["address"],
        "entries": publish["entries"],
        "bytes": publish["bytes"],
        "ms by step": steps,
    }


@explain.command()
@_TOPIC
@click.argument("names", metavar="[POLICY...]", nargs=-1)
@click.pass_obj
def policies(target: Target, topic: str, names: tuple[str, ...]) -> None:
    """Explain which value of each policy holds for a topic, and from which level it comes."""
    found = ask(target, "GET", f"{own_path(topic_path(topic))}/policies/explain").value
    known = {each["name"]: each for each in found["policies"]}
    unknown = [name for name in names if name not in known]
    if unknown:
        raise click.BadParameter(f"no policy {unknown[0]!r}: they are {', '.join(known)}")
    chosen = [known[name] for name in names] or list(known.values())
    if target.output == "json":
        show(target, topic, {**found, "policies": chosen})
        return
    rows = [
        {
            "policy": each["name"],
            "value": policy_text(each["value"]),
            "level": each["level"],
            "without the topic's": policy_text(each["withoutTopic"]),
            "the broker's": policy_text(each["withoutNamespace"]),
        }
        for each in chosen
    ]
    show_rows(target, f"Policies of {topic}", tuple(rows[0]), rows)


def policy_text(value: Any) -> str:
    """Returns a policy's value in one line: the parts of an object by name."""
    if isinstance(value, dict):
        return ", ".join(f"{key}={policy_text(each)}" for key, each in value.items()) or "none"
    if isinstance(value, list):
        return ", ".join(map(str, value))
    return "none" if value is None else str(value).lower() if isinstance(value, bool) else str(value)
