"""Consumers of any schema, and producers of encoded payloads, follow the topic's definitions."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pytest
from google.protobuf.timestamp_pb2 import Timestamp
from magnetar.client.schemas.auto import AutoConsume, AutoProduce
from magnetar.client.schemas.avro import Avro
from magnetar.client.schemas.json import Json
from magnetar.client.schemas.key_value import KeyAndValue, KeyValue
from magnetar.client.schemas.primitive import BY_TYPE, Bytes, Int32, String
from magnetar.client.schemas.protobuf_native import ProtobufNative
from magnetar.client.schemas.schema import (
    LATEST,
    NO_SCHEMA,
    PartedSchema,
    Schema,
    SchemaError,
    SchemaInfo,
    VersionedSchema,
)
from magnetar.common.schemas.definition import SchemaType

from tests.unit.client.schemas.orders import ORDER, Order

FIRST, SECOND = bytes(8), bytes(7) + b"\x01"
MOMENT = {
    "type": "record",
    "name": "Moment",
    "fields": [{"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}}],
}
INLINE = KeyValue(String(), Avro(MOMENT), "INLINE")
SEPARATED = KeyValue(String(), Json(Order))
AT = {"at": datetime(1970, 1, 2, tzinfo=UTC)}


def info_of(schema: Schema[Any]) -> SchemaInfo:
    assert schema.info is not None
    return schema.info


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        (Int32(), 7),
        (String(), "text"),
        (Avro(MOMENT), AT),
        (INLINE, KeyAndValue("k", AT)),
    ],
)
def test_payloads_are_decoded_by_their_version_s_definition(schema: Any, value: Any) -> None:
    consumer = AutoConsume()
    assert consumer.info.type == SchemaType.AUTO_CONSUME
    assert consumer.needs(FIRST)
    consumer.add_version(FIRST, info_of(schema))
    assert not consumer.needs(FIRST)
    assert consumer.decode(schema.encode(value), FIRST) == value
    assert consumer.decode_parts(None, memoryview(schema.encode(value)), FIRST) == value
    assert consumer.for_topic().needs(FIRST)


def test_json_is_a_dict_of_what_it_holds() -> None:
    consumer = AutoConsume()
    consumer.add_version(FIRST, Json(Order).info)
    payload = Json(Order).encode(ORDER)
    assert consumer.decode(payload, FIRST) == json.loads(payload)


def test_a_message_class_is_made_of_the_descriptors() -> None:
    consumer = AutoConsume()
    consumer.add_version(FIRST, ProtobufNative(Timestamp).info)
    found = consumer.decode(Timestamp(seconds=7).SerializeToString(), FIRST)
    assert found.seconds == 7
    assert found.DESCRIPTOR.full_name == "google.protobuf.Timestamp"
    with pytest.raises(SchemaError, match="is not a Timestamp"):
        consumer.decode(b"\xff", FIRST)


def test_the_key_of_a_separated_message_is_its_own() -> None:
    consumer = AutoConsume()
    assert isinstance(consumer, PartedSchema)
    assert isinstance(consumer, VersionedSchema)
    consumer.add_version(FIRST, info_of(SEPARATED))
    key, payload = SEPARATED.encode_parts(KeyAndValue("k", ORDER))
    assert payload is not None
    assert consumer.decode_parts(key, payload, FIRST) == KeyAndValue("k", json.loads(payload))
    assert consumer.decode_parts(key, None, FIRST) == KeyAndValue("k", None)
    assert consumer.decode_parts(b"k", b"plain", b"") == b"plain"
    assert consumer.decode_parts(b"k", None, b"") is None


def test_payloads_without_a_version_and_of_protobuf_stay_bytes() -> None:
    consumer = AutoConsume()
    assert not consumer.needs(b"")
    assert consumer.decode(memoryview(b"plain"), b"") == b"plain"
    consumer.add_version(FIRST, SchemaInfo("", SchemaType.PROTOBUF, b"{}"))
    assert consumer.decode(b"\x08\x01", FIRST) == b"\x08\x01"


@pytest.mark.parametrize(
    ("info", "reason"),
    [
        (SchemaInfo("", 99, b""), "schemas of type 99 are not known; update this client"),
        (SchemaInfo("", SchemaType.AVRO, b"{"), "is invalid: the definition is not JSON"),
        (SchemaInfo("", SchemaType.KEY_VALUE, b""), "KEY_VALUE definition cannot be read"),
        (SchemaInfo("", SchemaType.PROTOBUF_NATIVE, b"{}"), "PROTOBUF_NATIVE definition cannot be read"),
    ],
)
def test_a_definition_that_cannot_be_read_fails_its_own_payloads_alone(info: SchemaInfo, reason: str) -> None:
    consumer = AutoConsume()
    consumer.add_version(SECOND, info)
    consumer.add_version(FIRST, info_of(String()))
    assert not consumer.needs(SECOND)
    with pytest.raises(SchemaError, match=f"schema version 1 of the topic cannot be read: .*{reason}"):
        consumer.decode(b"", SECOND)
    assert consumer.decode(b"x", FIRST) == "x"


def test_every_primitive_type_is_decoded() -> None:
    for number, schema in BY_TYPE.items():
        consumer = AutoConsume()
        consumer.add_version(FIRST, SchemaInfo("", number, b""))
        if number == SchemaType.NONE:
            assert consumer.decode(b"\xff", FIRST) == b"\xff"
        else:
            payload = {SchemaType.INSTANT: bytes(12), SchemaType.LOCAL_DATE_TIME: bytes(16)}.get(
                SchemaType(number), bytes({5: 1, 6: 1, 7: 2, 8: 4, 10: 4}.get(number, 8))
            )
            assert consumer.decode(payload, FIRST) == schema().decode(payload)


def test_producers_have_no_use_for_it() -> None:
    with pytest.raises(SchemaError, match="give the producer the topic's schema or AutoProduce"):
        AutoConsume().encode(b"")


@pytest.mark.parametrize(
    ("schema", "good", "bad"),
    [
        (Int32(), bytes(4), b"x"),
        (Json(Order), Json(Order).encode(ORDER), b"{"),
        (Avro(MOMENT), Avro(MOMENT).encode(AT), b""),
        (INLINE, INLINE.encode(KeyAndValue("k", AT)), b"\0"),
        (SEPARATED, b"{}", b"{"),
    ],
)
def test_payloads_are_validated_by_the_newest_definition(schema: Any, good: bytes, bad: bytes) -> None:
    producer = AutoProduce()
    assert producer.needs(LATEST)
    assert not producer.needs(FIRST)
    assert producer.info is None
    producer.add_version(LATEST, info_of(schema))
    assert not producer.needs(LATEST)
    assert producer.info == schema.info
    assert producer.encode(good) == good
    with pytest.raises(SchemaError, match="the payload does not fit the topic's schema: "):
        producer.encode(bad)
    assert producer.decode(memoryview(good)) == good
    assert producer.for_topic().needs(LATEST)


def test_a_topic_without_a_schema_takes_any_bytes() -> None:
    producer = AutoProduce()
    producer.add_version(LATEST, NO_SCHEMA)
    assert producer.info is None
    assert producer.encode(b"\xff") == b"\xff"
    with pytest.raises(SchemaError, match="is not bytes; AutoProduce takes payloads"):
        producer.encode("text")  # type: ignore[arg-type]


def test_the_topic_s_schema_has_to_be_known_first() -> None:
    producer = AutoProduce()
    with pytest.raises(SchemaError, match="is not known yet; add it"):
        producer.encode(b"")
    with pytest.raises(SchemaError, match="update this client"):
        producer.add_version(LATEST, SchemaInfo("", 99, b""))


def test_only_producers_that_follow_the_topic_ask_for_its_newest_definition() -> None:
    assert not any(each.needs(LATEST) for each in (Avro(Order), AutoConsume(), SEPARATED))
    both = KeyValue(AutoProduce(), Avro(Order), "INLINE")
    assert both.info is None
    assert both.needs(LATEST)
    both.add_version(LATEST, info_of(KeyValue(String(), Avro(Order), "INLINE")))
    assert both.info == info_of(KeyValue(String(), Avro(Order), "INLINE"))
    assert both.encode(KeyAndValue(b"k", ORDER)).startswith(b"\0\0\0\x01k")


def test_parts_are_read_by_the_parts_of_their_version() -> None:
    older = json.loads(Avro(Order).info.data)
    older["fields"] = [each for each in older["fields"] if each["name"] != "limit"]
    writer = KeyValue(Bytes(), Avro(older), "INLINE")
    reader = KeyValue(Bytes(), Avro(Order), "INLINE")
    assert reader.needs(FIRST)
    reader.add_version(FIRST, info_of(writer))
    reader.add_version(SECOND, info_of(String()))
    value = AutoConsume()
    value.add_version(FIRST, Avro(Order).info)
    fields = value.decode(Avro(Order).encode(ORDER), FIRST)
    del fields["limit"]
    found = reader.decode(writer.encode(KeyAndValue(b"k", fields)), FIRST)
    assert found.value is not None
    assert found.value.limit == 7
    assert not reader.needs(SECOND)
    with pytest.raises(SchemaError, match=r"schema version 1 cannot be read: .* is STRING, not KEY_VALUE"):
        reader.decode(bytes(8), SECOND)
    assert reader.for_topic().needs(FIRST)
    with pytest.raises(SchemaError, match="is STRING, not KEY_VALUE"):
        KeyValue(AutoProduce(), Bytes()).add_version(LATEST, info_of(String()))
