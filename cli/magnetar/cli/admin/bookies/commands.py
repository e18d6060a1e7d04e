"""`magnetar admin bookies`. What a command needs is imported when it runs."""

from __future__ import annotations

import click
from magnetar.cli.admin.target import Target
from magnetar.cli.lazy_group import WholeSentences
from magnetar.cli.structlog_import import load_structlog_without_rich


@click.group(cls=WholeSentences)
def bookies() -> None:
    """Bookies, and what auto-recovery does about them."""


@bookies.command(name="list")
@click.pass_obj
def list_bookies(target: Target) -> None:
    """Every bookie, up or not."""
    load_structlog_without_rich()
    from magnetar.cli.admin.bookies.listing import list_bookies as run

    run(target)


@bookies.command()
@click.argument("bookie_id", metavar="ID")
@click.pass_obj
def show(target: Target, bookie_id: str) -> None:
    """One bookie, and which share of the ledgers it has. Reads the metadata of all ledgers."""
    load_structlog_without_rich()
    from magnetar.cli.admin.bookies.listing import show_bookie

    show_bookie(target, bookie_id)


@bookies.command(name="under-replicated")
@click.option("--limit", type=click.IntRange(min=1), default=100, show_default=True, help="Show so many.")
@click.pass_obj
def under_replicated(target: Target, limit: int) -> None:
    """Ledgers that lack copies, and who copies them."""
    load_structlog_without_rich()
    from magnetar.cli.admin.bookies.listing import under_replicated as run

    run(target, limit)


@bookies.command(name="recover-status")
@click.pass_obj
def recover_status(target: Target) -> None:
    """How auto-recovery stands: who leads it, which bookies are away, how many ledgers lack copies."""
    load_structlog_without_rich()
    from magnetar.cli.admin.bookies.listing import recover_status as run

    run(target)


@bookies.command()
@click.argument("bookie_id", metavar="ID")
@click.option("--no-wait", is_flag=True, help="Say so and return; the cluster does the rest.")
@click.pass_obj
def decommission(target: Target, bookie_id: str, no_wait: bool) -> None:
    """Have a bookie leave for good: it takes no new ledgers, others copy what it holds, its identity goes.

    Waits and shows how far it is; ending the command does not stop it. `recommission` does.
    """
    load_structlog_without_rich()
    from magnetar.cli.admin.bookies.decommission import decommission as run

    run(target, bookie_id, wait=not no_wait)


@bookies.command()
@click.argument("bookie_id", metavar="ID")
@click.pass_obj
def recommission(target: Target, bookie_id: str) -> None:
    """Think better of a decommissioning that is not done yet. What was moved stays where it is now."""
    load_structlog_without_rich()
    from magnetar.cli.admin.bookies.decommission import recommission as run

    run(target, bookie_id)


_BOOKIE = click.option("--bookie", "-b", required=True, metavar="ID", help="The bookie, by its id.")


@bookies.command(name="list-bookies")
@click.pass_obj
def list_known(target: Target) -> None:
    """The ids of all bookies, as a broker knows them."""
    from magnetar.cli.admin.bookies.racks import list_known as run

    run(target)


@bookies.command(name="racks-placement")
@click.pass_obj
def racks_placement(target: Target) -> None:
    """In which racks bookies are, as far as somebody said it with `set-bookie-rack`."""
    from magnetar.cli.admin.bookies.racks import racks_placement as run

    run(target)


@bookies.command(name="get-bookie-rack")
@_BOOKIE
@click.pass_obj
def get_bookie_rack(target: Target, bookie: str) -> None:
    """In which rack somebody said that a bookie is."""
    from magnetar.cli.admin.bookies.racks import get_rack

    get_rack(target, bookie)


@bookies.command(name="set-bookie-rack")
@_BOOKIE
@click.option("--rack", "-r", required=True, help="The rack: /rack-1, /region/zone.")
@click.option("--hostname", "-hn", default="", help="How its host is called.")
@click.option("--group", "-g", default="default", show_default=True, help="The group of bookies it is in.")
@click.pass_obj
def set_bookie_rack(target: Target, bookie: str, rack: str, hostname: str, group: str) -> None:
    """Say in which rack a bookie is: it comes before what the bookie says itself."""
    from magnetar.cli.admin.bookies.racks import set_rack

    set_rack(target, bookie, rack, hostname, group)


@bookies.command(name="delete-bookie-rack")
@_BOOKIE
@click.pass_obj
def delete_bookie_rack(target: Target, bookie: str) -> None:
    """Let a bookie itself say in which rack it is."""
    from magnetar.cli.admin.bookies.racks import delete_rack

    delete_rack(target, bookie)
