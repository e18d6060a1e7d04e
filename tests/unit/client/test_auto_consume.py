"""A consumer of any schema: what brokers are told, and keys and values."""

from __future__ import annotations

import asyncio
import base64

from magnetar.client.schemas.auto import AutoConsume
from magnetar.client.schemas.key_value import KeyAndValue, KeyValue
from magnetar.client.schemas.primitive import Int64, String
from magnetar.common.wire.pulsar_pb2 import Schema

from tests.unit.client.attached_consumer import Attached

VERSION = (0).to_bytes(8, "big")


def test_brokers_that_know_the_type_are_told_it() -> None:
    async def play() -> None:
        attached = Attached(schema=AutoConsume())
        told = (await attached.attach(protocol_version=21)).subscribed
        assert told is not None
        assert told.schema.type == Schema.AutoConsume
        older = (await attached.attach(protocol_version=20)).subscribed
        assert older is not None
        assert not older.HasField("schema")

    asyncio.run(play())


def test_the_key_of_a_message_is_that_of_its_value_where_the_schema_says_so() -> None:
    async def play() -> None:
        schema = AutoConsume()
        attached = Attached(schema=schema)
        await attached.attach()
        info = KeyValue(String(), Int64(), "SEPARATED").info
        assert info is not None
        schema.add_version(VERSION, info)
        key = base64.b64encode(b"k").decode()
        attached.deliver(
            Int64().encode(7), partition_key=key, partition_key_b64_encoded=True, schema_version=VERSION
        )
        assert (await attached.consumer.receive()).value == KeyAndValue("k", 7)

    asyncio.run(play())
