"""`magnetar explain` of a cluster's parts: ledgers, bookies and bundles."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

import click
from magnetar.cli.admin.explain import own_path, plain_row
from magnetar.cli.admin.http_client import ask, namespace_path, show
from magnetar.cli.admin.output import on_terminal, show_rows

if TYPE_CHECKING:
    from magnetar.cli.admin.target import Target

_OWN: Final = "/admin/magnetar/v1"
_COLUMNS: Final = ("code", "since", "reason", "next")


@click.command()
@click.argument("ledger_id", metavar="ID", type=click.IntRange(min=0))
@click.pass_obj
def ledger(target: Target, ledger_id: int) -> None:
    """Explain why a ledger lacks copies, what auto-recovery does about it, and why not yet.

    The first table has the entries with their bookies, and how many copies they lack.
    """
    found = ask(target, "GET", f"{_OWN}/ledgers/{ledger_id}/explain").value
    if target.output == "json":
        show(target, str(ledger_id), found)
        return
    quorum = f"{found['ensembleSize']}/{found['writeQuorum']}/{found['ackQuorum']}"
    used = f" of {found['topic']} ({found['kind']})" if found["topic"] else ""
    title = f"Ledger {ledger_id}{used}, {found['state'].lower()}, ensemble and quorums {quorum}"
    if found["keptBy"]:
        click.echo(f"{found['keptBy']} says what keeps it.", err=True)
    rows = [_fragment_row(each, found["lacking"]) for each in found["fragments"]]
    if rows and on_terminal(target):
        show_rows(target, "Its entries", tuple(rows[0]), rows)
    show_rows(target, title, _COLUMNS, [plain_row(each) for each in found["reasons"]])


def _fragment_row(fragment: dict[str, Any], lacking: list[dict[str, Any]]) -> dict[str, Any]:
    first, last = fragment["first"], fragment["last"]
    copies = [
        each["copies"]
        for each in lacking
        if (last is None or each["first"] <= last) and (each["last"] is None or each["last"] >= first)
    ]
    return {
        "first": first,
        "last": "" if last is None else last,
        "bookies": ", ".join(f"{bookie}: {state}" for bookie, state in fragment["bookies"].items()),
        "lacking copies": max(copies, default=0),
    }


@click.command()
@click.argument("bookie_id", metavar="ID")
@click.pass_obj
def bookie(target: Target, bookie_id: str) -> None:
    """Explain why a bookie gets no entries, and what waits for it."""
    found = ask(target, "GET", f"{_OWN}/bookies/{quote(bookie_id, safe='')}/explain").value
    if target.output == "json":
        show(target, bookie_id, found)
        return
    for broker, error in found["unreachable"].items():
        click.echo(f"broker {broker} was not asked: {error}", err=True)
    space = f", {found['freeBytes']} bytes free" if found["freeBytes"] >= 0 else ""
    title = f"Bookie {bookie_id} {found['state']}{space}"
    show_rows(target, title, _COLUMNS, [plain_row(each) for each in found["reasons"]])


@click.command()
@click.argument("bundle", metavar="tenant/namespace/0x00000000_0x40000000")
@click.pass_obj
def bundle(target: Target, bundle: str) -> None:
    """Explain why a bundle is at its broker, and what would move or split it.

    With its loaded topics that have most load. `magnetar explain topic` names the bundle of a topic.
    """
    namespace, _, hashes = bundle.rpartition("/")
    path = f"{own_path(namespace_path(namespace))}/{quote(hashes, safe='')}/explain"
    found = ask(target, "GET", path).value
    if target.output == "json":
        show(target, bundle, found)
        return
    rows = [
        {"about": about, **plain_row(each)}
        for about, key in (("here", "reasons"), ("moves", "moves"), ("splits", "splits"))
        for each in found[key]
    ]
    if found["unreachable"]:
        click.echo(f"its load is not known: {found['unreachable']}", err=True)
    title = f"Bundle {bundle}, at {found['broker'] or 'no broker'}"
    show_rows(target, title, ("about", *_COLUMNS), rows)
    topics = found["topics"]
    if topics and on_terminal(target):
        show_rows(target, "Its topics with most load", tuple(topics[0]), topics)


COMMANDS: Final = (ledger, bookie, bundle)
