"""Avro schemas, which Pulsar also uses to describe JSON, as Spark types."""

from __future__ import annotations

import json
from typing import Any, Final

from magnetar.spark.source_options import BadOption
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    NullType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

_PRIMITIVES: Final[dict[str, DataType]] = {
    "null": NullType(),
    "boolean": BooleanType(),
    "int": IntegerType(),
    "long": LongType(),
    "float": FloatType(),
    "double": DoubleType(),
    "bytes": BinaryType(),
    "string": StringType(),
}
_LOGICAL: Final[dict[tuple[str, str], DataType]] = {
    ("int", "date"): DateType(),
    ("int", "time-millis"): LongType(),
    ("long", "time-micros"): LongType(),
    ("long", "timestamp-millis"): TimestampType(),
    ("long", "timestamp-micros"): TimestampType(),
    ("long", "local-timestamp-millis"): TimestampNTZType(),
    ("long", "local-timestamp-micros"): TimestampNTZType(),
    ("string", "uuid"): StringType(),
}
DECIMAL_DIGITS_MAX: Final = 38
DEPTH_MAX: Final = 50


def parse_avro(text: str | bytes) -> Any:
    """The schema as JSON says it. Raises BadOption."""
    try:
        return json.loads(text)
    except ValueError as error:
        raise BadOption(f"the Avro schema of the values is no JSON: {error}") from None


def type_of_avro(schema: Any) -> DataType:
    """The type of what a schema describes. Raises BadOption for what Spark has no type for."""
    try:
        return _Types().of(schema, 0)[0]
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise BadOption(f"the schema of the values is no Avro schema: {error!r}") from None


class _Types:
    """Names that were defined are known from there on."""

    def __init__(self) -> None:
        self._named: dict[str, tuple[DataType, bool] | None] = {}

    def of(self, schema: Any, depth: int) -> tuple[DataType, bool]:
        """(type, whether it may be null)."""
        if depth > DEPTH_MAX:
            raise BadOption(f"the schema of the values is deeper than {DEPTH_MAX} levels; set value.schema")
        if isinstance(schema, list):
            return self._union(schema, depth)
        if isinstance(schema, str):
            if schema in _PRIMITIVES:
                return _PRIMITIVES[schema], schema == "null"
            if schema not in self._named:  # Inside a namespace names may be short, or whole.
                schema = schema.rpartition(".")[2]
            if schema not in self._named:
                raise BadOption(f"the Avro schema uses {schema!r} and does not define it")
            known = self._named[schema]
            if known is None:
                raise BadOption(
                    f"the Avro schema contains {schema} in itself, Spark has no such type; set value.schema"
                )
            return known
        return self._complex(schema, depth)

    def _complex(self, schema: dict[str, Any], depth: int) -> tuple[DataType, bool]:
        kind = schema["type"]
        if isinstance(kind, dict | list):
            return self.of(kind, depth + 1)
        logical = schema.get("logicalType")
        if logical == "decimal" and kind in ("bytes", "fixed"):
            precision = int(schema["precision"])
            if precision <= DECIMAL_DIGITS_MAX:
                return self._name(schema, DecimalType(precision, int(schema.get("scale", 0))))
        if logical is not None and (kind, logical) in _LOGICAL:
            return _LOGICAL[kind, logical], False
        if kind == "array":
            element, null = self.of(schema["items"], depth + 1)
            return ArrayType(element, null), False
        if kind == "map":
            value, null = self.of(schema["values"], depth + 1)
            return MapType(StringType(), value, null), False
        if kind == "enum":
            return self._name(schema, StringType())
        if kind == "fixed":
            return self._name(schema, BinaryType())
        if kind in ("record", "error"):
            return self._record(schema, depth)
        return self.of(kind, depth + 1)

    def _record(self, schema: dict[str, Any], depth: int) -> tuple[DataType, bool]:
        for name in _names(schema):
            self._named[name] = None
        fields = []
        for each in schema["fields"]:
            kind, _ = self.of(each["type"], depth + 1)
            # What cannot be decoded is null, so any field may be.
            fields.append(StructField(each["name"], kind))
        return self._name(schema, StructType(fields))

    def _name(self, schema: dict[str, Any], kind: DataType) -> tuple[DataType, bool]:
        if "name" in schema:  # Of a decimal's bytes there is none.
            for name in _names(schema):
                self._named[name] = kind, False
        return kind, False

    def _union(self, branches: list[Any], depth: int) -> tuple[DataType, bool]:
        others = [branch for branch in branches if branch != "null"]
        if len(others) == 1:
            return self.of(others[0], depth + 1)[0], len(others) < len(branches)
        kinds = [self.of(branch, depth + 1)[0] for branch in others]
        for kind in (LongType(), DoubleType()):
            narrow = IntegerType() if isinstance(kind, LongType) else FloatType()
            if kinds and all(each in (kind, narrow) for each in kinds):
                return kind, len(others) < len(branches)
        raise BadOption(f"Spark has no type for the Avro union {json.dumps(branches)}; set value.schema")


def _names(schema: dict[str, Any]) -> set[str]:
    name = schema["name"]
    namespace = schema.get("namespace")
    return {name, f"{namespace}.{name}" if namespace else name, name.rpartition(".")[2]}
