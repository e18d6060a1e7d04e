"""Non-persistent topics with the asyncio client: all their messages have the same id."""

from __future__ import annotations

import asyncio

from magnetar.client import Client, Reader
from magnetar.client.errors import ConnectionLost

from tests.integration.harness import Endpoint


def test_a_message_is_delivered_while_the_acknowledgement_of_the_one_before_waits(
    endpoint: Endpoint, volatile_topic: str
) -> None:
    async def run() -> list[bytes]:
        async with Client(endpoint.service_url) as client:
            consumer = await client.subscribe(volatile_topic, "s", ack_group_s=60)
            producer = await client.create_producer(volatile_topic)
            received = []
            for number in range(3):
                await producer.send(b"%d" % number)
                message = await consumer.receive(timeout_s=10)
                await consumer.acknowledge(message)
                received.append(message.data)
            return received

    assert asyncio.run(run()) == [b"0", b"1", b"2"]


def test_a_reader_goes_on_after_its_first_message_and_after_a_lost_connection(
    endpoint: Endpoint, volatile_topic: str
) -> None:
    async def run() -> list[bytes]:
        async with Client(endpoint.service_url) as client, Client(endpoint.service_url) as other:
            reader = await client.create_reader(volatile_topic)
            producer = await other.create_producer(volatile_topic)
            received = []
            for number in range(3):
                if number == 2:
                    await _reconnected(client, reader, volatile_topic)
                await producer.send(b"%d" % number)
                received.append((await reader.read(timeout_s=10)).data)
            return received

    assert asyncio.run(run()) == [b"0", b"1", b"2"]


async def _reconnected(client: Client, reader: Reader[bytes], topic: str) -> None:
    """Ends the connection to the owner of the topic, and returns once its reader is open again."""
    (await client.parts.lookup.connection_of(topic)).end(ConnectionLost("ended by the test"))
    async with asyncio.timeout(10):
        while reader.is_connected:  # noqa: ASYNC110  # nothing tells
            await asyncio.sleep(0)
        while not reader.is_connected:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
