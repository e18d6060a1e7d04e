"""Schemas of a topic by version: a payload is decoded by the schema that it was written with."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import lru_cache
from typing import Final

from magnetar.client.client import Client, ClientOptions
from magnetar.common.naming.topic_name import TopicName
from magnetar.common.wire.pulsar_pb2 import BaseCommand, CommandGetSchema
from magnetar.spark.source_options import SourceOptions

SCHEMAS_KEPT: Final = 1_000


def schemas_of(options: SourceOptions, topic: str) -> Callable[[bytes], str | None]:
    """Asks for a topic's schemas by version, where the options say whom; None for all where they do not."""

    def schema_of(version: bytes) -> str | None:
        if not options.service_url:
            return None
        return schema_of_version(options.client_options(), topic, version)

    return schema_of


@lru_cache(maxsize=SCHEMAS_KEPT)
def schema_of_version(options: ClientOptions, topic: str, version: bytes) -> str | None:
    """The definition of one version; None when the topic does not have it. Raises ClientError."""
    return asyncio.run(_ask(options, TopicName.parse(topic).base.full, version))


async def _ask(options: ClientOptions, topic: str, version: bytes) -> str | None:
    client = Client(options)

    async def ask() -> BaseCommand:
        request = CommandGetSchema(request_id=0, topic=topic, schema_version=version)
        command = BaseCommand(type=BaseCommand.GET_SCHEMA, getSchema=request)
        connection = await client.connection_of(topic)
        return await connection.request(command, topic, options.operation_timeout_s)

    try:
        answer = (await client.patiently(ask)).getSchemaResponse
        if answer.HasField("error_code"):
            return None
        return answer.schema.schema_data.decode()
    finally:
        await client.close()
