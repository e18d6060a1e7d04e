"""The versions of one topic's schema as read at one moment, and the answers that were derived from them."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass, field
from typing import Final

from magnetar.common.metadata.store import Listing
from magnetar.common.metadata.values import SchemaRecord, decode
from magnetar.common.schemas.definition import SchemaDefinition
from magnetar.common.schemas.rules import Strategy, since_deletion
from magnetar.common.wire.pulsar_pb2 import Schema

DELETED: Final = Schema.Type.Value("None")
"""Type of a version that records a deletion of the earlier versions."""

ANSWERS_MAX: Final = 256
"""Maximum remembered answers of each kind for one history."""


@dataclass(slots=True, eq=False)
class SchemaHistory:
    """All versions of a topic's schema, oldest first. Immutable, except for remembered answers."""

    serial: int
    """Number of the listing that read it; see HistoryCache."""
    revision: int
    """Store revision of the listing."""
    records: list[SchemaRecord]
    latest_key: str
    """Metadata key of the latest version; empty without any."""
    latest_key_version: int
    """Metadata version of that key, for the guard of a write."""
    byte_size: int
    """Bytes of the stored values."""
    current: list[tuple[int, SchemaDefinition]]
    """The versions since the last deletion, oldest first."""
    _numbers: dict[bytes, int] = field(default_factory=dict)
    _readers: set[tuple[bytes, Strategy]] = field(default_factory=set)

    @property
    def current_records(self) -> list[SchemaRecord]:
        """The stored versions of `current`."""
        return self.records[len(self.records) - len(self.current) :]

    @property
    def next_version(self) -> int:
        """The number that the next version gets."""
        return self.records[-1].version + 1 if self.records else 0

    @property
    def is_deleted(self) -> bool:
        """Whether the latest version records a deletion."""
        return bool(self.records) and self.records[-1].type == DELETED

    @property
    def latest(self) -> SchemaRecord | None:
        """The latest version, unless it was deleted."""
        return None if self.is_deleted or not self.records else self.records[-1]

    def record(self, version: int) -> SchemaRecord | None:
        """Returns the version with this number, deleted or not; None for the record of a deletion."""
        index = bisect_left(self.records, version, key=_number)
        found = self.records[index] if index < len(self.records) else None
        return None if found is None or found.version != version or found.type == DELETED else found

    def number_of(self, identity: bytes) -> int | None:
        """Returns the remembered version of a schema by its identity; None when it is not remembered."""
        return self._numbers.get(identity)

    def remember_number(self, identity: bytes, version: int) -> None:
        """Remembers the version of a schema, which saves comparing it again."""
        if len(self._numbers) >= ANSWERS_MAX:
            self._numbers.clear()
        self._numbers[identity] = version

    def is_reader(self, identity: bytes, strategy: Strategy) -> bool:
        """Whether consumers with this schema are known to be taken."""
        return (identity, strategy) in self._readers

    def remember_reader(self, identity: bytes, strategy: Strategy) -> None:
        """Remembers that consumers with this schema are taken."""
        if len(self._readers) >= ANSWERS_MAX:
            self._readers.clear()
        self._readers.add((identity, strategy))


def history_of(listing: Listing, serial: int) -> SchemaHistory:
    """Decodes the versions under a topic's schema prefix. Raises DataCorruption, UnsupportedFormat."""
    records = [decode(SchemaRecord, item.value) for item in listing.items]
    last = listing.items[-1] if listing.items else None
    return SchemaHistory(
        serial=serial,
        revision=listing.revision,
        records=records,
        latest_key="" if last is None else last.key,
        latest_key_version=0 if last is None else last.version,
        byte_size=sum(len(item.value) for item in listing.items),
        current=list(since_deletion([(each.version, definition_of_record(each)) for each in records])),
    )


def _number(record: SchemaRecord) -> int:
    return record.version


def definition_of_record(record: SchemaRecord) -> SchemaDefinition:
    """Converts a stored version to what the compatibility rules compare."""
    return SchemaDefinition(record.type, record.data, dict(record.properties))


def definition_of(schema: Schema) -> SchemaDefinition:
    """Converts a client's schema to what the compatibility rules compare; its name is only a label."""
    return SchemaDefinition(
        schema.type, schema.schema_data, {each.key: each.value for each in schema.properties}
    )
