"""Avro definitions of dataclasses and pydantic models, and the classes bound to the definition's names.

| in the class | in the definition |
| --- | --- |
| bool, str, bytes | boolean, string, bytes |
| int, float | long, double; `Int` is an int, `Float` a float |
| `X | None` | a union of null and X; null first, unless the default is not None |
| list, tuple, set, frozenset, Sequence of X | array of X |
| dict, Mapping of str and X | map of X |
| an Enum | enum of the names of its members |
| another dataclass or model | record |
| datetime, date, time | long timestamp-micros (with a time zone), int date, long time-micros |
| UUID | string uuid |
| Decimal | string of Java's BigDecimal; `Annotated[Decimal, AvroField(...)]` with a precision is a decimal |
| anything else | `Annotated[X, AvroField(type=...)]` gives the definition |

A field with a default has it in the definition too, so that topics take it as a compatible addition. A
default that a function makes counts if the function is list, dict, set, tuple or frozenset.
"""

from __future__ import annotations

import dataclasses
import json
import re
import types
from collections.abc import Callable, Mapping, MutableMapping, MutableSequence, Sequence, Set
from collections.abc import Set as AbstractSet
from dataclasses import MISSING, dataclass
from datetime import date, datetime, time
from decimal import Decimal
from enum import Enum
from typing import (
    Annotated,
    Any,
    Final,
    Literal,
    NewType,
    TypeAlias,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)
from uuid import UUID

from magnetar.client.schemas.logical_types import BIG_DECIMAL
from magnetar.client.schemas.schema import SchemaError
from magnetar.client.schemas.value_misfit import ValueMisfit
from magnetar.client.schemas.values import Bindings, BoundField, BoundRecord, Form, codec_of
from magnetar.common.errors import InvalidSchema
from magnetar.common.schemas.avro_parser import parse_avro
from magnetar.common.schemas.avro_types import AvroType, Record, walk
from magnetar.common.schemas.definition import shown


@dataclass(frozen=True, slots=True)
class AvroField:
    """The part of a definition that a field's type does not say, in `Annotated[X, AvroField(...)]`."""

    type: Any = None
    """Avro definition of the type, in place of the one made of X; its values are those of that definition."""
    name: str = ""
    """Name of the field, where it is not the attribute's."""
    aliases: tuple[str, ...] = ()
    """Earlier names of the field."""
    doc: str = ""


Int: TypeAlias = Annotated[int, AvroField(type="int")]
"""An integer of 4 bytes."""
Float: TypeAlias = Annotated[float, AvroField(type="float")]
"""A floating-point number of 4 bytes, to which values are rounded in Avro."""

_LEAVES: Final[dict[Any, Any]] = {
    type(None): "null",
    bool: "boolean",
    int: "long",
    float: "double",
    str: "string",
    bytes: "bytes",
    datetime: {"type": "long", "logicalType": "timestamp-micros"},
    date: {"type": "int", "logicalType": "date"},
    time: {"type": "long", "logicalType": "time-micros"},
    UUID: {"type": "string", "logicalType": "uuid"},
    Decimal: {"type": "string", "java-class": BIG_DECIMAL},
}
_ARRAYS: Final = {list, tuple, set, frozenset, Sequence, MutableSequence, Set, AbstractSet}
_MAPS: Final = {dict, Mapping, MutableMapping}
_CONTAINERS: Final[dict[Any, Callable[[list[Any]], Any]]] = {
    tuple: tuple,
    set: set,
    frozenset: frozenset,
    AbstractSet: frozenset,
}
"""The classes that a list is made into, for the types of attributes that are not lists."""
_FACTORIES: Final[tuple[Any, ...]] = (list, dict, set, tuple, frozenset)
"""Functions that always make the same default."""


@dataclass(frozen=True, slots=True)
class RecordDefinition:
    """A class's definition."""

    text: bytes
    root: AvroType
    bindings: Bindings


def definition_of_class(cls: type, namespace: str = "") -> RecordDefinition:
    """Returns the definition of a dataclass or pydantic model. Raises SchemaError, which names the field."""
    reading = _Reading(namespace)
    try:
        definition = reading.record(cls)
        if namespace:
            definition = {"type": "record", "name": definition["name"], "namespace": namespace, **definition}
        reading.add_defaults(parse_avro(_text(definition)))
        text = _text(definition)
        return RecordDefinition(text, parse_avro(text), reading.bindings)
    except InvalidSchema as error:
        raise SchemaError(
            f"{cls.__qualname__} makes no valid Avro definition: {error}; change the class, or give AvroField"
        ) from None


@dataclass(frozen=True, slots=True)
class _ClassField:
    """A field of a dataclass or model before its type is looked at."""

    attribute: str
    annotation: Any
    extra: AvroField
    default: Any
    """MISSING without one."""
    has_default: bool

    @property
    def name(self) -> str:
        return self.extra.name or self.attribute


class _Reading:
    """The named types that one definition has met."""

    def __init__(self, namespace: str) -> None:
        self._prefix = f"{namespace}." if namespace else ""
        self._classes: dict[str, type] = {}
        self._defaults: list[tuple[str, dict[str, Any], Any]] = []
        """Name of the record, the field's definition, and the default of Python."""
        self.bindings = Bindings()

    def record(self, cls: type) -> dict[str, Any]:
        """Returns the definition of a class at its first use."""
        name = self._define(cls)
        definition: dict[str, Any] = {"type": "record", "name": name, "fields": []}
        bound = []
        for each in _fields_of(cls):
            path = f"{cls.__qualname__}.{each.attribute}"
            annotation, container = _without_container(each.annotation)
            default = each.default
            made = {"name": each.name, "type": self._type(annotation, path, default)}
            if each.extra.aliases:
                made["aliases"] = list(each.extra.aliases)
            if each.extra.doc:
                made["doc"] = each.extra.doc
            if default is not MISSING:
                self._defaults.append((name, made, default))
            definition["fields"].append(made)
            # A reader that lacks the field fills in null where the definition has no other default.
            bound.append(
                BoundField(each.attribute, each.name, each.has_default, default in (None, MISSING), container)
            )
        self.bindings.records[self._prefix + name] = BoundRecord(cls, tuple(bound), _builder(cls, bound))
        return definition

    def add_defaults(self, root: AvroType) -> None:
        """Writes the defaults into the definition that `root` was parsed from."""
        records = {each.name: each for each in walk(root) if isinstance(each, Record)}
        for record, definition, default in self._defaults:
            name = definition["name"]
            field_type = records[self._prefix + record].fields[name].type
            try:
                plain = codec_of(field_type, Form.AVRO, self.bindings).encode(default)
            except ValueMisfit as error:
                raise SchemaError(f"the default of {record}.{name} does not fit its type: {error}") from None
            definition["default"] = _json_default(plain)

    def _type(self, annotation: Any, path: str, default: Any = MISSING) -> Any:
        annotation, extra = _unwrapped(annotation)
        if extra.type is not None:
            return extra.type
        origin = get_origin(annotation) or annotation
        arguments = get_args(annotation)
        if origin in (Union, types.UnionType):
            return self._union(arguments, path, default)
        if origin is Literal:
            kinds = {type(each) for each in arguments}
            if len(kinds) == 1:
                return self._type(kinds.pop(), path)
        if origin in _ARRAYS and arguments and (origin is not tuple or arguments[1:] == (...,)):
            return {"type": "array", "items": self._type(arguments[0], path)}
        if origin in _MAPS and len(arguments) == 2 and arguments[0] is str:
            return {"type": "map", "values": self._type(arguments[1], path)}
        if isinstance(origin, type):
            found = self._class(origin if is_record(origin) else annotation)
            if found is not None:
                return found
        raise SchemaError(
            f"{path} has the type {_shown_type(annotation)}, which has no Avro definition; use another type, "
            'or Annotated[..., AvroField(type="...")]'
        )

    def _class(self, cls: Any) -> Any:
        """Returns None for a class that has no definition."""
        if is_record(cls):
            name = _avro_name(cls)
            return name if self._classes.get(name) is cls else self.record(cls)
        if isinstance(cls, type) and issubclass(cls, Enum):
            return self._enum(cls)
        return _LEAVES.get(cls)

    def _union(self, arguments: Sequence[Any], path: str, default: Any) -> list[Any]:
        """Returns the branches: the default's first, as Avro wants it, otherwise null first."""
        ordered = sorted(arguments, key=lambda each: each is not type(None))
        if default not in (None, MISSING):
            ordered.sort(key=lambda each: not _is_of(default, each))
        branches: list[Any] = []
        for each in ordered:
            found = self._type(each, path)
            branches += found if isinstance(found, list) else [found]
        return branches

    def _enum(self, cls: type[Enum]) -> Any:
        name = _avro_name(cls)
        if self._classes.get(name) is cls:
            return name
        self._define(cls)
        self.bindings.enums[self._prefix + name] = cls
        return {"type": "enum", "name": name, "symbols": [each.name for each in cls]}

    def _define(self, cls: type) -> str:
        name = _avro_name(cls)
        other = self._classes.setdefault(name, cls)
        if other is not cls:
            raise SchemaError(
                f"{cls.__module__}.{cls.__qualname__} and {other.__module__}.{other.__qualname__} both "
                f"become the Avro type {name}; rename one of them"
            )
        return name


def is_record(cls: Any) -> bool:
    """Whether a class is a dataclass or a pydantic model."""
    return isinstance(cls, type) and (dataclasses.is_dataclass(cls) or _is_model(cls))


def _is_model(cls: type) -> bool:
    # Without an import of pydantic, which programs without models do not have.
    return hasattr(cls, "model_fields") and hasattr(cls, "model_validate")


def _fields_of(cls: type) -> list[_ClassField]:
    if _is_model(cls):
        return [_model_field(name, each) for name, each in vars_of_model(cls).items()]
    try:
        hints = get_type_hints(cls, include_extras=True)
    except NameError as error:
        raise SchemaError(
            f"the types of {cls.__qualname__} cannot be read: {error}; define them at the top of its module"
        ) from None
    found = []
    for each in dataclasses.fields(cls):
        if not each.init:
            continue
        default = each.default
        factory: Any = each.default_factory
        if default is MISSING and factory in _FACTORIES:
            default = factory()
        has_default = each.default is not MISSING or each.default_factory is not MISSING
        annotation = hints[each.name]
        found.append(_ClassField(each.name, annotation, _unwrapped(annotation)[1], default, has_default))
    return found


def vars_of_model(cls: Any) -> dict[str, Any]:
    """Returns the fields of a pydantic model by attribute."""
    return dict(cls.model_fields)


def _model_field(attribute: str, each: Any) -> _ClassField:
    extra = next((one for one in each.metadata if isinstance(one, AvroField)), AvroField())
    annotation = each.annotation if extra.type is None else Annotated[each.annotation, extra]
    if not extra.name:
        extra = dataclasses.replace(extra, name=each.serialization_alias or each.alias or "")
    default = MISSING if each.is_required() or each.default_factory is not None else each.default
    if each.default_factory in _FACTORIES:
        default = each.default_factory()
    return _ClassField(attribute, annotation, extra, default, not each.is_required())


def _builder(cls: Any, fields: Sequence[BoundField]) -> Callable[[dict[str, Any]], Any]:
    if not _is_model(cls):
        return lambda attributes: cls(**attributes)
    if all(each.alias is None and each.validation_alias is None for each in vars_of_model(cls).values()):
        return lambda attributes: cls.model_validate(attributes)
    return lambda attributes: cls.model_validate(attributes, by_name=True)


def _unwrapped(annotation: Any) -> tuple[Any, AvroField]:
    """Returns a type without Annotated, NewType and names of types, and the AvroField that it was given."""
    extra = AvroField()
    while True:
        if get_origin(annotation) is Annotated:
            found = (each for each in annotation.__metadata__ if isinstance(each, AvroField))
            extra = next(found, extra)
            annotation = annotation.__origin__
        elif isinstance(annotation, NewType):
            annotation = annotation.__supertype__
        elif hasattr(annotation, "__value__") and not isinstance(annotation, type):
            annotation = annotation.__value__
        else:
            return annotation, extra


def _without_container(annotation: Any) -> tuple[Any, Callable[[list[Any]], Any] | None]:
    """Returns a type, and what an array's list is made into for it; for an optional one that of its array."""
    inner, extra = _unwrapped(annotation)
    if extra.type is not None:
        return annotation, None
    if get_origin(inner) in (Union, types.UnionType):
        others = [each for each in get_args(inner) if each is not type(None)]
        inner = _unwrapped(others[0])[0] if len(others) == 1 else inner
    return annotation, _CONTAINERS.get(get_origin(inner))


def _is_of(value: Any, annotation: Any) -> bool:
    """Whether a default is of a branch of a union, judged by its class."""
    inner, _ = _unwrapped(annotation)
    origin = get_origin(inner) or inner
    if origin in _ARRAYS:
        return isinstance(value, list | tuple | set | frozenset)
    if origin is Literal:
        return value in get_args(inner)
    if not isinstance(origin, type):
        return False
    return type(value) is origin or (isinstance(value, origin) and not isinstance(value, bool))


def _avro_name(cls: type) -> str:
    return re.sub(r"\W", "_", cls.__name__).strip("_") or cls.__name__


def _shown_type(annotation: Any) -> str:
    return (
        annotation.__name__
        if isinstance(annotation, type) and not get_args(annotation)
        else shown(annotation)
    )


def _json_default(plain: Any) -> Any:
    """Returns a plain Avro value as the default of a definition: bytes as text, no names of branches."""
    if isinstance(plain, tuple):
        return _json_default(plain[1])
    if isinstance(plain, bytes):
        return plain.decode("latin-1")
    if isinstance(plain, list):
        return [_json_default(each) for each in plain]
    if isinstance(plain, dict):
        return {key: _json_default(each) for key, each in plain.items()}
    return plain


def _text(definition: Any) -> bytes:
    return json.dumps(definition, separators=(",", ":"), ensure_ascii=False).encode()
