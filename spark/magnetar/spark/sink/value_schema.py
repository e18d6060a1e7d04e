"""Values written with a schema: a column of any type as Avro or JSON, described by an Avro definition.

The definition is that of the option `value.schema`, or made of the column's type. Producers open with it, so
that the broker checks it against the topic's schemas before anything is published.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import fastavro
from magnetar.common.errors import InvalidSchema
from magnetar.common.schemas.definition import SchemaDefinition, SchemaType
from magnetar.common.schemas.rules import validate
from magnetar.common.wire.pulsar_pb2 import Schema
from magnetar.spark.sink.errors import BadColumns, BadOption, BadRow
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    ByteType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    ShortType,
    StringType,
    StructType,
    TimestampNTZType,
    TimestampType,
)

ROOT_NAME: Final = "Value"
"""Name of the record that a definition made of a column's type describes."""

_SHOWN_CHARS: Final = 100

_WIRE_TYPES: Final = {"avro": Schema.Avro, "json": Schema.Json}

_PRIMITIVES: Final[dict[type[DataType], Any]] = {
    BooleanType: "boolean",
    ByteType: "int",
    ShortType: "int",
    IntegerType: "int",
    LongType: "long",
    FloatType: "float",
    DoubleType: "double",
    StringType: "string",
    BinaryType: "bytes",
}
_AVRO_ONLY: Final[dict[type[DataType], Any]] = {
    DateType: {"type": "int", "logicalType": "date"},
    TimestampType: {"type": "long", "logicalType": "timestamp-micros"},
    TimestampNTZType: {"type": "long", "logicalType": "local-timestamp-micros"},
}
"""Types whose values JSON has no form for that all clients share."""


@dataclass(frozen=True, slots=True)
class ValueSchema:
    """The schema of a write; pickles."""

    format: str
    """avro or json."""
    definition: str
    """Avro, as JSON text."""
    kind: DataType
    """Type of the column."""

    def wire(self) -> Schema:
        """Returns the schema as producers send it."""
        return Schema(name="", type=_WIRE_TYPES[self.format], schema_data=self.definition.encode())


def value_schema(value_format: str, definition: str, kind: DataType) -> ValueSchema:
    """Returns the schema for a column, made of its type without `definition`.

    Raises BadOption for an invalid definition, BadColumns for a type that cannot be written.
    """
    of_type = json.dumps(avro_of(kind, with_logical=value_format == "avro"))
    wire_type = SchemaType.AVRO if value_format == "avro" else SchemaType.JSON
    try:
        validate(SchemaDefinition(wire_type, (definition or of_type).encode()))
    except InvalidSchema as error:
        if definition:
            raise BadOption(f"value.schema is not a valid definition: {error}") from None
        raise BadColumns(f"value cannot be described by Avro: {error}; rename the field") from None
    return ValueSchema(value_format, definition or of_type, kind)


def avro_of(kind: DataType, *, with_logical: bool = True, name: str = ROOT_NAME) -> Any:
    """Returns the Avro definition of a type: optional where the type has nulls. Raises BadColumns.

    Records are named by their path, so that no two have one name. Field names must be names in Avro.
    """
    if isinstance(kind, StructType):
        fields = []
        for each in kind.fields:
            inner = avro_of(each.dataType, with_logical=with_logical, name=f"{name}_{each.name}")
            made: Any = {"name": each.name, "type": ["null", inner] if each.nullable else inner}
            if each.nullable:
                made["default"] = None
            fields.append(made)
        return {"type": "record", "name": name, "fields": fields}
    if isinstance(kind, ArrayType):
        items = avro_of(kind.elementType, with_logical=with_logical, name=f"{name}_item")
        return {"type": "array", "items": ["null", items] if kind.containsNull else items}
    if isinstance(kind, MapType) and isinstance(kind.keyType, StringType):
        values = avro_of(kind.valueType, with_logical=with_logical, name=f"{name}_value")
        return {"type": "map", "values": ["null", values] if kind.valueContainsNull else values}
    if isinstance(kind, DecimalType) and with_logical:
        return {
            "type": "bytes",
            "logicalType": "decimal",
            "precision": kind.precision,
            "scale": kind.scale,
        }
    known = _PRIMITIVES | _AVRO_ONLY if with_logical else _PRIMITIVES
    for each_type, definition in known.items():
        if isinstance(kind, each_type) and not (isinstance(kind, BinaryType) and not with_logical):
            return definition
    raise BadColumns(
        f"value has a part of type {kind.simpleString()}, which cannot be written as "
        f"{'Avro' if with_logical else 'JSON; cast it to a string or a number, or use value.format avro'}"
    )


def value_encoder(schema: ValueSchema) -> Callable[[Any], bytes]:
    """Returns the encoder of a column's values, as pyarrow gives them. It raises BadRow."""
    plain = _plain(schema.kind)
    parsed = fastavro.parse_schema(json.loads(schema.definition))

    def encode(value: Any) -> bytes:
        try:
            row = plain(value)
            # For JSON, too: what Avro cannot encode does not fit the definition.
            sink = io.BytesIO()
            fastavro.schemaless_writer(sink, parsed, row, strict_allow_default=True)
            if schema.format == "json":
                return json.dumps(row, ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode()
            return sink.getvalue()
        except Exception as error:  # fastavro has no error of its own for values that do not fit
            shown = repr(value)[:_SHOWN_CHARS]
            raise BadRow(
                f"the value {shown} does not fit the schema: {type(error).__name__}: {error}; change "
                "the row, or value.schema"
            ) from error

    return encode


def _plain(kind: DataType) -> Callable[[Any], Any]:
    """Returns what makes values of pyarrow plain ones: maps are lists of pairs there, in no certain order."""
    if isinstance(kind, StructType):
        members = [(field.name, _plain(field.dataType)) for field in kind.fields]
        return lambda value: None if value is None else {name: plain(value[name]) for name, plain in members}
    if isinstance(kind, ArrayType):
        item = _plain(kind.elementType)
        return lambda value: None if value is None else [item(each) for each in value]
    if isinstance(kind, MapType):
        member = _plain(kind.valueType)
        return lambda value: None if value is None else {key: member(each) for key, each in sorted(value)}
    return lambda value: value
