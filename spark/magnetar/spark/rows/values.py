"""The column `value`: payloads decoded as text, JSON or Avro, by a given schema or the topic's.

A payload that cannot be decoded gives null, or an error if the option `value.errors` is fail. The column
`payload` is not changed.
"""

from __future__ import annotations

import io
import json
import re
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import fastavro
import pyarrow as pa
from magnetar.common.errors import MagnetarError
from magnetar.spark.rows.avro_types import parse_avro, type_of_avro
from magnetar.spark.rows.schema_merge import type_of_versions, under_aliases
from magnetar.spark.rows.value_types import Fit, Unfit, fitting
from magnetar.spark.source_options import BadOption, SourceOptions
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import (
    BinaryType,
    BooleanType,
    ByteType,
    DataType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    ShortType,
    StringType,
    StructField,
    StructType,
)

_SHOWN_BYTES: Final = 60

_NUMBERS: Final[dict[str, tuple[str, DataType]]] = {
    "INT8": (">b", ByteType()),
    "INT16": (">h", ShortType()),
    "INT32": (">i", IntegerType()),
    "INT64": (">q", LongType()),
    "FLOAT": (">f", FloatType()),
    "DOUBLE": (">d", DoubleType()),
    "BOOLEAN": (">?", BooleanType()),
}
"""Schemas of Pulsar that are no Avro: how their values are packed."""

_TYPE_DDL: Final = re.compile(r"(?is)(struct|array|map)\s*<.*>|[a-z_]+\s*(\([\s0-9,]*\))?")


class ValueUnfit(MagnetarError):
    """A payload cannot be decoded, and `value.errors` is fail."""


@dataclass(frozen=True, slots=True)
class ValuePlan:
    """The way in which payloads are decoded."""

    kind: str
    """raw, string, json, avro, binary, or a key of _NUMBERS."""
    type: DataType | None = None
    """None where only Spark can parse the type."""
    ddl: str = ""
    avro: str = ""
    """The schema that payloads were written with, unless their schema version says another one."""
    strict: bool = False

    @property
    def has_column(self) -> bool:
        return self.kind != "raw"


NewestSchema = Callable[[], tuple[str, bytes]]
"""(type, definition) of the topic's newest schema; the type is empty when it has none."""


OlderSchemas = Callable[[str], Sequence[bytes]]
"""Definitions of the topic's older versions of a type, newest first."""


def plan_values(
    options: SourceOptions, newest: NewestSchema, older: OlderSchemas = lambda _: ()
) -> ValuePlan:
    """Plan decoding from the options; the topic is asked only where it matters. Raises BadOption.

    A type that comes from the topic is that of all its versions (schema_merge).
    """
    strict = options.value_errors == "fail"
    kind = options.value_format
    if kind == "raw":
        return ValuePlan("raw")
    if kind == "string":
        return ValuePlan("string", StringType(), strict=strict)
    given = options.value_schema
    schema_type, schema = ("", b"")
    if kind == "auto" or not given or (kind == "avro" and not _is_json(given)):
        schema_type, schema = newest()
    if kind == "auto":
        return _automatic(schema_type.upper(), schema, strict, older)
    if kind == "avro":
        written = given if _is_json(given) else schema.decode()
        if not written or (schema and schema_type.upper() not in ("AVRO", "")):
            raise BadOption(
                f"values cannot be read as Avro: the topic's schema is {schema_type or 'not there'}; "
                'give an Avro schema as "value.schema"'
            )
        if given and not _is_json(given):
            return ValuePlan("avro", None, _type_ddl(given), written, strict)
        kind_of_values = (
            type_of_avro(parse_avro(written))
            if given
            else type_of_versions([schema, *older(schema_type)], aliases=True)
        )
        return ValuePlan("avro", kind_of_values, "", written, strict)
    if given:
        if not _is_json(given):
            return ValuePlan("json", None, _type_ddl(given), strict=strict)
        return ValuePlan("json", _type_of_json(given), strict=strict)
    if schema_type.upper() not in ("JSON", "AVRO"):
        raise BadOption(
            f"the topic's schema is {schema_type or 'not there'}, so it does not say what its JSON holds; "
            "give value.schema, such as 'a INT, b STRING', or read value.format string"
        )
    merged = type_of_versions([schema, *older(schema_type)], aliases=False)
    return ValuePlan("json", merged, strict=strict)


def _automatic(schema_type: str, schema: bytes, strict: bool, older: OlderSchemas) -> ValuePlan:
    if schema_type in ("JSON", "AVRO"):
        kind = type_of_versions([schema, *older(schema_type)], aliases=schema_type == "AVRO")
        return ValuePlan(schema_type.lower(), kind, "", schema.decode(), strict)
    if schema_type == "STRING":
        return ValuePlan("string", StringType(), strict=strict)
    if schema_type in _NUMBERS:
        return ValuePlan(schema_type, _NUMBERS[schema_type][1], strict=strict)
    return ValuePlan("binary", BinaryType(), strict=strict)


def _is_json(text: str) -> bool:
    return text[:1] in ("{", "[", '"')


def _type_ddl(text: str) -> str:
    """The type of a column: a schema of fields is a struct."""
    return text if _TYPE_DDL.fullmatch(text.strip()) else f"STRUCT<{text}>"


def _type_of_json(text: str) -> DataType:
    """Return the Spark type of an Avro schema, or of a Spark schema as JSON."""
    parsed = parse_avro(text)
    if isinstance(parsed, dict) and parsed.get("type") == "struct":
        try:
            return StructType.fromJson(parsed)
        except (KeyError, TypeError, ValueError) as error:
            raise BadOption(f'"value.schema" is not a Spark schema: {error!r}') from None
    return type_of_avro(parsed)


SchemaOf = Callable[[bytes], str | None]
"""The Avro schema of a schema version; None: it is not known."""


class ValueDecoder:
    """Decodes the payloads of one topic in one task."""

    def __init__(self, plan: ValuePlan, kind: DataType, schema_of: SchemaOf) -> None:
        """`kind` is the type of the frame's column. Raises BadOption when no value can be of it."""
        self._plan = plan
        self._kind = kind
        schema = to_arrow_schema(StructType([StructField("value", kind)]), timezone="UTC")
        self.arrow_type: Any = schema.field("value").type
        try:
            self._fit: Fit = fitting(kind, strict=plan.strict)
        except ValueError as error:
            raise BadOption(f"the column value: {error}") from None
        self._schema_of = schema_of
        self._parsed: dict[bytes | None, Any] = {}

    def decode(self, table: Any) -> Any:
        """The column, for rows with payload, schema_version and null_value. Raises ValueUnfit."""
        decode = self._decoder()
        values = [
            None if payload is None or null else self._one(decode, payload, version)
            for payload, version, null in zip(
                table["payload"].to_pylist(),
                table["schema_version"].to_pylist(),
                table["null_value"].to_pylist(),
                strict=True,
            )
        ]
        return pa.array(values, type=self.arrow_type)

    def _one(
        self, decode: Callable[[bytes, bytes | None], Any], payload: bytes, version: bytes | None
    ) -> Any:
        try:
            return self._fit(decode(payload, version))
        except Exception as error:  # fastavro has no error of its own for bad bytes
            if self._plan.strict:
                shown = repr(payload[:_SHOWN_BYTES])
                what = error if isinstance(error, Unfit) else f"{type(error).__name__}: {error}"
                raise ValueUnfit(
                    f"the payload {shown} cannot be decoded as {self._plan.kind}: {what}"
                ) from error
            return None

    def _decoder(self) -> Callable[[bytes, bytes | None], Any]:
        kind = self._plan.kind
        if kind == "string":
            return lambda payload, _: payload.decode()
        if kind == "json":
            return lambda payload, _: json.loads(payload)
        if kind == "avro":
            return self._avro
        if kind in _NUMBERS:
            unpack = struct.Struct(_NUMBERS[kind][0]).unpack
            return lambda payload, _: unpack(payload)[0]
        return lambda payload, _: payload

    def _avro(self, payload: bytes, version: bytes | None) -> Any:
        if version not in self._parsed:
            written = self._schema_of(version) if version is not None else None
            newest = self._plan.avro.encode()
            definition = under_aliases(written.encode(), newest) if written else json.loads(newest)
            self._parsed[version] = fastavro.parse_schema(definition)
        source = io.BytesIO(payload)
        value = fastavro.schemaless_reader(source, self._parsed[version], None)
        if source.tell() != len(payload):
            raise Unfit(f"{len(payload) - source.tell()} bytes are left")
        return value


def type_in(schema: StructType) -> DataType | None:
    """The type of the column value in a frame's schema; None without it."""
    fields: Mapping[str, StructField] = {field.name: field for field in schema.fields}
    return fields["value"].dataType if "value" in fields else None
