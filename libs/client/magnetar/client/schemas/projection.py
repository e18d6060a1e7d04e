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
from magnetar.client.schemas.values import Convert, Form, plain_default, same
from magnetar.common.schemas.avro_aliases import AliasCollision, renamed
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
    described,
    short_name,
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


class _Projections:
    """The conversions of pairs of types; pairs of records that meet again refer to their conversion."""

    def __init__(self) -> None:
        self._records: dict[tuple[int, int], Convert | None] = {}
        self._fits: dict[tuple[int, int], bool] = {}

    def of(self, writer: AvroType, reader: AvroType) -> Convert:
        if isinstance(writer, Union):
            return self._of_union(writer, reader)
        if isinstance(reader, Union):
            branch = self._branch(writer, reader)
            if branch is None:
                return _refusal(f"no branch of the reader's {described(reader)} reads {described(writer)}")
            return _as_branch(branch, self.of(writer, branch))
        if isinstance(writer, Record) and isinstance(reader, Record):
            return self._of_records(writer, reader)
        if isinstance(writer, Array) and isinstance(reader, Array):
            return _each(self.of(writer.items, reader.items))
        if isinstance(writer, Map) and isinstance(reader, Map):
            return _each_value(self.of(writer.values, reader.values))
        if not _is_same_kind(writer, reader):
            promoted = _PROMOTIONS.get((writer.kind, reader.kind))
            return promoted or _refusal(f"{described(reader)} of the reader cannot read {described(writer)}")
        if isinstance(reader, Enumeration) and isinstance(writer, Enumeration):
            return _symbol(writer, reader)
        return same

    def _of_union(self, writer: Union, reader: AvroType) -> Convert:
        """Returns the conversion of a union's value: a pair where the branch is a named type."""
        named, others = {}, []
        for each in writer.branches:
            if isinstance(each, Named):
                named[each.name] = self.of(each, reader)
            else:
                others.append((_test_of(each), self.of(each, reader)))

        def convert(plain: Any) -> Any:
            if type(plain) is tuple:
                return named[plain[0]](plain[1])
            for is_of, of_branch in others:
                if is_of(plain):
                    return of_branch(plain)
            raise ValueMisfit(f"{shown(plain)} is not of the writer's {described(writer)}")

        return convert

    def _of_records(self, writer: Record, reader: Record) -> Convert:
        pair = (id(writer), id(reader))
        if pair in self._records:
            return self._records[pair] or (lambda plain: self._made(pair)(plain))
        self._records[pair] = None
        common = [
            (each.name, self.of(each.type, reader.fields[each.name].type))
            for each in writer.fields.values()
            if each.name in reader.fields
        ]
        defaults: list[tuple[str, Any]] = []
        made: Convert | None = None
        for each in reader.fields.values():
            if each.name in writer.fields:
                continue
            if each.default is None or each.default_problem:
                made = _refusal(
                    f"the writer's {short_name(writer.name)} has no field {shown(each.name)}, and the "
                    "reader's has no valid default"
                )
                break
            defaults.append((each.name, plain_default(json.loads(each.default), each.type, Form.AVRO)))
        self._records[pair] = found = made or _record(common, defaults)
        return found

    def _made(self, pair: tuple[int, int]) -> Convert:
        found = self._records[pair]
        assert found is not None
        return found

    def _branch(self, writer: AvroType, reader: Union) -> AvroType | None:
        """Returns the branch that reads a writer: the same kind, or the same full name; else a record that
        fits; else the first one by promotion.
        """
        fitting: AvroType | None = None
        for branch in reader.branches:
            if branch.kind != writer.kind:
                continue
            if not isinstance(branch, Named) or not isinstance(writer, Named):
                return branch
            if branch.name == writer.name:
                return branch
            if (
                isinstance(branch, Record)
                and isinstance(writer, Record)
                and self._fits_directly(writer, branch)
            ):
                is_better = short_name(branch.name) == short_name(writer.name)
                if fitting is None or (is_better and short_name(_name(fitting)) != short_name(writer.name)):
                    fitting = branch
        if fitting is not None:
            return fitting
        return next((each for each in reader.branches if (writer.kind, each.kind) in _PROMOTIONS), None)

    def _fits_directly(self, writer: Record, reader: Record) -> bool:
        """Whether no direct field of a pair of records shows an error."""
        pair = (id(writer), id(reader))
        if pair not in self._fits:
            self._fits[pair] = True
            self._fits[pair] = all(
                self._is_readable(writer.fields[each.name].type, each.type)
                if each.name in writer.fields
                else each.default is not None
                for each in reader.fields.values()
            )
        return self._fits[pair]

    def _is_readable(self, writer: AvroType, reader: AvroType) -> bool:
        if isinstance(writer, Union):
            return True  # An error of a branch shows only when a value is of that branch.
        if isinstance(reader, Union):
            return self._branch(writer, reader) is not None
        return _is_same_kind(writer, reader) or (writer.kind, reader.kind) in _PROMOTIONS


def _name(avro_type: AvroType) -> str:
    return avro_type.name if isinstance(avro_type, Named) else ""


def _is_same_kind(writer: AvroType, reader: AvroType) -> bool:
    """Whether two types are of one kind, and an enum or fixed also of one short name, a fixed of one size."""
    if writer.kind != reader.kind:
        return False
    if isinstance(writer, Enumeration | Fixed) and isinstance(reader, Enumeration | Fixed):
        is_one_size = (
            not isinstance(writer, Fixed) or not isinstance(reader, Fixed) or writer.size == reader.size
        )
        return is_one_size and short_name(writer.name) == short_name(reader.name)
    return True


def _refusal(why: str) -> Convert:
    def convert(plain: Any) -> Any:
        raise ValueMisfit(why)

    return convert


def _as_branch(branch: AvroType, convert: Convert) -> Convert:
    if not isinstance(branch, Named):
        return convert
    name = branch.name
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
        if plain not in known:
            raise ValueMisfit(
                f"the symbol {shown(plain)} is not one of {described(reader)}; add it to the class"
            )
        return plain

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
