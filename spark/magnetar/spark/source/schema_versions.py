"""Schemas of a topic by version: a payload is decoded by the schema that it was written with."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Callable
from functools import lru_cache
from typing import Final

from magnetar.client.client import Client, ClientOptions
from magnetar.common.naming.topic_name import TopicName
from magnetar.common.schemas.definition import type_name
from magnetar.common.wire.pulsar_pb2 import BaseCommand, CommandGetSchema, CommandGetSchemaResponse
from magnetar.spark.source_options import SourceOptions

SCHEMAS_KEPT: Final = 1_000

MERGED_MAX: Final = 100
"""Newest versions of a topic's schema that make the type of the column value."""

_VERSION: Final = struct.Struct(">q")


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


def older_definitions(options: SourceOptions, topic: str, schema_type: str) -> list[bytes]:
    """Returns the definitions of a topic's older versions of a type, newest first, at most MERGED_MAX.

    None without `service.url`, which says whom to ask. Raises ClientError.
    """
    if not options.service_url:
        return []
    base = TopicName.parse(topic).base.full
    return asyncio.run(_older(options.client_options(), base, schema_type))


async def _older(options: ClientOptions, topic: str, schema_type: str) -> list[bytes]:
    client = Client(options)
    try:
        newest = await _schema(client, topic, None)
        if newest is None:
            return []
        (latest,) = _VERSION.unpack(newest.schema_version)
        found = []
        for number in range(latest - 1, max(latest - MERGED_MAX, 0) - 1, -1):
            answer = await _schema(client, topic, _VERSION.pack(number))
            if answer is not None and type_name(answer.schema.type) == schema_type.upper():
                found.append(answer.schema.schema_data)
        return found
    finally:
        await client.close()


async def _ask(options: ClientOptions, topic: str, version: bytes) -> str | None:
    client = Client(options)
    try:
        answer = await _schema(client, topic, version)
        return None if answer is None else answer.schema.schema_data.decode()
    finally:
        await client.close()


async def _schema(client: Client, topic: str, version: bytes | None) -> CommandGetSchemaResponse | None:
    """Returns one version, or the newest without `version`; None when the topic does not have it."""

    async def ask() -> BaseCommand:
        request = CommandGetSchema(request_id=0, topic=topic, schema_version=version)
        command = BaseCommand(type=BaseCommand.GET_SCHEMA, getSchema=request)
        connection = await client.connection_of(topic)
        return await connection.request(command, topic, client.options.operation_timeout_s)

    answer = (await client.patiently(ask)).getSchemaResponse
    return None if answer.HasField("error_code") else answer
