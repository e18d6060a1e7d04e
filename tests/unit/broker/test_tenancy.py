"""Tenants and namespaces are made whole, whoever else is at it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

import pytest
from magnetar.broker.tenancy import Tenancy
from magnetar.common.errors import BeingDeleted, NamespaceExists, UnknownOutcome
from magnetar.common.metadata.keys import Keys, delete_namespace_intent_id, delete_tenant_intent_id
from magnetar.common.metadata.sqlite_store import SqliteMetadataStore
from magnetar.common.metadata.store import Op
from magnetar.common.metadata.values import Namespace
from magnetar.common.naming.namespace_name import NamespaceName
from magnetar.common.runtime.clock import SystemClock

KEYS = Keys("standalone")
DEMO = NamespaceName("acme", "demo")


class Store(SqliteMetadataStore):
    """An answer is lost."""

    lose_answer = False

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


def test_nothing_is_made_in_the_place_of_what_is_being_deleted(tmp_path: Path) -> None:
    async def body(store: Store, tenancy: Tenancy) -> None:
        for intent_id in (delete_namespace_intent_id(DEMO), delete_tenant_intent_id("other")):
            await store.put(KEYS.intent(intent_id), b"")
        with pytest.raises(BeingDeleted, match="acme/demo is being deleted"):
            await tenancy.create_namespace(DEMO, Namespace(bundle_count=4))
        with pytest.raises(BeingDeleted, match="other is being deleted"):
            await tenancy.create_tenant("other", [], ["standalone"])
        assert await store.get(KEYS.namespace(DEMO)) is None
        assert await store.get(KEYS.tenant("other")) is None

    with_tenancy(tmp_path, body)
