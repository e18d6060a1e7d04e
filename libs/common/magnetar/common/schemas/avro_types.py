"""Avro types as a graph: named types are one object wherever they are used, so recursive types are cycles."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import ClassVar, Final, TypeAlias

PRIMITIVES: Final = frozenset({"null", "boolean", "int", "long", "float", "double", "bytes", "string"})


@dataclass(slots=True, eq=False)
class Primitive:
    """A type without parts; `kind` is its name in Avro."""

    kind: str
    properties: str = ""
    """Canonical JSON of the properties that Avro does not define, the logical type among them."""


@dataclass(slots=True, eq=False)
class Array:
    kind: ClassVar[str] = "array"
    items: AvroType
    properties: str = ""


@dataclass(slots=True, eq=False)
class Map:
    kind: ClassVar[str] = "map"
    values: AvroType
    properties: str = ""


@dataclass(slots=True, eq=False)
class Union:
    kind: ClassVar[str] = "union"
    branches: tuple[AvroType, ...]


@dataclass(slots=True, eq=False)
class Fixed:
    kind: ClassVar[str] = "fixed"
    name: str
    """Full name, with the namespace; so for all named types."""
    size: int
    aliases: tuple[str, ...] = ()
    """Full names; so for all named types."""
    properties: str = ""


@dataclass(slots=True, eq=False)
class Enumeration:
    kind: ClassVar[str] = "enum"
    name: str
    symbols: tuple[str, ...]
    aliases: tuple[str, ...] = ()
    properties: str = ""
    default: str = ""
    """The symbol in place of one that a reader lacks; empty: such a symbol is an error. Verdicts do not
    depend on it.
    """


@dataclass(slots=True, eq=False)
class Field:
    """A field of a record."""

    name: str
    type: AvroType
    default: str | None = None
    """Canonical JSON; None: no default."""
    default_problem: str = ""
    """The reason why the default cannot be encoded as the field's type; empty: it can, or there is none."""
    order: str = "ASCENDING"
    aliases: tuple[str, ...] = ()
    properties: str = ""


@dataclass(slots=True, eq=False)
class Record:
    """A record, or an error, which Avro treats alike."""

    kind: ClassVar[str] = "record"
    name: str
    fields: dict[str, Field] = field(default_factory=dict)
    """Fields by name, in order. Complete only once the whole definition is parsed."""
    aliases: tuple[str, ...] = ()
    properties: str = ""


Named: TypeAlias = Fixed | Enumeration | Record
AvroType: TypeAlias = Primitive | Array | Map | Union | Fixed | Enumeration | Record


def short_name(full_name: str) -> str:
    """Returns a name without its namespace."""
    return full_name.rpartition(".")[2]


def label(avro_type: AvroType) -> str:
    """Returns the name that tells branches of a union apart: the kind, or a named type's full name."""
    return avro_type.name if isinstance(avro_type, Named) else avro_type.kind


def described(avro_type: AvroType) -> str:
    """Returns a type in words, for errors."""
    if isinstance(avro_type, Union):
        shown = [label(branch) for branch in avro_type.branches[:8]]
        return "union of " + ", ".join(shown + ["..."] * (len(avro_type.branches) > 8))
    if isinstance(avro_type, Fixed):
        return f"fixed {avro_type.name} of {avro_type.size} bytes"
    return f"{avro_type.kind} {avro_type.name}" if isinstance(avro_type, Named) else avro_type.kind


def walk(root: AvroType) -> Iterator[AvroType]:
    """Yields every type of a graph in the order of its definition, named types once.

    Iterative: references by name may nest deeper than any definition.
    """
    seen: set[int] = set()
    waiting = [root]
    while waiting:
        each = waiting.pop()
        if isinstance(each, Named):
            if id(each) in seen:
                continue
            seen.add(id(each))
        yield each
        waiting.extend(reversed(parts(each)))


def parts(avro_type: AvroType) -> list[AvroType]:
    """Returns the types that a type directly consists of."""
    match avro_type:
        case Array(items=items):
            return [items]
        case Map(values=values):
            return [values]
        case Union(branches=branches):
            return list(branches)
        case Record(fields=fields):
            return [each.type for each in fields.values()]
        case _:
            return []
