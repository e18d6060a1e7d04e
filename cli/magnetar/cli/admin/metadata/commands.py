"""`magnetar admin metadata`: backups of a cluster's metadata, and reconciliation after a restore."""

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
    # Bounded: auto-recovery and the orphan scan visit all ledger ids.
    type=click.IntRange(min=1_000, max=10_000_000),
    default=1_000_000,
    show_default=True,
    help="Number of ledger ids to reserve for ledgers created after the backup.",
)


@click.group(cls=WholeSentences)
def metadata() -> None:
    """Back up and restore metadata, and reconcile it after a restore.

    The whole procedure is in docs/backup.md.
    """


@metadata.command()
@_FILE
@click.pass_obj
def backup(target: Target, /, file: Path) -> None:
    """Write a consistent snapshot of the metadata to FILE. The cluster keeps running.

    FILE may contain secrets, such as passwords in cluster data; only its owner can read it.
    """
    from magnetar.cli.admin.metadata.backup import take

    take(target, file)


@metadata.command()
@_FILE
@click.pass_obj
def verify(target: Target, /, file: Path) -> None:
    """Check that a backup is complete, and show its contents. Does not contact a cluster."""
    from magnetar.cli.admin.metadata.backup import verify as run

    run(target, file)


@metadata.command()
@_FILE
@click.option(
    "--replace", is_flag=True, help="Overwrite existing metadata, after saving a copy of it beside FILE."
)
@_IDS
@click.pass_obj
def restore(target: Target, /, file: Path, replace: bool, skip_ids: int) -> None:
    """Restore a backup into a store without metadata of this cluster. Stop all processes first.

    Afterwards: start bookies, `reconcile`, start brokers, `release`.
    """
    from magnetar.cli.admin.metadata.backup import restore as run

    run(target, file, replace=replace, ids_skipped=skip_ids)


@metadata.command()
@click.option(
    "--administrator",
    "administrators",
    multiple=True,
    default=("magnetar-etcd",),
    show_default=True,
    metavar="NAME",
    help="User that may change users and rights, beside root; repeat for several.",
)
@click.pass_obj
def users(target: Target, /, administrators: tuple[str, ...]) -> None:
    """Make etcd's users with least rights, and turn its access control on.

    A user is the common name of a client certificate: magnetar-broker, magnetar-bookie and so on. Use the
    certificate of an administrator. Can be repeated.
    """
    from magnetar.cli.admin.metadata.users import require

    require(target, administrators)


@metadata.command(name="mark-restored")
@_IDS
@click.pass_obj
def mark_restored(target: Target, /, skip_ids: int) -> None:
    """Mark this metadata as restored by other means, such as an etcd snapshot. Stop all processes first.

    Then continue as after `restore`.
    """
    from magnetar.cli.admin.metadata.backup import mark

    mark(target, ids_skipped=skip_ids)


@metadata.command()
@click.option("--look", is_flag=True, help="Compare with the ledgers on bookies; read-only.")
@bookie_options
@click.pass_obj
def status(target: Target, /, look: bool, bookies: BookieOptions) -> None:
    """Show whether this metadata was restored, and the progress of its reconciliation."""
    from magnetar.cli.admin.metadata.reconciliation import status as run

    run(target, look=look, bookies=bookies)


@metadata.command()
@click.option(
    "--leave",
    multiple=True,
    metavar="LEDGER",
    type=click.IntRange(min=1),
    help="Ledger that cannot be repaired and stays as it is; repeat for several.",
)
@bookie_options
@click.pass_obj
def reconcile(target: Target, /, leave: tuple[int, ...], bookies: BookieOptions) -> None:
    """Compare restored metadata with bookies, and copy entries to the bookies that metadata names.

    All bookies must be up and all brokers stopped. Can be repeated. Exits with 1 while a ledger is not
    repaired.
    """
    from magnetar.cli.admin.metadata.reconciliation import reconcile as run

    run(target, leave=leave, bookies=bookies)


@metadata.command(name="forget-subscriptions")
@click.argument("topic", metavar="TOPIC")
@bookie_options
@click.pass_obj
def forget_subscriptions(target: Target, /, topic: str, bookies: BookieOptions) -> None:
    """Let TOPIC load without subscriptions when its cursors are no longer on any bookie.

    Works only before `release`; until then its messages are kept.
    """
    from magnetar.cli.admin.metadata.reconciliation import forget_subscriptions as run

    run(target, topic, bookies=bookies)


@metadata.command(name="read-unnamed")
@click.argument("ledger_id", metavar="LEDGER", type=click.IntRange(min=1))
@bookie_options
@click.pass_obj
def read_unnamed(target: Target, /, ledger_id: int, bookies: BookieOptions) -> None:
    """Print the messages of a ledger that is on bookies but not in metadata, as JSON lines."""
    from magnetar.cli.admin.metadata.reconciliation import read_unnamed as run

    run(target, ledger_id, bookies=bookies)


@metadata.command()
@click.option(
    "--discard",
    is_flag=True,
    help="Release even if data is deleted that exists only on bookies or in objects.",
)
@bookie_options
@click.pass_obj
def release(target: Target, /, discard: bool, bookies: BookieOptions) -> None:
    """Let bookies delete ledgers that are not in metadata. Until then they keep them.

    Refused, without --discard, while there are ledgers created after the backup, or ledgers that are on no
    bookie and may be in objects that are not in metadata.
    """
    from magnetar.cli.admin.metadata.reconciliation import release as run

    run(target, discard=discard, bookies=bookies)
