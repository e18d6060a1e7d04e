"""Searches the objects of one offloaded ledger, and counts what was read.

Calls block. The caller decides after each step whether to go on, so a search has bounds in bytes and time.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from magnetar.common.errors import DataCorruption, MagnetarError, UnsupportedFormat
from magnetar.ledger.cold.layout import MANIFEST_NAME, Manifest, Part
from magnetar.ledger.cold.object_file import ObjectFile
from magnetar.ledger.cold.objects import ObjectStore, ObjectStoreError, open_store
from magnetar.ledger.cold.part_reader import PartReader
from magnetar.ledger.cold.search.bloom_filter import may_contain
from magnetar.ledger.cold.search.chunk_contents import ChunkContents
from magnetar.ledger.cold.search.cold_objects import ColdObjects
from magnetar.ledger.cold.search.condition import Condition, MessagePosition, SearchedMessage
from magnetar.ledger.cold.search.row_groups import PlannedGroup, key_hashes, planned_groups
from magnetar.ledger.cold.search.row_search import GroupSearch


@dataclass(slots=True)
class Looked:
    """Counts of what a search read, of how much."""

    ledgers: int = 0
    parts: int = 0
    parts_read: int = 0
    """Parts with a row group that was read; of the others only the footer was, or nothing."""
    row_groups: int = 0
    """Row groups in the parts whose footer was read."""
    row_groups_read: int = 0
    bloom_filters: int = 0
    """Row groups whose Bloom filter was asked."""
    rows: int = 0
    """Rows of the row groups that were read."""
    bytes_read: int = 0
    """Bytes of objects, manifests and footers included."""
    unsearchable: int = 0
    """Rows without known content (encrypted, damaged, incomplete chunks) in which no text was searched."""
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False, compare=False)

    def count(self, data: bytes) -> bytes:
        """Counts bytes that were read and returns them. Arrow reads from several threads."""
        with self._lock:
            self.bytes_read += len(data)
        return data


class Step(NamedTuple):
    """Messages that one step of a search found, and where the next one begins."""

    messages: list[SearchedMessage]
    following: MessagePosition
    """Everything before this position was searched."""


UNREADABLE: Final = (DataCorruption, ObjectStoreError, UnsupportedFormat)
"""Errors of single objects, which a search can leave out."""


class LedgerSearch:
    """The search in one ledger."""

    def __init__(
        self,
        topic: str,
        partition: int,
        objects: ColdObjects,
        condition: Condition,
        chunks: ChunkContents,
        looked: Looked,
        *,
        on_unreadable: Callable[[MagnetarError], None] | None = None,
    ) -> None:
        """`chunks` and `looked` belong to the search of the whole topic. `on_unreadable` is called with the
        reason for each object that is left out because it cannot be read; without it the search raises.
        Makes no request. Raises ConfigError for a location whose package is not installed.
        """
        self._topic = topic
        self._partition = partition
        self._objects = objects
        self._condition = condition
        self._chunks = chunks
        self._looked = looked
        self._store: ObjectStore = open_store(objects.location)
        self._on_unreadable = on_unreadable
        self._hashes = key_hashes(condition) if condition.key is not None else ()

    def steps(self) -> Iterator[Step]:
        """Yields a step for each part, and for each few rows with a match. Raises ObjectStoreError and
        DataCorruption, which name the object, and UnsupportedFormat.
        """
        ledger_id = self._objects.ledger_id
        following = MessagePosition(ledger_id + 1, 0)
        try:
            manifest = self._manifest()
        except UNREADABLE as error:
            self._leave_out(error)
            yield Step([], following)
            return
        first, last = self._condition.entries_in(ledger_id, manifest.last_entry_id)
        self._looked.ledgers += 1
        self._looked.parts += len(manifest.parts)
        for part in manifest.parts:
            if first <= part.last_entry_id and part.first_entry_id <= last:
                try:
                    yield from self._in_part(part)
                except UNREADABLE as error:
                    self._leave_out(error)
            yield Step([], MessagePosition(ledger_id, part.last_entry_id + 1))
        yield Step([], following)

    def _leave_out(self, error: MagnetarError) -> None:
        if self._on_unreadable is None:
            raise error
        self._on_unreadable(error)

    def _manifest(self) -> Manifest:
        path = f"{self._objects.path}/{MANIFEST_NAME}"
        data = self._looked.count(self._store.read(path))
        if hashlib.sha256(data).digest() != self._objects.manifest_sha256:
            raise DataCorruption(
                f"{path} at {self._objects.location} is not the manifest that was verified; read the ledger "
                "through its broker, or restore the object"
            )
        manifest = Manifest.from_json(data)
        if manifest.topic != self._topic or manifest.ledger_id != self._objects.ledger_id:
            raise DataCorruption(f"{path} at {self._objects.location} is of another ledger")
        return manifest

    def _in_part(self, part: Part) -> Iterator[Step]:
        path = f"{self._objects.path}/{part.name}"
        file = ObjectFile(self._read, path, part.byte_length)
        try:
            with file, PartReader(file, part=part) as reader:
                planned = planned_groups(reader.footer, self._condition)
                self._looked.row_groups += len(reader.footer.row_groups)
                read_before = self._looked.row_groups_read
                for each in planned:
                    if each.bloom_offset and not self._may_have_key(path, each):
                        continue
                    yield from self._in_group(reader, each)
                self._looked.parts_read += self._looked.row_groups_read > read_before
        except DataCorruption as error:
            raise DataCorruption(f"{path} at {self._objects.location}: {error}") from error

    def _in_group(self, reader: PartReader, planned: PlannedGroup) -> Iterator[Step]:
        group = planned.group
        self._looked.row_groups_read += 1
        self._looked.rows += group.rows
        search = GroupSearch(reader, group.number, self._condition, self._chunks, self._partition)
        ledger_id = self._objects.ledger_id
        for found in search.messages():
            if found:
                position = found[-1].position
                yield Step(found, position._replace(batch_index=position.batch_index + 1))
        self._looked.unsearchable += search.unsearchable
        yield Step([], MessagePosition(ledger_id, group.last_entry_id + 1))

    def _may_have_key(self, path: str, planned: PlannedGroup) -> bool:
        self._looked.bloom_filters += 1

        def read(offset: int, length: int) -> bytes:
            length = min(length, planned.bloom_bytes - offset)
            return self._read(path, planned.bloom_offset + offset, length) if length > 0 else b""

        return may_contain(read, self._hashes)

    def _read(self, path: str, offset: int, length: int) -> bytes:
        return self._looked.count(self._store.read(path, offset, length))
