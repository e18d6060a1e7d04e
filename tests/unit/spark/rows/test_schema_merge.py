"""One column type for all versions of a schema, and values of each version under it."""

from __future__ import annotations

import io
import json
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from magnetar.spark.rows.schema_merge import merged_type, type_of_versions, under_aliases
from magnetar.spark.rows.values import ValueDecoder, ValuePlan, ValueUnfit, plan_values
from magnetar.spark.source_options import BadOption, parse_options
from pyspark.sql.types import StructType


def record(*fields: tuple[Any, ...], name: str = "Order") -> dict[str, Any]:
    made = [{"name": each[0], "type": each[1], **(each[2] if len(each) > 2 else {})} for each in fields]
    return {"type": "record", "name": name, "fields": made}


def text(definition: Any) -> bytes:
    return json.dumps(definition).encode()


def ddl(*versions: Any, aliases: bool = True) -> str:
    return type_of_versions([text(each) for each in versions], aliases=aliases).simpleString()


INNER_NEW = record(("x", "long"), ("z", "string"), name="Inner")
INNER_OLD = record(("x", "int"), ("y", ["null", "boolean"]), name="Inner")


@pytest.mark.parametrize(
    ("newest", "older", "merged"),
    [
        (record(("b", "int"), ("a", "int")), record(("a", "int"), ("c", "string")), "b:int,a:int,c:string"),
        (record(("a", "int")), record(("a", "long")), "a:bigint"),
        (record(("a", "float")), record(("a", "double")), "a:double"),
        (record(("a", "long")), record(("a", "float")), "a:double"),
        (record(("a", "bytes")), record(("a", "string")), "a:string"),
        (record(("a", "null")), record(("a", "int")), "a:int"),
        (record(("a", ["null", "string"])), record(("a", "string")), "a:string"),
        (record(("a", "string")), record(("a", "int")), "a:string"),
        (record(("a", INNER_NEW)), record(("a", INNER_OLD)), "a:struct<x:bigint,z:string,y:boolean>"),
        (
            record(("a", {"type": "array", "items": INNER_NEW})),
            record(("a", {"type": "array", "items": INNER_OLD})),
            "a:array<struct<x:bigint,z:string,y:boolean>>",
        ),
        (
            record(("a", {"type": "map", "values": "long"})),
            record(("a", {"type": "map", "values": "int"})),
            "a:map<string,bigint>",
        ),
        (record(("new", "int", {"aliases": ["old"]})), record(("old", "int")), "new:int"),
        (record(("a", "int")), record(("a", "int"), ("u", ["int", "string"])), "a:int"),
    ],
)
def test_versions_make_one_type(newest: Any, older: Any, merged: str) -> None:
    assert ddl(newest, older) == f"struct<{merged}>"


def test_newer_versions_come_before_older_ones() -> None:
    versions = (
        record(("a", "int")),
        record(("b", "int"), ("a", "long")),
        record(("c", "int"), ("b", "string")),
    )
    assert ddl(*versions) == "struct<a:bigint,b:int,c:int>"


def test_aliases_do_not_rename_fields_of_json() -> None:
    newest, older = record(("new", "int", {"aliases": ["old"]})), record(("old", "int"))
    assert ddl(newest, older, aliases=False) == "struct<new:int,old:int>"


def test_the_newest_version_must_have_a_type() -> None:
    with pytest.raises(BadOption, match="no type for the Avro union"):
        ddl(record(("u", ["int", "string"])), record(("a", "int")))


def test_a_type_merges_with_itself() -> None:
    kind = type_of_versions([text(record(("a", INNER_NEW)))], aliases=True)
    assert merged_type(kind, kind) == kind


VERSIONS: dict[bytes, tuple[Any, Any]] = {
    b"0": (record(("id", "int"), ("nick", "string")), {"id": 1, "nick": "ada"}),
    b"1": (record(("id", "long"), ("city", INNER_OLD)), {"id": 2**40, "city": {"x": 5, "y": True}}),
    b"2": (
        record(("name", ["null", "string"], {"aliases": ["nick"], "default": None}), ("id", "long")),
        {"name": "Grace", "id": 3},
    ),
}
EXPECTED = [
    {"name": "ada", "id": 1, "city": None},
    {"name": None, "id": 2**40, "city": {"x": 5, "y": True}},
    {"name": "Grace", "id": 3, "city": None},
]


def decoded(plan: ValuePlan) -> Any:
    payloads = []
    for definition, value in VERSIONS.values():
        sink = io.BytesIO()
        fastavro.schemaless_writer(sink, fastavro.parse_schema(definition), value)
        payloads.append(sink.getvalue())
    table = pa.table(
        {
            "payload": pa.array(payloads, pa.binary()),
            "schema_version": pa.array(list(VERSIONS), pa.binary()),
            "null_value": pa.array([False] * len(payloads)),
        }
    )
    assert isinstance(plan.type, StructType)
    definitions = {version: json.dumps(each[0]) for version, each in VERSIONS.items()}
    return ValueDecoder(plan, plan.type, definitions.get).decode(table).to_pylist()


@pytest.mark.parametrize("value_format", ["avro", "auto"])
def test_rows_are_decoded_by_the_version_that_wrote_them_under_one_type(value_format: str) -> None:
    newest, *older = [text(definition) for definition, _ in reversed(VERSIONS.values())]
    plan = plan_values(
        parse_options({"topic": "t", "value.format": value_format}),
        lambda: ("Avro", newest),
        lambda kind: older if kind.upper() == "AVRO" else [],
    )
    assert decoded(plan) == EXPECTED


def test_a_value_that_does_not_fit_the_newest_type_is_null_or_an_error() -> None:
    kinds = [text(record(("id", "string"), ("name", "int"))), *(text(each[0]) for each in VERSIONS.values())]
    kind = type_of_versions(kinds, aliases=True)
    plan = ValuePlan("avro", kind, "", kinds[0].decode())
    assert decoded(plan)[2]["name"] is None
    with pytest.raises(ValueUnfit):
        decoded(ValuePlan("avro", kind, "", kinds[0].decode(), strict=True))


def test_a_definition_that_the_rules_refuse_is_used_as_it_is() -> None:
    odd = record(("a", "int"), name="not a name")
    assert under_aliases(text(odd), text(record(("b", "int", {"aliases": ["a"]})))) == odd
    two = record(("a", "int"), ("b", "int"))
    assert under_aliases(text(two), text(record(("b", "int", {"aliases": ["a"]})))) == two


def test_logical_types_and_recursion_survive_renaming() -> None:
    written = {
        "type": "record",
        "name": "n.R",
        "fields": [
            {"name": "old", "type": {"type": "bytes", "logicalType": "decimal", "precision": 5, "scale": 2}},
            {"name": "next", "type": ["null", "R"], "default": None},
            {"name": "e", "type": {"type": "enum", "name": "E", "symbols": ["A"]}},
            {"name": "f", "type": {"type": "fixed", "name": "F", "size": 2}},
        ],
    }
    newest = {
        "type": "record",
        "name": "R2",
        "aliases": ["n.R"],
        "fields": [{"name": "new", "type": "int", "aliases": ["old"]}],
    }
    made = under_aliases(text(written), text(newest))
    fastavro.parse_schema(made)
    assert made["name"] == "R2"
    assert made["fields"][0] == {
        "name": "new",
        "type": {"type": "bytes", "logicalType": "decimal", "precision": 5, "scale": 2},
    }
    assert made["fields"][1] == {"name": "next", "type": ["null", "R2"], "default": None}
