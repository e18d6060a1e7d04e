"""Scenarios of schemas."""

from __future__ import annotations

from typing import Any

from google.protobuf import api_pb2
from pulsar import schema

from tests.clients.python.harness import Lacks, Scene, expect_equal, receive


class Person(schema.Record):  # type: ignore[misc]
    """Record of the JSON and AVRO scenarios."""

    name = schema.String()
    age = schema.Integer()
    weights = schema.Array(schema.Double())


def _there_and_back(scene: Scene, kind: Any, values: list[Any]) -> None:
    consumer = scene.consumer(schema=kind)
    producer = scene.producer(schema=kind)
    for value in values:
        producer.send(value)
    expect_equal([message.value() for message in receive(consumer, len(values))], values, "values")


def schema_string(scene: Scene) -> None:
    _there_and_back(scene, schema.StringSchema(), ["plain", "", "größe 中文 🚀"])


def schema_int64(scene: Scene) -> None:
    raise Lacks("no INT64 schema in this client")


def schema_json(scene: Scene) -> None:
    _there_and_back(scene, schema.JsonSchema(Person), _people())


def schema_avro(scene: Scene) -> None:
    _there_and_back(scene, schema.AvroSchema(Person), _people())


def _people() -> list[Person]:
    return [Person(name="Ada", age=36, weights=[1.5, -2.0]), Person(name="Grüße", age=-1, weights=[])]


def schema_protobuf(scene: Scene) -> None:
    raise Lacks("no PROTOBUF schema in this client")


def schema_protobuf_native(scene: Scene) -> None:
    if not hasattr(schema, "ProtobufNativeSchema"):
        raise Lacks("no PROTOBUF_NATIVE schema in this version of the client")
    methods = [api_pb2.Method(name="Größe", response_streaming=True), api_pb2.Method()]
    _there_and_back(scene, schema.ProtobufNativeSchema(api_pb2.Method), methods)


def schema_key_value(scene: Scene) -> None:
    raise Lacks("no KEY_VALUE schema in this client")


def schema_auto(scene: Scene) -> None:
    raise Lacks("no AUTO_CONSUME schema in this client")
