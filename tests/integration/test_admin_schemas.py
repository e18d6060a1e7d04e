"""Schemas over HTTP and schemas of clients are the same ones."""

from __future__ import annotations

import json

import pulsar
from pulsar.schema import Integer, JsonSchema, Record, StringSchema
from pulsar.schema import String as StringField

from tests.integration.rest import Rest


class Reading(Record):  # type: ignore[misc]
    sensor = StringField()
    value = Integer()


def test_client_schemas_are_shown_and_posted_schemas_reach_clients(
    rest: Rest, namespace: str, client: pulsar.Client
) -> None:
    topic, path = f"persistent://{namespace}/t", f"/schemas/{namespace}/t"
    assert rest.refused(404, "GET", f"{path}/schema") == "Schema not found"
    consumer = client.subscribe(topic, "s")
    client.create_producer(topic, schema=JsonSchema(Reading)).send(Reading(sensor="roof", value=21))
    shown = rest.get(f"{path}/schema")
    assert (shown["version"], shown["type"]) == (0, "JSON")
    assert json.loads(shown["data"])["name"] == "Reading"
    # The client's definition of a string is JSON's null.
    posted = rest.call("POST", f"{path}/schema", {"type": "STRING", "schema": "null", "properties": {}})
    assert posted.json == {"version": {"version": 1}}
    client.create_producer(topic, schema=StringSchema()).send("plain")
    versions = [consumer.receive(5_000).schema_version() for _ in range(2)]
    assert versions == ["\0" * 8, "\0" * 7 + "\1"]


def test_messages_keep_their_schemas_when_these_are_deleted(
    rest: Rest, namespace: str, client: pulsar.Client
) -> None:
    topic, path = f"persistent://{namespace}/t", f"/schemas/{namespace}/t"
    producer = client.create_producer(topic, schema=JsonSchema(Reading))
    assert rest.call("DELETE", f"{path}/schema").json == {"version": 1}
    producer.send(Reading(sensor="roof", value=21))
    message = rest.call("GET", f"/persistent/{namespace}/t/examinemessage")
    assert message.headers["X-Pulsar-Base64-schema-version"] == "AAAAAAAAAAA="
    assert rest.get(f"{path}/schema/0")["type"] == "JSON"
    assert rest.refused(404, "GET", f"{path}/schema") == "Schema not found"
    client.create_producer(topic, producer_name="later", schema=JsonSchema(Reading))
    assert rest.get(f"{path}/schema")["version"] == 2


def test_schemas_go_with_their_topic(rest: Rest, namespace: str, client: pulsar.Client) -> None:
    topic, path = f"persistent://{namespace}/t", f"/schemas/{namespace}/t"
    client.create_producer(topic, schema=StringSchema()).close()
    rest.do("DELETE", f"/persistent/{namespace}/t")
    rest.refused(404, "GET", f"{path}/schema/0")
