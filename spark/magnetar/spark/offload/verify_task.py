"""A Spark task: reads one object back and compares it with what the writing task reported.

Its bytes by length and SHA-256, its rows by counts and by checksums over payloads, and the entries that a
broker would make of them: every one, in order, each with the time and the numbers it had.
"""

from __future__ import annotations

import hashlib
import tempfile
from pathlib import Path
from typing import Final

from magnetar.common.errors import DataCorruption, MagnetarError
from magnetar.common.offload.offload_errors import may_pass
from magnetar.ledger.cold.objects import ObjectStore, open_store
from magnetar.ledger.cold.part_reader import PartReader
from magnetar.spark.offload.envelope_checksum import envelope_crc
from magnetar.spark.offload.tasks import TaskFailure, VerifiedPart, VerifyTask
from magnetar.spark.scratch import scratch_directory

PIECE_BYTES: Final = 4 << 20


def verify_part(task: VerifyTask) -> VerifiedPart | TaskFailure:
    """Read one object back; raises only errors for which a retry may help."""
    try:
        store = open_store(task.location)
        with tempfile.TemporaryDirectory(prefix="magnetar-verify-", dir=scratch_directory()) as directory:
            path = Path(directory) / task.part.name
            _fetch(store, task, path)
            return _check(task, path)
    except MagnetarError as error:
        if may_pass(error):
            raise
        return TaskFailure(f"{task.part.name}: {type(error).__name__}: {error}")


def _fetch(store: ObjectStore, task: VerifyTask, path: Path) -> None:
    """Download the object to a file. Raises DataCorruption unless its bytes are those that were written."""
    name = f"{task.path}/{task.part.name}"
    digest, length = hashlib.sha256(), 0
    size = store.size(name)
    with path.open("wb") as file:
        while length < size and (piece := store.read(name, length, min(PIECE_BYTES, size - length))):
            digest.update(piece)
            length += len(piece)
            file.write(piece)
    if length != task.part.byte_length or digest.digest() != task.part.sha256:
        raise DataCorruption(
            f"{name} has {length} bytes with SHA-256 {digest.hexdigest()}, {task.part.byte_length} with "
            f"{task.part.sha256.hex()} were written"
        )


def _check(task: VerifyTask, path: Path) -> VerifiedPart:
    part = task.part
    with PartReader(str(path)) as reader:
        footer = reader.footer
        said = (footer.topic, footer.ledger_id, footer.first_entry_id, footer.last_entry_id)
        if said != (task.topic, task.ledger_id, part.first_entry_id, part.last_entry_id):
            raise DataCorruption(f"{part.name} says it has entries of {said}")
        found = reader.check()
        if differences := found.differences(part):
            raise DataCorruption("; ".join(differences))
        expected, crc = part.first_entry_id, 0
        for group in footer.row_groups:
            runs = reader.read_runs([group.number])
            for run in runs:
                if run.first_entry_id != expected:
                    raise DataCorruption(f"{part.name} gives entry {run.first_entry_id}, not {expected}")
                expected = run.last_entry_id + 1
            crc = envelope_crc(runs, crc)
    if expected != part.last_entry_id + 1:
        raise DataCorruption(f"{part.name} gives entries up to {expected - 1}, not {part.last_entry_id}")
    if crc != task.envelope_crc32c:
        raise DataCorruption(f"{part.name} gives entries with other times or numbers than they had")
    return VerifiedPart(found.entries, found.rows, found.raw_entries)
