"""Aliases of a reader, which give a writer's types and fields the reader's names before the two are compared.

Follows Schema.applyAliases of Apache Avro 1.11.4; aliases of the writer count for nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from magnetar.common.schemas.avro_types import (
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
    walk,
)
from magnetar.common.schemas.definition import shown


class AliasCollision(Exception):
    """Two fields of a record, or two branches of a union, have one name after renaming."""


@dataclass(slots=True)
class Aliases:
    """The renaming that a reader asks for."""

    types: dict[str, str] = field(default_factory=dict)
    """Full names in the reader by alias."""
    fields: dict[str, dict[str, str]] = field(default_factory=dict)
    """Names of a record's fields by alias, by the reader's full name of the record."""


def aliases_of(reader: AvroType) -> Aliases:
    """Returns the aliases that a reader's types and fields name; a later one replaces an earlier one."""
    found = Aliases()
    for each in walk(reader):
        if isinstance(each, Named):
            found.types.update(dict.fromkeys(each.aliases, each.name))
        if isinstance(each, Record):
            names = {alias: one.name for one in each.fields.values() for alias in one.aliases}
            if names:
                found.fields[each.name] = names
    return found


def renamed(writer: AvroType, aliases: Aliases) -> AvroType:
    """Returns the writer's types under the reader's names; the writer itself if the reader has no aliases.

    Raises AliasCollision.
    """
    return _Renaming(aliases).of(writer) if aliases.types or aliases.fields else writer


class _Renaming:
    """Copies a graph, one record after the other, so that recursion is only as deep as one definition."""

    def __init__(self, aliases: Aliases) -> None:
        self._aliases = aliases
        self._copies: dict[int, Record] = {}
        self._empty: list[tuple[Record, Record]] = []

    def of(self, root: AvroType) -> AvroType:
        copy = self._copy(root)
        while self._empty:
            record, its_copy = self._empty.pop()
            names = self._aliases.fields.get(its_copy.name, {})
            for each in record.fields.values():
                self._add(its_copy, each, names.get(each.name, each.name))
        return copy

    def _add(self, record: Record, given: Field, name: str) -> None:
        if name in record.fields:
            raise AliasCollision(
                f"by the reader's aliases two fields of the writer's record {shown(record.name)} become "
                f"{shown(name)}, one of them {shown(given.name)}; remove the alias"
            )
        record.fields[name] = replace(given, name=name, type=self._copy(given.type))

    def _copy(self, given: AvroType) -> AvroType:
        match given:
            case Primitive():
                return given
            case Array():
                return replace(given, items=self._copy(given.items))
            case Map():
                return replace(given, values=self._copy(given.values))
            case Union():
                return self._union(given)
            case Fixed() | Enumeration():
                return replace(given, name=self._aliases.types.get(given.name, given.name))
            case Record():
                copy = self._copies.get(id(given))
                if copy is None:
                    copy = replace(given, name=self._aliases.types.get(given.name, given.name), fields={})
                    self._copies[id(given)] = copy
                    self._empty.append((given, copy))
                return copy

    def _union(self, given: Union) -> Union:
        branches = tuple(self._copy(branch) for branch in given.branches)
        labels = [label(branch) for branch in branches]
        for number, each in enumerate(labels):
            if each in labels[:number]:
                raise AliasCollision(
                    f"by the reader's aliases two branches of a union of the writer become {shown(each)}; "
                    "remove the alias"
                )
        return Union(branches)
