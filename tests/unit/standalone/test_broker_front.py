"""A broker that gives its topics up at once, because they are another's."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from magnetar.common.config.loader import load
from magnetar.common.errors import OwnershipLost, ServiceNotReady
from magnetar.common.naming.topic_name import TopicName
from magnetar.common.wire.frame import encode_command
from magnetar.common.wire.pulsar_pb2 import BaseCommand, CommandConnect
from magnetar.ledger.ledger_store import Run
from magnetar.standalone.config import StandaloneConfig
from magnetar.standalone.standalone import Standalone

TOPIC = TopicName.parse("persistent://public/default/ours")
SETTINGS = (
    "brokerServicePort=0",
    "webServicePort=0",
    "magnetarControlPort=0",
    "magnetarSegmentSizeBytes=1048576",
)


async def health(url: str) -> bytes:
    """The answer to GET /health, as it came."""
    host, _, port = url.removeprefix("http://").partition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(b"GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
    answer = await reader.read()
    writer.close()
    await writer.wait_closed()
    return answer


def test_a_broker_that_is_not_the_owner_any_more_closes_its_clients_and_takes_nothing(tmp_path: Path) -> None:
    async def run() -> None:
        made = Standalone(load(StandaloneConfig, overrides=SETTINGS).value, tmp_path)
        await made.start()
        broker = made.broker
        assert broker is not None
        assert b"200 OK" in await health(made.http_url)
        topic = await broker.registry.get(TOPIC, create=True)
        host, _, port = made.broker_url.removeprefix("pulsar://").partition(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        hello = CommandConnect(client_version="test", protocol_version=19)
        writer.write(encode_command(BaseCommand(type=BaseCommand.CONNECT, connect=hello)))
        assert await reader.read(4096)

        broker.abandon("b is the owner")

        assert await reader.read() == b""
        assert b"503" in await health(made.http_url)
        with pytest.raises(ServiceNotReady, match="b is the owner"):
            await broker.lookup(TOPIC)
        with pytest.raises(ServiceNotReady):
            await broker.registry.get(TOPIC, create=True)
        with pytest.raises(OwnershipLost):
            topic.ledger.append(Run([b"too late"]), None)  # type: ignore[attr-defined]
        assert not broker.topics
        writer.close()
        await writer.wait_closed()
        await made.close()

    asyncio.run(run())
