"""Whether a reader's Avro definition can read what a writer's definition wrote; if not, where and why.

The rules are those of the resolving decoder of Apache Avro 1.11.4 (org.apache.avro.Resolver), by which Pulsar
judges, not those of Avro's specification or of its compatibility tool: symbols that the reader's enum lacks
are no error, and names of records are not compared.

A definition is readable if every pair of types that meet is. So pairs wait in a list, and nested types, whose
depth is unlimited through references by name, need no recursion.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from magnetar.common.errors import IncompatibleSchema
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
from magnetar.common.schemas.field_path import ITEMS, VALUES, FieldPath, rendered
from magnetar.common.schemas.parsed_definitions import ParsedDefinition

PAIRS_MAX: Final = 500_000
"""Pairs of types that one check compares, over all versions: about a second."""

_CANDIDATE_DEPTH_MAX: Final = 64
"""Unions inside unions that the choice of a branch looks into."""

_PROMOTIONS: Final = {
    "int": ("long", "float", "double"),
    "long": ("float", "double"),
    "float": ("double",),
    "string": ("bytes",),
    "bytes": ("string",),
}
"""Types that read a type other than themselves."""


@dataclass(frozen=True, slots=True)
class Misfit:
    """The first place at which a reader cannot read a writer, and the reason."""

    path: str
    why: str

    def __str__(self) -> str:
        return f"{self.path}: {self.why}"


class PairBudget:
    """Pairs of types that a check may still compare."""

    def __init__(self, pairs_max: int = PAIRS_MAX) -> None:
        self._pairs_max = pairs_max
        self._left = pairs_max

    def spend(self, pairs: int = 1) -> None:
        """Raises IncompatibleSchema when the check compares more than it may."""
        self._left -= pairs
        if self._left < 0:
            raise IncompatibleSchema(
                f"the check compares more than {self._pairs_max:,} pairs of types; use fewer versions or "
                "smaller definitions, or a strategy that is not transitive"
            )


def misfit_of(reader: ParsedDefinition, writer: ParsedDefinition, budget: PairBudget) -> Misfit | None:
    """Returns the first place at which `reader` cannot read what `writer` wrote; None if it reads all.

    The two must not be equal definitions: those are readable, whatever their aliases say. Raises
    IncompatibleSchema when the comparison is too large.
    """
    try:
        written = renamed(writer.root, reader.aliases)
    except AliasCollision as error:
        return Misfit(rendered(None), str(error))
    return Comparison(budget).misfit(reader.root, written)


class Comparison:
    """Rules about pairs of types; a reader that decodes asks it for branches of unions.

    Methods raise IncompatibleSchema when the budget is spent.
    """

    def __init__(self, budget: PairBudget) -> None:
        self._budget = budget
        self._candidates: dict[tuple[int, int], bool] = {}
        """Whether a pair of records shows no error in its direct fields; True while that is found out."""
        self._depth = 0

    def misfit(self, root_reader: AvroType, root_writer: AvroType) -> Misfit | None:
        met: set[tuple[int, int]] = set()
        root_path = (None, short_name(root_reader.name)) if isinstance(root_reader, Named) else None
        waiting: list[tuple[AvroType, AvroType, FieldPath]] = [(root_reader, root_writer, root_path)]
        while waiting:
            reader, writer, path = waiting.pop()
            self._budget.spend()
            if isinstance(writer, Union):
                if not (isinstance(reader, Union) and self.are_equivalent(reader, writer)):
                    waiting.extend((reader, branch, path) for branch in reversed(writer.branches))
                continue
            if isinstance(reader, Union):
                branch = self.branch_of(reader, writer)
                if branch is None:
                    return Misfit(
                        rendered(path),
                        f"no branch of the reader's {described(reader)} reads {described(writer)}",
                    )
                reader = branch
            found = direct_misfit(reader, writer)
            if found is not None:
                part, why = found
                return Misfit(rendered((path, part) if part else path), why)
            if isinstance(reader, Array) and isinstance(writer, Array):
                waiting.append((reader.items, writer.items, (path, ITEMS)))
            elif isinstance(reader, Map) and isinstance(writer, Map):
                waiting.append((reader.values, writer.values, (path, VALUES)))
            elif isinstance(reader, Record) and isinstance(writer, Record):
                pair = (id(reader), id(writer))
                if pair not in met:
                    met.add(pair)
                    self._budget.spend(len(writer.fields))
                    waiting.extend(_common_fields(reader, writer, path))
        return None

    def branch_of(self, reader: Union, writer: AvroType) -> AvroType | None:
        """Returns the branch of the reader that reads a writer that is not a union; None without any.

        The order of preference: the writer's kind, for named types under its full name; a record that fits by
        its direct fields, preferably under the writer's short name; the first branch by promotion.
        """
        fitting: AvroType | None = None
        for branch in reader.branches:
            self._budget.spend()
            if branch.kind != writer.kind:
                continue
            if not isinstance(branch, Named) or not isinstance(writer, Named) or branch.name == writer.name:
                return branch
            if isinstance(branch, Record) and isinstance(writer, Record) and self._fits(branch, writer):  # noqa: SIM102
                if fitting is None or short_name(branch.name) == short_name(writer.name):
                    fitting = branch
        if fitting is not None:
            return fitting
        promoted = _PROMOTIONS.get(writer.kind, ())
        return next((branch for branch in reader.branches if branch.kind in promoted), None)

    def _fits(self, reader: Record, writer: Record) -> bool:
        """Whether a pair of records shows no error itself or in its direct fields, errors below aside."""
        pair = (id(reader), id(writer))
        known = self._candidates.get(pair)
        if known is not None:
            return known
        if self._depth >= _CANDIDATE_DEPTH_MAX:
            raise IncompatibleSchema(
                f"the branch of a union is chosen by records nested more than {_CANDIDATE_DEPTH_MAX} deep; "
                "give records in unions the same names in both definitions"
            )
        self._candidates[pair] = True
        self._depth += 1
        fits = direct_misfit(reader, writer) is None and all(
            self._meets(reader.fields[name].type, field.type)
            for name, field in writer.fields.items()
            if name in reader.fields
        )
        self._depth -= 1
        self._candidates[pair] = fits
        return fits

    def _meets(self, reader: AvroType, writer: AvroType) -> bool:
        """Whether two types show no error themselves."""
        self._budget.spend()
        if isinstance(writer, Union):
            return True
        if isinstance(reader, Union):
            return self.branch_of(reader, writer) is not None
        return direct_misfit(reader, writer) is None

    def are_equivalent(self, one: AvroType, other: AvroType) -> bool:
        """Whether two unions are alike in all that their data depends on: branch i then reads branch i."""
        met: set[tuple[int, int]] = set()
        waiting = [(one, other)]
        while waiting:
            reader, writer = waiting.pop()
            self._budget.spend()
            if reader.kind != writer.kind:
                return False
            if isinstance(reader, Named) and isinstance(writer, Named):
                if short_name(reader.name) != short_name(writer.name):
                    return False
                pair = (id(reader), id(writer))
                if pair in met:
                    continue
                met.add(pair)
            match reader, writer:
                case Fixed(size=size), Fixed(size=written):
                    if size != written:
                        return False
                case Enumeration(symbols=symbols), Enumeration(symbols=written_symbols):
                    if symbols != written_symbols:
                        return False
                case Array(items=items), Array(items=written_items):
                    waiting.append((items, written_items))
                case Map(values=values), Map(values=written_values):
                    waiting.append((values, written_values))
                case Union(branches=branches), Union(branches=written_branches):
                    if len(branches) != len(written_branches):
                        return False
                    waiting.extend(zip(branches, written_branches, strict=True))
                case Record(fields=fields), Record(fields=written_fields):
                    if list(fields) != list(written_fields):
                        return False
                    waiting.extend((fields[name].type, written_fields[name].type) for name in fields)
        return True


def _common_fields(
    reader: Record, writer: Record, path: FieldPath
) -> Iterator[tuple[AvroType, AvroType, FieldPath]]:
    """Yields the fields that both records have, the last one first, but for those of one primitive type."""
    for name, field in reversed(writer.fields.items()):
        own = reader.fields.get(name)
        if own is not None and not (isinstance(field.type, Primitive) and own.type.kind == field.type.kind):
            yield own.type, field.type, (path, f".{name}")


def direct_misfit(reader: AvroType, writer: AvroType) -> tuple[str, str] | None:
    """Returns (part of the path, reason) if two types, neither a union, do not fit by themselves."""
    if reader.kind != writer.kind:
        if reader.kind in _PROMOTIONS.get(writer.kind, ()):
            return None
        return "", f"{described(writer)} cannot be read as {described(reader)}"
    match reader, writer:
        case Record(), Record():
            return _missing_default(reader, writer)
        case Fixed(size=size), Fixed(size=written_size) if size != written_size:
            return "", f"{described(writer)} cannot be read as {described(reader)}: the sizes differ"
        case (Fixed(name=name), Fixed(name=written)) | (Enumeration(name=name), Enumeration(name=written)):
            if short_name(name) != short_name(written):
                return "", (
                    f"{described(writer)} cannot be read as {described(reader)}: the names differ; keep the "
                    "name, or give the reader the writer's name as an alias"
                )
    return None


def _missing_default(reader: Record, writer: Record) -> tuple[str, str] | None:
    """Returns the first field that only the reader has and that no default fills."""
    for name, field in reader.fields.items():
        if name in writer.fields:
            continue
        if field.default is None:
            return (
                f".{name}",
                "the writer has no such field, and the reader has no default for it; add a default",
            )
        if field.default_problem:
            return (
                f".{name}",
                f"the writer has no such field, and its default is invalid: {field.default_problem}",
            )
    return None
