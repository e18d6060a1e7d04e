"""Ends of clients that the broker decides, in a standalone with real connections."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from magnetar.broker.admin.stats.client_explanation import end_reason
from magnetar.broker.broker import Broker
from magnetar.broker.client_endings import ClientEnd, ClientKind, EndCode
from magnetar.broker.handlers.revocation import Revocation
from magnetar.common.config.loader import load
from magnetar.common.errors import StorageError
from magnetar.common.naming.topic_name import TopicName
from magnetar.common.security.principal import Principal
from magnetar.common.wire.frame import encode_command
from magnetar.common.wire.pulsar_pb2 import (
    BaseCommand,
    CommandConnect,
    CommandProducer,
    CommandSubscribe,
)
from magnetar.standalone.config import StandaloneConfig
from magnetar.standalone.standalone import Standalone

TOPIC = TopicName.parse("persistent://public/default/ours")
SETTINGS = (
    "brokerServicePort=0",
    "webServicePort=0",
    "magnetarControlPort=0",
    "magnetarSegmentSizeBytes=1048576",
)

Scenario = Callable[[Broker], Awaitable[None]]


def with_clients(tmp_path: Path, scenario: Scenario, *settings: str) -> list[ClientEnd]:
    """Runs a scenario in a broker with a producer and a consumer; returns the ends, the latest first."""

    async def run() -> list[ClientEnd]:
        made = Standalone(load(StandaloneConfig, overrides=(*SETTINGS, *settings)).value, tmp_path)
        await made.start()
        broker = made.broker
        assert broker is not None
        try:
            host, _, port = made.broker_url.removeprefix("pulsar://").partition(":")
            reader, writer = await asyncio.open_connection(host, int(port))
            hello = CommandConnect(client_version="test", protocol_version=19)
            producer = CommandProducer(topic=TOPIC.full, producer_id=1, request_id=1, producer_name="p")
            consumer = CommandSubscribe(
                topic=TOPIC.full,
                subscription="s",
                subType=CommandSubscribe.Shared,
                consumer_id=1,
                request_id=2,
                consumer_name="c",
            )
            for command in (
                BaseCommand(type=BaseCommand.CONNECT, connect=hello),
                BaseCommand(type=BaseCommand.PRODUCER, producer=producer),
                BaseCommand(type=BaseCommand.SUBSCRIBE, subscribe=consumer),
            ):
                writer.write(encode_command(command))
                assert await reader.read(4096)
            await scenario(broker)
        finally:
            await made.close()
        ends = broker.client_endings.all(0)
        writer.close()
        return ends

    return asyncio.run(run())


def codes(ends: list[ClientEnd]) -> dict[ClientKind, EndCode]:
    """The code that each kind of client has; the first end counts."""
    assert all(end_reason(each, roles=True).next for each in ends)
    return {each.kind: each.code for each in ends}


def all_of(code: EndCode) -> dict[ClientKind, EndCode]:
    return dict.fromkeys((ClientKind.PRODUCER, ClientKind.CONSUMER), code)


async def _nothing(broker: Broker) -> None:
    """The broker is stopped after it."""


def test_a_broker_that_stops(tmp_path: Path) -> None:
    found = codes(with_clients(tmp_path, _nothing))
    assert found == {**all_of(EndCode.BROKER_STOPPING), ClientKind.CONNECTION: EndCode.BROKER_STOPPING}


def test_topics_that_are_another_brokers(tmp_path: Path) -> None:
    async def scenario(broker: Broker) -> None:
        broker.abandon("b is the owner")

    ends = with_clients(tmp_path, scenario)
    assert codes(ends) == {
        **all_of(EndCode.OWNERSHIP_LOST),
        ClientKind.CONNECTION: EndCode.OWNERSHIP_LOST,
    }
    assert all("b is the owner" in each.message for each in ends)


def test_a_topic_whose_storage_is_lost(tmp_path: Path) -> None:
    async def scenario(broker: Broker) -> None:
        topic = await broker.registry.get(TOPIC, create=False)
        topic.on_lost(StorageError("the disk is gone"))  # type: ignore[attr-defined]

    ends = with_clients(tmp_path, scenario)
    assert codes(ends)[ClientKind.PRODUCER] is EndCode.STORAGE_LOST
    assert "the disk is gone" in ends[0].message


def test_a_topic_that_moves_to_another_broker(tmp_path: Path) -> None:
    async def scenario(broker: Broker) -> None:
        topic = await broker.registry.get(TOPIC, create=False)
        assert len(topic.close_for_transfer()) == 2

    ends = with_clients(tmp_path, scenario)
    assert codes(ends) == {**all_of(EndCode.MOVED), ClientKind.CONNECTION: EndCode.BROKER_STOPPING}
    assert [each.name for each in ends if each.kind is not ClientKind.CONNECTION] == ["c", "p"]


def test_a_right_that_was_taken_away(tmp_path: Path) -> None:
    async def scenario(broker: Broker) -> None:
        (client,) = broker.clients()
        client.principal = Principal("alice")

        async def refused(*asked: object) -> bool:
            return False

        rights: Any = broker.authorizer
        rights.may_produce = rights.may_consume = refused
        revocation = Revocation(broker.authorizer, broker.clients, broker._tasks.spawn)
        revocation.rights_changed(TOPIC.namespace)
        async with asyncio.timeout(10):
            while client.producers or client.consumers:  # noqa: ASYNC110
                await asyncio.sleep(0.005)

    ends = with_clients(tmp_path, scenario)
    assert codes(ends) == {**all_of(EndCode.RIGHT_REVOKED), ClientKind.CONNECTION: EndCode.BROKER_STOPPING}
    assert {each.role for each in ends} == {"alice"}
    assert end_reason(ends[-1], roles=True).data["role"] == "alice"
    assert end_reason(ends[-1], roles=False).data["role"] is None


def test_a_client_that_answers_no_ping(tmp_path: Path) -> None:
    async def scenario(broker: Broker) -> None:
        async with asyncio.timeout(20):
            while broker.connections:  # noqa: ASYNC110
                await asyncio.sleep(0.05)

    found = codes(with_clients(tmp_path, scenario, "keepAliveIntervalSeconds=1"))
    assert found == {**all_of(EndCode.KEEP_ALIVE_TIMEOUT), ClientKind.CONNECTION: EndCode.KEEP_ALIVE_TIMEOUT}
