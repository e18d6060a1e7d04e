"""Columns of topics in Spark: the topic, the columns of offloaded messages, the decoded value."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from magnetar.ledger.cold.layout import COLUMNS, Column, ColumnType
from magnetar.spark.source_options import BadOption
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

TOPIC: Final = "topic"
VALUE: Final = "value"
ENCRYPTION_KEYS: Final = "encryption_keys"
"""Names of the keys with which a message was encrypted; only in frames that name the column."""

INTERNAL: Final = frozenset({"entry_metadata", "message_metadata"})
"""Columns that only brokers need."""

TYPES: Final[dict[ColumnType, DataType]] = {
    ColumnType.INT64: LongType(),
    ColumnType.INT32: IntegerType(),
    ColumnType.TIMESTAMP: TimestampType(),
    ColumnType.STRING: StringType(),
    ColumnType.BINARY: BinaryType(),
    ColumnType.BOOL: BooleanType(),
    ColumnType.MAP: MapType(StringType(), StringType()),
}

MESSAGE_COLUMNS: Final[tuple[Column, ...]] = (
    Column(TOPIC, ColumnType.STRING, False, "Full name of the topic, of the partition where it has some."),
    *(column for column in COLUMNS if column.name not in INTERNAL),
)

FIELDS: Final = tuple(StructField(each.name, TYPES[each.type], each.nullable) for each in MESSAGE_COLUMNS)
_KEYS_FIELD: Final = StructField(ENCRYPTION_KEYS, ArrayType(StringType()))
_BY_NAME: Final = {field.name: field for field in (*FIELDS, _KEYS_FIELD)}

POSITION_COLUMNS: Final = ("ledger_id", "entry_id", "batch_index")
CHUNK_COLUMNS: Final = ("chunk_uuid", "chunk_id", "chunk_total", "producer_name")


def chosen(names: Sequence[str], *, value: bool) -> list[str]:
    """The columns of a frame, in order; none are named: all but encryption_keys. Raises BadOption."""
    if not names:
        return [*(field.name for field in FIELDS), *([VALUE] if value else [])]
    for name in names:
        if name == VALUE and not value:
            raise BadOption('the column value needs the option "value.format": string, json, avro or auto')
        if name != VALUE and name not in _BY_NAME:
            raise BadOption(f"unknown column {name!r}; columns are {', '.join([*_BY_NAME, VALUE])}")
    return list(dict.fromkeys(names))


def frame_schema(names: Sequence[str], value_type: DataType | None) -> StructType:
    """The schema of a frame with these columns."""
    fields = [
        StructField(VALUE, value_type) if name == VALUE and value_type else _BY_NAME[name] for name in names
    ]
    return StructType(fields)


def frame_ddl(names: Sequence[str], value_ddl: str) -> str:
    """Return the columns as DDL text, for a value type that only Spark can parse."""
    parts = []
    for name in names:
        if name == VALUE:
            parts.append(f"`{VALUE}` {value_ddl}")
        else:
            field = _BY_NAME[name]
            parts.append(f"`{name}` {field.dataType.simpleString()}{'' if field.nullable else ' NOT NULL'}")
    return ", ".join(parts)


def check_schema(schema: StructType) -> None:
    """Refuse a schema of the user's that the source cannot fill. Raises BadOption."""
    for field in schema.fields:
        known = _BY_NAME.get(field.name)
        if field.name == VALUE:
            continue
        if known is None:
            raise BadOption(f"unknown column {field.name!r}; columns are {', '.join([*_BY_NAME, VALUE])}")
        if known.dataType != field.dataType:
            raise BadOption(
                f"column {field.name} is of type {known.dataType.simpleString()}, "
                f"not {field.dataType.simpleString()}"
            )


def stored_columns(names: Sequence[str], *, joins: bool, times: bool) -> list[str]:
    """Columns to read from Parquet or to decode from entries for these columns of a frame.

    `joins`: chunks are put together; `times`: rows are chosen by when brokers took them.
    """
    wanted = {name for name in names if name not in (TOPIC, VALUE, ENCRYPTION_KEYS)}
    wanted.update(POSITION_COLUMNS)
    wanted.add("raw_reason")  # What is no message at all is told by it.
    if VALUE in names:
        wanted.update(("payload", "schema_version", "null_value"))
    if joins:
        wanted.update(CHUNK_COLUMNS)
        if "payload" in wanted or "raw_reason" in names:
            wanted.update(("payload", "entry_metadata"))
    if times:
        wanted.add("broker_publish_time")
    return [column.name for column in COLUMNS if column.name in wanted]
