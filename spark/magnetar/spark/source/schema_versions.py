"""Schemas of a topic by version: a payload is decoded by the schema that it was written with."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Callable
from functools import lru_cache
from typing import Final

from magnetar.client.client import Client
from magnetar.client.options import ClientOptions
from magnetar.common.naming.topic_name import TopicName
from magnetar.common.schemas.definition import type_name
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
    async with Client.with_options(options) as client:
        lookup = client.parts.lookup
        newest = await lookup.schema(topic)
        if newest is None:
            return []
        (latest,) = _VERSION.unpack(newest[1])
        definitions = []
        for number in range(latest - 1, max(latest - MERGED_MAX, 0) - 1, -1):
            found = await lookup.schema(topic, _VERSION.pack(number))
            if found is not None and type_name(found[0].type) == schema_type.upper():
                definitions.append(found[0].schema_data)
        return definitions


async def _ask(options: ClientOptions, topic: str, version: bytes) -> str | None:
    async with Client.with_options(options) as client:
        found = await client.parts.lookup.schema(topic, version)
        return None if found is None else found[0].schema_data.decode()
