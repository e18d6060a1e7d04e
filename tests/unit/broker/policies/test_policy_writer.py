"""Two operators at once both have their way; nobody's policies outlive what they are about."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from pathlib import Path

import pytest
from magnetar.broker.policies.policy_writer import TRIES_MAX, PolicyWriter
from magnetar.common.errors import (
    NamespaceNotFound,
    NotAllowed,
    TopicNotFound,
    UnknownOutcome,
    VersionMismatch,
)
from magnetar.common.metadata.keys import Keys
from magnetar.common.metadata.sqlite_store import SqliteMetadataStore
from magnetar.common.metadata.store import Op, Put
from magnetar.common.metadata.values import Namespace, PartitionedTopic, Policies, TopicHead, encode
from magnetar.common.naming.namespace_name import NamespaceName
from magnetar.common.naming.topic_name import TopicName

KEYS = Keys("standalone")
DEMO = NamespaceName("acme", "demo")
TOPIC = TopicName.parse("persistent://acme/demo/orders")


class Store(SqliteMetadataStore):
    """Somebody else writes first, or an answer is lost, as often as told."""

    others: Callable[[], Awaitable[None]] | None = None
    lost_answers = 0
    writes = 0

    async def commit(self, ops: Sequence[Op]) -> int:
        await self._meanwhile()
        version = await super().commit(ops)
        self._lose()
        return version

    async def _meanwhile(self) -> None:
        self.writes += 1
        if self.others is not None:
            await self.others()

    def _lose(self) -> None:
        if self.lost_answers:
            self.lost_answers -= 1
            raise UnknownOutcome("the answer was lost")


def with_writer(tmp_path: Path, body: Callable[[Store, PolicyWriter], Awaitable[None]]) -> None:
    async def run() -> None:
        store = await SqliteMetadataStore.open(tmp_path / "metadata.sqlite")
        store.__class__ = Store
        assert isinstance(store, Store)
        try:
            await store.put(KEYS.namespace(DEMO), encode(Namespace(bundle_count=4)))
            await store.put(KEYS.topic_head(TOPIC), encode(TopicHead(creation_id=1)))
            store.writes = 0
            await body(store, PolicyWriter(store, KEYS))
        finally:
            await store.close()

    asyncio.run(run())


def most(count: int) -> Callable[[Policies], None]:
    def edit(policies: Policies) -> None:
        policies.max_producers_per_topic = count

    return edit


def of_namespace(edit: Callable[[Policies], None]) -> Callable[[Namespace], None]:
    return lambda namespace: edit(namespace.policies)


def test_however_many_change_one_at_a_broker_at_once_all_have_their_way(tmp_path: Path) -> None:
    count = 5 * TRIES_MAX

    async def body(store: Store, writer: PolicyWriter) -> None:
        def grant(role: int) -> Callable[[Policies], None]:
            return lambda policies: policies.permissions[str(role)].names.append("consume")

        namespace = [writer.change_namespace(DEMO, of_namespace(grant(role))) for role in range(count)]
        topic = [writer.change_topic(TOPIC, grant(role)) for role in range(count)]
        await asyncio.gather(*namespace, *topic)
        for policies in ((await writer.namespace(DEMO)).policies, await writer.topic(TOPIC)):
            assert set(policies.permissions) == {str(role) for role in range(count)}

    with_writer(tmp_path, body)


def test_a_change_is_written_and_one_that_changes_nothing_is_not(tmp_path: Path) -> None:
    async def body(store: Store, writer: PolicyWriter) -> None:
        await writer.change_namespace(DEMO, of_namespace(most(3)))
        await writer.change_namespace(DEMO, of_namespace(most(3)))
        assert store.writes == 1
        assert (await writer.namespace(DEMO)).policies.max_producers_per_topic == 3
        assert (await writer.namespace(DEMO)).bundle_count == 4

    with_writer(tmp_path, body)


def test_a_change_that_others_overtook_is_done_on_top_of_theirs(tmp_path: Path) -> None:
    async def body(store: Store, writer: PolicyWriter) -> None:
        async def other() -> None:
            store.others = None
            await writer.change_namespace(
                DEMO, lambda namespace: namespace.properties.update({"by": "another"})
            )

        store.others = other
        await writer.change_namespace(DEMO, of_namespace(most(3)))
        found = await writer.namespace(DEMO)
        assert (found.policies.max_producers_per_topic, dict(found.properties)) == (3, {"by": "another"})

    with_writer(tmp_path, body)


def test_an_answer_that_was_lost_is_looked_up(tmp_path: Path) -> None:
    async def body(store: Store, writer: PolicyWriter) -> None:
        store.lost_answers = 1
        await writer.change_namespace(DEMO, of_namespace(most(3)))
        store.lost_answers = 1
        await writer.change_topic(TOPIC, most(4))
        assert store.writes == 2
        assert (await writer.topic(TOPIC)).max_producers_per_topic == 4

    with_writer(tmp_path, body)


def test_writer_that_always_conflicts_gets_the_conflict(tmp_path: Path) -> None:
    async def body(store: Store, writer: PolicyWriter) -> None:
        count = 0

        async def other() -> None:
            nonlocal count
            count += 1
            value = Namespace(bundle_count=4, properties={"count": str(count)})
            await SqliteMetadataStore.commit(store, [Put(KEYS.namespace(DEMO), encode(value))])

        store.others = other
        with pytest.raises(VersionMismatch):
            await writer.change_namespace(DEMO, of_namespace(most(3)))
        assert count == TRIES_MAX

    with_writer(tmp_path, body)


def test_refused_edit_is_not_written(tmp_path: Path) -> None:
    async def body(store: Store, writer: PolicyWriter) -> None:
        def refuse(policies: Policies) -> None:
            policies.max_producers_per_topic = 1
            raise ValueError("no")

        with pytest.raises(ValueError, match="no"):
            await writer.change_namespace(DEMO, of_namespace(refuse))
        with pytest.raises(ValueError, match="no"):
            await writer.change_topic(TOPIC, refuse)
        assert store.writes == 0

    with_writer(tmp_path, body)


def test_a_topic_that_says_nothing_any_more_has_no_key(tmp_path: Path) -> None:
    async def body(store: Store, writer: PolicyWriter) -> None:
        await writer.change_topic(TOPIC, most(3))
        assert await store.get(KEYS.topic_policies(TOPIC)) is not None
        await writer.change_topic(TOPIC, lambda policies: policies.Clear())
        assert await store.get(KEYS.topic_policies(TOPIC)) is None
        assert await writer.topic(TOPIC) == Policies()

    with_writer(tmp_path, body)


def test_policies_are_not_written_for_what_is_not_there(tmp_path: Path) -> None:
    async def body(store: Store, writer: PolicyWriter) -> None:
        with pytest.raises(TopicNotFound):
            await writer.change_topic(TopicName.parse("persistent://acme/demo/other"), most(3))
        with pytest.raises(NamespaceNotFound):
            await writer.change_namespace(NamespaceName("acme", "other"), of_namespace(most(3)))

    with_writer(tmp_path, body)


def test_a_topic_deleted_meanwhile_leaves_no_policies(tmp_path: Path) -> None:
    async def body(store: Store, writer: PolicyWriter) -> None:
        async def deletion() -> None:
            store.others = None
            await store.delete(KEYS.topic_head(TOPIC))

        store.others = deletion
        with pytest.raises(TopicNotFound):
            await writer.change_topic(TOPIC, most(3))
        assert await store.get(KEYS.topic_policies(TOPIC)) is None

    with_writer(tmp_path, body)


def test_a_partitioned_topic_has_policies_without_any_partition(tmp_path: Path) -> None:
    async def body(store: Store, writer: PolicyWriter) -> None:
        name = TopicName.parse("persistent://acme/demo/parts")
        await store.put(KEYS.partitioned_topic(name), encode(PartitionedTopic(partitions=2)))
        await writer.change_topic(name, most(3))
        assert (await writer.topic(name.partition(1))).max_producers_per_topic == 3

    with_writer(tmp_path, body)


def rates_of(numbers: Iterable[int]) -> Callable[[Policies], None]:
    def edit(policies: Policies) -> None:
        for number in numbers:
            policies.dispatch_rate_of_subscription["s" * 4_000 + str(number)].SetInParent()

    return edit


def test_the_policies_of_a_topic_are_bounded(tmp_path: Path) -> None:
    async def body(store: Store, writer: PolicyWriter) -> None:
        await writer.change_topic(TOPIC, rates_of(range(10)))
        with pytest.raises(NotAllowed, match="those of deleted subscriptions"):
            await writer.change_topic(TOPIC, rates_of(range(20)))
        assert len((await writer.topic(TOPIC)).dispatch_rate_of_subscription) == 10
        await writer.change_topic(TOPIC, lambda policies: policies.Clear())

    with_writer(tmp_path, body)


def test_policies_of_a_non_persistent_topic_need_its_namespace(tmp_path: Path) -> None:
    name = TopicName.parse("non-persistent://acme/demo/n")

    async def body(store: Store, writer: PolicyWriter) -> None:
        async def gone() -> None:
            store.others = None
            await store.delete(KEYS.namespace(DEMO))

        await writer.change_topic(name, lambda own: setattr(own, "message_ttl_s", 5))
        store.others = gone
        with pytest.raises(NamespaceNotFound):
            await writer.change_topic(name, lambda own: setattr(own, "message_ttl_s", 6))
        assert (await writer.topic(name)).message_ttl_s == 5

    with_writer(tmp_path, body)
