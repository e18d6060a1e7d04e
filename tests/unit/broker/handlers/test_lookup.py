"""A lookup is answered with the broker that serves the topic, for the listener that the client names."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field, replace
from typing import Any, cast

import pytest
from magnetar.broker.config import BrokerConfig
from magnetar.broker.handlers.client import Client
from magnetar.broker.handlers.lookup import handle_lookup
from magnetar.broker.service_urls import ServiceUrls
from magnetar.common.errors import InvalidName, TooManyRequests
from magnetar.common.naming.topic_name import TopicName
from magnetar.common.obs.metrics import REGISTRY
from magnetar.common.wire.pulsar_pb2 import CommandLookupTopic, CommandLookupTopicResponse

from tests.unit.broker.handlers.bare_services import bare_services
from tests.unit.broker.topics.world import ListeningPeer


@dataclass
class Ownership:
    """Says that all is at one broker, after it was let to."""

    asked: list[tuple[str, str]] = field(default_factory=list)
    answer: asyncio.Event = field(default_factory=asyncio.Event)

    async def where(self, name: TopicName, listener: str = "") -> ServiceUrls:
        self.asked.append((name.full, listener))
        await self.answer.wait()
        return ServiceUrls("pulsar://b:1", "http://b:2", "pulsar+ssl://b:3")


def client_of(ownership: Ownership, lookups_max: int = 10) -> tuple[Client, ListeningPeer]:
    services = bare_services(None)
    services.ownership = cast(Any, ownership)
    topics = replace(services.config.topics, lookups_max=lookups_max)
    services.config = replace(services.config, topics=topics)
    peer = ListeningPeer()
    return Client(services, cast(Any, peer)), peer


def counted(what: str) -> float:
    labels = {"cluster": BrokerConfig().cluster_name}
    return REGISTRY.get_sample_value(f"pulsar_broker_lookup_{what}_total", labels) or 0.0


@pytest.mark.parametrize("authoritative", [True, False])
def test_the_client_is_told_to_connect_to_who_serves_the_topic(authoritative: bool) -> None:
    async def run() -> None:
        answers, failures = counted("answers"), counted("failures")
        ownership = Ownership()
        ownership.answer.set()
        client, peer = client_of(ownership)
        await handle_lookup(
            client,
            CommandLookupTopic(
                topic="t", request_id=7, authoritative=authoritative, advertised_listener_name="outside"
            ),
        )
        assert ownership.asked == [("persistent://public/default/t", "outside")]
        answer = peer.commands[0].lookupTopicResponse
        assert answer.response == CommandLookupTopicResponse.Connect
        assert (answer.request_id, answer.authoritative) == (7, True)
        assert (answer.brokerServiceUrl, answer.brokerServiceUrlTls) == ("pulsar://b:1", "pulsar+ssl://b:3")
        assert (counted("answers"), counted("failures")) == (answers + 1, failures)
        assert not answer.proxy_through_service_url

    asyncio.run(run())


def test_lookups_at_the_same_time_are_bounded() -> None:
    async def run() -> None:
        ownership = Ownership()
        client, peer = client_of(ownership, lookups_max=2)
        command = CommandLookupTopic(topic="t", request_id=1)
        waiting = [asyncio.create_task(handle_lookup(client, command)) for _ in range(2)]
        await asyncio.sleep(0)
        failures = counted("failures")
        with pytest.raises(TooManyRequests, match="maxConcurrentLookupRequest"):
            await handle_lookup(client, command)
        assert counted("failures") == failures + 1
        ownership.answer.set()
        await asyncio.gather(*waiting)
        await handle_lookup(client, command)
        assert len(peer.commands) == 3

    asyncio.run(run())


def test_invalid_name_is_refused_before_any_lookup() -> None:
    async def run() -> None:
        ownership = Ownership()
        client, _ = client_of(ownership)
        with pytest.raises(InvalidName):
            await handle_lookup(client, CommandLookupTopic(topic="a/b", request_id=1))
        assert ownership.asked == []

    asyncio.run(run())
