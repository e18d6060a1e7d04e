"""Random Avro definitions, random changes of them, and random data that a definition describes."""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Callable, Iterator
from typing import Any, Final

Json = Any

_PRIMITIVES: Final = ("null", "boolean", "int", "long", "float", "double", "bytes", "string")
_PROMOTED: Final = {
    "int": ("long", "float", "double"),
    "long": ("float", "double"),
    "float": ("double",),
    "string": ("bytes",),
    "bytes": ("string",),
}
_DEFAULTS: Final = {
    "null": None,
    "boolean": True,
    "int": 1,
    "long": 2,
    "float": 1.5,
    "double": 2.5,
    "bytes": "b",
    "string": "s",
}
_DEPTH_MAX: Final = 4
_NESTING_MAX: Final = 6
"""Levels of recursive types in random data."""


def random_definition(rng: random.Random) -> Json:
    """Returns a record of a few fields, with nested, named, repeated and recursive types among them."""
    return _Definitions(rng).record(0)


class _Definitions:
    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._count = 0
        self._named: list[str] = []
        """Names that may be referred to from here on."""

    def record(self, depth: int) -> Json:
        name = self._name("R")
        self._named.append(name)
        count = self._rng.randint(0 if depth else 1, 4)
        return {"type": "record", "name": name, "fields": [self._field(i, depth) for i in range(count)]}

    def _field(self, number: int, depth: int) -> Json:
        made: Json = {"name": f"f{number}", "type": self.type(depth + 1)}
        if self._rng.random() < 0.3:
            add_default(made)
        return made

    def type(self, depth: int) -> Json:
        rng = self._rng
        choice = rng.random()
        if depth >= _DEPTH_MAX or choice < 0.45:
            return rng.choice(_PRIMITIVES)
        if choice < 0.55:
            branches = [self.type(depth + 1) for _ in range(rng.randint(1, 3))]
            return union_of(["null", *branches] if rng.random() < 0.7 else branches)
        if choice < 0.63:
            return {"type": "array", "items": self.type(depth + 1)}
        if choice < 0.70:
            return {"type": "map", "values": self.type(depth + 1)}
        if choice < 0.78:
            return self._remembered({"type": "enum", "name": self._name("E"), "symbols": ["A", "B"]})
        if choice < 0.84:
            return self._remembered({"type": "fixed", "name": self._name("F"), "size": rng.randint(1, 3)})
        if choice < 0.92 and self._named:
            # A record that holds itself directly has no data, so it is optional.
            return ["null", rng.choice(self._named)]
        return self.record(depth + 1)

    def _remembered(self, definition: Json) -> Json:
        self._named.append(definition["name"])
        return definition

    def _name(self, prefix: str) -> str:
        self._count += 1
        return f"{prefix}{self._count}"


def union_of(branches: list[Json]) -> Json:
    """Returns a valid union of these: nested unions taken apart, branches of one kind or name only once."""
    flat: dict[str, Json] = {}
    for branch in branches:
        for each in branch if isinstance(branch, list) else [branch]:
            flat.setdefault(_label(each), each)
    return list(flat.values())


def add_default(field: Json) -> None:
    """Gives a field a default of its type, where there is a simple one."""
    kind = field["type"]
    first = kind[0] if isinstance(kind, list) and kind else kind
    if isinstance(first, str) and first in _DEFAULTS:
        field["default"] = _DEFAULTS[first]
    elif isinstance(first, dict) and first["type"] in ("array", "map"):
        field["default"] = [] if first["type"] == "array" else {}
    elif isinstance(first, dict) and first["type"] == "enum":
        field["default"] = first["symbols"][0]
    elif isinstance(first, dict) and first["type"] == "fixed":
        field["default"] = "x" * first["size"]


def evolved(rng: random.Random, definition: Json, *, gentle: bool = False) -> Json:
    """Returns a definition after one to four random changes; some changes make it invalid.

    `gentle` leaves out the changes that Java's decoder reads and other decoders do not: names of types, and
    symbols that go.
    """
    changed = copy.deepcopy(definition)
    for _ in range(rng.randint(1, 4)):
        change = rng.choice(_GENTLE if gentle else _CHANGES)
        change(rng, changed)
    return changed


def _records(value: Json) -> list[Json]:
    return [each for each in _nodes(value) if isinstance(each, dict) and each.get("type") == "record"]


def _fields(value: Json) -> list[Json]:
    return [field for record in _records(value) for field in record["fields"]]


def _kind(value: Json, kind: str) -> list[Json]:
    return [each for each in _nodes(value) if isinstance(each, dict) and each.get("type") == kind]


def _nodes(value: Json) -> Iterator[Json]:
    yield value
    if isinstance(value, list):
        for each in value:
            yield from _nodes(each)
    elif isinstance(value, dict):
        for key in ("items", "values", "type"):
            if isinstance(value.get(key), list | dict):
                yield from _nodes(value[key])
        for each in value.get("fields", ()):
            yield from _nodes(each["type"])


def _add_field(rng: random.Random, definition: Json) -> None:
    record = rng.choice(_records(definition))
    field: Json = {"name": f"g{rng.randint(0, 99)}", "type": rng.choice((*_PRIMITIVES, ["null", "string"]))}
    if rng.random() < 0.7:
        add_default(field)
    if all(each["name"] != field["name"] for each in record["fields"]):
        record["fields"].insert(rng.randint(0, len(record["fields"])), field)


def _remove_field(rng: random.Random, definition: Json) -> None:
    record = rng.choice(_records(definition))
    simple = [each for each in record["fields"] if isinstance(each["type"], str)]
    if simple:
        record["fields"].remove(rng.choice(simple))


def _reorder_fields(rng: random.Random, definition: Json) -> None:
    record = rng.choice(_records(definition))
    if all(isinstance(each["type"], str) for each in record["fields"]):
        rng.shuffle(record["fields"])


def _rename_field(rng: random.Random, definition: Json) -> None:
    fields = _fields(definition)
    if not fields:
        return
    field = rng.choice(fields)
    if rng.random() < 0.7:
        field["aliases"] = [field["name"]]
    field["name"] = f"h{rng.randint(0, 999)}"


def _promote(rng: random.Random, definition: Json) -> None:
    fields = [each for each in _fields(definition) if each["type"] in list(_PROMOTED)]
    if fields:
        field = rng.choice(fields)
        field["type"] = rng.choice(_PROMOTED[field["type"]])


def _promote_member(rng: random.Random, definition: Json) -> None:
    for kind, key in (("array", "items"), ("map", "values")):
        for each in _kind(definition, kind):
            if each[key] in list(_PROMOTED) and rng.random() < 0.5:
                each[key] = rng.choice(_PROMOTED[each[key]])


def _make_optional(rng: random.Random, definition: Json) -> None:
    fields = _fields(definition)
    if fields:
        field = rng.choice(fields)
        field.pop("default", None)
        kind = field["type"]
        field["type"] = union_of(["null", *(kind if isinstance(kind, list) else [kind])])


def _change_union(rng: random.Random, definition: Json) -> None:
    unions = [each for each in _fields(definition) if isinstance(each["type"], list)]
    if not unions:
        return
    field = rng.choice(unions)
    field.pop("default", None)
    match rng.randint(0, 2):
        case 0:
            field["type"] = union_of([*field["type"], rng.choice(_PRIMITIVES)])
        case 1:
            if all(isinstance(each, str) for each in field["type"]):
                rng.shuffle(field["type"])
        case _:
            if len(field["type"]) > 1 and isinstance(field["type"][-1], str):
                field["type"].pop()


def _add_symbol(rng: random.Random, definition: Json) -> None:
    for each in _kind(definition, "enum"):
        if "C" not in each["symbols"]:
            each["symbols"].insert(rng.randint(0, 2), "C")


def _replace_type(rng: random.Random, definition: Json) -> None:
    fields = [each for each in _fields(definition) if isinstance(each["type"], str)]
    if fields:
        field = rng.choice(fields)
        field.pop("default", None)
        field["type"] = rng.choice(_PRIMITIVES)


def _unwrap_union(rng: random.Random, definition: Json) -> None:
    unions = [each for each in _fields(definition) if isinstance(each["type"], list) and each["type"]]
    if unions:
        field = rng.choice(unions)
        field.pop("default", None)
        field["type"] = field["type"][-1]


def _rename_type(rng: random.Random, definition: Json) -> None:
    """Renames a type where it is defined and referred to, with or without an alias or a namespace."""
    named = [each for each in _nodes(definition) if isinstance(each, dict) and "name" in each]
    if not named:
        return
    chosen = rng.choice(named)
    old = chosen["name"]
    new = rng.choice((f"N{rng.randint(0, 99)}", f"ns.{old.rpartition('.')[2]}"))
    if rng.random() < 0.5:
        chosen["aliases"] = [old if "." in old or "." not in new else "." + old]
    text = json.dumps(definition).replace(json.dumps(old), json.dumps(new))
    text = text.replace(f'"aliases": [{json.dumps(new)}]', f'"aliases": [{json.dumps(old)}]')
    renamed = json.loads(text)
    definition.clear()
    definition.update(renamed)


def _remove_symbol(rng: random.Random, definition: Json) -> None:
    for each in _kind(definition, "enum"):
        if rng.random() < 0.5:
            each["symbols"] = each["symbols"][:1] if rng.random() < 0.7 else ["Z"]


def _resize(rng: random.Random, definition: Json) -> None:
    for each in _kind(definition, "fixed"):
        each["size"] = rng.randint(1, 3)


def _union_of_records(rng: random.Random, definition: Json) -> None:
    """Makes a record a branch of a union beside others of nearly its structure."""
    fields = [each for each in _fields(definition) if isinstance(each["type"], dict)]
    fields = [each for each in fields if each["type"].get("type") == "record"]
    if not fields:
        return
    field = rng.choice(fields)
    field.pop("default", None)
    others = []
    for number in range(rng.randint(1, 2)):
        copied: list[Json] = []
        for each in field["type"]["fields"]:
            if isinstance(each["type"], str) and each["type"] in _PRIMITIVES and rng.random() < 0.8:
                promoted = _PROMOTED.get(each["type"], (each["type"],))
                copied.append({"name": each["name"], "type": rng.choice(promoted)})
        others.append({"type": "record", "name": f"U{rng.randint(0, 999)}{number}", "fields": copied})
    field["type"] = union_of([*others, field["type"]] if rng.random() < 0.5 else others)


_GENTLE: Final[tuple[Callable[[random.Random, Json], None], ...]] = (
    _add_field,
    _remove_field,
    _reorder_fields,
    _rename_field,
    _promote,
    _promote_member,
    _make_optional,
    _change_union,
    _add_symbol,
    _replace_type,
    _unwrap_union,
    _resize,
)
_CHANGES: Final = (*_GENTLE, _rename_type, _rename_type, _remove_symbol, _union_of_records)


def random_value(rng: random.Random, definition: Json) -> Any:
    """Returns data that the definition describes."""
    names = {each["name"]: each for each in _nodes(definition) if isinstance(each, dict) and "name" in each}
    return _value(rng, definition, names, 0)


def _value(rng: random.Random, kind: Json, names: dict[str, Json], depth: int) -> Any:
    if isinstance(kind, list):
        branch = kind[0] if depth > _NESTING_MAX else rng.choice(kind)
        return _value(rng, branch, names, depth + 1)
    if isinstance(kind, str):
        return _primitive(rng, kind) if kind in _PRIMITIVES else _value(rng, names[kind], names, depth)
    count = 0 if depth > _NESTING_MAX else rng.randint(0, 2)
    match kind["type"]:
        case "array":
            return [_value(rng, kind["items"], names, depth + 1) for _ in range(count)]
        case "map":
            return {str(key): _value(rng, kind["values"], names, depth + 1) for key in range(count)}
        case "enum":
            return rng.choice(kind["symbols"])
        case "fixed":
            return rng.randbytes(kind["size"])
        case "record":
            return {each["name"]: _value(rng, each["type"], names, depth + 1) for each in kind["fields"]}
        case primitive:
            return _primitive(rng, primitive)


def _primitive(rng: random.Random, kind: str) -> Any:
    match kind:
        case "null":
            return None
        case "boolean":
            return rng.random() < 0.5
        case "int":
            return rng.randint(-(2**31), 2**31 - 1)
        case "long":
            return rng.randint(-(2**63), 2**63 - 1)
        case "float" | "double":
            return float(rng.randint(-1000, 1000))
        case "bytes":
            # Valid text, because a reader may take it for a string.
            return rng.choice((b"", b"b"))
        case _:
            return rng.choice(("", "s"))


def reformatted(rng: random.Random, value: Json) -> str:
    """Returns the JSON with other white space and its keys in another order."""
    return json.dumps(
        _shuffled(rng, value), indent=rng.choice((None, 1, "\t")), ensure_ascii=rng.random() < 0.5
    )


def _shuffled(rng: random.Random, value: Json) -> Json:
    if isinstance(value, list):
        return [_shuffled(rng, each) for each in value]
    if isinstance(value, dict):
        keys = list(value)
        rng.shuffle(keys)
        return {key: _shuffled(rng, value[key]) for key in keys}
    return value


def _label(branch: Json) -> str:
    if isinstance(branch, str):
        return branch
    return str(branch.get("name", branch["type"]))


_PIECES: Final[tuple[Json, ...]] = (
    None,
    True,
    0,
    -1,
    1.5,
    2**40,
    "",
    "int",
    "nope",
    "a-b",
    "9a",
    "_",
    "é1",
    "n.s.Name",
    ".R1",
    "R1",
    [],
    {},
    ["null", "int"],
    ["int", "int"],
    {"type": "int"},
    {"type": "R1"},
    {"type": {"type": "int"}},
    {"type": "array"},
    {"type": "enum", "name": "X", "symbols": ["A", "A"]},
    {"type": "fixed", "name": "Y", "size": 2},
)
_KEYS: Final = (
    "type", "name", "namespace", "fields", "items", "values", "symbols", "size", "default", "order",
    "aliases", "doc", "logicalType", "other",
)  # fmt: skip


def damaged(rng: random.Random, definition: Json) -> Json:
    """Returns a definition in which one to three values are replaced, added or taken away at random."""
    changed = copy.deepcopy(definition)
    for _ in range(rng.randint(1, 3)):
        places = list(_places(changed))
        container, key = rng.choice(places)
        choice = rng.random()
        if choice < 0.55:
            container[key] = copy.deepcopy(rng.choice(_PIECES))
        elif choice < 0.7:
            del container[key]
            if not any(_places(changed)):
                return changed
        elif isinstance(container, dict):
            container[rng.choice(_KEYS)] = copy.deepcopy(rng.choice(_PIECES))
        else:
            container.insert(rng.randint(0, len(container)), copy.deepcopy(rng.choice(_PIECES)))
    return changed


def _places(value: Json) -> Iterator[tuple[Any, Any]]:
    """Yields every (container, key or index) of a JSON value."""
    keys = list(value) if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ()
    for key in keys:
        yield value, key
        yield from _places(value[key])
