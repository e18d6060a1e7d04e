"""Schemas over HTTP, as Pulsar's recorded answers have them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from magnetar.broker.schemas.rules import DEFAULT_RULES, SchemaRules
from magnetar.common.metadata.values import Namespace, Policies, SchemaRecord, TopicHead, encode
from magnetar.common.naming.topic_name import TopicName
from magnetar.common.wire.pulsar_pb2 import Schema

from tests.unit.broker.admin.fake_broker import KEYS

if TYPE_CHECKING:
    from tests.unit.broker.admin.conftest import Serving
    from tests.unit.broker.admin.fake_broker import Http

ONE = '{"type":"record","name":"U","fields":[{"name":"id","type":"int"}]}'
SAME = '{ "name": "U", "type": "record", "fields": [{"type": "int", "name": "id"}] }'
TWO = (
    '{"type":"record","name":"U","fields":[{"name":"id","type":"int"},{"name":"x","type":"int","default":0}]}'
)
OTHER = '{"type":"record","name":"U","fields":[{"name":"x","type":"string"}]}'
PATH = "/schemas/acme/demo/s1"
TOPIC = TopicName.parse("persistent://acme/demo/s1")


def avro(definition: str, **properties: str) -> dict[str, Any]:
    return {"type": "AVRO", "schema": definition, "properties": properties}


async def post(http: Http, path: str, body: object) -> object:
    """Status 200, and what it says."""
    status, text = await http.send("POST", path, body)
    assert status == 200, (path, status, text)
    return json.loads(text)


def test_versions_count_from_zero_and_an_equal_schema_is_the_one_that_is_there(serving: Serving) -> None:
    async def body(http: Http) -> None:
        for _ in range(2):
            posted = await post(http, f"{PATH}/schema", avro(ONE, a="b"))
            assert posted == {"version": {"version": 0}}
        assert await post(http, f"{PATH}/schema", avro(TWO, a="b")) == {"version": {"version": 1}}
        first, second = (await http.ask(f"{PATH}/schemas"))["getSchemaResponses"]
        assert first == await http.ask(f"{PATH}/schema/0")
        assert second == await http.ask(f"{PATH}/schema")
        assert first.pop("timestamp") > 1_600_000_000_000
        assert first == {"version": 0, "type": "AVRO", "data": ONE, "properties": {"a": "b"}}
        at = {"ledgerId": -1, "entryId": -1}
        assert await http.ask(f"{PATH}/metadata") == {
            "info": {**at, "version": 1},
            "index": [{**at, "version": 0}, {**at, "version": 1}],
        }
        assert await post(http, f"{PATH}/version", avro(ONE, a="b")) == {"version": 0}
        assert await post(http, f"{PATH}/version", avro(SAME)) == {"version": 0}
        assert await post(http, f"{PATH}/version", avro(OTHER)) == {"version": -1}

    serving(body)


def test_partitions_share_the_schemas_of_their_topic(serving: Serving) -> None:
    async def body(http: Http) -> None:
        await post(http, f"{PATH}-partition-3/schema", avro(ONE))
        assert (await http.ask(f"{PATH}/schema"))["data"] == ONE

    serving(body)


def test_a_path_without_a_domain_finds_the_schemas_of_a_non_persistent_topic(serving: Serving) -> None:
    async def body(http: Http) -> None:
        volatile = TopicName.parse("non-persistent://acme/demo/s1")
        volatile_schema = Schema(name="s1", type=Schema.String, schema_data=b"")
        await http.broker.schemas.put(volatile, volatile_schema, DEFAULT_RULES)
        assert (await http.ask(f"{PATH}/schema"))["type"] == "STRING"
        schema = Schema(name="s1", type=Schema.Int8, schema_data=b"")
        await http.broker.schemas.put(TOPIC, schema, DEFAULT_RULES)
        assert (await http.ask(f"{PATH}/schema"))["type"] == "INT8", "the persistent one comes first"

    serving(body)


def test_what_is_not_there_is_not_found(serving: Serving) -> None:
    async def body(http: Http) -> None:
        for path in ("schema", "schemas", "metadata", "schema/7", f"schema/{2**64}", "schema/-1"):
            assert await http.reason(404, "GET", f"{PATH}/{path}") == "Schema not found"
        await post(http, f"{PATH}/schema", avro(ONE))
        assert await http.reason(404, "GET", f"{PATH}/schema/1") == "Schema not found"
        for method, path in (
            ("GET", "schema"),
            ("DELETE", "schema"),
            ("POST", "schema"),
            ("POST", "version"),
        ):
            nowhere = f"/schemas/acme/nope/s1/{path}"
            given = avro(ONE) if method == "POST" else None
            assert await http.reason(404, method, nowhere, given) == "Namespace not found"
        await http.reason(400, "GET", f"{PATH}/schema/one")
        await http.reason(412, "GET", "/schemas/a%20b/demo/s1/schema")

    serving(body)


def test_deleted_schemas_are_left_to_their_messages_and_numbers_go_on(serving: Serving) -> None:
    async def body(http: Http) -> None:
        assert await http.send("DELETE", f"{PATH}/schema") == (200, '{"version": 0}')
        assert await post(http, f"{PATH}/schema", avro(ONE)) == {"version": {"version": 0}}
        for _ in range(2):
            assert await http.send("DELETE", f"{PATH}/schema") == (200, '{"version": 1}')
        for path in ("schema", "schemas", "metadata", "schema/1"):
            assert await http.reason(404, "GET", f"{PATH}/{path}") == "Schema not found"
        assert (await http.ask(f"{PATH}/schema/0"))["data"] == ONE
        assert await http.broker.schemas.get(TOPIC) is None
        assert await post(http, f"{PATH}/version", avro(ONE)) == {"version": -1}
        assert await post(http, f"{PATH}/schema", avro(ONE)) == {"version": {"version": 2}}
        assert len((await http.ask(f"{PATH}/schemas"))["getSchemaResponses"]) == 1

    serving(body)


def test_forced_deletion_leaves_nothing(serving: Serving) -> None:
    async def body(http: Http) -> None:
        await post(http, f"{PATH}/schema", avro(ONE))
        for _ in range(2):
            assert await http.send("DELETE", f"{PATH}/schema?force=true") == (200, '{"version": -1}')
        assert await http.reason(404, "GET", f"{PATH}/schema/0") == "Schema not found"
        assert await post(http, f"{PATH}/schema", avro(TWO)) == {"version": {"version": 0}}

    serving(body)


def test_keys_and_values_are_stored_as_clients_send_them(serving: Serving) -> None:
    text = f'{{"key":{ONE},"value":""}}'

    async def body(http: Http) -> None:
        properties = {"key.schema.type": "JSON", "kv.encoding.type": "SEPARATED"}
        await post(http, f"{PATH}/schema", {"type": "KEY_VALUE", "schema": text, "properties": properties})
        shown = await http.ask(f"{PATH}/schema")
        assert (shown["data"], shown["properties"]) == (text, properties)
        found = await http.broker.schemas.get(TOPIC)
        assert found[0].schema_data == len(ONE).to_bytes(4, "big") + ONE.encode() + bytes(4)
        broken = SchemaRecord(version=1, type=Schema.KeyValue, data=b"\0\0\0\x02no")
        await http.store.put(KEYS.schema(TOPIC, 1), encode(broken))
        assert (await http.ask(f"{PATH}/schema"))["data"] == "\0\0\0\x02no"

    serving(body)


@pytest.mark.parametrize(
    ("status", "body", "reason"),
    [
        (400, [], "object"),
        (400, {"schema": "x"}, "type"),
        (422, {"type": 4, "schema": ""}, "4 is not a schema type"),
        (400, {"type": "AVRO", "schema": {}}, "schema must be a string"),
        (400, {"type": "STRING", "properties": []}, "object whose values are strings"),
        (400, b"{", "not JSON"),
        (400, b"", "cannot be empty"),
        (422, {"type": "BOGUS", "schema": "{}"}, "BOGUS is not a schema type"),
        (422, {"type": "BYTES", "schema": ""}, "BYTES is not a schema type"),
        (422, {"type": "INT32", "schema": "{}"}, "no definition"),
        (422, {"type": "STRING", "schema": "text"}, "no definition"),
        (422, {"type": "AUTO_CONSUME", "schema": ""}, "AUTO_CONSUME is not a schema type"),
        (422, {"type": "AVRO", "schema": "nojson"}, "JSON"),
        (422, {"type": "JSON"}, "empty"),
        (422, {"type": "PROTOBUF", "schema": "{}"}, "type"),
        (422, {"type": "PROTOBUF_NATIVE", "schema": "{}"}, "rootMessageTypeName"),
        (422, {"type": "KEY_VALUE", "schema": "{}"}, "no key and value"),
        (422, {"type": "KEY_VALUE", "schema": "{"}, "not JSON"),
        (422, {"type": "KEY_VALUE", "schema": '{"key":"","value":"nonsense"}'}, "value"),
        (422, avro('"nonsense"'), "nonsense"),
        (422, avro('{"type":"record","name":"R"}'), "fields"),
        (422, avro("[" * 100 + "]" * 100), "deep"),
    ],
)
def test_invalid_schema_is_refused_with_the_reason(
    serving: Serving, status: int, body: object, reason: str
) -> None:
    async def asked(http: Http) -> None:
        for path in ("schema", "version", "compatibility"):
            assert reason in await http.reason(status, "POST", f"{PATH}/{path}", body)
        await http.reason(404, "GET", f"{PATH}/schema")

    serving(asked)


@pytest.mark.parametrize("kind", ["STRING", "BOOLEAN", "INT64", "TIMESTAMP", "LOCAL_DATE_TIME"])
def test_types_without_a_definition_are_stored(serving: Serving, kind: str) -> None:
    async def body(http: Http) -> None:
        await post(http, f"{PATH}/schema", {"type": kind, "schema": "", "properties": {}})
        shown = await http.ask(f"{PATH}/schema")
        del shown["timestamp"]
        assert shown == {"version": 0, "type": kind, "data": "", "properties": {}}

    serving(body)


@pytest.mark.filterwarnings("ignore:Sending a large body")
def test_a_schema_that_does_not_fit_is_refused(serving: Serving) -> None:
    async def body(http: Http) -> None:
        given = {"type": "STRING", "schema": "", "properties": {"p": "x" * ((1 << 20) - 100)}}
        reason = await http.reason(413, "POST", f"/schemas/acme/demo/{'t' * 2_000}/schema", given)
        assert "at most 1,048,576 fit" in reason
        await http.reason(413, "POST", f"{PATH}/schema", {**given, "schema": "x" * (1 << 20)})

    serving(body)


def test_compatibility_is_told_with_the_strategy(serving: Serving) -> None:
    async def body(http: Http) -> None:
        async def fits(given: object) -> object:
            status, text = await http.send("POST", f"{PATH}/compatibility", given)
            assert status == 202, text
            found = json.loads(text)
            return found["schemaCompatibilityStrategy"], found["compatibility"]

        assert await fits(avro(ONE)) == ("FULL", True)
        await post(http, f"{PATH}/schema", avro(ONE))
        assert await fits(avro(SAME)) == ("FULL", True)
        assert await fits(avro(TWO)) == ("FULL", True)
        assert await fits(avro(OTHER)) == ("FULL", False)
        assert await fits({"type": "STRING", "schema": ""}) == ("FULL", False)

        def old(namespace: Namespace) -> None:
            namespace.policies.schema_auto_update_compatibility = "AlwaysCompatible"

        await http.broker.policy_writer.change_namespace(TOPIC.namespace, old)
        assert await fits(avro(OTHER)) == ("ALWAYS_COMPATIBLE", True)

        def never(policies: Policies) -> None:
            policies.schema_compatibility = "ALWAYS_INCOMPATIBLE"

        await http.store.put(KEYS.topic_head(TOPIC), encode(TopicHead()))
        await http.broker.policy_writer.change_topic(TOPIC, never)
        assert await fits(avro(SAME)) == ("ALWAYS_INCOMPATIBLE", True)
        assert await fits(avro(TWO)) == ("ALWAYS_INCOMPATIBLE", False)
        assert len((await http.ask(f"{PATH}/schemas"))["getSchemaResponses"]) == 1

    serving(body)


def test_an_incompatible_schema_is_refused_with_the_field(serving: Serving) -> None:
    async def body(http: Http) -> None:
        await post(http, f"{PATH}/schema", avro(ONE))
        reason = await http.reason(409, "POST", f"{PATH}/schema", avro(OTHER))
        for part in ("FULL", "version 0", "U.x"):
            assert part in reason
        assert len((await http.ask(f"{PATH}/schemas"))["getSchemaResponses"]) == 1

    serving(body)


def test_schemas_are_added_where_clients_may_not_add_them(serving: Serving) -> None:
    async def body(http: Http) -> None:
        def fixed(namespace: Namespace) -> None:
            namespace.policies.schema_auto_update = False

        await http.broker.policy_writer.change_namespace(TOPIC.namespace, fixed)
        rules = (await http.broker.policies.of_topic(TOPIC)).schemas
        assert rules == SchemaRules(may_update=False)
        await post(http, f"{PATH}/schema", avro(ONE))
        assert await post(http, f"{PATH}/schema", avro(TWO)) == {"version": {"version": 1}}

    serving(body)
