"""A standalone serves every topic of every namespace there is."""

from __future__ import annotations

import asyncio

import pytest
from magnetar.broker.namespaces import Namespaces
from magnetar.broker.ownership.sole_ownership import SoleOwnership
from magnetar.broker.service_urls import ServiceUrls
from magnetar.common.errors import NamespaceNotFound, ServiceNotReady
from magnetar.common.naming.topic_name import TopicName
from magnetar.sim.metadata import SimMetadataServer, SimMetadataStore

from tests.unit.broker.ownership.world import KEYS, World, in_a_cluster

TOPIC = TopicName.parse("persistent://public/default/t")


def test_every_topic_is_served_here() -> None:
    async def body(world: World) -> None:
        store = SimMetadataStore(SimMetadataServer(), world.loop.rng)
        namespaces = Namespaces(store, KEYS)
        await namespaces.ensure_defaults("test")
        urls = ServiceUrls("pulsar://h:6650", listeners={"outside": ServiceUrls("pulsar://gate:1")})
        everything = SoleOwnership(namespaces, urls)
        everything.check(TOPIC)
        await everything.claim(TOPIC)
        assert await everything.where(TOPIC) is urls
        assert (await everything.where(TOPIC, "outside")).broker_url == "pulsar://gate:1"
        with pytest.raises(ServiceNotReady, match=r"no listener 'x'.*'outside'"):
            await everything.where(TOPIC, "x")
        with pytest.raises(NamespaceNotFound, match="a/b does not exist"):
            await everything.where(TopicName.parse("persistent://a/b/t"))
        await asyncio.sleep(0)
        await store.close()

    in_a_cluster(body)
