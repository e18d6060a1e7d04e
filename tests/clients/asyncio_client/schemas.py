"""Scenarios of schemas."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from google.protobuf.api_pb2 import Api, Method
from google.protobuf.timestamp_pb2 import Timestamp
from magnetar.client import (
    AutoConsume,
    AutoProduce,
    Avro,
    Int64,
    Json,
    KeyAndValue,
    KeyValue,
    Message,
    ProtobufNative,
    String,
)
from magnetar.client.errors import IncompatibleSchema
from magnetar.client.schemas.key_value import Encoding
from magnetar.client.schemas.records import Int
from magnetar.client.schemas.schema import Payload, SchemaError, SchemaInfo
from magnetar.common.schemas.definition import SchemaType

from tests.clients.asyncio_client.harness import (
    Scene,
    expect,
    expect_equal,
    expect_refused,
    receive,
)


@dataclass
class Person:
    """Record of the JSON and AVRO scenarios."""

    name: str
    age: Int
    weights: list[float]


@dataclass
class Evolved:
    """`Person` with a field more, which is null by default."""

    name: str
    age: Int
    weights: list[float]
    city: str | None = None


@dataclass
class Stricter:
    """`Person` with a field more that has no default."""

    name: str
    age: Int
    weights: list[float]
    city: str


PEOPLE: Final = [Person("Ada", 36, [1.5, -2.0]), Person("Grüße", -1, [])]


async def _there_and_back(
    scene: Scene, schema: Any, values: Sequence[Any], suffix: str = ""
) -> list[Message]:
    consumer = await scene.consumer(suffix, schema=schema)
    producer = await scene.producer(suffix, schema=schema)
    for value in values:
        await producer.send(value)
    messages = await receive(consumer, len(values))
    expect_equal([message.value for message in messages], values, "values")
    expect(all(message.schema_version for message in messages), "a message has no schema version")
    return messages


async def schema_string(scene: Scene) -> None:
    await _there_and_back(scene, String(), ["plain", "", "größe 中文 🚀"])


async def schema_int64(scene: Scene) -> None:
    await _there_and_back(scene, Int64(), [0, -1, 2**63 - 1, -(2**63)])


async def schema_json(scene: Scene) -> None:
    await _there_and_back(scene, Json(Person), PEOPLE)


async def schema_avro(scene: Scene) -> None:
    await _there_and_back(scene, Avro(Person), PEOPLE)


class _ProtobufTimestamp:
    """A schema of type PROTOBUF as an application adds one: the client itself has PROTOBUF_NATIVE."""

    info = SchemaInfo(
        "Timestamp",
        SchemaType.PROTOBUF,
        b'{"type": "record", "name": "Timestamp", "namespace": "google.protobuf", "fields": ['
        b'{"name": "seconds", "type": "long"}, {"name": "nanos", "type": "int"}]}',
    )

    def encode(self, value: Timestamp) -> bytes:
        return value.SerializeToString()

    def decode(self, payload: Payload, version: bytes = b"") -> Timestamp:
        return Timestamp.FromString(bytes(payload))


async def schema_protobuf(scene: Scene) -> None:
    await _there_and_back(scene, _ProtobufTimestamp(), [Timestamp(seconds=1234, nanos=5), Timestamp()])


async def schema_protobuf_native(scene: Scene) -> None:
    """The message has fields of messages from other files, which the definition has to bring along."""
    methods = [Method(name="Größe", response_streaming=True), Method()]
    await _there_and_back(scene, ProtobufNative(Api), [Api(name="first", methods=methods), Api()])


async def schema_key_value(scene: Scene) -> None:
    values = [KeyAndValue("first", PEOPLE[0]), KeyAndValue("second", PEOPLE[1])]
    encodings: tuple[Encoding, ...] = ("INLINE", "SEPARATED")
    for encoding in encodings:
        schema = KeyValue(String(), Avro(Person), encoding)
        messages = await _there_and_back(scene, schema, values, f"-{encoding.lower()}")
        keys = [message.key for message in messages]
        expect_equal(keys, ["first", "second"] if encoding == "SEPARATED" else [None, None], "message keys")


async def schema_auto(scene: Scene) -> None:
    producer = await scene.producer(schema=Avro(Person))
    consumer = await scene.consumer(schema=AutoConsume())
    for person in PEOPLE:
        await producer.send(person)
    expected = [{"name": each.name, "age": each.age, "weights": each.weights} for each in PEOPLE]
    expect_equal([message.value for message in await receive(consumer, 2)], expected, "values")
    keyed = await scene.producer("-separated", schema=KeyValue(String(), Avro(Person), "SEPARATED"))
    any_key = await scene.consumer("-separated", schema=AutoConsume())
    await keyed.send(KeyAndValue("first", PEOPLE[0]))
    (message,) = await receive(any_key, 1)
    expect_equal(message.value, KeyAndValue("first", expected[0]), "key and value")


async def schema_auto_produce(scene: Scene) -> None:
    schema = Avro(Person)
    first, consumer = await scene.producer(schema=schema), await scene.consumer(schema=Avro(Person))
    await first.send(PEOPLE[0])
    producer = await scene.producer(schema=AutoProduce())
    await producer.send(schema.encode(PEOPLE[1]))
    messages = await receive(consumer, 2)
    expect_equal([message.value for message in messages], PEOPLE, "values")
    expect_equal(messages[1].schema_version, messages[0].schema_version, "version of the producer's schema")
    await expect_refused("bytes of another form", producer.send(b"\x05"), SchemaError)


async def schema_evolution(scene: Scene) -> None:
    consumer = await scene.consumer()
    evolved = Evolved("Ada", 36, [], "Rome")
    values: list[tuple[Any, Any]] = [(Person, PEOPLE[0]), (Evolved, evolved), (Person, PEOPLE[1])]
    for kind, value in values:
        await (await scene.producer(schema=Avro(kind))).send(value)
    versions = [message.schema_version for message in await receive(consumer, 3)]
    expect(versions[0] != versions[1], f"both schemas have version {versions[0]!r}")
    expect_equal(versions[2], versions[0], "version of the first schema, again")
    reader = await scene.consumer(subscription="new", schema=Avro(Evolved))
    cities = [message.value.city for message in await receive(reader, 3)]
    expect_equal(cities, [None, "Rome", None], "cities")
    former = await scene.consumer(subscription="old", schema=Avro(Person))
    found = [message.value for message in await receive(former, 3)]
    expect_equal(found, [PEOPLE[0], Person("Ada", 36, []), PEOPLE[1]], "values by the first schema")


async def schema_refused(scene: Scene) -> None:
    producer = await scene.producer(schema=Avro(Person))
    await producer.send(PEOPLE[0])
    for schema in (Avro(Stricter), String()):
        await expect_refused("a producer", scene.producer(schema=schema), IncompatibleSchema)
    await expect_refused("a consumer", scene.consumer(schema=String()), IncompatibleSchema)
    await producer.send(PEOPLE[1])
    consumer = await scene.consumer(schema=Avro(Person))
    expect_equal([message.value for message in await receive(consumer, 2)], PEOPLE, "values")


async def schema_first_consumer(scene: Scene) -> None:
    await scene.consumer(subscription="any", schema=AutoConsume())
    consumer = await scene.consumer(schema=Avro(Person))
    await expect_refused("a producer", scene.producer(schema=String()), IncompatibleSchema)
    await (await scene.producer(schema=Avro(Person))).send(PEOPLE[0])
    expect_equal((await receive(consumer, 1))[0].value, PEOPLE[0], "value")


async def schema_enforced(scene: Scene) -> None:
    await scene.producer(schema=Avro(Person))
    await (await scene.producer()).close()
    await scene.ask("enforce", scene.topic())
    end = time.monotonic() + 10
    with contextlib.suppress(IncompatibleSchema):
        while True:
            await (await scene.producer()).close()
            expect(time.monotonic() < end, "a producer without a schema is still taken")
    await (await scene.producer(schema=Avro(Person))).send(PEOPLE[0])
