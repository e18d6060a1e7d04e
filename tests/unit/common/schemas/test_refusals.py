"""Refusals say the strategy, the version, the direction, the field and the reason."""

from __future__ import annotations

import json
from typing import Any

import pytest
from magnetar.common.errors import IncompatibleSchema, InvalidSchema
from magnetar.common.schemas.definition import SchemaDefinition, SchemaType
from magnetar.common.schemas.rules import Strategy, check_put, check_subscribe, validate
from magnetar.common.wire.error_codes import code_of
from magnetar.common.wire.pulsar_pb2 import ServerError


def record(*fields: Any, name: str = "Order") -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": list(fields)}


def field(name: str, kind: Any, **more: Any) -> dict[str, Any]:
    return {"name": name, "type": kind, **more}


def avro(definition: Any, kind: SchemaType = SchemaType.AVRO) -> SchemaDefinition:
    return SchemaDefinition(kind, json.dumps(definition).encode())


def refusal(
    old: Any, new: Any, strategy: Strategy = Strategy.BACKWARD, kind: SchemaType = SchemaType.AVRO
) -> str:
    with pytest.raises(IncompatibleSchema) as caught:
        check_put(avro(new, kind), [(7, avro(old, kind))], strategy)
    assert not isinstance(caught.value, InvalidSchema)
    return str(caught.value)


PRICE_TEXT = record(field("amount", "string"), name="Price")
PRICE = record(field("amount", "int"), name="Price")
ENUM_A = {"type": "enum", "name": "A", "symbols": ["X"]}
ENUM_B = {"type": "enum", "name": "B", "symbols": ["X"]}
FIXED_4 = {"type": "fixed", "name": "F", "size": 4}
FIXED_8 = {"type": "fixed", "name": "F", "size": 8}
RENAMED = field("c", "int", aliases=["a", "b"])


@pytest.mark.parametrize(
    ("old", "new", "where_and_why"),
    [
        (record(), record(field("b", "int")), "Order.b: the writer has no such field, and the reader has no"),
        (record(field("a", "long")), record(field("a", "int")), "Order.a: long cannot be read as int"),
        (
            record(field("list", {"type": "array", "items": PRICE})),
            record(field("list", {"type": "array", "items": PRICE_TEXT})),
            "Order.list[].amount: int cannot be read as string",
        ),
        (
            record(field("of", {"type": "map", "values": "int"})),
            record(field("of", {"type": "map", "values": "string"})),
            "Order.of{}: int cannot be read as string",
        ),
        (
            record(field("a", ["null", "string"])),
            record(field("a", ["null", "int"])),
            "Order.a: no branch of the reader's union of null, int reads string",
        ),
        (
            record(field("a", ["null", "int"])),
            record(field("a", "int")),
            "Order.a: null cannot be read as int",
        ),
        (record(field("a", ENUM_A)), record(field("a", ENUM_B)), "Order.a: enum A cannot be read as enum B"),
        (
            record(field("a", FIXED_4)),
            record(field("a", FIXED_8)),
            "Order.a: fixed F of 4 bytes cannot be read as",
        ),
        (
            record(field("a", "int"), field("b", "int")),
            record(RENAMED),
            "the definition: by the reader's aliases two fields of the writer's record 'Order' become 'c'",
        ),
        ("int", "string", "the definition: int cannot be read as string"),
        (
            {"type": "array", "items": "int"},
            {"type": "array", "items": "string"},
            "[]: int cannot be read as string",
        ),
    ],
)
def test_a_refusal_names_the_field_and_the_reason(old: Any, new: Any, where_and_why: str) -> None:
    message = refusal(old, new)
    assert message.startswith("strategy BACKWARD: the new AVRO schema cannot read what version 7 wrote: ")
    assert where_and_why in message
    assert message.endswith("(reader: the new schema, writer: version 7)")


def test_a_refusal_names_the_direction() -> None:
    message = refusal(record(field("a", "int")), record(), Strategy.FORWARD)
    assert message.startswith(
        "strategy FORWARD: version 7 cannot read what the new AVRO schema writes: Order.a: the writer has no"
    )
    assert message.endswith("(reader: version 7, writer: the new schema)")


def test_a_transitive_check_names_the_newest_version_that_does_not_fit() -> None:
    history = [
        (3, avro(record())),
        (4, avro(record(field("a", "string")))),
        (9, avro(record(field("a", "long")))),
    ]
    with pytest.raises(IncompatibleSchema, match=r"version 4 wrote: Order\.a: string cannot be read as long"):
        check_put(
            avro(record(field("a", "long", doc="d"), field("b", "int", default=0))),
            history,
            Strategy.FULL_TRANSITIVE,
        )


def test_another_type_is_refused_with_both_names() -> None:
    with pytest.raises(IncompatibleSchema, match="data of type AVRO cannot be read as STRING"):
        check_put(SchemaDefinition(SchemaType.STRING, b""), [(0, avro("int"))], Strategy.BACKWARD)


def test_a_refused_part_of_a_key_value_schema_is_named() -> None:
    def pair(value: Any) -> SchemaDefinition:
        text = json.dumps(value).encode()
        data = bytes(4) + len(text).to_bytes(4, "big") + text
        return SchemaDefinition(
            SchemaType.KEY_VALUE, data, {"key.schema.type": "STRING", "value.schema.type": "AVRO"}
        )

    with pytest.raises(IncompatibleSchema, match=r"wrote: value Order\.b: the writer has no such field"):
        check_put(pair(record(field("b", "int"))), [(0, pair(record()))], Strategy.BACKWARD)
    with pytest.raises(InvalidSchema, match="the value: Order: field 'b' is defined twice"):
        validate(pair(record(field("b", "int"), field("b", "int"))))


def test_a_consumer_of_a_topic_without_schema_is_told_what_to_do() -> None:
    with pytest.raises(IncompatibleSchema, match="upload a schema to the topic, or subscribe without one"):
        check_subscribe(avro("int"), [], Strategy.FULL)


@pytest.mark.parametrize("strategy", [Strategy.ALWAYS_INCOMPATIBLE, Strategy.UNDEFINED])
def test_a_strategy_that_takes_nothing_new_says_so(strategy: Strategy) -> None:
    assert f"strategy {strategy} takes no schema but those that the topic has" in refusal(
        "int", "long", strategy
    )


def test_a_stored_definition_that_is_invalid_is_an_incompatibility() -> None:
    with pytest.raises(
        IncompatibleSchema, match="version 0 of the topic is not a valid AVRO definition"
    ) as caught:
        check_put(avro("int"), [(0, SchemaDefinition(SchemaType.AVRO, b"nojson"))], Strategy.FULL)
    assert not isinstance(caught.value, InvalidSchema)


def test_a_stored_default_that_cannot_be_encoded_is_an_incompatibility() -> None:
    stored = record(field("b", "int", default="x"))
    assert "Order.b: the writer has no such field, and its default is invalid: 'x' is not" in refusal(
        stored, record(), Strategy.FORWARD
    )


def test_a_schema_that_the_topic_has_passes_even_if_it_is_invalid() -> None:
    stored = SchemaDefinition(SchemaType.AVRO, b"nojson")
    check_put(stored, [(0, stored), (1, avro("int"))], Strategy.ALWAYS_INCOMPATIBLE)


@pytest.mark.parametrize(
    ("definition", "reason"),
    [
        ("", "Empty"),
        ({}, "a type without the key type"),
        ({"type": {"type": "int"}}, "a type without the key type"),
        (record({"type": "int"}), "Order: a field without a name"),
        (record({"name": "a"}), "Order.a: a field without a type"),
        (record(field("a", "nope")), "Order.a: type 'nope' is not defined"),
        (record(field("a-b", "int")), "Order: 'a-b' is not a name"),
        (record(field("a", ["int", ["null"]])), "Order.a: a union directly inside a union"),
        (record(field("a", ["int", "int"])), "Order.a: a union with the branch 'int' twice"),
        (
            record(field("a", {"type": "enum", "name": "E", "symbols": ["A", "A"]})),
            "Order.a: an enum with a symbol",
        ),
        (record(field("a", {"type": "fixed", "name": "F", "size": -1})), "the invalid size -1"),
        (record(field("a", "int", order="up")), "Order.a: order 'up' is not one of"),
        (record(field("a", "int", aliases="b")), "Order.a: aliases that are not a list"),
        (record(name="int"), "record with the name of a primitive type, int"),
        (
            record(field("a", "int", default="x")),
            "Order.a: the default is invalid: 'x' is not a default of type int",
        ),
        (
            record(field("a", ["null", "int"], default=1)),
            "1 is not a default of type null (a union's default is of its first branch)",
        ),
        (
            record(field("a", {"type": "array", "items": "int"}, default=[1, "x"])),
            "'x' is not a default of type int",
        ),
        (record(field("a", ENUM_A, default="Z")), "'Z' is not a symbol of enum A"),
        (record(field("a", PRICE, default={})), "field 'amount': it is missing and has no default"),
        ([record()], "a union at the root of an AVRO definition"),
    ],
)
def test_an_invalid_definition_is_refused_with_its_path(definition: Any, reason: str) -> None:
    if definition == "":
        with pytest.raises(InvalidSchema, match="the definition is empty"):
            validate(SchemaDefinition(SchemaType.AVRO, b" \n"))
        return
    with pytest.raises(InvalidSchema) as caught:
        validate(avro(definition))
    assert reason in str(caught.value)


def test_both_errors_are_incompatible_schema_on_the_wire() -> None:
    assert (
        code_of(IncompatibleSchema("")) == code_of(InvalidSchema("")) == ServerError.IncompatibleSchema == 18
    )
