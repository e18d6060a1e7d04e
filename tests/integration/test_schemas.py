"""Schemas that clients bring: stored, versioned, and refused where they do not fit."""

from __future__ import annotations

from collections.abc import Callable

import pulsar
import pytest
from pulsar.schema import AvroSchema, Integer, JsonSchema, Record, StringSchema
from pulsar.schema import String as StringField

from tests.integration.clients import receive

FIRST_VERSION = "\0" * 8
"""Version 0 as it travels: eight bytes, big-endian."""
SECOND_VERSION = "\0" * 7 + "\1"


class Reading(Record):  # type: ignore[misc]
    sensor = StringField()
    value = Integer()


class ReadingWithUnit(Record):  # type: ignore[misc]
    sensor = StringField()
    value = Integer()
    unit = StringField(required_default=True)


def test_strings_come_back(client: pulsar.Client, topic: str) -> None:
    consumer = client.subscribe(topic, "sub", schema=StringSchema())
    producer = client.create_producer(topic, schema=StringSchema())
    producer.send("gr\u00fc\u00dfe")
    assert receive(consumer).value() == "gr\u00fc\u00dfe"


def test_json_records_come_back_with_their_schema_version(client: pulsar.Client, topic: str) -> None:
    consumer = client.subscribe(topic, "sub", schema=JsonSchema(Reading))
    producer = client.create_producer(topic, schema=JsonSchema(Reading))
    producer.send(Reading(sensor="roof", value=21))
    message = receive(consumer)
    assert (message.value().sensor, message.value().value) == ("roof", 21)
    assert message.schema_version() == FIRST_VERSION


def test_the_same_schema_again_is_the_same_version(
    new_client: Callable[..., pulsar.Client], topic: str
) -> None:
    consumer = new_client().subscribe(topic, "sub", schema=JsonSchema(Reading))
    for _ in range(2):
        producer = new_client().create_producer(topic, schema=JsonSchema(Reading))
        producer.send(Reading(sensor="roof", value=21))
        assert receive(consumer).schema_version() == FIRST_VERSION


def test_a_producer_without_schema_may_join_a_topic_that_has_one(client: pulsar.Client, topic: str) -> None:
    consumer = client.subscribe(topic, "sub", schema=JsonSchema(Reading))
    client.create_producer(topic).send(b'{"sensor": "cellar", "value": 8}')
    assert receive(consumer).value().value == 8


def test_a_compatible_schema_becomes_the_next_version(client: pulsar.Client, topic: str) -> None:
    consumer = client.subscribe(topic, "sub")
    client.create_producer(topic, schema=JsonSchema(Reading)).send(Reading(sensor="roof", value=21))
    later = client.create_producer(topic, schema=JsonSchema(ReadingWithUnit))
    later.send(ReadingWithUnit(sensor="roof", value=21, unit="C"))
    versions = [receive(consumer).schema_version() for _ in range(2)]
    assert versions == [FIRST_VERSION, SECOND_VERSION]


def test_an_incompatible_schema_is_refused_and_those_before_go_on(
    new_client: Callable[..., pulsar.Client], topic: str
) -> None:
    consumer = new_client().subscribe(topic, "sub")
    producer = new_client().create_producer(topic, schema=JsonSchema(Reading))
    producer.send(Reading(sensor="roof", value=21))
    for schema in (StringSchema(), AvroSchema(Reading)):
        with pytest.raises(pulsar.IncompatibleSchema):
            new_client().create_producer(topic, schema=schema)
    producer.send(Reading(sensor="roof", value=22))
    assert [receive(consumer).schema_version() for _ in range(2)] == [FIRST_VERSION] * 2


def test_a_consumer_that_cannot_read_the_topic_is_refused_and_changes_nothing(
    new_client: Callable[..., pulsar.Client], topic: str
) -> None:
    producer = new_client().create_producer(topic, schema=JsonSchema(Reading))
    producer.send(Reading(sensor="roof", value=21))
    with pytest.raises(pulsar.IncompatibleSchema):
        new_client().subscribe(topic, "other", schema=StringSchema())
    new_client().subscribe(topic, "new", schema=JsonSchema(ReadingWithUnit))
    consumer = new_client().subscribe(topic, "sub", initial_position=pulsar.InitialPosition.Earliest)
    assert receive(consumer).schema_version() == FIRST_VERSION
    with pytest.raises(pulsar.IncompatibleSchema):
        new_client().create_producer(topic, schema=StringSchema())
    new_client().create_producer(topic, schema=JsonSchema(ReadingWithUnit)).send(
        ReadingWithUnit(sensor="roof", value=21, unit="C")
    )
    assert receive(consumer).schema_version() == SECOND_VERSION, "the consumer stored nothing"


def test_the_first_consumer_of_an_unused_topic_brings_its_schema(
    new_client: Callable[..., pulsar.Client], topic: str
) -> None:
    new_client().subscribe(topic, "sub", schema=JsonSchema(Reading))
    with pytest.raises(pulsar.IncompatibleSchema):
        new_client().create_producer(topic, schema=StringSchema())
    new_client().create_producer(topic, schema=JsonSchema(Reading))


def test_a_consumer_with_a_schema_is_refused_on_a_topic_of_plain_bytes(
    new_client: Callable[..., pulsar.Client], topic: str
) -> None:
    new_client().create_producer(topic).send(b"plain")
    with pytest.raises(pulsar.IncompatibleSchema):
        new_client().subscribe(topic, "sub", schema=JsonSchema(Reading))
    new_client().subscribe(topic, "sub")
