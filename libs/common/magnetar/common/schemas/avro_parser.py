"""Avro definitions parsed: JSON text to types, with what Apache Avro 1.11.4 refuses refused.

Pulsar parses with that version, so a definition that its clients can use is accepted here too: a namespace
may be any text, a named type may be referred to as `{"type": "Name"}`, and a default of a wrong type parses.
Defaults that cannot be encoded are recorded in their field (`Field.default_problem`).

Differences: definitions nest at most 64 deep, and comments in the JSON are refused.
"""

from __future__ import annotations

import json
from typing import Any, Final, NoReturn

from magnetar.common.errors import InvalidSchema
from magnetar.common.schemas.avro_defaults import number_of_text, problem
from magnetar.common.schemas.avro_types import (
    PRIMITIVES,
    Array,
    AvroType,
    Enumeration,
    Field,
    Fixed,
    Map,
    Named,
    Primitive,
    Record,
    Union,
    label,
)
from magnetar.common.schemas.definition import DEFINITION_BYTES_MAX, shown
from magnetar.common.schemas.field_path import ITEMS, VALUES, FieldPath, rendered

DEPTH_MAX: Final = 64
"""Nested types of one definition."""

_FIXED_BYTES_MAX: Final = 2**31 - 1
_NAMED_KINDS: Final = ("record", "error", "enum", "fixed")
_ORDERS: Final = ("ASCENDING", "DESCENDING", "IGNORE")

_TYPE_KEYS: Final = frozenset(
    {"doc", "fields", "items", "name", "namespace", "size", "symbols", "values", "type", "aliases"}
)
_ENUM_KEYS: Final = _TYPE_KEYS | {"default"}
_FIELD_KEYS: Final = frozenset({"default", "doc", "name", "order", "type", "aliases"})
"""Keys that Avro defines; all others are properties."""


def parse_avro(text: bytes) -> AvroType:
    """Parses a definition. Raises InvalidSchema, which names the path and the value, and nothing else."""
    definition = parse_json(text)
    parser = _Parser()
    root = parser.parsed(definition, "", None, 0)
    parser.check_defaults()
    return root


def parse_json(text: bytes) -> Any:
    """Parses a JSON text in UTF-8, strictly. Raises InvalidSchema."""
    if len(text) > DEFINITION_BYTES_MAX:
        raise InvalidSchema(f"the definition has {len(text):,} bytes, at most {DEFINITION_BYTES_MAX:,} fit")
    if not text.strip():
        raise InvalidSchema("the definition is empty")
    try:
        return json.loads(text.decode(), parse_constant=_refuse_constant)
    except RecursionError:
        raise InvalidSchema("the definition is nested too deep") from None
    except ValueError as error:
        raise InvalidSchema(f"the definition is not JSON: {error}") from None


def _refuse_constant(text: str) -> NoReturn:
    raise ValueError(f"{text} is not JSON")


class _Parser:
    """The names of one definition; a name is known from its definition on."""

    def __init__(self) -> None:
        self._named: dict[str, Named] = {}
        self._defaults: list[tuple[Field, Any]] = []

    def parsed(self, value: Any, space: str, path: FieldPath, depth: int) -> AvroType:
        """Parses a type in the namespace `space`."""
        if depth > DEPTH_MAX:
            raise _invalid(path, f"types are nested more than {DEPTH_MAX} deep")
        if isinstance(value, str):
            return self._reference(value, space, path)
        if isinstance(value, list):
            return self._union(value, space, path, depth)
        if not isinstance(value, dict):
            raise _invalid(path, f"{shown(value)} is not a type")
        kind = value.get("type")
        if not isinstance(kind, str):
            raise _invalid(path, "a type without the key type, or with one that is not text")
        if kind in PRIMITIVES:
            return Primitive(kind, _properties(value, _TYPE_KEYS, path))
        if kind in _NAMED_KINDS:
            return self._named_type(kind, value, space, path, depth)
        if kind == "array":
            items = self.parsed(_required(value, "items", path), space, (path, ITEMS), depth + 1)
            return Array(items, _properties(value, _TYPE_KEYS, path))
        if kind == "map":
            values = self.parsed(_required(value, "values", path), space, (path, VALUES), depth + 1)
            return Map(values, _properties(value, _TYPE_KEYS, path))
        named = self._named.get(_full_name(kind, space, path))
        if named is None:
            raise _invalid(path, f"type {shown(kind)} is not defined")
        return named

    def check_defaults(self) -> None:
        """Records in their field which defaults cannot be encoded, once all records are complete."""
        for field, default in self._defaults:
            field.default_problem = problem(default, field.type)

    def _reference(self, name: str, space: str, path: FieldPath) -> AvroType:
        """Returns a primitive or a type defined before, looked for in the namespace and then without one."""
        if name in PRIMITIVES:
            return Primitive(name)
        full = _full_name(name, space, path)
        named = self._named.get(full) or self._named.get(full.rpartition(".")[2])
        if named is None:
            raise _invalid(path, f"type {shown(name)} is not defined; define it before its first use")
        return named

    def _union(self, values: list[Any], space: str, path: FieldPath, depth: int) -> Union:
        branches: dict[str, AvroType] = {}
        for value in values:
            branch = self.parsed(value, space, path, depth + 1)
            if isinstance(branch, Union):
                raise _invalid(path, "a union directly inside a union")
            name = label(branch)
            if name in branches:
                raise _invalid(path, f"a union with the branch {shown(name)} twice")
            branches[name] = branch
        return Union(tuple(branches.values()))

    def _named_type(self, kind: str, value: dict[str, Any], space: str, path: FieldPath, depth: int) -> Named:
        given, namespace = value.get("name"), value.get("namespace")
        if not isinstance(given, str):
            raise _invalid(path, f"{kind} without a name")
        name = _full_name(given, namespace if isinstance(namespace, str) else space, path)
        path = path or (None, name.rpartition(".")[2])
        if name in PRIMITIVES:
            raise _invalid(path, f"{kind} with the name of a primitive type, {name}")
        own_space = name.rpartition(".")[0]
        aliases = tuple(_full_name(alias, own_space, path) for alias in _aliases(value, path))
        match kind:
            case "enum":
                properties = _properties(value, _ENUM_KEYS, path)
                default = value.get("default")
                default = default if isinstance(default, str) else ""
                return self._define(
                    Enumeration(name, _symbols(value, path), aliases, properties, default), path
                )
            case "fixed":
                properties = _properties(value, _TYPE_KEYS, path)
                return self._define(Fixed(name, _size(value, path), aliases, properties), path)
        record = Record(name, {}, aliases, _properties(value, _TYPE_KEYS, path))
        self._define(record, path)
        fields = value.get("fields")
        if not isinstance(fields, list):
            raise _invalid(path, "a record without a list of fields")
        for each in fields:
            field = self._field(each, own_space, path, depth)
            if field.name in record.fields:
                raise _invalid(path, f"field {shown(field.name)} is defined twice")
            record.fields[field.name] = field
        return record

    def _define(self, named: Named, path: FieldPath) -> Named:
        if named.name in self._named:
            raise _invalid(
                path, f"{shown(named.name)} is defined twice; refer to its first definition by name"
            )
        self._named[named.name] = named
        return named

    def _field(self, value: Any, space: str, record: FieldPath, depth: int) -> Field:
        name = value.get("name") if isinstance(value, dict) else None
        if not isinstance(name, str):
            raise _invalid(record, "a field without a name")
        path = (record, f".{_checked(name, record)}")
        if "type" not in value:
            raise _invalid(path, "a field without a type")
        avro_type = self.parsed(value["type"], space, path, depth + 1)
        order = value.get("order", "ascending")
        if not isinstance(order, str) or order.upper() not in _ORDERS:
            raise _invalid(path, f"order {shown(order)} is not one of ascending, descending, ignore")
        field = Field(
            name,
            avro_type,
            order=order.upper(),
            aliases=tuple(_aliases(value, path)),
            properties=_properties(value, _FIELD_KEYS, path),
        )
        if "default" in value:
            try:
                default = number_of_text(value["default"], avro_type)
            except ValueError as error:
                raise _invalid(path, f"default {error}") from None
            field.default = _canonical(default, path)
            self._defaults.append((field, default))
        return field


def _symbols(value: dict[str, Any], path: FieldPath) -> tuple[str, ...]:
    symbols = value.get("symbols")
    if not isinstance(symbols, list):
        raise _invalid(path, "an enum without a list of symbols")
    for symbol in symbols:
        _checked(symbol, path)
    if len(set(symbols)) < len(symbols):
        raise _invalid(path, "an enum with a symbol twice")
    default = value.get("default")
    if isinstance(default, str) and default not in symbols:
        raise _invalid(path, f"the enum's default {shown(default)} is not one of its symbols")
    return tuple(symbols)


def _size(value: dict[str, Any], path: FieldPath) -> int:
    size = value.get("size")
    if not isinstance(size, int) or isinstance(size, bool) or not 0 <= size <= _FIXED_BYTES_MAX:
        raise _invalid(path, f"a fixed with the invalid size {shown(size)}")
    return size


def _aliases(value: dict[str, Any], path: FieldPath) -> list[str]:
    aliases = value.get("aliases", [])
    if not isinstance(aliases, list) or not all(isinstance(alias, str) for alias in aliases):
        raise _invalid(path, "aliases that are not a list of names")
    return aliases


def _required(value: dict[str, Any], key: str, path: FieldPath) -> Any:
    if key not in value:
        raise _invalid(path, f"{value['type']} without {key}")
    return value[key]


def _properties(value: dict[str, Any], known: frozenset[str], path: FieldPath) -> str:
    found = {key: each for key, each in value.items() if key not in known}
    return _canonical(found, path) if found else ""


def _canonical(value: Any, path: FieldPath) -> str:
    """Returns one text for equal JSON values: 1, 1.0 and true stay apart."""
    try:
        return json.dumps(value, sort_keys=True, separators=(",", ":"))
    except RecursionError:
        raise _invalid(path, "a value is nested too deep") from None


def _full_name(name: str, space: str, path: FieldPath) -> str:
    own_space, dot, short = name.rpartition(".")
    space = own_space if dot else space
    _checked(short, path)
    return f"{space}.{short}" if space else short


def _checked(name: Any, path: FieldPath) -> str:
    """Returns a valid name: a letter or _, then letters, digits and _, of any script in 16 bits."""
    if not isinstance(name, str) or not name:
        raise _invalid(path, f"{shown(name)} is not a name")
    if name.isascii():
        is_valid = name.isidentifier()
    else:
        is_valid = all(each == "_" or each.isalpha() or each.isdecimal() for each in name)
        is_valid = is_valid and not name[0].isdecimal() and max(name) <= "\uffff"
    if not is_valid:
        raise _invalid(
            path, f"{shown(name)} is not a name: use a letter or _, then letters, digits and _ only"
        )
    return name


def _invalid(path: FieldPath, why: str) -> InvalidSchema:
    return InvalidSchema(f"{rendered(path)}: {why}")
