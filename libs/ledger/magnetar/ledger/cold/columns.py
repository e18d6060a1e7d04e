"""The columns of offloaded messages: names, types and meanings, for Spark, DuckDB and pandas.

Columns are final: none is removed, renamed or retyped, and new ones come at the end. Pulsar's unsigned 64-bit
numbers (sequence ids, transaction ids) have the same bits as int64. Times are microseconds since 1970 UTC; a
client's time outside the calendar (before 1970, after 9999) is null here and kept in the metadata.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final, NamedTuple


class ColumnType(StrEnum):
    """The type of a column in `Rows`, in Parquet and in SQL."""

    INT64 = "int64"
    INT32 = "int32"
    TIMESTAMP = "timestamp(us, UTC)"
    """An int in `Rows`: microseconds since 1970 UTC."""
    STRING = "string"
    BINARY = "binary"
    BOOL = "bool"
    MAP = "map<string, string>"
    """A sequence of (name, value) pairs in `Rows`, each name once."""


class Column(NamedTuple):
    """One column of every part."""

    name: str
    type: ColumnType
    nullable: bool
    doc: str


def _column(name: str, kind: ColumnType, doc: str) -> Column:
    return Column(name, kind, nullable=False, doc=doc)


def _nullable(name: str, kind: ColumnType, doc: str) -> Column:
    return Column(name, kind, nullable=True, doc=doc)


_T = ColumnType

COLUMNS: Final[tuple[Column, ...]] = (
    _column("ledger_id", _T.INT64, "The ledger: first part of the message id."),
    _column("entry_id", _T.INT64, "The entry in the ledger: second part of the message id."),
    _column("batch_index", _T.INT32, "Which message of a batch, from 0; -1: no batch."),
    _column("partition", _T.INT32, "Number of the partition; -1: the topic is none."),
    _nullable("publish_time", _T.TIMESTAMP, "When the producer says it was sent."),
    _nullable("event_time", _T.TIMESTAMP, "The application's time; null: none."),
    _column("broker_publish_time", _T.TIMESTAMP, "When the broker took the entry."),
    _column("message_index", _T.INT64, "Topic-wide number of the message (of a raw entry: its first)."),
    _nullable("key", _T.STRING, "The key; bytes as the base64 that went over the wire."),
    _nullable("key_bytes", _T.BINARY, "The key of a producer whose keys are bytes."),
    _nullable("ordering_key", _T.BINARY, "What Key_Shared goes by instead of the key."),
    _nullable("properties", _T.MAP, "Properties; of a name given twice the last value."),
    _nullable("producer_name", _T.STRING, "Who published it."),
    _nullable("sequence_id", _T.INT64, "Its number by its producer."),
    _nullable("schema_version", _T.BINARY, "Version of the schema it was written with; null: none."),
    _nullable("deliver_at", _T.TIMESTAMP, "Not to be delivered before; null: at once."),
    _nullable("replicated_from", _T.STRING, "The cluster it was first published in; null: here."),
    _nullable("chunk_uuid", _T.STRING, "Common to the chunks of one large message; null: no chunk."),
    _nullable("chunk_id", _T.INT32, "Number of the chunk, from 0."),
    _nullable("chunk_total", _T.INT32, "How many chunks its message has."),
    _nullable("txn_most", _T.INT64, "Upper 64 bits of the transaction's id; null: none."),
    _nullable("txn_least", _T.INT64, "Lower 64 bits of the transaction's id."),
    _column("null_value", _T.BOOL, "The message has no value (it deletes its key); its payload is empty."),
    _nullable(
        "payload",
        _T.BINARY,
        "What the application sent, uncompressed; of a chunk, its piece as it was sent; null in raw rows.",
    ),
    _nullable("raw_entry", _T.BINARY, "The whole entry as it was stored; on its first row, where needed."),
    _nullable("raw_reason", _T.STRING, "Why the entry is one raw row; null: it is a message."),
    _nullable("entry_metadata", _T.BINARY, "On an entry's first row: its envelope, see entry_envelope."),
    _nullable("message_metadata", _T.BINARY, "SingleMessageMetadata of a message of a batch."),
)

COLUMN_NAMES: Final = tuple(column.name for column in COLUMNS)

REBUILD_COLUMNS: Final = (
    "ledger_id",
    "entry_id",
    "broker_publish_time",
    "message_index",
    "txn_most",
    "txn_least",
    "payload",
    "raw_entry",
    "entry_metadata",
    "message_metadata",
)
"""The columns that `runs_of` needs to serve a ledger's entries to clients."""
