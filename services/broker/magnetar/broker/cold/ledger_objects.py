"""The objects of one offloaded ledger, read in a thread: manifest, footers, row groups and raw bytes.

Needs pyarrow and fsspec (`magnetar-broker[cold]`), imported only when an offloaded ledger is read. All calls
block. They raise ObjectsUnavailable when the store cannot be read now, and ObjectsDamaged when an object is
missing or differs from what was verified.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, Final, TypeVar

from magnetar.broker.cold.entry_group import EntryGroup
from magnetar.common.errors import ConfigError, DataCorruption, UnsupportedFormat
from magnetar.ledger.cold.cold_reader import ColdLedger, ObjectsDamaged, ObjectsUnavailable
from magnetar.ledger.cold.key_rows import KeyRun
from magnetar.ledger.cold.layout import MANIFEST_NAME
from magnetar.ledger.cold.manifest import Manifest, Part
from magnetar.ledger.cold.objects import NoSuchObject, ObjectStore, ObjectStoreError, open_store
from magnetar.ledger.cold.part_reader import Footer, PartReader, RowGroup, read_footer
from magnetar.ledger.ledger_store import Run

T = TypeVar("T")

MANIFEST_BYTES_MAX: Final = 64 << 20
"""Maximum bytes of a valid manifest."""


class LedgerObjects:
    """The objects of `ledger`; safe to use from several threads."""

    def __init__(self, ledger: ColdLedger) -> None:
        """Prepares access without calling the store. Raises ObjectsUnavailable when the store cannot be
        used.
        """
        self.ledger = ledger
        try:
            self._store: ObjectStore = open_store(ledger.location)
        except ConfigError as error:
            raise ObjectsUnavailable(f"{_named(ledger)}: {error}") from error

    def manifest(self) -> Manifest:
        """Reads the ledger's manifest and checks that it is the one a job verified."""
        path = f"{self.ledger.path}/{MANIFEST_NAME}"
        with self._errors(path):
            data = self._store.read(path, 0, MANIFEST_BYTES_MAX)
        found = hashlib.sha256(data).digest()
        if found != self.ledger.manifest_sha256:
            raise self._damaged(
                path, f"its SHA-256 is {found.hex()}, not {self.ledger.manifest_sha256.hex()}"
            )
        with self._errors(path):
            manifest = Manifest.from_json(data)
        wrong = _differences(manifest, self.ledger)
        if wrong:
            raise self._damaged(path, "; ".join(wrong))
        return manifest

    def footer(self, part: Part) -> Footer:
        """Reads the footer of a part and checks its row groups against the manifest."""
        footer = self._with_part(part, partial(read_footer, part=part))
        following = part.first_entry_id
        for group in footer.row_groups:
            if group.first_entry_id != following:
                raise self._damaged(part.name, f"row group {group.number} begins at an unexpected entry")
            following = group.last_entry_id + 1
        if following != part.last_entry_id + 1 or footer.ledger_id != self.ledger.ref.id:
            raise self._damaged(part.name, "its entries differ from the manifest")
        return footer

    def group(self, part: Part, footer: Footer, number: int) -> EntryGroup:
        """Reads the entries of a row group."""

        def read(file: Any) -> EntryGroup:
            with PartReader(file, footer) as reader:
                return EntryGroup(reader.read_runs([number]))

        group = self._with_part(part, read)
        self._check_complete(group.runs, part, footer.row_groups[number])
        return group

    def keys(self, part: Part, footer: Footer, number: int) -> list[KeyRun]:
        """Reads the entries of a row group, without messages' bodies where their metadata suffices."""

        def read(file: Any) -> list[KeyRun]:
            with PartReader(file, footer) as reader:
                return reader.read_key_runs([number])

        found = self._with_part(part, read)
        self._check_complete([each.run for each in found], part, footer.row_groups[number])
        return found

    def check_size(self, part: Part) -> None:
        """Checks that the object of a part has the size in the manifest."""
        path = self._path(part)
        with self._errors(path):
            size = self._store.size(path)
        if size != part.byte_length:
            raise self._damaged(part.name, f"it has {size} bytes, not {part.byte_length}")

    def read(self, part: Part, offset: int, length: int) -> bytes:
        """Reads exactly `length` bytes of the object of a part."""
        path = self._path(part)
        with self._errors(path):
            data = self._store.read(path, offset, length)
        if len(data) != length:
            raise self._damaged(
                part.name, f"it ends {length - len(data)} bytes before byte {offset + length}"
            )
        return data

    # --- inside ---

    def _check_complete(self, runs: Sequence[Run], part: Part, expected: RowGroup) -> None:
        following = expected.first_entry_id
        for run in runs:
            if run.ledger_id != self.ledger.ref.id or run.first_entry_id != following:
                raise self._damaged(part.name, f"entry {following} is missing in row group {expected.number}")
            following = run.last_entry_id + 1
        if following != expected.last_entry_id + 1:
            raise self._damaged(
                part.name, f"row group {expected.number} ends before entry {expected.last_entry_id}"
            )

    def _with_part(self, part: Part, action: Callable[[Any], T]) -> T:
        path = self._path(part)
        with self._errors(path), self._store.open(path, part.byte_length) as file:
            return action(file)

    def _path(self, part: Part) -> str:
        return f"{self.ledger.path}/{part.name}"

    def _damaged(self, path: str, what: str) -> ObjectsDamaged:
        name = path.rpartition("/")[2]
        return ObjectsDamaged(f"{name} of {_named(self.ledger)} is damaged: {what}")

    @contextmanager
    def _errors(self, path: str) -> Iterator[None]:
        """Converts errors of the store and the libraries to ObjectsUnavailable or ObjectsDamaged."""
        try:
            yield
        except NoSuchObject as error:
            raise ObjectsDamaged(f"{_named(self.ledger)}: {error}") from error
        except (ObjectStoreError, UnsupportedFormat) as error:
            raise ObjectsUnavailable(f"{_named(self.ledger)}: {error}") from error
        except DataCorruption as error:
            raise self._damaged(path, str(error)) from error
        except (ObjectsDamaged, ObjectsUnavailable):
            raise
        except Exception as error:  # object store libraries raise their own error types
            raise ObjectsUnavailable(f"{_named(self.ledger)}: cannot read {path}: {error!r}") from error


def _named(ledger: ColdLedger) -> str:
    return f"ledger {ledger.ref.id} of {ledger.topic} at {ledger.where}"


def _differences(manifest: Manifest, ledger: ColdLedger) -> list[str]:
    expected = {
        "topic": ledger.topic,
        "creation_id": ledger.creation_id,
        "ledger_id": ledger.ref.id,
        "ledger_key": ledger.ref.key,
        "attempt": ledger.attempt,
        "first_entry_id": 0,
        "last_entry_id": ledger.last_entry_id,
    }
    return [
        f"{name} is {getattr(manifest, name)!r}, not {value!r}"
        for name, value in expected.items()
        if getattr(manifest, name) != value
    ]
