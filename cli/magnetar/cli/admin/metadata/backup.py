"""Taking, looking at and putting back copies of metadata, for `magnetar admin metadata`."""

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
    Restoration.WRITING: "Half of a copy is there: let its restoration end, or run `magnetar admin metadata "
    "restore` again. Nothing starts before.",
    Restoration.RESTORED: "Now start all bookies, run `magnetar admin metadata reconcile`, and only then "
    "start brokers and discoveries. Nothing is deleted until `magnetar admin metadata release`.",
    Restoration.RECONCILED: "Now start brokers and discoveries. Nothing is deleted, and disks fill up, until "
    "`magnetar admin metadata release`: look first at what that lets go (`magnetar admin metadata status "
    "--look`).",
}


def take(target: Target, file: Path) -> None:
    """Copy the metadata into `file`."""

    async def run(metadata: MetadataStore, keys: Keys) -> int:
        summary = await _copy(metadata, keys, file)
        show_facts(target, f"Backup {file}", _facts(summary, file))
        return 0

    with_metadata(target, run)


def verify(target: Target, file: Path) -> None:
    """Say what is in a whole copy, or why it is none."""
    try:
        summary = verify_backup(file)
    except (StorageError, OSError) as error:
        raise click.ClickException(_reason(error, file)) from error
    show_facts(target, f"Backup {file}", _facts(summary, file))


def restore(target: Target, file: Path, *, replace: bool, ids_skipped: int) -> None:
    """Put `file` back."""
    try:
        summary, items = read_backup(file)
    except (StorageError, OSError) as error:
        raise click.ClickException(_reason(error, file)) from error

    async def run(metadata: MetadataStore, keys: Keys) -> int:
        earlier = await read_restoration(metadata, keys)
        half = earlier is not None and earlier.state == Restoration.WRITING
        # What half a copy replaces was kept when that began.
        if replace and not half and (await metadata.children(keys.root)).items:
            before = file.with_name(f"{file.name}.replaced-{SystemClock().wall_ms()}")
            await _copy(metadata, keys, before)
            click.echo(f"what was there is kept in {before}", err=True)
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
    """Say of metadata that was put back by other means that it was."""

    async def run(metadata: MetadataStore, keys: Keys) -> int:
        restorer = Restorer(metadata, keys, SystemClock(), random.SystemRandom(), ids_skipped=ids_skipped)
        record = await restorer.mark()
        show_facts(target, f"Metadata of {target.cluster}", restoration_facts(record))
        say_what_next(record)
        return 0

    with_metadata(target, run)


def restoration_facts(record: Restoration) -> Row:
    """A restoration as operators see it."""
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
    """The next step of the operator, as text."""
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
