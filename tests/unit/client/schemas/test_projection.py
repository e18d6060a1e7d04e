"""Values of a writer as a reader gets them: all that brokers judge readable is read, by Avro's rules."""

from __future__ import annotations

import io
import json
import random
from typing import Any

import fastavro
import pytest
from magnetar.client.schemas.avro import Avro, bare_definition, reader_of
from magnetar.client.schemas.json import Json
from magnetar.client.schemas.payload_bounds import has_items_without_bytes
from magnetar.client.schemas.projection import projection_of
from magnetar.client.schemas.schema import SchemaError, SchemaInfo
from magnetar.client.schemas.value_misfit import ValueMisfit
from magnetar.client.schemas.values import Form, codec_of
from magnetar.common.errors import IncompatibleSchema, InvalidSchema
from magnetar.common.schemas.avro_resolution import PairBudget, misfit_of
from magnetar.common.schemas.avro_types import AvroType, Map, Record, Union, walk
from magnetar.common.schemas.definition import SchemaType
from magnetar.common.schemas.parsed_definitions import ParsedDefinition, parsed_definition
from magnetar.common.schemas.rules import Strategy

from tests.property.schemas.definitions import evolved, random_definition, random_value
from tests.schemas.verdicts import STRATEGIES, VerdictCase, verdict_cases

VERSION = bytes(8)
BACKWARD = STRATEGIES.index(Strategy.BACKWARD)


def parsed(definition: Any) -> ParsedDefinition:
    return parsed_definition(json.dumps(definition).encode())


def record(*fields: Any, name: str = "R") -> Any:
    return {
        "type": "record",
        "name": name,
        "fields": [dict(zip(("name", "type"), each, strict=True)) for each in fields],
    }


def read_as(writer: Any, reader: Any, value: Any) -> Any:
    schema = Avro(reader)
    schema.add_version(VERSION, SchemaInfo("", SchemaType.AVRO, json.dumps(writer).encode()))
    return schema.decode(Avro(writer).encode(value), VERSION)


@pytest.mark.parametrize(
    ("writer", "reader", "value", "expected"),
    [
        ("int", "double", 3, 3.0),
        ("long", ["null", "float"], 3, 3.0),
        ("string", "bytes", "ë", "ë".encode()),
        ("bytes", "string", "ë".encode(), "ë"),
        ({"type": "array", "items": "int"}, {"type": "array", "items": "float"}, [1], [1.0]),
        ({"type": "map", "values": "int"}, {"type": "map", "values": "long"}, {"a": 1}, {"a": 1}),
        (["null", "int"], "long", 3, 3),
        (["null", "int"], ["string", "null", "double"], None, None),
        (["null", "int"], ["string", "null", "double"], 3, 3.0),
        (record(("x", "int"), name="A"), ["null", record(("x", "long"), name="B")], {"x": 1}, {"x": 1}),
    ],
)  # fmt: skip
def test_values_are_promoted_and_branches_chosen(writer: Any, reader: Any, value: Any, expected: Any) -> None:
    found = read_as(record(("a", writer)), record(("a", reader)), {"a": value})["a"]
    assert found == expected
    assert type(found) is type(expected)


def test_names_of_records_do_not_matter_also_where_one_record_is_read_as_two() -> None:
    inner = record(("x", "int"), name="Inner")
    writer = record(("a", inner), ("b", "Inner"), name="Old")
    reader = record(
        ("a", record(("x", "long"), name="P")), ("b", record(("x", "double"), name="Q")), name="New"
    )
    assert read_as(writer, reader, {"a": {"x": 1}, "b": {"x": 2}}) == {"a": {"x": 1}, "b": {"x": 2.0}}


def test_a_record_of_a_union_is_taken_by_full_name_then_by_what_fits() -> None:
    point, circle = record(("x", "int"), name="Point"), record(("r", "int"), name="Circle")
    writer = record(("shape", [point, circle]))
    reader = record(
        ("shape", ["null", record(("r", "long"), name="Disk"), record(("x", "long"), name="Point")])
    )
    assert read_as(writer, reader, {"shape": {"x": 1}}) == {"shape": {"x": 1}}
    assert read_as(writer, reader, {"shape": {"r": 2}}) == {"shape": {"r": 2}}


def test_only_a_value_of_an_unreadable_branch_fails() -> None:
    writer, reader = record(("a", ["int", "string"])), record(("a", "long"))
    assert read_as(writer, reader, {"a": 1}) == {"a": 1}
    with pytest.raises(SchemaError, match="a: string cannot be read as long"):
        read_as(writer, reader, {"a": "1"})


def test_aliases_that_make_two_fields_one_make_the_version_unreadable() -> None:
    writer = record(("a", "int"), ("b", "int"))
    reader = record(("b", "int"))
    reader["fields"][0]["aliases"] = ["a"]
    with pytest.raises(SchemaError, match="two fields of the writer's record 'R' become 'b'"):
        read_as(writer, reader, {"a": 1, "b": 2})


@pytest.mark.seeds(100, full=1_000)
def test_what_brokers_judge_readable_is_read(seed: int) -> None:
    """All of it but symbols that the reader lacks, which brokers do not compare."""
    rng = random.Random(seed)
    definition = random_definition(rng)
    changed = evolved(rng, definition, gentle=bool(seed % 2))
    try:
        writer, reader = parsed(definition), parsed(changed)
        if misfit_of(reader, writer, PairBudget()) is not None or reader.default_problem:
            return
    except (InvalidSchema, IncompatibleSchema):
        return
    if has_items_without_bytes(writer.root):
        return
    types, project = projection_of(writer, reader)
    read, codec = reader_of(types), codec_of(reader.root, Form.AVRO)
    by_definition = fastavro.parse_schema(json.loads(json.dumps(definition)))
    for _ in range(5):
        sink = io.BytesIO()
        fastavro.schemaless_writer(sink, by_definition, random_value(rng, definition))
        try:
            value = codec.decode(project(read(sink.getvalue())))
        except ValueMisfit as error:
            if "the symbol" not in str(error):
                raise
            continue
        if not has_records_that_look_alike(reader.root):
            assert codec.decode(codec.encode(value)) == value


def has_records_that_look_alike(root: AvroType) -> bool:
    unions = [each for each in walk(root) if isinstance(each, Union)]
    return any(sum(isinstance(branch, Record | Map) for branch in each.branches) > 1 for each in unions)


def test_names_with_and_without_a_namespace_are_told_apart() -> None:
    """A name without a namespace that is defined inside a record with one stays without."""
    inner = {"type": "fixed", "name": "F", "size": 1}
    writer = record(("a", ["null", inner | {"namespace": ""}, "int"]), name="ns.R")
    reader = record(("a", ["null", inner | {"namespace": "other"}, "int"]), ("b", "int"), name="R")
    reader["fields"][1]["default"] = 7
    assert read_as(writer, reader, {"a": b"x"}) == {"a": b"x", "b": 7}


@pytest.mark.parametrize(
    ("avro_type", "default", "expected"),
    [
        ({"type": "fixed", "name": "F", "size": 2}, "xyz", b"xy"),
        ({"type": "fixed", "name": "F", "size": 2}, "x", b"x\0"),
        ({"type": "array", "items": "int"}, {"a": 1.5}, [1]),
        ({"type": "array", "items": "int"}, "none", []),
        ({"type": "map", "values": "int"}, [], {}),
        (record(name="E"), 5, {}),
        ("double", "Infinity", float("inf")),
    ],
)
def test_lenient_defaults_are_what_java_makes_of_them(avro_type: Any, default: Any, expected: Any) -> None:
    reader = record(("a", avro_type))
    reader["fields"][0]["default"] = default
    assert read_as(record(), reader, {}) == {"a": expected}


def test_a_dict_with_other_keys_than_a_record_s_is_a_map() -> None:
    schema = Avro(record(("a", [record(name="Empty"), {"type": "map", "values": "int"}])))
    assert schema.decode(schema.encode({"a": {"key": 1}})) == {"a": {"key": 1}}
    assert schema.encode({"a": {}}) == b"\x00"


def test_dicts_that_look_alike_are_told_apart_by_a_name() -> None:
    one, two = record(("x", "int"), name="One"), record(("x", "int"), name="Two")
    definition = record(("a", ["null", one, two]))
    for schema in (Avro(definition), Json(definition)):
        named, plain = (schema.encode({"a": value}) for value in (("Two", {"x": 1}), {"x": 1}))
        assert schema.decode(named) == schema.decode(plain) == {"a": {"x": 1}}
    assert Avro(definition).encode({"a": ("Two", {"x": 1})}) == b"\x04\x02"
    assert Avro(definition).encode({"a": {"x": 1}}) == b"\x02\x02"


def _avro_cases() -> list[VerdictCase]:
    """Cases of one version of AVRO and a new schema, both valid, with a verdict."""
    return [
        case
        for case in verdict_cases()
        if [each.type for _, each in case.history] == [case.new.type] == [SchemaType.AVRO]
        and case.subscribe[BACKWARD] in "yn"
        and case.put[BACKWARD] != "x"
    ]


@pytest.mark.parametrize("case", _avro_cases(), ids=lambda case: case.name)
def test_verdicts_of_pulsar_are_kept_by_what_is_read(case: VerdictCase) -> None:
    """A reader that Pulsar takes reads every value; of one that it refuses some value is not read."""
    writer, reader = parsed_definition(case.history[0][1].data), parsed_definition(case.new.data)
    is_taken = case.subscribe[BACKWARD] == "y"
    try:
        types, project = projection_of(writer, reader)
    except SchemaError:
        assert not is_taken
        return
    read, write = reader_of(types), fastavro.parse_schema(bare_definition(writer.root))
    refusals = []
    for seed in range(40):
        sink = io.BytesIO()
        fastavro.schemaless_writer(
            sink, write, random_value(random.Random(seed), bare_definition(writer.root))
        )
        try:
            project(read(sink.getvalue()))
        except ValueMisfit as error:
            refusals.append(str(error))
    of_symbols = [each for each in refusals if "the symbol" in each]
    assert refusals == of_symbols if is_taken else refusals
