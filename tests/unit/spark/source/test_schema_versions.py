"""Schemas of a topic by version, asked for at a broker that is made up."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, TypeVar

import pytest
from magnetar.client.errors import NotAuthorized
from magnetar.common.wire import commands
from magnetar.common.wire.pulsar_pb2 import Schema, ServerError
from magnetar.spark.source.schema_versions import older_definitions, schemas_of
from magnetar.spark.source_options import SourceOptions, parse_options

from tests.unit.spark.made_up_broker import MadeUpBroker, refused

TOPIC = "persistent://public/default/t"
T = TypeVar("T")

VERSIONS = {
    0: Schema(name="t", type=Schema.Json, schema_data=b'"int"'),
    1: Schema(name="t", type=Schema.Avro, schema_data=b'"long"'),
    # 2 was deleted.
    3: Schema(name="t", type=Schema.Avro, schema_data=b'"string"'),
    4: Schema(name="t", type=Schema.Avro, schema_data=b'"bytes"'),
}


def version(number: int) -> bytes:
    return number.to_bytes(8, "big")


def get_schema(command: Any) -> bytes:
    asked = int.from_bytes(command.schema_version, "big") if command.HasField("schema_version") else 4
    if asked not in VERSIONS:
        return commands.error(command.request_id, ServerError.TopicNotFound, "no such version")
    return commands.get_schema(command.request_id, VERSIONS[asked], version(asked))


def run(ask: Callable[[SourceOptions], T], answer: Callable[[Any], bytes] = get_schema) -> T:
    async def main() -> T:
        async with asyncio.timeout(30), MadeUpBroker() as broker:
            broker.answers["getSchema"] = answer
            options = parse_options({"topic": TOPIC, "service.url": broker.url})
            return await asyncio.to_thread(ask, options)

    return asyncio.run(main())


def test_older_versions_of_a_type_come_newest_first() -> None:
    found = run(lambda options: older_definitions(options, f"{TOPIC}-partition-3", "AVRO"))
    assert found == [b'"string"', b'"long"']


def test_a_version_is_the_one_that_a_message_names() -> None:
    def ask(options: SourceOptions) -> list[str | None]:
        schema_of = schemas_of(options, TOPIC)
        return [schema_of(version(1)), schema_of(version(2)), schema_of(version(0))]

    assert run(ask) == ['"long"', None, '"int"']


def test_a_topic_without_a_schema_has_no_older_ones() -> None:
    none = refused(ServerError.TopicNotFound, "no schema")
    assert run(lambda options: older_definitions(options, TOPIC, "AVRO"), none) == []


def test_a_schema_that_may_not_be_read_is_an_error_and_not_a_missing_one() -> None:
    denied = refused(ServerError.AuthorizationError, "not yours")
    with pytest.raises(NotAuthorized):
        run(lambda options: older_definitions(options, TOPIC, "AVRO"), denied)


def test_nothing_is_asked_without_a_service_url() -> None:
    options = parse_options({"topic": TOPIC})
    assert older_definitions(options, TOPIC, "AVRO") == []
    assert schemas_of(options, TOPIC)(version(1)) is None
