"""Plain Avro values of a writer's definition made into those of a reader's, compiled once for each version.

The rules are those by which brokers judge whether a reader can read a writer
(magnetar.common.schemas.avro_resolution): names of records are not compared, the reader's aliases rename the
writer's fields, numbers are promoted, missing fields get the reader's default. They are Apache Avro's, so a
reader in Java gets the same values.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from typing import Any, Final

from magnetar.client.schemas.schema import SchemaError
from magnetar.client.schemas.value_misfit import ValueMisfit
from magnetar.client.schemas.values import Convert, Form, branch_name, plain_default, same
from magnetar.common.errors import IncompatibleSchema
from magnetar.common.schemas.avro_aliases import AliasCollision, renamed
from magnetar.common.schemas.avro_resolution import Comparison, PairBudget, direct_misfit
from magnetar.common.schemas.avro_types import (
    Array,
    AvroType,
    Enumeration,
    Map,
    Named,
    Primitive,
    Record,
    Union,
    described,
)
from magnetar.common.schemas.definition import shown
from magnetar.common.schemas.parsed_definitions import ParsedDefinition

_PROMOTIONS: Final[dict[tuple[str, str], Convert]] = {
    ("int", "long"): same,
    ("int", "float"): float,
    ("int", "double"): float,
    ("long", "float"): float,
    ("long", "double"): float,
    ("float", "double"): same,
    ("string", "bytes"): str.encode,
    ("bytes", "string"): lambda plain: _text(plain),
}


def projection_of(writer: ParsedDefinition, reader: ParsedDefinition) -> tuple[AvroType, Convert]:
    """Returns the writer's types as its payloads have to be read, and the conversion of what was read.

    The conversion raises ValueMisfit for values that the reader cannot read. Raises SchemaError when the
    reader's aliases contradict each other.
    """
    if writer.digest == reader.digest:
        return writer.root, same
    try:
        written = renamed(writer.root, reader.aliases)
    except AliasCollision as error:
        raise SchemaError(str(error)) from None
    try:
        return written, _Projections().of(written, reader.root)
    except RecursionError:
        raise SchemaError("the definitions are nested too deep to be compared") from None
    except IncompatibleSchema as error:
        raise SchemaError(str(error)) from None


class _Projections:
    """The conversions of pairs of types; pairs of records that meet again refer to their conversion."""

    def __init__(self) -> None:
        self._records: dict[tuple[int, int], Convert | None] = {}
        self._comparison = Comparison(PairBudget())

    def of(self, writer: AvroType, reader: AvroType) -> Convert:
        if isinstance(writer, Union):
            return self._of_union(writer, reader)
        if isinstance(reader, Union):
            branch = self._comparison.branch_of(reader, writer)
            if branch is None:
                return _refusal(f"no branch of the reader's {described(reader)} reads {described(writer)}")
            return _as_branch(branch, self.of(writer, branch))
        if isinstance(writer, Record) and isinstance(reader, Record):
            return self._of_records(writer, reader)
        if isinstance(writer, Array) and isinstance(reader, Array):
            return _each(self.of(writer.items, reader.items))
        if isinstance(writer, Map) and isinstance(reader, Map):
            return _each_value(self.of(writer.values, reader.values))
        found = direct_misfit(reader, writer)
        if found is not None:
            return _refusal(found[1])
        if isinstance(reader, Enumeration) and isinstance(writer, Enumeration):
            return _symbol(writer, reader)
        return _PROMOTIONS.get((writer.kind, reader.kind), same)

    def _of_union(self, writer: Union, reader: AvroType) -> Convert:
        """Returns the conversion of a union's value: a pair where the branch is a named type."""
        named, others = {}, []
        for each, convert_branch in zip(writer.branches, self._of_branches(writer, reader), strict=True):
            if isinstance(each, Named):
                named[branch_name(each)] = convert_branch
            else:
                others.append((_test_of(each), convert_branch))

        def convert(plain: Any) -> Any:
            if type(plain) is tuple:
                return named[plain[0]](plain[1])
            for is_of, of_branch in others:
                if is_of(plain):
                    return of_branch(plain)
            raise ValueMisfit(f"{shown(plain)} is not of the writer's {described(writer)}")

        return convert

    def _of_branches(self, writer: Union, reader: AvroType) -> list[Convert]:
        if isinstance(reader, Union) and self._comparison.are_equivalent(reader, writer):
            pairs = zip(writer.branches, reader.branches, strict=True)
            return [_as_branch(branch, self.of(each, branch)) for each, branch in pairs]
        return [self.of(each, reader) for each in writer.branches]

    def _of_records(self, writer: Record, reader: Record) -> Convert:
        pair = (id(writer), id(reader))
        if pair in self._records:
            return self._records[pair] or (lambda plain: self._made(pair)(plain))
        self._records[pair] = None
        misfit = direct_misfit(reader, writer)
        if misfit is not None:
            part, why = misfit
            self._records[pair] = refusal = _refusal(why, part)
            return refusal
        common = [
            (each.name, self.of(each.type, reader.fields[each.name].type))
            for each in writer.fields.values()
            if each.name in reader.fields
        ]
        defaults: list[tuple[str, Any]] = []
        for each in reader.fields.values():
            if each.name not in writer.fields:
                default = json.loads(each.default or "null")  # There is a valid one: no direct misfit.
                defaults.append((each.name, plain_default(default, each.type, Form.AVRO)))
        self._records[pair] = found = _record(common, defaults)
        return found

    def _made(self, pair: tuple[int, int]) -> Convert:
        found = self._records[pair]
        assert found is not None
        return found


def _refusal(why: str, part: str = "") -> Convert:
    def convert(plain: Any) -> Any:
        raise ValueMisfit(why).within(part)

    return convert


def _as_branch(branch: AvroType, convert: Convert) -> Convert:
    if not isinstance(branch, Named):
        return convert
    name = branch_name(branch)
    return lambda plain: (name, convert(plain))


def _each(convert: Convert) -> Convert:
    return same if convert is same else lambda plain: [convert(each) for each in plain]


def _each_value(convert: Convert) -> Convert:
    return same if convert is same else lambda plain: {key: convert(each) for key, each in plain.items()}


def _symbol(writer: Enumeration, reader: Enumeration) -> Convert:
    known = frozenset(reader.symbols)
    if known.issuperset(writer.symbols):
        return same

    def convert(plain: Any) -> Any:
        if plain in known:
            return plain
        if not reader.default:
            raise ValueMisfit(
                f"the symbol {shown(plain)} is not one of {described(reader)}; add it to the class"
            )
        return reader.default

    return convert


def _record(common: list[tuple[str, Convert]], defaults: list[tuple[str, Any]]) -> Convert:
    def convert(plain: Any) -> dict[str, Any]:
        made = {}
        for name, of_field in common:
            try:
                made[name] = plain[name] if of_field is same else of_field(plain[name])
            except ValueMisfit as error:
                raise error.within(f".{name}") from None
        for name, default in defaults:
            made[name] = copy.deepcopy(default)
        return made

    return convert


def _test_of(writer: AvroType) -> Callable[[Any], bool]:
    """Returns whether a plain value read from a union is of a branch that is not a named type."""
    match writer:
        case Array():
            return lambda plain: isinstance(plain, list)
        case Map():
            return lambda plain: isinstance(plain, dict)
        case Primitive(kind="null"):
            return lambda plain: plain is None
        case Primitive(kind="boolean"):
            return lambda plain: isinstance(plain, bool)
        case Primitive(kind="int" | "long"):
            return lambda plain: isinstance(plain, int) and not isinstance(plain, bool)
        case Primitive(kind="float" | "double"):
            return lambda plain: isinstance(plain, float)
        case Primitive(kind="bytes"):
            return lambda plain: isinstance(plain, bytes)
        case _:
            return lambda plain: isinstance(plain, str)


def _text(plain: bytes) -> str:
    try:
        return plain.decode()
    except UnicodeDecodeError:
        raise ValueMisfit(f"{shown(plain)} is not UTF-8, and the reader wants text") from None
