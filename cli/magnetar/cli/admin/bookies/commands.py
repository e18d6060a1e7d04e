"""`magnetar admin bookies`. A command imports its dependencies when it runs."""

from __future__ import annotations

import click
from magnetar.cli.admin.target import Target
from magnetar.cli.lazy_group import WholeSentences
from magnetar.cli.structlog_import import load_structlog_without_rich


@click.group(cls=WholeSentences)
def bookies() -> None:
    """Manage bookies and show auto-recovery."""


@bookies.command(name="list")
@click.pass_obj
def list_bookies(target: Target) -> None:
    """List all bookies, available and unavailable."""
    load_structlog_without_rich()
    from magnetar.cli.admin.bookies.listing import list_bookies as run

    run(target)


@bookies.command()
@click.argument("bookie_id", metavar="ID")
@click.pass_obj
def show(target: Target, bookie_id: str) -> None:
    """Show a bookie and its share of the ledgers. Reads the metadata of all ledgers."""
    load_structlog_without_rich()
    from magnetar.cli.admin.bookies.listing import show_bookie

    show_bookie(target, bookie_id)


@bookies.command(name="under-replicated")
@click.option(
    "--limit",
    type=click.IntRange(min=1),
    default=100,
    show_default=True,
    help="Maximum number of ledgers to show.",
)
@click.pass_obj
def under_replicated(target: Target, limit: int) -> None:
    """List under-replicated ledgers and the bookies that copy them."""
    load_structlog_without_rich()
    from magnetar.cli.admin.bookies.listing import under_replicated as run

    run(target, limit)


@bookies.command(name="recover-status")
@click.pass_obj
def recover_status(target: Target) -> None:
    """Show the auto-recovery leader, unavailable bookies, and the number of under-replicated ledgers."""
    load_structlog_without_rich()
    from magnetar.cli.admin.bookies.listing import recover_status as run

    run(target)


@bookies.command()
@click.argument("bookie_id", metavar="ID")
@click.option("--no-wait", is_flag=True, help="Start the decommission and return without waiting.")
@click.pass_obj
def decommission(target: Target, bookie_id: str, no_wait: bool) -> None:
    """Remove a bookie permanently: it gets no new ledgers, others copy its ledgers, its identity is deleted.

    Waits and shows progress. Interrupting this command does not cancel the decommission; `recommission` does.
    """
    load_structlog_without_rich()
    from magnetar.cli.admin.bookies.decommission import decommission as run

    run(target, bookie_id, wait=not no_wait)


@bookies.command()
@click.argument("bookie_id", metavar="ID")
@click.pass_obj
def recommission(target: Target, bookie_id: str) -> None:
    """Cancel a decommission in progress. Ledgers that were already moved stay where they are."""
    load_structlog_without_rich()
    from magnetar.cli.admin.bookies.decommission import recommission as run

    run(target, bookie_id)


_BOOKIE = click.option("--bookie", "-b", required=True, metavar="ID", help="Bookie id.")


@bookies.command(name="list-bookies")
@click.pass_obj
def list_known(target: Target) -> None:
    """List the ids of all bookies, as reported by a broker."""
    from magnetar.cli.admin.bookies.racks import list_known as run

    run(target)


@bookies.command(name="racks-placement")
@click.pass_obj
def racks_placement(target: Target) -> None:
    """List the racks that were set with `set-bookie-rack`."""
    from magnetar.cli.admin.bookies.racks import racks_placement as run

    run(target)


@bookies.command(name="get-bookie-rack")
@_BOOKIE
@click.pass_obj
def get_bookie_rack(target: Target, bookie: str) -> None:
    """Show the rack that was set for a bookie."""
    from magnetar.cli.admin.bookies.racks import get_rack

    get_rack(target, bookie)


@bookies.command(name="set-bookie-rack")
@_BOOKIE
@click.option("--rack", "-r", required=True, help="Rack, such as /rack-1 or /region/zone.")
@click.option("--hostname", "-hn", default="", help="Host name of the bookie.")
@click.option("--group", "-g", default="default", show_default=True, help="Bookie group.")
@click.pass_obj
def set_bookie_rack(target: Target, bookie: str, rack: str, hostname: str, group: str) -> None:
    """Set the rack of a bookie; it overrides the rack that the bookie reports."""
    from magnetar.cli.admin.bookies.racks import set_rack

    set_rack(target, bookie, rack, hostname, group)


@bookies.command(name="delete-bookie-rack")
@_BOOKIE
@click.pass_obj
def delete_bookie_rack(target: Target, bookie: str) -> None:
    """Remove the rack that was set for a bookie; the rack that it reports applies again."""
    from magnetar.cli.admin.bookies.racks import delete_rack

    delete_rack(target, bookie)
