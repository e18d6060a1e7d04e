"""Admins, clients and brokers at once leave a namespace with all of it, or nothing of it."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable
from contextlib import suppress

import pytest
from magnetar.broker.deletions import Deletions
from magnetar.broker.schemas.rules import DEFAULT_RULES
from magnetar.common.errors import (
    MagnetarError,
    MetadataError,
    NamespaceNotEmpty,
    NamespaceNotFound,
    ServiceNotReady,
    TopicExists,
    TopicNotFound,
)
from magnetar.common.metadata.store import Listing
from magnetar.common.naming.topic_name import TopicName

from tests.simulation.power_loss import KEYS
from tests.unit.broker.namespaces_in_use import (
    DEMO,
    SCHEMA,
    assert_nothing_left,
    furnish,
    intents,
    make,
    of_namespace,
    recovered,
    tenancy_of,
)
from tests.unit.broker.topics.world import (
    Topics,
    in_a_broker,
)


@pytest.mark.parametrize("seed", range(30))
def test_admins_and_clients_at_once_leave_a_namespace_or_nothing(seed: int) -> None:
    """Two admins delete and make it, producers make topics in it, a schema and policies come late."""

    async def scenario(made: Topics) -> None:
        rng = random.Random(seed)
        tenancy = tenancy_of(made)
        await furnish(made)
        unexpected: list[BaseException] = []

        async def attempt(work: Awaitable[object]) -> None:
            await asyncio.sleep(rng.uniform(0, 0.05))
            try:
                await work
            except (TopicExists, NamespaceNotEmpty, TopicNotFound, ServiceNotReady, MetadataError):
                pass
            except MagnetarError as error:
                unexpected.append(error)

        def works() -> list[Awaitable[object]]:
            number = rng.randrange(5)
            return [
                made.deletions.delete_namespace(DEMO, force=rng.random() < 0.7),
                made.deletions.delete_tenant("acme", force=True)
                if rng.random() < 0.2
                else made.deletions.finish(),
                make(made),
                made.load(f"persistent://{DEMO}/t{number}"),
                made.load(f"non-persistent://{DEMO}/t{number}"),
                made.partitioned.create_partitioned(TopicName.parse(f"{DEMO}/q{number}"), 3, {}),
                made.schemas.put(TopicName.parse(f"{DEMO}/t{number}"), SCHEMA, DEFAULT_RULES),
            ]

        for _ in range(4):
            await asyncio.gather(*(attempt(work) for _ in range(2) for work in works()))
        await recovered(made)
        assert unexpected == []
        world = made.process.world
        if await tenancy.tenant("acme") is None or KEYS.namespace(DEMO) not in world.metadata.dump():
            assert_nothing_left(world)
            assert [name for name in made.registry.loaded if str(DEMO) in name] == []
        else:
            assert not [key for key in intents(world) if "namespace" in key or "tenant" in key]
            for name, topic in made.registry.loaded.items():
                if str(DEMO) in name and topic.name.persistent:
                    assert KEYS.topic_head(topic.name) in world.metadata.dump()
        with suppress(NamespaceNotFound):
            await made.deletions.delete_tenant("acme", force=True)
        await recovered(made)
        assert_nothing_left(world)

    in_a_broker(scenario)


def test_a_broker_that_comes_too_late_deletes_nothing_of_the_next_namespace() -> None:
    """It stood still in the middle of a deletion; its successor finished that, and the name is used again."""

    async def scenario(made: Topics) -> None:
        await furnish(made)
        metadata = made.process.metadata
        children, stands, goes_on = metadata.children, asyncio.Event(), asyncio.Event()

        async def slow(prefix: str) -> Listing:
            listing = await children(prefix)
            if prefix == KEYS.partitioned_topics_prefix("persistent", DEMO):
                metadata.children = children  # type: ignore[method-assign]
                stands.set()
                await goes_on.wait()
            return listing

        metadata.children = slow  # type: ignore[method-assign]
        late = asyncio.create_task(made.deletions.delete_namespace(DEMO, force=True))
        await stands.wait()
        successor = Deletions(
            made.ledgers, made.registry, made.deletions._namespaces, made.deletions._policies
        )
        await successor.finish()
        assert_nothing_left(made.process.world)
        await furnish(made)
        before = of_namespace(made.process.world, DEMO)
        goes_on.set()
        await late
        assert of_namespace(made.process.world, DEMO) == before

    in_a_broker(scenario)
