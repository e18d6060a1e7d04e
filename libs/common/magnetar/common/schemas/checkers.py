"""The rules of each schema type: valid definitions, equal definitions, definitions that read each other."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from magnetar.common.errors import InvalidSchema
from magnetar.common.schemas import key_value
from magnetar.common.schemas.avro_parser import parse_json
from magnetar.common.schemas.avro_resolution import Misfit, PairBudget, misfit_of
from magnetar.common.schemas.avro_types import Union
from magnetar.common.schemas.definition import AVRO_TYPES, SchemaDefinition, SchemaType, shown, type_name
from magnetar.common.schemas.field_path import rendered
from magnetar.common.schemas.parsed_definitions import ParsedDefinition, parsed_definition
from magnetar.common.schemas.protobuf_native import root_message

_JSON_SCHEMA_TYPES: Final = frozenset(
    {"any", "array", "boolean", "integer", "null", "number", "object", "string"}
)
"""Types of JSON-Schema, by which clients before Pulsar 2.1 described JSON."""

_NULL_TEXT: Final = b"null"
"""Data of STRING schemas from Python; the same as none."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """A check of one schema against versions of a topic."""

    budget: PairBudget
    transitive: bool
    """Whether all versions are compared. Pulsar then reads every JSON definition as Avro."""


def check_valid(definition: SchemaDefinition) -> None:
    """Raises InvalidSchema when the data is not a definition of the type, or the type cannot be stored."""
    match definition.type:
        case SchemaType.NONE:
            raise InvalidSchema("type NONE is plain bytes, not a schema; leave the schema out")
        case SchemaType.AUTO_CONSUME:
            raise InvalidSchema("type AUTO_CONSUME is for consumers only; it describes no data")
    _check_valid_part(definition)


def identity_of(definition: SchemaDefinition) -> bytes:
    """Returns a digest that two definitions share if and only if a topic takes them for one schema.

    Equal as parsed Avro for AVRO, JSON and PROTOBUF; equal data for other types. Properties count only where
    readers decode by them, those of KEY_VALUE. An invalid definition is equal to the same data.
    """
    data: object = definition.data
    if definition.type in AVRO_TYPES:
        try:
            data = ("parsed", parsed_definition(definition.data).digest)
        except InvalidSchema:
            pass
    elif definition.type == SchemaType.STRING and definition.data == _NULL_TEXT:
        data = b""
    elif definition.type == SchemaType.KEY_VALUE:
        data = (definition.data, key_value.identity_properties(definition.properties))
    return hashlib.sha256(repr((int(definition.type), data)).encode()).digest()


def misfit(reader: SchemaDefinition, writer: SchemaDefinition, comparison: Comparison) -> Misfit | None:
    """Returns the first place at which `reader` cannot read what `writer` wrote; None when it reads all.

    Raises InvalidSchema for a definition that does not parse, IncompatibleSchema for too large a check.
    """
    if reader.type != writer.type:
        return Misfit(
            rendered(None),
            f"data of type {type_name(writer.type)} cannot be read as {type_name(reader.type)}",
        )
    checker = _CHECKERS.get(reader.type)
    return None if checker is None else checker(reader, writer, comparison)


def _check_valid_part(definition: SchemaDefinition) -> None:
    data = definition.data
    match definition.type:
        case SchemaType.AVRO:
            root = _checked_avro(data)
            if isinstance(root.root, Union):
                raise InvalidSchema("a union at the root of an AVRO definition; make it a field of a record")
        case SchemaType.PROTOBUF:
            _checked_avro(data)
        case SchemaType.JSON:
            if _json_schema(data) is None:
                _checked_avro(data)
        case SchemaType.PROTOBUF_NATIVE:
            root_message(data)
        case SchemaType.KEY_VALUE:
            key_value.check_properties(definition.properties)
            for side, part in zip(("key", "value"), key_value.key_and_value(definition), strict=True):
                try:
                    _check_valid_part(part)
                except InvalidSchema as error:
                    raise InvalidSchema(f"the {side}: {error}") from None
        case SchemaType.STRING:
            if data not in (b"", _NULL_TEXT):
                raise InvalidSchema(
                    f"a STRING schema has no definition, not {shown(data)}; leave the data empty"
                )
        case known if known in _WITHOUT_DEFINITION:
            if data:
                name = type_name(known)
                raise InvalidSchema(
                    f"a schema of type {name} has no definition, not {shown(data)}; leave the data empty"
                )
        case unknown:
            raise InvalidSchema(f"schema type {unknown} is unknown; use a type of the wire protocol, 1 to 20")


_WITHOUT_DEFINITION: Final = (
    frozenset(SchemaType)
    - AVRO_TYPES
    - {
        SchemaType.STRING,
        SchemaType.KEY_VALUE,
        SchemaType.PROTOBUF_NATIVE,
        SchemaType.AUTO_CONSUME,
    }
)


def _checked_avro(data: bytes) -> ParsedDefinition:
    """Parses an Avro definition, with defaults that can be encoded. Raises InvalidSchema."""
    parsed = parsed_definition(data)
    if parsed.default_problem:
        raise InvalidSchema(parsed.default_problem)
    return parsed


def _json_schema(data: bytes) -> dict[str, Any] | None:
    """Returns a definition in JSON-Schema; None for all else, a definition that is valid Avro among it."""
    try:
        parsed_definition(data)
    except InvalidSchema:
        pass
    else:
        return None
    try:
        found = parse_json(data)
    except InvalidSchema:
        return None
    if not isinstance(found, dict) or not isinstance(found.get("properties", {}), dict):
        return None
    kind = found.get("type")
    return found if isinstance(kind, str) and kind in _JSON_SCHEMA_TYPES else None


def _avro_misfit(reader: SchemaDefinition, writer: SchemaDefinition, comparison: Comparison) -> Misfit | None:
    read, written = parsed_definition(reader.data), parsed_definition(writer.data)
    return None if read.digest == written.digest else misfit_of(read, written, comparison.budget)


def _json_misfit(reader: SchemaDefinition, writer: SchemaDefinition, comparison: Comparison) -> Misfit | None:
    """Compares as AVRO; a JSON-Schema text fits every Avro definition, and another text of the same id."""
    read, written = _json_schema(reader.data), _json_schema(writer.data)
    if read is None and written is None:
        return _avro_misfit(reader, writer, comparison)
    if comparison.transitive:
        return Misfit(rendered(None), "a JSON-Schema text is not compared by transitive strategies")
    if read is None or written is None:
        parsed_definition((reader if read is None else writer).data)
        return None
    one, other = read.get("id"), written.get("id")
    if one == other:
        return None
    return Misfit("id", f"{shown(other)} in the writer is {shown(one)} in the reader; keep the id")


def _native_misfit(
    reader: SchemaDefinition, writer: SchemaDefinition, comparison: Comparison
) -> Misfit | None:
    comparison.budget.spend()
    read, written = root_message(reader.data), root_message(writer.data)
    if read == written:
        return None
    return Misfit(
        "rootMessageTypeName", f"message {shown(written)} cannot be read as {shown(read)}; keep its full name"
    )


def _key_value_misfit(
    reader: SchemaDefinition, writer: SchemaDefinition, comparison: Comparison
) -> Misfit | None:
    pairs = zip(key_value.key_and_value(reader), key_value.key_and_value(writer), strict=True)
    for side, (read, written) in zip(("key", "value"), pairs, strict=True):
        found = misfit(read, written, comparison)
        if found is not None:
            return Misfit(side if found.path == rendered(None) else f"{side} {found.path}", found.why)
    return None


_Checker = Callable[[SchemaDefinition, SchemaDefinition, Comparison], Misfit | None]

_CHECKERS: Final[dict[int, _Checker]] = {
    SchemaType.AVRO: _avro_misfit,
    SchemaType.JSON: _json_misfit,
    SchemaType.PROTOBUF_NATIVE: _native_misfit,
    SchemaType.KEY_VALUE: _key_value_misfit,
}
"""Types whose definitions are compared, as Pulsar's brokers do by default. Definitions of another type always
fit: PROTOBUF has no checker, and primitives have no definition."""
