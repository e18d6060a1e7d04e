"""A topic is made only where it may be at that moment, whatever was looked at before."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from functools import partial

import pytest
from magnetar.broker.topics.registry.creation_guards import guards_of
from magnetar.common.errors import (
    BeingChanged,
    NamespaceNotEmpty,
    NamespaceNotFound,
    ServiceNotReady,
    TopicExists,
    TopicNotFound,
)
from magnetar.common.metadata.store import Op, Put
from magnetar.common.metadata.values import PartitionedTopic, encode
from magnetar.common.naming.topic_name import TopicName
from magnetar.ledger.managed_ledger import create_managed_ledgers

from tests.simulation.power_loss import KEYS
from tests.unit.broker.topics.world import Topics, in_a_broker

NAME = TopicName.parse("orders")
NAMESPACE = KEYS.namespace(NAME.namespace)
HEAD = KEYS.topic_head(NAME)
PARTITIONED = KEYS.partitioned_topic(NAME)


def before_a_head_is_made(made: Topics, meanwhile: Callable[[], Awaitable[object]]) -> None:
    """Somebody else does something after everything was looked at."""
    metadata = made.process.metadata
    commit = metadata.commit

    async def late(ops: Sequence[Op]) -> int:
        if any(isinstance(op, Put) and "/topic-heads/" in op.key for op in ops):
            metadata.commit = commit  # type: ignore[method-assign]
            await meanwhile()
        return await commit(ops)

    metadata.commit = late  # type: ignore[method-assign]


async def create(made: Topics, name: TopicName, *, partition: bool = False) -> None:
    guards = partial(guards_of, made.process.metadata, KEYS, name, partition=partition)
    await create_managed_ledgers(made.ledgers, [name.full], guards=guards)


@pytest.mark.parametrize("load", [False, True])
def test_no_topic_is_made_in_a_namespace_that_was_deleted_meanwhile(load: bool) -> None:
    async def scenario(made: Topics) -> None:
        before_a_head_is_made(made, lambda: made.process.metadata.delete(NAMESPACE))
        with pytest.raises(NamespaceNotFound):
            await (made.load("orders") if load else create(made, NAME))
        assert made.keys() == set()

    in_a_broker(scenario)


def test_a_namespace_that_is_changed_meanwhile_keeps_no_topic_from_being_made() -> None:
    async def scenario(made: Topics) -> None:
        metadata = made.process.metadata

        async def change() -> None:
            found = await metadata.get(NAMESPACE)
            assert found is not None
            await metadata.put(NAMESPACE, found.value)

        for name in (NAME, TopicName.parse("other")):
            before_a_head_is_made(made, change)
            await (made.load(name.full) if name is NAME else create(made, name))
            assert await made.registry.exists(name)

    in_a_broker(scenario)


@pytest.mark.parametrize("load", [False, True])
def test_no_topic_is_made_beside_a_partitioned_one_of_its_name(load: bool) -> None:
    async def scenario(made: Topics) -> None:
        value = encode(PartitionedTopic(partitions=2))
        before_a_head_is_made(made, lambda: made.process.metadata.put(PARTITIONED, value))
        with pytest.raises(TopicExists):
            await (made.load("orders") if load else create(made, NAME))
        assert made.keys() == {PARTITIONED}

    in_a_broker(scenario)


@pytest.mark.parametrize("partitioned", [False, True])
def test_no_namespace_is_deleted_while_a_topic_is_made_in_it(partitioned: bool) -> None:
    async def scenario(made: Topics) -> None:
        making, going_on = asyncio.Event(), asyncio.Event()
        metadata = made.process.metadata
        commit = metadata.commit

        async def slow(ops: Sequence[Op]) -> int:
            metadata.commit = commit  # type: ignore[method-assign]
            making.set()
            await going_on.wait()
            return await commit(ops)

        async def make() -> None:
            if partitioned:
                await made.partitioned.create_partitioned(NAME, 1, {})
                return
            with made.registry.exclusions.creating(NAME):
                await create(made, NAME)

        metadata.commit = slow  # type: ignore[method-assign]
        creation = asyncio.create_task(make())
        await making.wait()
        with pytest.raises(NamespaceNotEmpty):
            await made.deletions.delete_namespace(NAME.namespace)
        with pytest.raises(ServiceNotReady):
            await made.registry.delete(NAME, force=True)
        going_on.set()
        await creation
        assert await metadata.get(NAMESPACE) is not None

    in_a_broker(scenario)


def test_a_topic_is_made_by_one_at_a_time() -> None:
    async def scenario(made: Topics) -> None:
        with made.registry.exclusions.creating(NAME):
            with pytest.raises(BeingChanged), made.registry.exclusions.creating(NAME):
                pass
            with made.registry.exclusions.creating(NAME.partition(0)):
                pass
        with made.registry.exclusions.creating(NAME):
            pass

    in_a_broker(scenario)


def test_no_partition_is_made_of_a_topic_that_was_deleted_meanwhile() -> None:
    async def scenario(made: Topics) -> None:
        await made.partitioned.create_partitioned(NAME, 1, {})
        before = made.keys()
        before_a_head_is_made(made, lambda: made.process.metadata.delete(PARTITIONED))
        with pytest.raises(TopicNotFound):
            await create(made, NAME.partition(1), partition=True)
        assert made.keys() == before - {PARTITIONED}

    in_a_broker(scenario)
