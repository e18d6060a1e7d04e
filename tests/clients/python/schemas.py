"""Scenarios of schemas."""

from __future__ import annotations

from typing import Any

import pulsar
from google.protobuf import api_pb2
from pulsar import schema

from tests.clients.python.harness import Lacks, Scene, expect, expect_equal, receive, until


class Person(schema.Record):  # type: ignore[misc]
    """Record of the JSON and AVRO scenarios."""

    name = schema.String()
    age = schema.Integer()
    weights = schema.Array(schema.Double())


class Evolved(schema.Record):  # type: ignore[misc]
    """`Person` with a field more, which is null by default."""

    name = schema.String()
    age = schema.Integer()
    weights = schema.Array(schema.Double())
    city = schema.String(required_default=True)


class Stricter(schema.Record):  # type: ignore[misc]
    """`Person` with a field more that has no default."""

    name = schema.String()
    age = schema.Integer()
    weights = schema.Array(schema.Double())
    city = schema.String(required=True)


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


def schema_auto_produce(scene: Scene) -> None:
    raise Lacks("no AUTO_PRODUCE schema in this client")


def schema_evolution(scene: Scene) -> None:
    consumer = scene.consumer()
    person = Person(name="Ada", age=36, weights=[])
    evolved = Evolved(name="Ada", age=36, weights=[], city="Rome")
    values: list[object] = [person, evolved, person]
    for value in values:
        scene.producer(schema=schema.AvroSchema(type(value))).send(value)
    versions = [message.schema_version() for message in receive(consumer, 3)]
    expect(versions[0] != versions[1], f"both schemas have version {versions[0]!r}")
    expect_equal(versions[2], versions[0], "version of the first schema, again")
    reader = scene.consumer(subscription="reader", schema=schema.AvroSchema(Person))
    expect_equal([message.value().name for message in receive(reader, 3)], ["Ada"] * 3, "names")


def _expect_incompatible(what: str, attempt: Any) -> None:
    try:
        attempt()
    except pulsar.IncompatibleSchema:
        return
    raise AssertionError(f"{what} was not refused")


def schema_refused(scene: Scene) -> None:
    producer = scene.producer(schema=schema.AvroSchema(Person))
    producer.send(_people()[0])
    for kind in (schema.AvroSchema(Stricter), schema.StringSchema()):
        _expect_incompatible("a producer", lambda kind=kind: scene.producer(schema=kind))
    _expect_incompatible("a consumer", lambda: scene.consumer(schema=schema.StringSchema()))
    producer.send(_people()[1])
    consumer = scene.consumer(schema=schema.AvroSchema(Person))
    expect_equal([message.value() for message in receive(consumer, 2)], _people(), "values")


def schema_first_consumer(scene: Scene) -> None:
    consumer = scene.consumer(schema=schema.AvroSchema(Person))
    _expect_incompatible("a producer", lambda: scene.producer(schema=schema.StringSchema()))
    scene.producer(schema=schema.AvroSchema(Person)).send(_people()[0])
    expect_equal(receive(consumer, 1)[0].value(), _people()[0], "value")


def schema_enforced(scene: Scene) -> None:
    scene.producer(schema=schema.AvroSchema(Person))
    scene.producer().close()
    scene.ask("enforce", scene.topic())

    def is_refused() -> bool:
        try:
            scene.producer().close()
        except pulsar.IncompatibleSchema:
            return True
        return False

    until(is_refused, "a producer without a schema is refused")
    scene.producer(schema=schema.AvroSchema(Person)).send(_people()[0])
