"""Partitioned topics: made, grown and deleted as wholes; asking for one invents nothing."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

import pytest
from magnetar.broker.config import BrokerConfig
from magnetar.broker.policies.config import PolicyConfig, TopicCreationConfig
from magnetar.broker.policies.policy_writer import PolicyWriter
from magnetar.broker.schemas.rules import DEFAULT_RULES
from magnetar.broker.topics.config import TopicConfig
from magnetar.common.errors import (
    InvalidName,
    InvalidPartitions,
    MetadataError,
    NamespaceNotFound,
    NotAllowed,
    ServiceNotReady,
    TopicBusy,
    TopicExists,
    TopicNotFound,
)
from magnetar.common.metadata.store import Op
from magnetar.common.metadata.values import Policies
from magnetar.common.naming.position import EARLIEST
from magnetar.common.naming.topic_name import TopicName
from magnetar.common.wire import pulsar_pb2 as pb

from tests.simulation.power_loss import KEYS
from tests.unit.broker.topics.world import ListeningPeer, Topics, in_a_broker, producer_of, subscribed
from tests.unit.ledger.managed_ledger.harness import until

NAME = TopicName.parse("orders")
NAMESPACE = NAME.namespace
PARTITIONED = BrokerConfig(
    policies=PolicyConfig(topic_creation=TopicCreationConfig(type="partitioned", partitions=3))
)
NOTHING_BY_ITSELF = BrokerConfig(topics=TopicConfig(auto_creation=False))


def test_a_partitioned_topic_is_there_with_all_its_partitions_before_anybody_uses_it() -> None:
    async def scenario(made: Topics) -> None:
        await made.partitioned.create_partitioned(NAME, 3, {"team": "a"})
        assert await made.registry.partitions(NAME) == 3
        found = await made.partitioned.get(NAME)
        assert found is not None
        assert dict(found.properties) == {"team": "a"}
        names = [NAME.partition(index).full for index in range(3)]
        assert await made.registry.list(NAMESPACE, persistent=True) == names
        assert not made.registry.loaded
        for name in names:
            await made.load(name, create=False)

    in_a_broker(scenario)


def test_many_partitions_take_few_transactions() -> None:
    async def scenario(made: Topics) -> None:
        commits = 0
        commit = made.process.metadata.commit

        async def counting(ops: object) -> int:
            nonlocal commits
            commits += 1
            return await commit(ops)  # type: ignore[arg-type]

        made.process.metadata.commit = counting  # type: ignore[method-assign]
        await made.partitioned.create_partitioned(NAME, 250, {})
        assert commits == 4
        assert len(await made.registry.list(NAMESPACE, persistent=True)) == 250

    in_a_broker(scenario)


@pytest.mark.parametrize("partitions", [0, -1, 11, 2**31])
def test_a_number_of_partitions_that_cannot_be_is_refused(partitions: int) -> None:
    async def scenario(made: Topics) -> None:
        with pytest.raises(InvalidPartitions):
            await made.partitioned.create_partitioned(NAME, partitions, {})
        assert await made.registry.partitions(NAME) == 0

    in_a_broker(
        scenario, BrokerConfig(policies=PolicyConfig(topic_creation=TopicCreationConfig(partitions_max=10)))
    )


def test_names_that_are_taken_or_cannot_be_are_refused() -> None:
    async def scenario(made: Topics) -> None:
        create = made.partitioned.create_partitioned
        await create(NAME, 1, {})
        with pytest.raises(TopicExists):
            await create(NAME, 2, {})
        await made.load("plain")
        with pytest.raises(TopicExists):
            await create(TopicName.parse("plain"), 1, {})
        with pytest.raises(InvalidName):
            await create(TopicName.parse("x-partition-0"), 1, {})
        with pytest.raises(NamespaceNotFound):
            await create(TopicName.parse("public/missing/t"), 1, {})
        with pytest.raises(NotAllowed):
            await create(TopicName.parse("pulsar/system/t"), 1, {})

    in_a_broker(scenario)


def test_a_creation_that_was_cut_short_is_completed() -> None:
    async def scenario(made: Topics) -> None:
        await made.partitioned.create_partitioned(NAME, 3, {})
        await made.registry.delete(NAME.partition(1), force=False)
        await made.partitioned.create_missing(NAME)
        assert len(await made.registry.list(NAMESPACE, persistent=True)) == 3
        with pytest.raises(TopicNotFound):
            await made.partitioned.create_missing(TopicName.parse("other"))

    in_a_broker(scenario)


def test_a_grown_topic_has_its_subscriptions_on_the_new_partitions_from_their_first_message_on() -> None:
    async def scenario(made: Topics) -> None:
        await made.partitioned.create_partitioned(NAME, 2, {})
        first = await made.load("orders-partition-0")
        await subscribed(first, ListeningPeer(), "durable")
        await subscribed(first, ListeningPeer(), "passing", durable=False)
        await made.partitioned.grow(NAME, 4)
        assert await made.registry.partitions(NAME) == 4
        for index in (2, 3):
            topic = await made.load(f"orders-partition-{index}", create=False)
            assert list(topic.subscriptions) == ["durable"]
            cursor = topic.subscriptions["durable"].cursor  # type: ignore[attr-defined]
            assert dict(cursor.properties) == {"made": "by test"}
            assert cursor.mark_delete == EARLIEST or cursor.mark_delete.entry_id == -1

    in_a_broker(scenario)


def test_a_topic_grows_whose_first_partition_was_never_used() -> None:
    async def scenario(made: Topics) -> None:
        assert await made.partitioned.ask(NAME, create=True) == 3
        await made.partitioned.grow(NAME, 5)
        assert await made.registry.partitions(NAME) == 5

    in_a_broker(scenario, PARTITIONED)


@pytest.mark.parametrize("partitions", [1, 2, 0, -3])
def test_the_number_of_partitions_only_grows(partitions: int) -> None:
    async def scenario(made: Topics) -> None:
        await made.partitioned.create_partitioned(NAME, 2, {})
        with pytest.raises(InvalidPartitions):
            await made.partitioned.grow(NAME, partitions)
        assert await made.registry.partitions(NAME) == 2
        with pytest.raises(TopicNotFound):
            await made.partitioned.grow(TopicName.parse("other"), 2)

    in_a_broker(scenario)


def test_deleting_takes_all_partitions_and_refuses_first_when_one_is_in_use() -> None:
    async def scenario(made: Topics) -> None:
        nothing = made.keys()
        await made.partitioned.create_partitioned(NAME, 3, {})
        await made.schemas.put(
            NAME, pb.Schema(name="s", schema_data=b"", type=pb.Schema.String), DEFAULT_RULES
        )
        last = await made.load("orders-partition-2")
        peer = ListeningPeer()
        await producer_of(last, peer)
        with pytest.raises(TopicBusy):
            await made.partitioned.delete_partitioned(NAME, force=False)
        assert len(await made.registry.list(NAMESPACE, persistent=True)) == 3, "nothing of it is gone"
        await made.partitioned.delete_partitioned(NAME, force=True)
        assert peer.types == ["CLOSE_PRODUCER"]
        assert made.keys() == nothing
        with pytest.raises(TopicNotFound):
            await made.partitioned.delete_partitioned(NAME, force=True)

    in_a_broker(scenario)


def test_no_partition_comes_back_while_the_topic_is_deleted() -> None:
    async def scenario(made: Topics) -> None:
        await made.partitioned.create_partitioned(NAME, 3, {})
        await made.load("orders-partition-1")
        deletion = asyncio.create_task(made.partitioned.delete_partitioned(NAME, force=False))
        await until(lambda: not made.registry.loaded)
        with pytest.raises(ServiceNotReady):
            await made.load("orders-partition-1")
        await deletion
        assert await made.registry.list(NAMESPACE, persistent=True) == []

    in_a_broker(scenario)


def test_a_missing_topic_is_made_partitioned_only_where_that_is_the_policy() -> None:
    async def plain(made: Topics) -> None:
        assert await made.partitioned.ask(NAME, create=True) == 0
        assert await made.registry.partitions(NAME) == 0

    async def partitioned(made: Topics) -> None:
        with pytest.raises(TopicNotFound):
            await made.partitioned.ask(NAME, create=False)
        assert await made.registry.partitions(NAME) == 0, "just asking makes nothing"
        asked = [made.partitioned.ask(NAME, create=True) for _ in range(3)]
        assert await asyncio.gather(*asked) == [3, 3, 3]
        assert await made.partitioned.ask(NAME, create=False) == 3
        await made.load("plain")
        assert await made.partitioned.ask(TopicName.parse("plain"), create=True) == 0, "it exists already"
        for other in ("x-partition-1", "orders-partition-2", "orders-partition-7", "pulsar/system/t"):
            assert await made.partitioned.ask(TopicName.parse(other), create=True) == 0
        volatile = TopicName.parse("non-persistent://public/default/v")
        assert await made.partitioned.ask(volatile, create=True) == 3

    in_a_broker(plain)
    in_a_broker(partitioned, PARTITIONED)


def test_with_automatic_creation_off_only_partitions_within_the_number_come_by_themselves() -> None:
    async def scenario(made: Topics) -> None:
        with pytest.raises(TopicNotFound):
            await made.partitioned.ask(NAME, create=True)
        volatile = TopicName.parse("non-persistent://public/default/v")
        for name in (NAME, volatile):
            await made.partitioned.create_partitioned(name, 2, {})
        await made.registry.delete(NAME.partition(1), force=False)
        for name in (NAME, volatile):
            assert await made.partitioned.ask(name.partition(1), create=True) == 0
            await made.load(name.partition(1).full)
            with pytest.raises(TopicNotFound):
                await made.load(name.partition(2).full)
            with pytest.raises(TopicNotFound):
                await made.load(name.full)

    in_a_broker(scenario, NOTHING_BY_ITSELF)


def test_no_plain_topic_comes_to_be_under_the_name_of_a_partitioned_one() -> None:
    async def scenario(made: Topics) -> None:
        await made.partitioned.create_partitioned(NAME, 2, {})
        with pytest.raises(TopicNotFound):
            await made.load("orders")
        await made.load("orders-partition-0-sub-DLQ")
        await made.load("lonely-partition-3")

    in_a_broker(scenario)


@pytest.mark.parametrize("steps", [0, 1, 3, 6, 10, 20])
@pytest.mark.parametrize("growth_first", [True, False])
def test_a_topic_that_is_deleted_while_it_grows_leaves_no_partition(steps: int, growth_first: bool) -> None:
    async def scenario(made: Topics) -> None:
        nothing = made.keys()
        await made.partitioned.create_partitioned(NAME, 2, {})
        await subscribed(await made.load("orders-partition-0"), ListeningPeer())
        changes = [made.partitioned.grow(NAME, 4), made.partitioned.delete_partitioned(NAME, force=True)]
        tasks = []
        for change in changes if growth_first else reversed(changes):
            tasks.append(asyncio.create_task(change))
            for _ in range(steps):
                await asyncio.sleep(0)
        await asyncio.wait(tasks)
        for error in [task.exception() for task in tasks]:
            assert error is None or isinstance(error, ServiceNotReady | TopicNotFound), error
        count = await made.registry.partitions(NAME)
        assert len(await made.registry.list(NAMESPACE, persistent=True)) == count
        if count:
            await made.partitioned.delete_partitioned(NAME, force=True)
        assert made.keys() == nothing

    in_a_broker(scenario)


def test_of_two_growths_at_once_one_is_done() -> None:
    async def scenario(made: Topics) -> None:
        await made.partitioned.create_partitioned(NAME, 2, {})
        both = await asyncio.gather(
            made.partitioned.grow(NAME, 3), made.partitioned.grow(NAME, 5), return_exceptions=True
        )
        assert sum(result is None for result in both) == 1, both
        count = await made.registry.partitions(NAME)
        assert len(await made.registry.list(NAMESPACE, persistent=True)) == count

    in_a_broker(scenario)


def test_a_partitioned_topic_is_not_made_while_a_plain_one_of_its_name_is_deleted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def scenario(made: Topics) -> None:
        await made.load("orders")
        forget = made.schemas.deletions
        refused: list[BaseException | None] = []

        async def creating(name: TopicName) -> list[Op]:
            with pytest.raises(ServiceNotReady) as error:
                await made.partitioned.create_partitioned(NAME, 2, {})
            refused.append(error.value)
            return await forget(name)

        monkeypatch.setattr(made.schemas, "deletions", creating)
        await made.registry.delete(NAME, force=False)
        assert refused
        await made.partitioned.create_partitioned(NAME, 2, {})

    in_a_broker(scenario)


@pytest.mark.parametrize("partitioned", [False, True])
def test_what_is_said_of_a_topic_goes_with_it_wherever_its_deletion_is_cut_short(partitioned: bool) -> None:
    async def scenario(made: Topics) -> None:
        metadata = made.process.metadata
        calls = {name: getattr(metadata, name) for name in ("get", "children", "commit", "delete")}
        fails_in = 0

        def expire(policies: Policies) -> None:
            policies.message_ttl_s = 1

        def failing(name: str) -> Callable[..., Awaitable[Any]]:
            async def call(*args: Any) -> Any:
                nonlocal fails_in
                fails_in -= 1
                if not fails_in:
                    raise MetadataError("not now")
                return await calls[name](*args)

            return call

        for step in itertools.count(1):
            if partitioned:
                await made.partitioned.create_partitioned(NAME, 1, {})
                delete: Any = made.partitioned.delete_partitioned
            else:
                await made.load("orders")
                delete = made.registry.delete
            await PolicyWriter(metadata, KEYS).change_topic(NAME, expire)
            for number in range(130):
                schema = pb.Schema(name="s", schema_data=b"%d" % number, type=pb.Schema.Json)
                await made.process.metadata.put(KEYS.schema(NAME, number), schema.SerializeToString())
            fails_in = step
            for name in calls:
                monkeypatch.setattr(metadata, name, failing(name))
            with suppress(MetadataError):
                await delete(NAME, force=False)
            monkeypatch.undo()
            left = {key.removeprefix(KEYS.root).partition("/")[0] for key in sorted(made.keys())}
            topic = {"partitioned-topics"} if partitioned else {"topic-heads"}
            assert topic <= left or not left & {"topic-policies", "schemas"}, (step, left)
            if fails_in > 0:
                assert not left - {"intents"}
                break
            with suppress(TopicNotFound):
                await delete(NAME, force=False)
        assert step > 3, "it was cut short at several places"

    monkeypatch = pytest.MonkeyPatch()
    in_a_broker(scenario)
