"""Namespaces and tenants are deleted whole or not at all, wherever the process dies and who else is at it."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Sequence

import pytest
from magnetar.broker.config import BrokerConfig
from magnetar.broker.schemas.rules import DEFAULT_RULES
from magnetar.common.errors import (
    BeingDeleted,
    MetadataError,
    NamespaceNotEmpty,
    NamespaceNotFound,
    NotAllowed,
)
from magnetar.common.metadata.store import ABSENT, Listing, Op
from magnetar.common.metadata.values import Namespace, PartitionedTopic, TopicHead, encode
from magnetar.common.naming.namespace_name import SYSTEM_NAMESPACE
from magnetar.common.naming.topic_name import TopicName
from magnetar.sim.loop import SimLoop, run_inside
from magnetar.sim.loop import run as run_loop

from tests.simulation.power_loss import KEYS, Process, World
from tests.unit.broker.namespaces_in_use import (
    DEMO,
    OTHER,
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
    ListeningPeer,
    Topics,
    in_a_broker,
    open_topics,
    producer_of,
    subscribed,
)

# -- without force


def test_an_empty_namespace_goes_with_the_systems_topics() -> None:
    async def scenario(made: Topics) -> None:
        await make(made)
        system = KEYS.topic_head(TopicName.parse(f"persistent://{DEMO}/__change_events"))
        await made.process.metadata.put(system, encode(TopicHead(creation_id=99)), ABSENT)
        await made.deletions.delete_namespace(DEMO)
        assert_nothing_left(made.process.world)
        with pytest.raises(NamespaceNotFound, match="acme/demo does not exist"):
            await made.deletions.delete_namespace(DEMO)

    in_a_broker(scenario)


@pytest.mark.parametrize("kind", ["topic", "partitioned", "loaded"])
def test_a_namespace_with_topics_of_any_kind_stays(kind: str) -> None:
    async def scenario(made: Topics) -> None:
        await make(made)
        name = TopicName.parse(f"persistent://{DEMO}/t")
        if kind == "topic":
            await made.process.metadata.put(KEYS.topic_head(name), encode(TopicHead()))
        elif kind == "partitioned":
            value = encode(PartitionedTopic(partitions=1))
            await made.process.metadata.put(KEYS.partitioned_topic(name), value)
        else:
            await made.load(f"non-persistent://{DEMO}/t")
        with pytest.raises(NamespaceNotEmpty):
            await made.deletions.delete_namespace(DEMO)
        assert KEYS.namespace(DEMO) in made.process.world.metadata.dump()
        assert intents(made.process.world) == []

    in_a_broker(scenario)


@pytest.mark.parametrize("crash", [False, True])
def test_a_topic_made_by_another_broker_at_the_last_moment_keeps_its_namespace(crash: bool) -> None:
    async def scenario(made: Topics) -> None:
        await make(made)
        metadata = made.process.metadata
        before = await metadata.get(KEYS.namespace(DEMO))
        head = KEYS.topic_head(TopicName.parse(f"persistent://{DEMO}/t"))
        commit = metadata.commit

        async def late(ops: Sequence[Op]) -> int:
            metadata.commit = commit  # type: ignore[method-assign]
            await metadata.put(head, encode(TopicHead(creation_id=7)), ABSENT)
            revision = await commit(ops)
            if crash:
                raise MetadataError("the process ends here")
            return revision

        metadata.commit = late  # type: ignore[method-assign]
        with pytest.raises(MetadataError if crash else NamespaceNotEmpty):
            await made.deletions.delete_namespace(DEMO)
        await recovered(made)
        after = await metadata.get(KEYS.namespace(DEMO))
        assert before is not None
        assert after is not None
        assert after.value == before.value
        assert await metadata.get(head) is not None
        assert intents(made.process.world) == []

    in_a_broker(scenario)


def test_what_was_put_back_goes_by_force_all_the_same() -> None:
    async def scenario(made: Topics) -> None:
        await make(made)
        metadata, name = made.process.metadata, TopicName.parse(f"persistent://{DEMO}/t")
        await made.deletions._record_namespace(DEMO, False)  # and the process died
        await metadata.put(KEYS.topic_head(name), encode(TopicHead(creation_id=7)), ABSENT)
        await made.deletions.delete_namespace(DEMO, force=True)
        assert_nothing_left(made.process.world)

    in_a_broker(scenario)


@pytest.mark.parametrize("leftovers", [1, 127, 300])
def test_what_is_said_of_topics_that_are_gone_goes_with_their_namespace(leftovers: int) -> None:
    async def scenario(made: Topics) -> None:
        metadata = made.process.metadata
        for namespace in (DEMO, OTHER):
            await make(made, namespace)
            for number in range(leftovers):
                name = TopicName.parse(f"non-persistent://{namespace}/t{number}")
                await metadata.put(KEYS.topic_policies(name), b"policies")
            await metadata.put(KEYS.schema(TopicName.parse(f"persistent://{namespace}/t"), 0), b"schema")
        others = of_namespace(made.process.world, OTHER)
        await made.deletions.delete_namespace(DEMO)
        assert_nothing_left(made.process.world)
        assert of_namespace(made.process.world, OTHER) == others

    in_a_broker(scenario)


def test_the_clusters_own_cannot_be_deleted() -> None:
    async def scenario(made: Topics) -> None:
        for force in (False, True):
            with pytest.raises(NotAllowed):
                await made.deletions.delete_namespace(SYSTEM_NAMESPACE, force=force)
        with pytest.raises(NotAllowed):
            await made.deletions.delete_tenant(SYSTEM_NAMESPACE.tenant, force=True)
        with pytest.raises(NamespaceNotEmpty):
            await made.deletions.delete_tenant(SYSTEM_NAMESPACE.tenant)

    in_a_broker(scenario)


# -- with force


def test_force_takes_everything_and_tells_clients() -> None:
    async def scenario(made: Topics) -> None:
        await furnish(made)
        await furnish(made, OTHER)
        producing, consuming = ListeningPeer(), ListeningPeer()
        topic = await made.load(f"persistent://{DEMO}/t")
        await producer_of(topic, producing)
        await subscribed(topic, consuming, "s2")
        await made.deletions.delete_namespace(DEMO, force=True)
        assert "CLOSE_PRODUCER" in producing.types
        assert "CLOSE_CONSUMER" in consuming.types
        assert [name for name in made.registry.loaded if str(DEMO) in name] == []
        for name in (f"persistent://{DEMO}/t", f"non-persistent://{DEMO}/n", f"persistent://{DEMO}/new"):
            with pytest.raises(NamespaceNotFound):
                await made.load(name)
        with pytest.raises(NamespaceNotFound):
            await made.schemas.put(TopicName.parse(f"{DEMO}/t"), SCHEMA, DEFAULT_RULES)
        assert_nothing_left(made.process.world)
        assert len([name for name in made.registry.loaded if str(OTHER) in name]) == 3
        assert topic.name.full not in made.registry.loaded

    in_a_broker(scenario)


def test_a_namespace_made_anew_has_nothing_of_the_one_before() -> None:
    async def scenario(made: Topics) -> None:
        await furnish(made)
        await made.deletions.delete_namespace(DEMO, force=True)
        await make(made)
        assert await made.registry.list(DEMO, persistent=True, system_too=True) == []
        topic = await made.load(f"persistent://{DEMO}/t")
        assert list(topic.subscriptions) == []
        assert topic.policies.message_ttl_s == 0
        assert await made.schemas.get(topic.name) is None

    in_a_broker(scenario)


def test_a_tenant_goes_with_its_namespaces_by_force_alone() -> None:
    async def scenario(made: Topics) -> None:
        await furnish(made)
        await furnish(made, OTHER)
        with pytest.raises(NamespaceNotEmpty):
            await made.deletions.delete_tenant("acme")
        await made.deletions.delete_tenant("acme", force=True)
        for name in (DEMO, OTHER):
            assert_nothing_left(made.process.world, name)
        assert KEYS.tenant("acme") not in made.process.world.metadata.dump()
        with pytest.raises(NamespaceNotFound, match="Tenant doesn't exist"):
            await made.deletions.delete_tenant("acme", force=True)

    in_a_broker(scenario)


def test_a_namespace_made_while_its_tenant_is_deleted_keeps_the_tenant() -> None:
    async def scenario(made: Topics) -> None:
        tenancy, metadata = tenancy_of(made), made.process.metadata
        await tenancy.create_tenant("acme", [], ["sim"])
        children = metadata.children

        async def late(prefix: str) -> Listing:
            listing = await children(prefix)
            metadata.children = children  # type: ignore[method-assign]
            await tenancy.create_namespace(DEMO, Namespace(bundle_count=4))
            return listing

        metadata.children = late  # type: ignore[method-assign]
        with pytest.raises(MetadataError):
            await made.deletions.delete_tenant("acme")
        assert await tenancy.tenant("acme") is not None
        with pytest.raises(NamespaceNotEmpty):
            await made.deletions.delete_tenant("acme")
        await made.deletions.delete_namespace(DEMO)
        await made.deletions.delete_tenant("acme")
        with pytest.raises(NamespaceNotFound, match="Tenant does not exist"):
            await tenancy.create_namespace(DEMO, Namespace(bundle_count=4))

    in_a_broker(scenario)


@pytest.mark.parametrize("force", [False, True])
def test_a_namespace_that_may_be_put_back_never_stands_without_its_tenant(force: bool) -> None:
    """Its deletion was cut short when a topic had been made at the last moment."""

    async def scenario(made: Topics) -> None:
        await make(made)
        await made.deletions._record_namespace(DEMO, False)  # and the process died
        head = TopicHead(creation_id=90)
        await made.process.metadata.put(KEYS.topic_head(TopicName.parse(f"{DEMO}/t")), encode(head))
        tenancy = tenancy_of(made)
        if force:
            await made.deletions.delete_tenant("acme", force=True)
            assert await tenancy.tenant("acme") is None
            await recovered(made)
            assert_nothing_left(made.process.world)
            return
        with pytest.raises(BeingDeleted, match="acme/demo is being deleted"):
            await made.deletions.delete_tenant("acme")
        await recovered(made)
        assert await tenancy.tenant("acme") is not None
        assert KEYS.namespace(DEMO) in made.process.world.metadata.dump()
        with pytest.raises(NamespaceNotEmpty):
            await made.deletions.delete_tenant("acme")

    in_a_broker(scenario)


# -- cut short

Deletion = Callable[[Topics], Awaitable[None]]


async def by_force(made: Topics) -> None:
    await made.deletions.delete_namespace(DEMO, force=True)


async def tenant_by_force(made: Topics) -> None:
    await made.deletions.delete_tenant("acme", force=True)


@pytest.mark.parametrize("delete", [by_force, tenant_by_force])
def test_wherever_the_process_dies_all_of_it_is_there_or_nothing(delete: Deletion) -> None:
    """The process dies after every transaction of a deletion: reads change nothing that could be lost."""
    world = World.new()
    outcomes: list[bool] = []

    def check_in_a_copy() -> None:
        copy = world.after("kill", random.Random(len(outcomes)))

        async def look(loop: SimLoop) -> None:
            process = Process(loop, copy)
            made = await open_topics(process, BrokerConfig())
            whole = KEYS.namespace(DEMO) in copy.metadata.dump()
            if any("delete-namespace" in key for key in intents(copy)):
                with pytest.raises((BeingDeleted, NamespaceNotFound)):
                    await tenancy_of(made).create_namespace(DEMO, Namespace(bundle_count=4))
            await recovered(made)
            if whole and KEYS.tenant("acme") in copy.metadata.dump():
                topic = await made.load(f"persistent://{DEMO}/t", create=False)
                assert list(topic.subscriptions) == ["s"]
                assert topic.policies.message_ttl_s == 5
                assert await made.registry.partitions(TopicName.parse(f"{DEMO}/p")) == 2
            else:
                assert_nothing_left(copy)
            outcomes.append(whole)
            await made.registry.close()
            await made.tasks.close()
            await made.lists.close()

        loop = SimLoop(len(outcomes))
        run_inside(loop, look(loop))

    async def main(loop: SimLoop) -> None:
        made = await open_topics(Process(loop, world), BrokerConfig())
        await furnish(made)
        await furnish(made, OTHER)
        check_in_a_copy()
        world.metadata.subscribe(lambda _events: check_in_a_copy())
        await delete(made)
        await made.registry.close()
        await made.tasks.close()
        await made.lists.close()

    loop = SimLoop(0)
    run_loop(loop, main(loop))
    assert outcomes[0]
    assert not outcomes[-1]
    assert len(outcomes) > 10


async def lose(made: Topics, number: int, applied: bool, work: Awaitable[object]) -> int:
    """Lose the answer to one of the transactions of `work`; returns how many there were."""
    metadata, commit, count = made.process.metadata, made.process.metadata.commit, 0

    async def losing(ops: Sequence[Op]) -> int:
        nonlocal count
        if count == number:
            metadata.lose_next_outcome(applied=applied)
        count += 1
        return await commit(ops)

    metadata.commit = losing  # type: ignore[method-assign]
    await work
    metadata.commit = commit  # type: ignore[method-assign]
    return count


@pytest.mark.parametrize("applied", [False, True])
def test_whatever_answer_is_lost_the_next_finish_completes_it(applied: bool) -> None:
    async def scenario(made: Topics) -> None:
        number, count = 0, 1
        while number < count:
            await furnish(made)
            count = await lose(made, number, applied, made.deletions.delete_namespace(DEMO, force=True))
            assert KEYS.namespace(DEMO) not in made.process.world.metadata.dump()
            await recovered(made)
            assert_nothing_left(made.process.world)
            number += 1

    in_a_broker(scenario)


def test_a_repeated_call_goes_on_with_what_was_cut_short() -> None:
    async def scenario(made: Topics) -> None:
        await furnish(made)
        await made.deletions._record_namespace(DEMO, True)  # and the process died
        with pytest.raises(BeingDeleted):
            await make(made)
        await made.deletions.delete_namespace(DEMO, force=True)
        assert_nothing_left(made.process.world)
        await make(made)

    in_a_broker(scenario)


def test_young_intents_are_left_to_those_who_are_at_work() -> None:
    async def scenario(made: Topics) -> None:
        await furnish(made)
        await made.deletions._record_namespace(DEMO, True)
        await made.deletions.finish(age_min_ms=60_000)
        assert intents(made.process.world) != []
        await asyncio.sleep(61)
        await made.deletions.finish(age_min_ms=60_000)
        assert_nothing_left(made.process.world)

    in_a_broker(scenario)
