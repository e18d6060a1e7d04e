"""Conversions between values of Python and plain ones, compiled once for each definition.

Plain values are what fastavro or JSON write and read: numbers, text, bytes, lists, dicts and None. A record
is a dict, or an object of the class that is bound to its name. In plain Avro the value of a union is a pair
of the branch's name and the value; reading gives the pair for named types alone. JSON has no such pairs: the
branch that fits best is taken. A dict that fits several records may be given as (full name, dict).
"""

from __future__ import annotations

import base64
import binascii
import copy
import json
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from decimal import Decimal
from enum import Enum
from typing import Any, Final, TypeAlias

from magnetar.client.schemas.logical_types import is_text_decimal, logical_type_of
from magnetar.client.schemas.value_misfit import ValueMisfit, not_a
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
    described,
    label,
    short_name,
)
from magnetar.common.schemas.definition import shown

Convert: TypeAlias = Callable[[Any], Any]
Score: TypeAlias = Callable[[Any], int]
"""How well a value fits a type: 0 not at all, 1 after a conversion, 2 or more well."""


_SINGLE: Final = struct.Struct("<f")
_REFUSAL_MAX: Final = 300
"""Characters of a class's own error in an error."""


class Form(Enum):
    """The form of plain values."""

    AVRO = "Avro"
    JSON = "JSON"
    """Bytes are base64, as Jackson writes them for Java's client."""
    TEXT_JSON = "JSON with bytes as text"
    """Bytes are text, as the PyPI client writes them; they must be UTF-8."""


@dataclass(frozen=True, slots=True)
class ValueCodec:
    """The conversion of one type's values. Conversions raise ValueMisfit."""

    accepts: Score
    """How well a value of Python fits."""
    holds: Score
    """How well a plain value fits."""
    encode: Convert
    decode: Convert


@dataclass(frozen=True, slots=True)
class BoundField:
    """An attribute and the record's field that it is."""

    attribute: str
    name: str
    has_default: bool
    """Whether the class fills in a missing value."""
    default_is_null: bool
    """Whether null may be left out, since a reader fills in null."""
    container: Callable[[list[Any]], Any] | None = None
    """The class of an array that is not a list."""


@dataclass(frozen=True, slots=True)
class BoundRecord:
    """The class of a record."""

    cls: type
    fields: tuple[BoundField, ...]
    build: Callable[[dict[str, Any]], Any]
    """Returns an object of attributes by name; raises what the class raises."""


@dataclass(frozen=True, slots=True)
class Bindings:
    """Classes by full name in the definition."""

    records: dict[str, BoundRecord] = field(default_factory=dict)
    enums: dict[str, type[Enum]] = field(default_factory=dict)


def codec_of(root: AvroType, form: Form, bindings: Bindings | None = None) -> ValueCodec:
    """Returns the conversion of a definition's values; records without a binding are dicts."""
    return _Compiler(form, bindings or Bindings()).of(root)


def branch_name(avro_type: AvroType) -> str:
    """Returns the name of a union's branch in plain Avro: the kind, or a full name that has a namespace.

    Without one a name inside a record would get the record's namespace.
    """
    name = label(avro_type)
    return f"_.{name}" if isinstance(avro_type, Named) and "." not in name else name


def same(value: Any) -> Any:
    """Returns its argument: the conversion of values that are plain already."""
    return value


class _Compiler:
    """The codecs of one definition; recursive records refer to each other by name."""

    def __init__(self, form: Form, bindings: Bindings) -> None:
        self._form = form
        self._bindings = bindings
        self._records: dict[str, ValueCodec | None] = {}

    def of(self, avro_type: AvroType) -> ValueCodec:
        match avro_type:
            case Array():
                return _array(self.of(avro_type.items))
            case Map():
                return _map(self.of(avro_type.values))
            case Union():
                branches = [(each, self.of(each)) for each in avro_type.branches]
                kinds = [each.kind for each in avro_type.branches]
                if len(kinds) == 2 and "null" in kinds:
                    return _optional(*branches[kinds[0] == "null"], self._form)
                return _avro_union(branches) if self._form is Form.AVRO else _json_union(branches)
            case Enumeration():
                return _enum(avro_type, self._bindings.enums.get(avro_type.name))
            case Record():
                return self._record(avro_type)
            case Fixed() | Primitive():
                if is_text_decimal(avro_type) and self._form is not Form.AVRO:
                    return _json_decimal(avro_type)
                return _with_logical_type(avro_type, _leaf(avro_type, self._form))

    def _record(self, record: Record) -> ValueCodec:
        known = self._records.get(record.name)
        if known is not None:
            return known
        if record.name in self._records:
            return self._later(record)
        self._records[record.name] = None
        bound = self._bindings.records.get(record.name)
        codecs = {each.name: self.of(each.type) for each in record.fields.values()}
        made = _object(record, codecs, bound, self._form) if bound else _dict(record, codecs, self._form)
        self._records[record.name] = made
        return made

    def _later(self, record: Record) -> ValueCodec:
        def codec() -> ValueCodec:
            found = self._records[record.name]
            assert found is not None
            return found

        return ValueCodec(
            lambda value: codec().accepts(value),
            lambda plain: codec().holds(plain),
            lambda value: codec().encode(value),
            lambda plain: codec().decode(plain),
        )


def _leaf(avro_type: Primitive | Fixed, form: Form) -> ValueCodec:
    checked = _checked_leaf(avro_type, form)
    # What fastavro reads is of the definition's types already.
    return replace(checked, decode=same) if form is Form.AVRO else checked


def _checked_leaf(avro_type: Primitive | Fixed, form: Form) -> ValueCodec:
    match avro_type.kind:
        case "null":
            return _instances("null", type(None))
        case "boolean":
            return _instances("a boolean", bool)
        case "int":
            return _integer(31)
        case "long":
            return _integer(63)
        case "float" | "double":
            to_plain = _number if avro_type.kind == "double" else _single
            return ValueCodec(_number_score, _plain_number_score, to_plain, _float)
        case "string":
            return _instances("text", str)
        case _:
            return _bytes(avro_type.size if isinstance(avro_type, Fixed) else None, form)


def _instances(expected: str, cls: type) -> ValueCodec:
    def score(value: Any) -> int:
        return 2 if isinstance(value, cls) else 0

    def check(value: Any) -> Any:
        if not isinstance(value, cls):
            raise not_a(expected, value)
        return value

    return ValueCodec(score, score, check, check)


def _json_decimal(avro_type: AvroType) -> ValueCodec:
    """Returns the codec of a decimal in JSON: written as text, read from numbers too."""
    logical = logical_type_of(avro_type)
    assert logical is not None
    return ValueCodec(
        lambda value: 2 if logical.accepts(value) else 0,
        lambda plain: 1 if isinstance(plain, str | int | float | Decimal) else 0,
        logical.encode,
        logical.decode,
    )


def _number_score(value: Any) -> int:
    if isinstance(value, float):
        return 2
    return 1 if isinstance(value, int) and not isinstance(value, bool) else 0


def _plain_number_score(plain: Any) -> int:
    # JSON's numbers are read as Decimal where some have to be exact.
    return 2 if isinstance(plain, Decimal) else _number_score(plain)


def _float(plain: Any) -> float:
    if not _plain_number_score(plain):
        raise not_a("a number", plain)
    try:
        return float(plain)
    except OverflowError:
        raise ValueMisfit(f"{shown(plain)} is too large for a double") from None


def _number(value: Any) -> Any:
    if type(value) is not float and not _number_score(value):
        raise not_a("a number", value)
    return value


def _single(value: Any) -> Any:
    """Returns a number that fits a float of 4 bytes, which rounds it."""
    try:
        _SINGLE.pack(_number(value))
    except (struct.error, OverflowError):
        raise ValueMisfit(f"{shown(value)} is too large for a float; use a double") from None
    return value


def _integer(bits: int) -> ValueCodec:
    limit = 1 << bits

    def score(value: Any) -> int:
        if not isinstance(value, int) or isinstance(value, bool):
            return 0
        return 2 if -limit <= value < limit else 1

    def check(value: Any) -> int:
        if type(value) is int and -limit <= value < limit:
            return value
        found = score(value)
        if found == 2:
            return int(value)
        if found:
            raise ValueMisfit(f"{shown(value)} is outside of -2**{bits} to 2**{bits} - 1")
        raise not_a("an integer", value)

    return ValueCodec(score, score, check, check)


def _bytes(size: int | None, form: Form) -> ValueCodec:
    expected = "bytes" if size is None else f"{size} bytes"

    def accepts(value: Any) -> int:
        is_bytes = isinstance(value, bytes | bytearray | memoryview)
        return 2 if is_bytes and (size is None or len(value) == size) else 0

    def encode(value: Any) -> bytes:
        if not accepts(value):
            raise not_a(expected, value)
        return bytes(value)

    if form is Form.AVRO:
        return ValueCodec(accepts, accepts, encode, encode)

    def to_text(value: Any) -> str:
        found = encode(value)
        try:
            return base64.b64encode(found).decode() if form is Form.JSON else found.decode()
        except UnicodeDecodeError:
            raise ValueMisfit(f"{shown(found)} is not UTF-8, as bytes written as text must be") from None

    def of_text(plain: Any) -> bytes:
        if not isinstance(plain, str):
            raise not_a("bytes as text", plain)
        try:
            found = base64.b64decode(plain, validate=True) if form is Form.JSON else plain.encode()
        except (binascii.Error, ValueError):
            raise ValueMisfit(f"{shown(plain)} is not base64, as bytes in JSON are") from None
        return encode(found)

    return ValueCodec(accepts, lambda plain: 1 if isinstance(plain, str) else 0, to_text, of_text)


def _with_logical_type(avro_type: AvroType, base: ValueCodec) -> ValueCodec:
    logical = logical_type_of(avro_type)
    if logical is None:
        return base
    to_plain, of_plain = base.encode, base.decode
    return ValueCodec(
        lambda value: 2 if logical.accepts(value) else 0,
        base.holds,
        lambda value: to_plain(logical.encode(value)),
        lambda plain: logical.decode(of_plain(plain)),
    )


def _enum(enumeration: Enumeration, cls: type[Enum] | None) -> ValueCodec:
    symbols = frozenset(enumeration.symbols)
    expected = f"a symbol of {described(enumeration)}"

    def holds(plain: Any) -> int:
        return 2 if isinstance(plain, str) and plain in symbols else 0

    def symbol(plain: Any) -> str:
        if not holds(plain):
            raise not_a(expected, plain)
        return str(plain)

    if cls is None:
        return ValueCodec(holds, holds, symbol, symbol)

    def encode(value: Any) -> str:
        if not isinstance(value, cls):
            raise not_a(f"a {cls.__name__}", value)
        return value.name

    def decode(plain: Any) -> Enum:
        if isinstance(plain, str) and plain in symbols:
            return cls[plain]
        try:
            return cls(plain)  # The PyPI client writes the value of a member into JSON, not its name.
        except ValueError:
            raise not_a(expected, plain) from None

    return ValueCodec(
        lambda value: 2 if isinstance(value, cls) else 0, lambda plain: holds(plain) or 1, encode, decode
    )


def _array(items: ValueCodec) -> ValueCodec:
    def converted(values: Any, convert: Convert) -> list[Any]:
        if convert is same:
            return list(values)
        try:
            return [convert(each) for each in values]
        except ValueMisfit:
            for number, each in enumerate(values):
                _converted(convert, each, f"[{number}]")
            raise

    def accepts(value: Any) -> int:
        return 2 if isinstance(value, list | tuple | set | frozenset) else 0

    def encode(value: Any) -> list[Any]:
        if not accepts(value):
            raise not_a("a list", value)
        # Sets in an order that is the same in every process, since defaults are part of definitions.
        return converted(
            sorted(value, key=repr) if isinstance(value, set | frozenset) else value, items.encode
        )

    def decode(plain: Any) -> list[Any]:
        if not isinstance(plain, list):
            raise not_a("a list", plain)
        return converted(plain, items.decode)

    return ValueCodec(accepts, lambda plain: 2 if isinstance(plain, list) else 0, encode, decode)


def _map(values: ValueCodec) -> ValueCodec:
    def converted(value: Any, convert: Convert) -> dict[str, Any]:
        if not isinstance(value, Mapping):
            raise not_a("a map", value)
        if convert is same:
            return dict(value)
        made = {}
        for key, each in value.items():
            if not isinstance(key, str):
                raise not_a("text, as keys of a map are", key)
            try:
                made[key] = convert(each)
            except ValueMisfit as error:
                raise error.within(f"{{{shown(key)}}}") from None
        return made

    def score(value: Any) -> int:
        return 1 if isinstance(value, Mapping) else 0

    return ValueCodec(
        score,
        score,
        lambda value: converted(value, values.encode),
        lambda plain: converted(plain, values.decode),
    )


def _optional(branch: AvroType, codec: ValueCodec, form: Form) -> ValueCodec:
    """Returns the codec of a union of null and one branch, which most unions are."""
    name, convert_in, convert_out = branch_name(branch), codec.encode, codec.decode

    def encode(value: Any) -> Any:
        return None if value is None else (name, convert_in(value))

    def decode(plain: Any) -> Any:
        return None if plain is None else convert_out(plain[1] if type(plain) is tuple else plain)

    return ValueCodec(
        lambda value: 2 if value is None else codec.accepts(value),
        lambda plain: 2 if plain is None else codec.holds(plain),
        encode if form is Form.AVRO else lambda value: None if value is None else convert_in(value),
        decode,
    )


def _avro_union(branches: list[tuple[AvroType, ValueCodec]]) -> ValueCodec:
    by_name = {branch_name(each): codec for each, codec in branches}
    named = _named_branches(branches)
    others = [codec for each, codec in branches if not isinstance(each, Named)]
    named_codecs = [codec for each, codec in branches if isinstance(each, Named)]
    names = [branch_name(each) for each, _ in branches]
    codecs = [codec for _, codec in branches]
    shown_union = described(Union(tuple(each for each, _ in branches)))

    def encode(value: Any) -> Any:
        if _is_pair(value, named):
            name, codec = named[value[0]]
            return (name, codec.encode(value[1]))
        number = _best([each.accepts(value) for each in codecs])
        if number is None:
            raise not_a(f"of a {shown_union}", value)
        return None if names[number] == "null" else (names[number], codecs[number].encode(value))

    def decode(plain: Any) -> Any:
        if plain is None:
            return None
        if type(plain) is tuple:
            return by_name[plain[0]].decode(plain[1])
        candidates = others or named_codecs
        number = _best([each.holds(plain) for each in candidates])
        if number is None:
            raise not_a(f"of a {shown_union}", plain)
        return candidates[number].decode(plain)

    def accepts(value: Any) -> int:
        return max((each.accepts(value) for each in codecs), default=0)

    return ValueCodec(accepts, lambda _: 1, encode, decode)


def _json_union(branches: list[tuple[AvroType, ValueCodec]]) -> ValueCodec:
    named = _named_branches(branches)
    codecs = [codec for _, codec in branches]
    shown_union = described(Union(tuple(each for each, _ in branches)))

    def converted(value: Any, scores: list[int], is_encoded: bool) -> Any:
        number = _best(scores)
        if number is None:
            raise not_a(f"of a {shown_union}", value)
        return (codecs[number].encode if is_encoded else codecs[number].decode)(value)

    def encode(value: Any) -> Any:
        if _is_pair(value, named):
            return named[value[0]][1].encode(value[1])
        return converted(value, [each.accepts(value) for each in codecs], True)

    def decode(plain: Any) -> Any:
        return converted(plain, [each.holds(plain) for each in codecs], False)

    def accepts(value: Any) -> int:
        return max((each.accepts(value) for each in codecs), default=0)

    def holds(plain: Any) -> int:
        return max((each.holds(plain) for each in codecs), default=0)

    return ValueCodec(accepts, holds, encode, decode)


def _named_branches(branches: list[tuple[AvroType, ValueCodec]]) -> dict[str, tuple[str, ValueCodec]]:
    """Returns the names in plain Avro and the codecs by full name."""
    return {each.name: (branch_name(each), codec) for each, codec in branches if isinstance(each, Named)}


def _is_pair(value: Any, named: Mapping[str, object]) -> bool:
    """Whether a value says which named type of a union it is of, which dicts that look alike need."""
    return type(value) is tuple and len(value) == 2 and isinstance(value[0], str) and value[0] in named


def _best(scores: list[int]) -> int | None:
    """Returns the first of the highest scores; None where all are 0."""
    highest = max(scores, default=0)
    return scores.index(highest) if highest else None


def _object(record: Record, codecs: dict[str, ValueCodec], bound: BoundRecord, form: Form) -> ValueCodec:
    is_json = form is not Form.AVRO
    cls, build = bound.cls, bound.build
    members = [
        (each, codecs[each.name], _is_nullable(record.fields[each.name].type)) for each in bound.fields
    ]
    writers = [
        (
            f".{each.name}",
            each.attribute,
            each.name,
            codec.encode,
            is_json and nullable and each.default_is_null,
        )
        for each, codec, nullable in members
    ]
    readers = [(each, codec.decode, nullable) for each, codec, nullable in members]
    required = {each.name for each, _, nullable in members if not (each.has_default or nullable)}
    names = {each.name for each in bound.fields}

    def encode(value: Any) -> dict[str, Any]:
        if not isinstance(value, cls):
            raise not_a(f"a {cls.__name__}", value)
        made = {}
        for path, attribute, name, convert, may_omit in writers:
            member = getattr(value, attribute)
            if member is None and may_omit:
                continue
            try:
                made[name] = convert(member)
            except ValueMisfit as error:
                raise error.within(path) from None
        return made

    def decode(plain: Any) -> Any:
        if not isinstance(plain, dict):
            raise not_a(f"a {cls.__name__}", plain)
        attributes: dict[str, Any] = {}
        for each, convert, nullable in readers:
            if each.name not in plain:
                if each.has_default:
                    continue
                if not nullable:
                    raise ValueMisfit(f"the field {shown(each.name)} is missing")
                attributes[each.attribute] = None
                continue
            member = plain[each.name]
            if convert is not same:
                try:
                    member = convert(member)
                except ValueMisfit as error:
                    raise error.within(f".{each.name}") from None
            if each.container is not None and member is not None:
                member = each.container(member)
            attributes[each.attribute] = member
        try:
            return build(attributes)
        except Exception as error:  # Classes check their values with errors of their own.
            text = " ".join(str(error).split())[:_REFUSAL_MAX]
            raise ValueMisfit(f"{cls.__name__} refuses the values: {text}") from error

    return ValueCodec(
        lambda value: 3 if type(value) is cls else 2 if isinstance(value, cls) else 0,
        lambda plain: _record_score(plain, required, names),
        encode,
        decode,
    )


def _dict(record: Record, codecs: dict[str, ValueCodec], form: Form) -> ValueCodec:
    fields = list(record.fields.values())
    names = set(record.fields)
    required = {each.name for each in fields if each.default is None and not _is_nullable(each.type)}
    defaults = {each.name: _filled(each, form) for each in fields}

    def encode(value: Any) -> dict[str, Any]:
        if not isinstance(value, Mapping):
            raise not_a(f"a dict with the fields of {short_name(record.name)}", value)
        made = {}
        for name, codec in codecs.items():
            made[name] = (
                _converted(codec.encode, value[name], f".{name}") if name in value else defaults[name]()
            )
        if len(value) > len(made) or not names.issuperset(value):
            unknown = next(each for each in value if each not in names)
            raise ValueMisfit(f"{short_name(record.name)} has no field {shown(unknown)}")
        return made

    def decode(plain: Any) -> dict[str, Any]:
        if not isinstance(plain, dict):
            raise not_a(f"a {short_name(record.name)}", plain)
        return {
            name: _converted(codec.decode, plain[name] if name in plain else defaults[name](), f".{name}")
            for name, codec in codecs.items()
        }

    def accepts(value: Any) -> int:
        found = _record_score(value, required, names)
        return found if found and names.issuperset(value) else 0

    return ValueCodec(accepts, lambda plain: _record_score(plain, required, names), encode, decode)


def _converted(convert: Convert, value: Any, path: str) -> Any:
    try:
        return convert(value)
    except ValueMisfit as error:
        raise error.within(path) from None


def _record_score(value: Any, required: set[str], names: set[str]) -> int:
    if not isinstance(value, Mapping) or not required.issubset(value):
        return 0
    return 2 + sum(name in value for name in names)


def _is_nullable(avro_type: AvroType) -> bool:
    branches = avro_type.branches if isinstance(avro_type, Union) else (avro_type,)
    return any(each.kind == "null" for each in branches)


def _filled(each: Field, form: Form) -> Callable[[], Any]:
    """Returns a function that returns the plain default of a field, or raises ValueMisfit without one."""
    if each.default is not None and not each.default_problem:
        made = plain_default(json.loads(each.default), each.type, form)
        return lambda: copy.deepcopy(made)

    def missing() -> Any:
        raise ValueMisfit(f"the field {shown(each.name)} is missing")

    # JSON leaves null out.
    return (lambda: None) if form is not Form.AVRO and _is_nullable(each.type) else missing


def plain_default(default: Any, avro_type: AvroType, form: Form) -> Any:
    """Returns a default of a definition as a plain value; it must be one by `avro_defaults.problem`.

    Values that Java's client is lenient about become those that it makes of them.
    """
    match avro_type:
        case Union():
            branch = avro_type.branches[0]
            made = plain_default(default, branch, form)
            return (
                made
                if form is not Form.AVRO or not isinstance(branch, Named)
                else (branch_name(branch), made)
            )
        case Array():
            values = default.values() if isinstance(default, dict) else default
            values = values if isinstance(default, dict | list) else ()
            return [plain_default(each, avro_type.items, form) for each in values]
        case Map():
            members = default if isinstance(default, dict) else {}
            return {key: plain_default(each, avro_type.values, form) for key, each in members.items()}
        case Record():
            default = default if isinstance(default, dict) else {}
            return {each.name: _member_default(default, each, form) for each in avro_type.fields.values()}
    if avro_type.kind in ("float", "double"):
        return float(default)
    if avro_type.kind in ("int", "long"):
        return int(default)
    if avro_type.kind not in ("bytes", "fixed"):
        return default
    found = default.encode("latin-1", "replace")
    if isinstance(avro_type, Fixed):
        found = found[: avro_type.size].ljust(avro_type.size, b"\0")
    if form is Form.AVRO:
        return found
    return base64.b64encode(found).decode() if form is Form.JSON else default


def _member_default(default: dict[str, Any], each: Field, form: Form) -> Any:
    given = default[each.name] if each.name in default else json.loads(each.default or "null")
    return plain_default(given, each.type, form)
