"""Keys and values: definitions and payloads as in Java, inline and separated, nulls included."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest
from magnetar.client.schemas.key_value import KeyAndValue, KeyValue, encoding_of, parts_of
from magnetar.client.schemas.primitive import Bytes, Int32, String
from magnetar.client.schemas.schema import PartedSchema, SchemaError, SchemaInfo
from magnetar.common.schemas.definition import SchemaType
from magnetar.common.schemas.rules import validate


def test_the_definition_is_that_of_java() -> None:
    info = KeyValue(String(), Int32(), "INLINE").info
    assert info is not None
    assert (info.name, info.type) == ("KeyValue", SchemaType.KEY_VALUE)
    assert info.data == base64.b64decode("AAAAAAAAAAA=")
    assert info.properties == {
        "key.schema.name": "String",
        "key.schema.type": "STRING",
        "key.schema.properties": "{}",
        "value.schema.name": "INT32",
        "value.schema.type": "INT32",
        "value.schema.properties": "{}",
        "kv.encoding.type": "INLINE",
    }
    validate(info.definition())


def test_plain_bytes_are_a_part_of_type_bytes() -> None:
    info = KeyValue(Bytes(), Bytes()).info
    assert info is not None
    assert info.properties["key.schema.type"] == "BYTES"
    assert info.properties["kv.encoding.type"] == "SEPARATED"
    validate(info.definition())
    assert parts_of(info)[0].type == SchemaType.NONE
    assert encoding_of(info) == "SEPARATED"


@pytest.mark.parametrize(
    ("value", "payload"),
    [
        (KeyAndValue("k", 7), "00000001" + "6b" + "00000004" + "00000007"),
        (KeyAndValue("", 0), "00000000" + "00000004" + "00000000"),
        (KeyAndValue(None, 7), "ffffffff" + "00000004" + "00000007"),
        (KeyAndValue("k", None), "00000001" + "6b" + "ffffffff"),
    ],
)
def test_inline_payloads_are_those_of_java(value: KeyAndValue[str, int], payload: str) -> None:
    schema = KeyValue(String(), Int32(), "INLINE")
    assert schema.encode(value).hex() == payload
    assert schema.encode_parts(value) == (None, bytes.fromhex(payload))
    for each in (bytes.fromhex(payload), memoryview(bytes.fromhex(payload))):
        assert schema.decode(each) == value
        assert schema.decode_parts(b"another key", each) == value


@pytest.mark.parametrize(
    ("value", "parts"),
    [
        (KeyAndValue("k", 7), (b"k", bytes.fromhex("00000007"))),
        (KeyAndValue(None, 7), (None, bytes.fromhex("00000007"))),
        (KeyAndValue("k", None), (b"k", None)),
        (KeyAndValue(None, None), (None, None)),
    ],
)
def test_a_separated_key_is_apart(value: KeyAndValue[str, int], parts: tuple[Any, Any]) -> None:
    schema = KeyValue(String(), Int32())
    assert isinstance(schema, PartedSchema)
    assert schema.is_separated
    assert schema.encode_parts(value) == parts
    assert schema.decode_parts(*parts) == value


def test_a_separated_schema_says_that_it_wants_the_key() -> None:
    schema = KeyValue(String(), Int32())
    with pytest.raises(SchemaError, match="use decode_parts"):
        schema.decode(b"")
    with pytest.raises(SchemaError, match="use encode_parts"):
        schema.encode(KeyAndValue("k", 1))


@pytest.mark.parametrize(
    ("payload", "reason"),
    [
        ("", "ends before the length of its key"),
        ("00000005" + "6b", "says 5 bytes of key, and 1 bytes follow"),
        ("fffffffe", "says -2 bytes of key"),
        ("00000001" + "6b" + "0000", "ends before the length of its value"),
        ("ffffffff" + "00000004" + "00000007" + "00", "1 bytes after its value"),
        ("ffffffff" + "00000003" + "000007", "not INT32"),
    ],
)
def test_a_broken_inline_payload_is_refused(payload: str, reason: str) -> None:
    with pytest.raises(SchemaError, match=reason):
        KeyValue(String(), Int32(), "INLINE").decode(bytes.fromhex(payload))


def test_other_values_definitions_and_encodings_are_refused() -> None:
    with pytest.raises(SchemaError, match="is not a KeyAndValue"):
        KeyValue(String(), Int32()).encode_parts(("k", 1))  # type: ignore[arg-type]
    with pytest.raises(SchemaError, match="use INLINE or SEPARATED"):
        KeyValue(String(), Int32(), "APART")  # type: ignore[arg-type]
    with pytest.raises(SchemaError, match="is STRING, not KEY_VALUE"):
        parts_of(SchemaInfo("", SchemaType.STRING, b""))
    with pytest.raises(SchemaError, match="cannot be read: the KEY_VALUE definition ends"):
        parts_of(SchemaInfo("", SchemaType.KEY_VALUE, b""))
    with pytest.raises(SchemaError, match="has the encoding 'APART'"):
        encoding_of(SchemaInfo("", SchemaType.KEY_VALUE, b"", {"kv.encoding.type": "APART"}))


def test_the_parts_of_a_definition_have_their_names_and_properties() -> None:
    properties = {
        "key.schema.name": "k",
        "key.schema.type": "AVRO",
        "key.schema.properties": json.dumps({"a": "1"}),
        "value.schema.type": "INT32",
    }
    data = (3).to_bytes(4, "big") + b"{.}" + bytes(4)
    key, value = parts_of(SchemaInfo("", SchemaType.KEY_VALUE, data, properties))
    assert key == SchemaInfo("k", SchemaType.AVRO, b"{.}", {"a": "1"})
    assert value == SchemaInfo("", SchemaType.INT32, b"", {})
