"""Tenants and namespaces are made and deleted whole, whoever else is at it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

import pytest
from magnetar.broker.tenancy import Tenancy
from magnetar.common.errors import (
    NamespaceExists,
    NamespaceNotEmpty,
    NamespaceNotFound,
    NotAllowed,
    UnknownOutcome,
    VersionMismatch,
)
from magnetar.common.metadata.keys import Keys
from magnetar.common.metadata.sqlite_store import SqliteMetadataStore
from magnetar.common.metadata.store import Listing, Op
from magnetar.common.metadata.values import Namespace, PartitionedTopic, TopicHead, encode
from magnetar.common.naming.namespace_name import SYSTEM_NAMESPACE, NamespaceName
from magnetar.common.naming.topic_name import TopicName
from magnetar.common.runtime.clock import SystemClock

KEYS = Keys("standalone")
DEMO = NamespaceName("acme", "demo")


class Store(SqliteMetadataStore):
    """Something happens behind a listing, or an answer is lost."""

    behind_listing: Callable[[], Awaitable[None]] | None = None
    lose_answer = False

    async def children(self, prefix: str) -> Listing:
        listing = await super().children(prefix)
        behind, self.behind_listing = self.behind_listing, None
        if behind is not None:
            await behind()
        return listing

    async def commit(self, ops: Sequence[Op]) -> int:
        revision = await super().commit(ops)
        lose, self.lose_answer = self.lose_answer, False
        if lose:
            raise UnknownOutcome("the answer was lost")
        return revision


def with_tenancy(tmp_path: Path, body: Callable[[Store, Tenancy], Awaitable[None]]) -> None:
    async def run() -> None:
        store = await SqliteMetadataStore.open(tmp_path / "metadata.sqlite")
        store.__class__ = Store
        assert isinstance(store, Store)
        try:
            tenancy = Tenancy(store, KEYS, SystemClock())
            await tenancy.create_tenant("acme", ["admin"], ["standalone"])
            await body(store, tenancy)
        finally:
            await store.close()

    asyncio.run(run())


def test_a_namespace_made_while_its_tenant_is_deleted_keeps_the_tenant(tmp_path: Path) -> None:
    async def body(store: Store, tenancy: Tenancy) -> None:
        store.behind_listing = lambda: tenancy.create_namespace(DEMO, Namespace(bundle_count=4))
        with pytest.raises(VersionMismatch):
            await tenancy.delete_tenant("acme")
        assert await tenancy.tenant("acme") is not None
        with pytest.raises(NamespaceNotEmpty):
            await tenancy.delete_tenant("acme")

    with_tenancy(tmp_path, body)


def test_a_tenant_deleted_first_has_no_new_namespaces(tmp_path: Path) -> None:
    async def body(store: Store, tenancy: Tenancy) -> None:
        await tenancy.delete_tenant("acme")
        with pytest.raises(NamespaceNotFound, match="Tenant does not exist"):
            await tenancy.create_namespace(DEMO, Namespace(bundle_count=4))
        with pytest.raises(NamespaceNotFound):
            await tenancy.delete_tenant("acme")

    with_tenancy(tmp_path, body)


def test_namespaces_of_a_tenant_made_at_once_are_all_made(tmp_path: Path) -> None:
    async def body(store: Store, tenancy: Tenancy) -> None:
        names = [NamespaceName("acme", f"n{number}") for number in range(5)]
        await asyncio.gather(*(tenancy.create_namespace(each, Namespace(bundle_count=4)) for each in names))
        for each in names:
            with pytest.raises(NamespaceExists):
                await tenancy.create_namespace(each, Namespace(bundle_count=4))

    with_tenancy(tmp_path, body)


def test_what_was_made_although_the_answer_was_lost_is_made(tmp_path: Path) -> None:
    async def body(store: Store, tenancy: Tenancy) -> None:
        store.lose_answer = True
        await tenancy.create_tenant("other", [], ["standalone"])
        store.lose_answer = True
        await tenancy.create_namespace(DEMO, Namespace(bundle_count=4))
        assert await store.get(KEYS.namespace(DEMO)) is not None

    with_tenancy(tmp_path, body)


@pytest.mark.parametrize("kind", ["topic", "partitioned"])
def test_a_namespace_with_topics_of_any_kind_stays(tmp_path: Path, kind: str) -> None:
    async def body(store: Store, tenancy: Tenancy) -> None:
        await tenancy.create_namespace(DEMO, Namespace(bundle_count=4))
        name = TopicName.parse("persistent://acme/demo/t")
        if kind == "topic":
            await store.put(KEYS.topic_head(name), encode(TopicHead()))
        else:
            await store.put(KEYS.partitioned_topic(name), encode(PartitionedTopic(partitions=1)))
        with pytest.raises(NamespaceNotEmpty):
            await tenancy.delete_namespace(DEMO)

    with_tenancy(tmp_path, body)


def test_the_clusters_own_namespace_cannot_be_deleted(tmp_path: Path) -> None:
    async def body(store: Store, tenancy: Tenancy) -> None:
        with pytest.raises(NotAllowed):
            await tenancy.delete_namespace(SYSTEM_NAMESPACE)

    with_tenancy(tmp_path, body)


@pytest.mark.parametrize("leftovers", [1, 127, 300])
def test_what_is_said_of_topics_that_are_gone_goes_with_their_namespace(
    tmp_path: Path, leftovers: int
) -> None:
    async def body(store: Store, tenancy: Tenancy) -> None:
        await tenancy.create_namespace(DEMO, Namespace(bundle_count=4))
        other = NamespaceName(DEMO.tenant, f"{DEMO.namespace}-other")
        await tenancy.create_namespace(other, Namespace(bundle_count=4))
        for namespace in (DEMO, other):
            for number in range(leftovers):
                name = TopicName.parse(f"non-persistent://{namespace}/t{number}")
                await store.put(KEYS.topic_policies(name), b"policies")
            await store.put(KEYS.schema(TopicName.parse(f"persistent://{namespace}/t"), 0), b"schema")
        await tenancy.delete_namespace(DEMO)
        left = [item.key for item in (await store.children(KEYS.root)).items]
        assert not [key for key in left if f"/{DEMO}/" in key or key == KEYS.namespace(DEMO)]
        assert len([key for key in left if f"/{other}/" in key]) == leftovers + 1

    with_tenancy(tmp_path, body)
