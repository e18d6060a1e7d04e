"""Schemas over HTTP and schemas of clients are the same ones."""

from __future__ import annotations

import json
from collections.abc import Callable

import pulsar
import pytest
from pulsar.schema import Integer, JsonSchema, Record, StringSchema
from pulsar.schema import String as StringField

from tests.integration.counters import counter
from tests.integration.harness import Endpoint
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
    string = {"type": "STRING", "schema": "", "properties": {}}
    assert "JSON" in rest.refused(409, "POST", f"{path}/schema", string)
    assert rest.call("POST", f"{path}/compatibility", string).json == {
        "schemaCompatibilityStrategy": "FULL",
        "compatibility": False,
    }
    rest.do("PUT", f"/namespaces/{namespace}/schemaCompatibilityStrategy", "ALWAYS_COMPATIBLE")
    posted = rest.call("POST", f"{path}/schema", string)
    assert posted.json == {"version": {"version": 1}}
    # The client's definition of a string is JSON's null, and the same.
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


def test_clients_follow_the_policies_of_topic_and_namespace(
    rest: Rest, namespace: str, new_client: Callable[..., pulsar.Client]
) -> None:
    topic, path = f"persistent://{namespace}/t", f"/schemas/{namespace}/t"
    new_client().create_producer(topic).close()
    rest.do("POST", f"/namespaces/{namespace}/isAllowAutoUpdateSchema", False)
    with pytest.raises(pulsar.IncompatibleSchema):
        new_client().create_producer(topic, schema=StringSchema())
    string = {"type": "STRING", "schema": "", "properties": {}}
    assert rest.call("POST", f"{path}/schema", string).json == {"version": {"version": 0}}
    new_client().create_producer(topic, schema=StringSchema())

    new_client().create_producer(topic).close()
    rest.do("POST", f"/persistent/{namespace}/t/schemaValidationEnforced", True)
    assert rest.get(f"/persistent/{namespace}/t/schemaValidationEnforced?applied=true") is True
    with pytest.raises(pulsar.IncompatibleSchema):
        new_client().create_producer(topic)
    new_client().create_producer(topic, schema=StringSchema())

    rest.do("POST", f"/namespaces/{namespace}/isAllowAutoUpdateSchema", True)
    rest.do("PUT", f"/persistent/{namespace}/t/schemaCompatibilityStrategy", "ALWAYS_COMPATIBLE")
    new_client().create_producer(topic, schema=JsonSchema(Reading))
    assert rest.get(f"{path}/schema")["type"] == "JSON"


def test_figures_of_schemas_are_shown_by_namespace(
    rest: Rest, namespace: str, client: pulsar.Client, endpoint: Endpoint
) -> None:
    client.create_producer(f"persistent://{namespace}/t", schema=JsonSchema(Reading))
    with pytest.raises(pulsar.IncompatibleSchema):
        client.create_producer(f"persistent://{namespace}/t", schema=StringSchema())
    assert rest.call("DELETE", f"/schemas/{namespace}/t/schema").status == 200
    for name, value in (
        ("pulsar_schema_put_ops_failed_total", 1),
        ("pulsar_schema_compatible_total", 1),
        ("pulsar_schema_incompatible_total", 1),
        ("pulsar_schema_put_ops_latency_count", 1),
        ("pulsar_schema_del_ops_latency_count", 1),
        ("pulsar_schema_del_ops_failed_total", 0),
    ):
        assert counter(endpoint, name, namespace=namespace) == value, name
