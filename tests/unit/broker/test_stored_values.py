"""Single values in metadata are changed by everybody who changes them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from magnetar.broker.stored_values import (
    TRIES_MAX,
    change_value,
    create_value,
    delete_value,
    read_value,
)
from magnetar.common.errors import UnknownOutcome, VersionMismatch
from magnetar.common.metadata.sqlite_store import SqliteMetadataStore
from magnetar.common.metadata.store import ANY_VERSION, Versioned
from magnetar.common.metadata.values import DynamicConfiguration, encode

KEY = "/magnetar/x/v1/dynamic-configuration"


class Store(SqliteMetadataStore):
    """Somebody else writes behind a read, or an answer is lost."""

    others = 0
    lose_answers = 0

    async def get(self, key: str) -> Versioned | None:
        found = await super().get(key)
        if self.others:
            self.others -= 1
            values = {} if found is None else dict(DynamicConfiguration.FromString(found.value).values)
            values[f"other-{self.others}"] = "1"
            await super().put(key, encode(DynamicConfiguration(values=values)))
        return found

    async def put(self, key: str, value: bytes, expected_version: int = ANY_VERSION) -> int:
        version = await super().put(key, value, expected_version)
        if self.lose_answers:
            self.lose_answers -= 1
            raise UnknownOutcome("the answer was lost")
        return version


def with_store(tmp_path: Path, body: Callable[[Store], Awaitable[None]]) -> None:
    async def main() -> None:
        store = await SqliteMetadataStore.open(tmp_path / "metadata.sqlite")
        store.__class__ = Store
        assert isinstance(store, Store)
        try:
            await body(store)
        finally:
            await store.close()

    asyncio.run(main())


def add(key: str) -> Callable[[DynamicConfiguration], None]:
    def edit(value: DynamicConfiguration) -> None:
        value.values[key] = "1"

    return edit


async def stored(store: Store) -> set[str]:
    found = await read_value(store, KEY, DynamicConfiguration)
    return set() if found is None else set(found.values)


def test_what_others_changed_meanwhile_stays(tmp_path: Path) -> None:
    async def body(store: Store) -> None:
        store.others = 3
        assert await change_value(store, KEY, DynamicConfiguration, add("mine"))
        assert await stored(store) == {"mine", "other-0", "other-1", "other-2"}

    with_store(tmp_path, body)


def test_when_others_are_always_faster_the_conflict_is_told(tmp_path: Path) -> None:
    async def body(store: Store) -> None:
        store.others = TRIES_MAX
        with pytest.raises(VersionMismatch):
            await change_value(store, KEY, DynamicConfiguration, add("mine"))
        assert "mine" not in await stored(store)

    with_store(tmp_path, body)


def test_a_change_whose_answer_was_lost_is_looked_for(tmp_path: Path) -> None:
    async def body(store: Store) -> None:
        store.lose_answers = 1
        assert await change_value(store, KEY, DynamicConfiguration, add("mine"))
        assert await stored(store) == {"mine"}
        store.lose_answers = 1
        other = f"{KEY}-2"
        assert await create_value(store, other, DynamicConfiguration(values={"a": "b"}))

    with_store(tmp_path, body)


def test_a_value_is_made_once_and_deleted_once(tmp_path: Path) -> None:
    async def body(store: Store) -> None:
        assert not await change_value(store, KEY, DynamicConfiguration, add("a"), create=False)
        assert await create_value(store, KEY, DynamicConfiguration(values={"a": "b"}))
        assert not await create_value(store, KEY, DynamicConfiguration(values={"c": "d"}))
        assert await stored(store) == {"a"}
        assert await delete_value(store, KEY)
        assert not await delete_value(store, KEY)

    with_store(tmp_path, body)
