"""Schemas that clients bring: stored, versioned, and refused where they do not fit."""

from __future__ import annotations

from collections.abc import Callable

import pulsar
import pytest
from pulsar.schema import Integer, JsonSchema, Record, StringSchema
from pulsar.schema import String as StringField

from tests.integration.clients import receive

FIRST_VERSION = "\0" * 8
"""Version 0 as it travels: eight bytes, big-endian."""


class Reading(Record):  # type: ignore[misc]
    sensor = StringField()
    value = Integer()


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


@pytest.mark.usefixtures("our_contract")
def test_another_schema_becomes_the_next_version(client: pulsar.Client, topic: str) -> None:
    """There are no compatibility rules yet; Apache Pulsar refuses a string after a record."""
    consumer = client.subscribe(topic, "sub")
    client.create_producer(topic, schema=JsonSchema(Reading)).send(Reading(sensor="roof", value=21))
    client.create_producer(topic, schema=StringSchema()).send("plain")
    versions = [receive(consumer).schema_version() for _ in range(2)]
    assert versions == [FIRST_VERSION, "\0" * 7 + "\1"]
