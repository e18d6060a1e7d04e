"""Parsed Avro definitions, kept in a bounded cache: checks compare the same versions again and again.

The cache has two generations and no lock. A definition that is used moves to the younger one; when that is
full, it becomes the older one and what was not used since is dropped. Threads that race parse a definition
twice, no more.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Final

from magnetar.common.schemas.avro_aliases import Aliases, aliases_of
from magnetar.common.schemas.avro_parser import parse_avro
from magnetar.common.schemas.avro_types import (
    Array,
    AvroType,
    Enumeration,
    Fixed,
    Map,
    Named,
    Primitive,
    Record,
    Union,
    walk,
)

CACHED_BYTES_MAX: Final = 8 << 20
"""Maximum bytes of the definitions whose types are kept; types take about ten times as much memory."""


@dataclass(frozen=True, slots=True)
class ParsedDefinition:
    """A definition's types, and what checks ask of them again and again."""

    root: AvroType
    digest: bytes
    """A digest that equal definitions share."""
    aliases: Aliases
    default_problem: str
    """The first field whose default cannot be encoded, with the reason; empty without one."""


class DefinitionCache:
    """Parsed definitions by the SHA-256 of their text, at most `bytes_max` bytes of text."""

    def __init__(self, bytes_max: int = CACHED_BYTES_MAX) -> None:
        self._generation_bytes_max = bytes_max // 2
        self._young: dict[bytes, ParsedDefinition] = {}
        self._old: dict[bytes, ParsedDefinition] = {}
        self._young_bytes = 0

    def get(self, text: bytes) -> ParsedDefinition:
        """Returns the parsed definition. Raises InvalidSchema; an invalid text is not remembered."""
        key = hashlib.sha256(text).digest()
        found = self._young.get(key)
        if found is not None:
            return found
        found = self._old.get(key)
        if found is None:
            root = parse_avro(text)
            found = ParsedDefinition(root, digest_of(root), aliases_of(root), _default_problem(root))
        if len(text) <= self._generation_bytes_max:
            if self._young_bytes + len(text) > self._generation_bytes_max:
                self._old, self._young, self._young_bytes = self._young, {}, 0
            self._young[key] = found
            self._young_bytes += len(text)
        return found


_CACHE: Final = DefinitionCache()


def parsed_definition(text: bytes) -> ParsedDefinition:
    """Parses a definition, or returns it from the process's cache. Raises InvalidSchema."""
    return _CACHE.get(text)


def _default_problem(root: AvroType) -> str:
    records = (each for each in walk(root) if isinstance(each, Record))
    for record in records:
        for field in record.fields.values():
            if field.default_problem:
                return f"{record.name}.{field.name}: the default is invalid: {field.default_problem}"
    return ""


def digest_of(root: AvroType) -> bytes:
    """Returns the SHA-256 of what Avro compares: equal types, and no others, have the same.

    Names with namespace, fields in order with default and order attribute, symbols in order, sizes and all
    properties count; docs, aliases, an enum's default and whether a record is an error do not
    (Schema.equals of Apache Avro 1.11.4).
    """
    return hashlib.sha256(repr(_form(root, set())).encode()).digest()


def _form(avro_type: AvroType, defined: set[str]) -> tuple[object, ...]:
    """Returns a type as nested tuples: named types in full where they are defined, by name from there on."""
    if isinstance(avro_type, Named):
        if avro_type.name in defined:
            return ("defined", avro_type.name)
        defined.add(avro_type.name)
    match avro_type:
        case Primitive(kind=kind, properties=properties):
            return (kind, properties)
        case Array(items=items, properties=properties):
            return ("array", _form(items, defined), properties)
        case Map(values=values, properties=properties):
            return ("map", _form(values, defined), properties)
        case Union(branches=branches):
            return ("union", *(_form(branch, defined) for branch in branches))
        case Fixed(name=name, size=size, properties=properties):
            return ("fixed", name, size, properties)
        case Enumeration(name=name, symbols=symbols, properties=properties):
            return ("enum", name, symbols, properties)
        case Record(name=name, fields=fields, properties=properties):
            forms = [
                (each.name, _form(each.type, defined), each.default, each.order, each.properties)
                for each in fields.values()
            ]
            return ("record", name, forms, properties)
