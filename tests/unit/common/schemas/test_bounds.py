"""Bounds on definitions that clients bring: size, depth, comparisons and memory."""

from __future__ import annotations

import json
from typing import Any

import pytest
from magnetar.common.errors import IncompatibleSchema, InvalidSchema
from magnetar.common.schemas.avro_parser import DEPTH_MAX
from magnetar.common.schemas.avro_resolution import PairBudget, misfit_of
from magnetar.common.schemas.definition import DEFINITION_BYTES_MAX, SchemaDefinition, SchemaType
from magnetar.common.schemas.parsed_definitions import DefinitionCache, parsed_definition
from magnetar.common.schemas.rules import Strategy, check_put


def parsed(definition: Any) -> Any:
    return parsed_definition(json.dumps(definition).encode())


def record(name: str, **fields: Any) -> dict[str, Any]:
    return {
        "type": "record",
        "name": name,
        "fields": [{"name": key, "type": each} for key, each in fields.items()],
    }


def nested_arrays(depth: int) -> Any:
    return {"type": "array", "items": nested_arrays(depth - 1)} if depth else "int"


def chained(prefix: str, length: int, last: str, *, optional: bool = False) -> dict[str, Any]:
    """A record whose field `top` is deep by references although its text is flat."""
    links = [record(f"{prefix}0", x=last)]
    for i in range(1, length):
        inner = f"{prefix}{i - 1}"
        links.append(record(f"{prefix}{i}", x=["null", inner] if optional else inner))
    top = f"{prefix}{length - 1}"
    definitions = {"name": f"only_in_{prefix}", "type": ["null", *links], "default": None}
    field = {"name": "top", "type": ["null", top] if optional else top}
    return {"type": "record", "name": "Root", "fields": [definitions, field]}


def test_types_may_be_nested_as_deep_as_the_bound_and_no_deeper() -> None:
    parsed(nested_arrays(DEPTH_MAX))
    with pytest.raises(InvalidSchema, match="nested more than 64 deep"):
        parsed(nested_arrays(DEPTH_MAX + 1))


def test_a_definition_larger_than_the_bound_is_refused() -> None:
    text = json.dumps({"type": "int", "doc": "x" * DEFINITION_BYTES_MAX}).encode()
    with pytest.raises(InvalidSchema, match="at most 1,048,576 fit"):
        parsed_definition(text)


def test_references_nested_deeper_than_the_stack_are_compared() -> None:
    old = parsed(chained("R", 3_000, "int"))
    assert misfit_of(parsed(chained("S", 3_000, "long")), old, PairBudget()) is None
    found = misfit_of(parsed(chained("S", 3_000, "string")), old, PairBudget())
    assert found is not None
    assert found.path.endswith(".x.x.x")
    assert found.path.startswith("...")
    assert len(found.path) < 300


def test_a_branch_is_chosen_by_records_nested_as_deep_as_the_bound_and_no_deeper() -> None:
    shallow, deep = (
        (parsed(chained("A", length, "int", optional=True)), parsed(chained("B", length, "int")))
        for length in (60, 80)
    )
    assert misfit_of(*shallow, PairBudget()) is None
    with pytest.raises(IncompatibleSchema, match="nested more than 64 deep"):
        misfit_of(*deep, PairBudget())


def test_a_check_beyond_the_budget_is_refused() -> None:
    wide = record("W", **{f"f{i}": "int" for i in range(100)})
    with pytest.raises(IncompatibleSchema, match="compares more than 50 pairs of types"):
        misfit_of(parsed(wide), parsed(wide), PairBudget(50))


def test_records_that_meet_in_many_fields_are_compared_once() -> None:
    inner = record("I", **{f"x{i}": "int" for i in range(100)})
    wide = record("W", a=inner, **{f"f{i}": "I" for i in range(1_000)})
    assert misfit_of(parsed(wide), parsed(wide), PairBudget(2_500)) is None


def test_the_cache_keeps_what_is_used_within_its_bytes() -> None:
    cache = DefinitionCache(bytes_max=200)
    texts = [json.dumps({"type": "int", "n": i}).ljust(40).encode() for i in range(50)]
    first = cache.get(texts[0])
    for text in texts:
        cache.get(text)
        assert cache.get(texts[0]) is first
        assert sum(map(len, (*cache._young, *cache._old))) <= 32 * 5
    assert cache.get(texts[1]) is not None
    large = json.dumps({"type": "int", "doc": "x" * 300}).encode()
    assert cache.get(large) is not cache.get(large)
    assert cache.get(large).digest == cache.get(b'"int"').digest


def test_a_long_history_is_checked_within_the_budget() -> None:
    def version(i: int) -> SchemaDefinition:
        text = json.dumps(record("R", **{f"f{n}": "int" for n in range(20)}, last={"type": "int", "n": i}))
        return SchemaDefinition(SchemaType.AVRO, text.encode())

    check_put(version(200), [(i, version(i)) for i in range(200)], Strategy.FULL_TRANSITIVE)
