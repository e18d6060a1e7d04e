"""`magnetar admin metadata`: copies of a cluster's metadata, and what follows when one is put back."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click
from magnetar.cli.admin.bookie_options import BookieOptions, bookie_options
from magnetar.cli.lazy_group import WholeSentences

if TYPE_CHECKING:
    from magnetar.cli.admin.target import Target

_FILE = click.argument("file", metavar="FILE", type=click.Path(dir_okay=False, path_type=Path))

_IDS = click.option(
    "--skip-ids",
    # Auto-recovery and the orphan scan go through all ledger ids.
    type=click.IntRange(min=1_000, max=10_000_000),
    default=1_000_000,
    show_default=True,
    help="Leave so many ids to the ledgers that were made since the copy.",
)


@click.group(cls=WholeSentences)
def metadata() -> None:
    """Copies of a cluster's metadata, and what follows when one is put back.

    docs/backup.md has the whole procedure.
    """


@metadata.command()
@_FILE
@click.pass_obj
def backup(target: Target, /, file: Path) -> None:
    """Copy the metadata, as it is at one moment, into FILE. The cluster goes on meanwhile.

    FILE may hold secrets, such as passwords in the data of clusters: only its owner can read it.
    """
    from magnetar.cli.admin.metadata.backup import take

    take(target, file)


@metadata.command()
@_FILE
@click.pass_obj
def verify(target: Target, /, file: Path) -> None:
    """See that a copy is whole, and say what is in it. Asks no cluster."""
    from magnetar.cli.admin.metadata.backup import verify as run

    run(target, file)


@metadata.command()
@_FILE
@click.option("--replace", is_flag=True, help="Over what is there, of which a copy is kept beside FILE.")
@_IDS
@click.pass_obj
def restore(target: Target, /, file: Path, replace: bool, skip_ids: int) -> None:
    """Put a copy back into a store without metadata of this cluster. Stop all processes first.

    Afterwards: start bookies, `reconcile`, start brokers, `release`.
    """
    from magnetar.cli.admin.metadata.backup import restore as run

    run(target, file, replace=replace, ids_skipped=skip_ids)


@metadata.command(name="mark-restored")
@_IDS
@click.pass_obj
def mark_restored(target: Target, /, skip_ids: int) -> None:
    """Say that this metadata was put back by other means, such as an etcd snapshot. Stop all processes first.

    Then go on as after `restore`.
    """
    from magnetar.cli.admin.metadata.backup import mark

    mark(target, ids_skipped=skip_ids)


@metadata.command()
@click.option("--look", is_flag=True, help="Compare with what bookies hold now; changes nothing.")
@bookie_options
@click.pass_obj
def status(target: Target, /, look: bool, bookies: BookieOptions) -> None:
    """Whether this metadata was restored, and how far that is dealt with."""
    from magnetar.cli.admin.metadata.reconciliation import status as run

    run(target, look=look, bookies=bookies)


@metadata.command()
@click.option(
    "--leave",
    multiple=True,
    metavar="LEDGER",
    type=click.IntRange(min=1),
    help="A ledger that cannot be repaired: it stays as it is. May be given several times.",
)
@bookie_options
@click.pass_obj
def reconcile(target: Target, /, leave: tuple[int, ...], bookies: BookieOptions) -> None:
    """Compare restored metadata with what bookies hold, and bring entries to where metadata looks for them.

    All bookies have to be up, and no broker. May be run again. Ends with 1 while something cannot be mended.
    """
    from magnetar.cli.admin.metadata.reconciliation import reconcile as run

    run(target, leave=leave, bookies=bookies)


@metadata.command(name="forget-subscriptions")
@click.argument("topic", metavar="TOPIC")
@bookie_options
@click.pass_obj
def forget_subscriptions(target: Target, /, topic: str, bookies: BookieOptions) -> None:
    """Have TOPIC load, without subscriptions: a copy names cursors of it that no bookie has any more.

    Only before `release`: until then its messages stay.
    """
    from magnetar.cli.admin.metadata.reconciliation import forget_subscriptions as run

    run(target, topic, bookies=bookies)


@metadata.command(name="read-unnamed")
@click.argument("ledger_id", metavar="LEDGER", type=click.IntRange(min=1))
@bookie_options
@click.pass_obj
def read_unnamed(target: Target, /, ledger_id: int, bookies: BookieOptions) -> None:
    """Print the messages of a ledger that bookies hold and metadata does not know, as lines of JSON."""
    from magnetar.cli.admin.metadata.reconciliation import read_unnamed as run

    run(target, ledger_id, bookies=bookies)


@metadata.command()
@click.option("--discard", is_flag=True, help="Although something goes that only bookies or objects have.")
@bookie_options
@click.pass_obj
def release(target: Target, /, discard: bool, bookies: BookieOptions) -> None:
    """Have bookies delete again what metadata lacks. Until then nothing of it goes.

    Refused while there are ledgers that were made since the copy, or that are on no bookie and may be in
    objects that metadata does not know, unless they are to be discarded.
    """
    from magnetar.cli.admin.metadata.reconciliation import release as run

    run(target, discard=discard, bookies=bookies)
