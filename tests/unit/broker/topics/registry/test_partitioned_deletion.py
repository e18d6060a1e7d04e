"""A partitioned topic goes as a whole, wherever its deletion is cut short."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence

import pytest
from magnetar.broker.config import BrokerConfig
from magnetar.broker.policies.policy_writer import PolicyWriter
from magnetar.broker.schemas.rules import DEFAULT_RULES
from magnetar.broker.topics.persistent_topic import PersistentTopic
from magnetar.broker.topics.registry.topic_registry import CLOSE_BEFORE_DELETION_S
from magnetar.common.errors import MetadataError
from magnetar.common.metadata.store import Delete, Op
from magnetar.common.naming.namespace_name import NamespaceName
from magnetar.common.naming.topic_name import TopicName
from magnetar.common.wire import pulsar_pb2 as pb
from magnetar.ledger.managed_ledger import finish_intents
from magnetar.sim.loop import SimLoop, run_inside
from magnetar.sim.loop import run as run_loop

from tests.simulation.power_loss import KEYS, Process, World
from tests.unit.broker.topics.world import ListeningPeer, Topics, in_a_broker, open_topics, subscribed

NAME = TopicName.parse("orders")
NAMESPACE = NamespaceName("public", "default")
SCHEMA = pb.Schema(name="s", schema_data=b"", type=pb.Schema.String)


async def furnish(made: Topics, partitions: int) -> None:
    await made.partitioned.create_partitioned(NAME, partitions, {})
    for index in (0, partitions - 1):
        await subscribed(await made.load(NAME.partition(index).full), ListeningPeer())
    await made.schemas.put(NAME, SCHEMA, DEFAULT_RULES)
    writer = PolicyWriter(made.process.metadata, KEYS)
    await writer.change_topic(NAME, lambda own: setattr(own, "message_ttl_s", 5))


async def end(made: Topics) -> None:
    await made.registry.close()
    await made.tasks.close()
    await made.lists.close()


def test_wherever_the_process_dies_all_partitions_are_there_or_none() -> None:
    world = World.new()
    outcomes: list[bool] = []

    def check_in_a_copy() -> None:
        copy = world.after("kill", random.Random(len(outcomes)))

        async def look(loop: SimLoop) -> None:
            made = await open_topics(Process(loop, copy), BrokerConfig())
            await finish_intents(made.ledgers)
            whole = await made.registry.partitions(NAME) == 20
            if whole:
                assert len(await made.registry.list(NAMESPACE, persistent=True)) == 20
                for index in (0, 19):
                    topic = await made.load(NAME.partition(index).full, create=False)
                    assert list(topic.subscriptions) == ["s"]
                    assert topic.policies.message_ttl_s == 5
            else:
                assert made.keys() == set()
            outcomes.append(whole)
            await end(made)

        loop = SimLoop(len(outcomes))
        run_inside(loop, look(loop))

    async def main(loop: SimLoop) -> None:
        made = await open_topics(Process(loop, world), BrokerConfig())
        await furnish(made, 20)
        check_in_a_copy()
        world.metadata.subscribe(lambda _events: check_in_a_copy())
        await made.partitioned.delete_partitioned(NAME, force=True)
        await end(made)

    loop = SimLoop(0)
    run_loop(loop, main(loop))
    assert outcomes[0]
    assert not outcomes[-1]
    assert len(outcomes) > 10


@pytest.mark.parametrize("applied", [False, True])
def test_whatever_answer_is_lost_it_is_gone_or_asked_for_again(applied: bool) -> None:
    async def scenario(made: Topics) -> None:
        nothing, metadata, commit = made.keys(), made.process.metadata, made.process.metadata.commit
        left = number = 0

        async def losing(ops: Sequence[Op]) -> int:
            nonlocal left
            left -= 1
            if left == 0:
                metadata.lose_next_outcome(applied=applied)
            return await commit(ops)

        while left <= 0:
            await furnish(made, 3)
            number += 1
            left = number
            metadata.commit = losing  # type: ignore[method-assign]
            await made.partitioned.delete_partitioned(NAME, force=True)
            metadata.commit = commit  # type: ignore[method-assign]
            await finish_intents(made.ledgers)
            assert made.keys() == nothing
        assert number > 3

    in_a_broker(scenario)


def test_more_partitions_than_fit_at_once_go_when_it_is_asked_for_again() -> None:
    async def scenario(made: Topics) -> None:
        nothing, metadata, commit = made.keys(), made.process.metadata, made.process.metadata.commit
        await furnish(made, 140)
        taken = 0

        async def failing(ops: Sequence[Op]) -> int:
            nonlocal taken
            taken += any(isinstance(op, Delete) and "/topic-heads/" in op.key for op in ops)
            if taken == 2:
                raise MetadataError("not now")
            return await commit(ops)

        metadata.commit = failing  # type: ignore[method-assign]
        with pytest.raises(MetadataError):
            await made.partitioned.delete_partitioned(NAME, force=True)
        metadata.commit = commit  # type: ignore[method-assign]
        assert await made.registry.partitions(NAME) == 140
        assert 0 < len(await made.registry.list(NAMESPACE, persistent=True)) < 140
        await made.partitioned.delete_partitioned(NAME, force=True)
        assert made.keys() == nothing

    in_a_broker(scenario)


def test_partitions_that_never_were_used_and_those_of_no_storage_need_no_deletion() -> None:
    async def scenario(made: Topics) -> None:
        nothing = made.keys()
        await made.partitioned.create_partitioned(NAME, 2, {})
        for index in range(2):
            await made.registry.delete(NAME.partition(index), force=False)
        volatile = TopicName.parse("non-persistent://public/default/v")
        await made.partitioned.create_partitioned(volatile, 2, {})
        await made.load(volatile.partition(1).full)
        for name in (NAME, volatile):
            await made.partitioned.delete_partitioned(name, force=False)
        assert made.keys() == nothing
        assert dict(made.registry.loaded) == {}

    in_a_broker(scenario)


def test_storage_that_does_not_answer_delays_it_once_and_not_by_partition(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def scenario(made: Topics) -> None:
        nothing = made.keys()
        await made.partitioned.create_partitioned(NAME, 10, {})
        for index in range(10):
            await made.load(NAME.partition(index).full)

        async def never(_topic: PersistentTopic) -> None:
            await asyncio.sleep(10_000)

        monkeypatch.setattr(PersistentTopic, "close", never)
        began = made.process.clock.monotonic()
        await made.partitioned.delete_partitioned(NAME, force=False)
        assert made.process.clock.monotonic() - began < 2 * CLOSE_BEFORE_DELETION_S
        monkeypatch.undo()
        assert made.keys() == nothing

    in_a_broker(scenario)
