"""Coordinators are created once, at the first start with transactions, and their number only grows."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from magnetar.broker.transactions.coordinator_topic import (
    coordinator_count,
    coordinator_partition,
    ensure_coordinators,
    grow_coordinators,
)
from magnetar.common.errors import TransactionCoordinatorNotFound
from magnetar.common.metadata.keys import Keys
from magnetar.common.metadata.sqlite_store import SqliteMetadataStore

KEYS = Keys("test")


def test_the_first_start_decides_the_number_of_coordinators_until_it_grows(tmp_path: Path) -> None:
    async def body() -> None:
        store = await SqliteMetadataStore.open(tmp_path / "metadata.sqlite")
        try:
            assert await coordinator_count(store, KEYS) == 0
            await ensure_coordinators(store, KEYS, 16, 1)
            await ensure_coordinators(store, KEYS, 1, 2)
            assert await coordinator_count(store, KEYS) == 16
            assert not await grow_coordinators(store, KEYS, 16)
            assert not await grow_coordinators(store, KEYS, 3)
            assert await grow_coordinators(store, KEYS, 17)
            assert await coordinator_count(store, KEYS) == 17
        finally:
            await store.close()

    asyncio.run(body())


def test_two_brokers_with_their_first_start_at_once_make_one_set(tmp_path: Path) -> None:
    async def body() -> None:
        store = await SqliteMetadataStore.open(tmp_path / "metadata.sqlite")
        try:
            await asyncio.gather(*(ensure_coordinators(store, KEYS, 16, now) for now in range(4)))
            assert await coordinator_count(store, KEYS) == 16
        finally:
            await store.close()

    asyncio.run(body())


def test_a_coordinator_is_a_partition_of_the_topic_that_clients_look_up() -> None:
    topic = "persistent://pulsar/system/transaction_coordinator_assign-partition-0"
    assert coordinator_partition(0).full == topic
    for invalid in (-1, 2**31, 2**64 - 1):
        with pytest.raises(TransactionCoordinatorNotFound):
            coordinator_partition(invalid)
