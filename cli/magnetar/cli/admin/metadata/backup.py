"""Metadata backups for `magnetar admin metadata`: create, check and restore."""

from __future__ import annotations

import random
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click
from magnetar.cli.admin.metadata_access import with_metadata
from magnetar.cli.admin.output import Row, show_facts, time_text
from magnetar.cli.progress import progress_bar
from magnetar.common.errors import StorageError
from magnetar.common.metadata.backup import Restorer, read_all
from magnetar.common.metadata.backup_file import BackupSummary, read_backup, verify_backup, write_backup
from magnetar.common.metadata.keys import Keys
from magnetar.common.metadata.restoration import read_restoration
from magnetar.common.metadata.store import MetadataStore
from magnetar.common.metadata.values import Restoration
from magnetar.common.runtime.clock import SystemClock

if TYPE_CHECKING:
    from magnetar.cli.admin.target import Target


_NEXT: Final = {
    Restoration.WRITING: "A restore is incomplete: let it finish, or run `magnetar admin metadata "
    "restore` again. No service starts before.",
    Restoration.RESTORED: "Now start all bookies, run `magnetar admin metadata reconcile`, and only then "
    "start brokers and discoveries. Nothing is deleted until `magnetar admin metadata release`.",
    Restoration.RECONCILED: "Now start brokers and discoveries. Nothing is deleted, and disks fill up, until "
    "`magnetar admin metadata release`: check first what it deletes (`magnetar admin metadata status "
    "--look`).",
}


def take(target: Target, file: Path) -> None:
    """Write a backup of the metadata to `file`."""

    async def run(metadata: MetadataStore, keys: Keys) -> int:
        summary = await _copy(metadata, keys, file)
        show_facts(target, f"Backup {file}", _facts(summary, file))
        return 0

    with_metadata(target, run)


def verify(target: Target, file: Path) -> None:
    """Print the contents of a valid backup, or report why it is invalid."""
    try:
        summary = verify_backup(file)
    except (StorageError, OSError) as error:
        raise click.ClickException(_reason(error, file)) from error
    show_facts(target, f"Backup {file}", _facts(summary, file))


def restore(target: Target, file: Path, *, replace: bool, ids_skipped: int) -> None:
    """Restore the backup in `file`."""
    try:
        summary, items = read_backup(file)
    except (StorageError, OSError) as error:
        raise click.ClickException(_reason(error, file)) from error

    async def run(metadata: MetadataStore, keys: Keys) -> int:
        earlier = await read_restoration(metadata, keys)
        half = earlier is not None and earlier.state == Restoration.WRITING
        # An incomplete restore saved the replaced metadata when it began.
        if replace and not half and (await metadata.children(keys.root)).items:
            before = file.with_name(f"{file.name}.replaced-{SystemClock().wall_ms()}")
            await _copy(metadata, keys, before)
            click.echo(f"the previous metadata is saved in {before}", err=True)
        with progress_bar("keys written", len(items)) as advance:
            restorer = Restorer(
                metadata,
                keys,
                SystemClock(),
                random.SystemRandom(),
                ids_skipped=ids_skipped,
                progress=lambda done, total: advance(done),
            )
            record = await restorer.restore(summary.header, items, replace=replace)
        show_facts(target, f"Restored from {file}", {"keys": len(items), **restoration_facts(record)})
        say_what_next(record)
        return 0

    with_metadata(target, run)


def mark(target: Target, *, ids_skipped: int) -> None:
    """Mark metadata as restored that was restored by other means."""

    async def run(metadata: MetadataStore, keys: Keys) -> int:
        restorer = Restorer(metadata, keys, SystemClock(), random.SystemRandom(), ids_skipped=ids_skipped)
        record = await restorer.mark()
        show_facts(target, f"Metadata of {target.cluster}", restoration_facts(record))
        say_what_next(record)
        return 0

    with_metadata(target, run)


def restoration_facts(record: Restoration) -> Row:
    """Return the fields of a restore that are shown to operators."""
    return {
        "state": Restoration.State.Name(record.state).lower(),
        "copy_taken": time_text(record.backup_ms),
        "restored": time_text(record.restored_ms),
        "reconciled": time_text(record.reconciled_ms),
        "released": time_text(record.released_ms),
        "unnamed_ledgers_from": record.lost_from,
        "unnamed_ledgers_below": record.lost_until,
    }


def say_what_next(record: Restoration) -> None:
    """Return the operator's next step as text."""
    if record.state in _NEXT:
        click.echo(_NEXT[record.state], err=True)


async def _copy(metadata: MetadataStore, keys: Keys, file: Path) -> BackupSummary:
    header, items = await read_all(metadata, keys, SystemClock(), version("magnetar-cli"))
    try:
        return write_backup(file, header, items)
    except OSError as error:
        raise click.ClickException(_reason(error, file)) from error


def _facts(summary: BackupSummary, file: Path) -> Row:
    header = summary.header
    return {
        "cluster": header.cluster,
        "instance_id": header.instance_id,
        "taken": time_text(header.taken_ms),
        "revision": header.revision,
        "release": header.release,
        "keys": summary.keys,
        "file_bytes": file.stat().st_size,
        "sha256": summary.sha256,
    }


def _reason(error: Exception, file: Path) -> str:
    if isinstance(error, OSError) and error.strerror:
        return f"{file}: {error.strerror}"
    return str(error)
