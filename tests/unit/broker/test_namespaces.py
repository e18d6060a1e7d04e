"""Tenants and namespaces over the SQLite store."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

import pytest
from magnetar.broker.namespaces import Namespaces
from magnetar.common.errors import MetadataError, UnknownOutcome
from magnetar.common.metadata.keys import Keys
from magnetar.common.metadata.sqlite_store import SqliteMetadataStore
from magnetar.common.metadata.store import Op, Versioned
from magnetar.common.metadata.values import Namespace, Tenant, encode
from magnetar.common.naming.namespace_name import DEFAULT_NAMESPACE, SYSTEM_NAMESPACE, NamespaceName

KEYS = Keys("standalone")
DEMO = NamespaceName("acme", "demo")


class CountingStore(SqliteMetadataStore):
    """Counts reads, and loses the answer of a commit when told to."""

    gets = 0
    lose_answer = False

    async def get(self, key: str) -> Versioned | None:
        self.gets += 1
        return await super().get(key)

    async def commit(self, ops: Sequence[Op]) -> int:
        revision = await super().commit(ops)
        if self.lose_answer:
            raise UnknownOutcome("the answer was lost")
        return revision


def with_store(tmp_path: Path, body: Callable[[CountingStore, Namespaces], Awaitable[None]]) -> None:
    async def run() -> None:
        store = await SqliteMetadataStore.open(tmp_path / "metadata.sqlite")
        store.__class__ = CountingStore
        assert isinstance(store, CountingStore)
        namespaces = Namespaces(store, KEYS)
        try:
            await body(store, namespaces)
        finally:
            await namespaces.close()
            await store.close()

    asyncio.run(run())


async def settle() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


def test_the_first_start_makes_public_default_and_the_system_namespace(tmp_path: Path) -> None:
    async def body(store: CountingStore, namespaces: Namespaces) -> None:
        assert await namespaces.tenants() == []
        await namespaces.ensure_defaults("standalone")
        assert await namespaces.tenants() == ["public", "pulsar"]
        assert await namespaces.namespaces_of("public") == [DEFAULT_NAMESPACE]
        assert await namespaces.namespaces_of("pulsar") == [SYSTEM_NAMESPACE]
        assert await namespaces.exists(DEFAULT_NAMESPACE)
        settings = await namespaces.get(DEFAULT_NAMESPACE)
        assert settings is not None
        assert settings.bundle_count == 4
        assert await namespaces.tenant_exists("public")
        assert not await namespaces.tenant_exists("acme")

    with_store(tmp_path, body)


def test_a_deleted_default_namespace_stays_deleted_at_the_next_start(tmp_path: Path) -> None:
    async def body(store: CountingStore, namespaces: Namespaces) -> None:
        await namespaces.ensure_defaults("standalone")
        await store.delete(KEYS.namespace(DEFAULT_NAMESPACE))
        await namespaces.ensure_defaults("standalone")
        assert not await namespaces.exists(DEFAULT_NAMESPACE)

    with_store(tmp_path, body)


def test_two_first_starts_at_once_make_the_defaults_once(tmp_path: Path) -> None:
    async def body(store: CountingStore, namespaces: Namespaces) -> None:
        await asyncio.gather(*(Namespaces(store, KEYS).ensure_defaults("standalone") for _ in range(3)))
        assert await namespaces.tenants() == ["public", "pulsar"]

    with_store(tmp_path, body)


def test_a_first_start_whose_answer_was_lost_is_read_back(tmp_path: Path) -> None:
    async def body(store: CountingStore, namespaces: Namespaces) -> None:
        store.lose_answer = True
        await namespaces.ensure_defaults("standalone")
        assert await namespaces.exists(DEFAULT_NAMESPACE)

    with_store(tmp_path, body)


def test_a_half_made_tenant_is_not_overwritten(tmp_path: Path) -> None:
    async def body(store: CountingStore, namespaces: Namespaces) -> None:
        await store.put(KEYS.tenant("public"), encode(Tenant(admin_roles=["root"])))
        with pytest.raises(MetadataError, match="tenants/public"):
            await namespaces.ensure_defaults("standalone")

    with_store(tmp_path, body)


def test_existence_is_answered_from_memory_while_watched(tmp_path: Path) -> None:
    async def body(store: CountingStore, namespaces: Namespaces) -> None:
        await namespaces.ensure_defaults("standalone")
        await namespaces.start()
        assert await namespaces.exists(DEFAULT_NAMESPACE)
        before = store.gets
        for _ in range(10):
            assert await namespaces.exists(DEFAULT_NAMESPACE)
        assert store.gets == before

    with_store(tmp_path, body)


def test_without_the_watch_every_question_asks_the_store(tmp_path: Path) -> None:
    async def body(store: CountingStore, namespaces: Namespaces) -> None:
        await namespaces.ensure_defaults("standalone")
        assert await namespaces.exists(DEFAULT_NAMESPACE)
        await store.delete(KEYS.namespace(DEFAULT_NAMESPACE))
        assert not await namespaces.exists(DEFAULT_NAMESPACE)

    with_store(tmp_path, body)


def test_a_namespace_made_later_exists_at_once_and_a_deleted_one_no_more(tmp_path: Path) -> None:
    async def body(store: CountingStore, namespaces: Namespaces) -> None:
        await namespaces.start()
        assert not await namespaces.exists(DEMO)
        await store.put(KEYS.namespace(DEMO), encode(Namespace(bundle_count=4)))
        assert await namespaces.exists(DEMO)
        await store.delete(KEYS.namespace(DEMO))
        await settle()
        assert not await namespaces.exists(DEMO)

    with_store(tmp_path, body)


def test_a_removal_during_the_question_is_not_remembered_as_existing(tmp_path: Path) -> None:
    async def body(store: CountingStore, namespaces: Namespaces) -> None:
        await namespaces.start()
        await store.put(KEYS.namespace(DEMO), encode(Namespace(bundle_count=4)))
        question = asyncio.ensure_future(namespaces.exists(DEMO))
        await asyncio.sleep(0)
        await asyncio.gather(question, store.delete(KEYS.namespace(DEMO)))
        await settle()
        assert not await namespaces.exists(DEMO)

    with_store(tmp_path, body)


def test_a_watch_that_fell_behind_forgets_what_it_knew_and_goes_on(tmp_path: Path) -> None:
    async def body(store: CountingStore, namespaces: Namespaces) -> None:
        await namespaces.ensure_defaults("standalone")
        await namespaces.start()
        assert await namespaces.exists(DEFAULT_NAMESPACE)
        await settle()
        for queue in list(store._watches):
            queue.lose("test")
        await settle()
        before = store.gets
        assert await namespaces.exists(DEFAULT_NAMESPACE)
        assert store.gets == before + 1
        assert await namespaces.exists(DEFAULT_NAMESPACE)
        assert store.gets == before + 1
        await store.delete(KEYS.namespace(DEFAULT_NAMESPACE))
        await settle()
        assert not await namespaces.exists(DEFAULT_NAMESPACE)

    with_store(tmp_path, body)
