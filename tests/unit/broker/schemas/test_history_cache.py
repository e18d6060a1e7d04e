"""Histories in memory: one listing for many, and none that is older than it may be."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest
from magnetar.broker.schemas.history_cache import HistoryCache
from magnetar.broker.schemas.rules import SchemaRules
from magnetar.broker.schemas.schema_store import SchemaStore
from magnetar.common.errors import IncompatibleSchema, MetadataError
from magnetar.common.metadata.keys import Keys
from magnetar.common.metadata.store import Listing
from magnetar.common.metadata.values import Namespace, SchemaRecord, encode
from magnetar.common.naming.topic_name import TopicName
from magnetar.common.schemas.rules import Strategy
from magnetar.common.wire.pulsar_pb2 import Schema
from magnetar.sim.loop import SimClock, SimLoop, run
from magnetar.sim.metadata import SimMetadataServer, SimMetadataStore

KEYS = Keys("sim")
TOPIC = TopicName.parse("orders")
FULL = SchemaRules(Strategy.FULL)


class CountingStore(SimMetadataStore):
    """Counts the listings of schemas."""

    listings = 0

    async def children(self, prefix: str) -> Listing:
        self.listings += 1
        return await super().children(prefix)


def schema(kind: Schema.Type.ValueType = Schema.Int8) -> Schema:
    return Schema(name="o", schema_data=b"", type=kind)


def simulated(body: Callable[[SimMetadataServer, CountingStore, SimLoop], Awaitable[None]]) -> None:
    loop = SimLoop(7)

    async def main() -> None:
        server = SimMetadataServer()
        store = CountingStore(server, loop.rng)
        await store.put(KEYS.namespace(TOPIC.namespace), encode(Namespace()))
        await body(server, store, loop)

    run(loop, main())


@asynccontextmanager
async def following(schemas: SchemaStore) -> AsyncIterator[None]:
    """Watches for the time of a block."""
    following = asyncio.create_task(schemas.follow())
    await asyncio.sleep(0)
    try:
        yield
    finally:
        following.cancel()
        await asyncio.wait([following])


def test_two_thousand_reconnecting_producers_cost_one_listing() -> None:
    async def body(server: SimMetadataServer, store: CountingStore, loop: SimLoop) -> None:
        before = SchemaStore(store, KEYS, SimClock(loop))
        await before.put(TOPIC, schema(), FULL)
        schemas = SchemaStore(store, KEYS, SimClock(loop))
        async with following(schemas):
            store.listings, revision = 0, server.revision
            topics = [TOPIC.partition(0), TOPIC]
            puts = [schemas.put(topics[number % 2], schema(), FULL) for number in range(2_000)]
            assert set(await asyncio.gather(*puts)) == {bytes(8)}
            assert await schemas.put(TOPIC, schema(), FULL) == bytes(8)
            assert store.listings == 1
            assert server.revision == revision

    simulated(body)


def test_many_refused_producers_share_listings() -> None:
    async def body(server: SimMetadataServer, store: CountingStore, loop: SimLoop) -> None:
        schemas = SchemaStore(store, KEYS, SimClock(loop))
        async with following(schemas):
            await schemas.put(TOPIC, schema(), FULL)
            store.listings = 0
            puts = [schemas.put(TOPIC, schema(Schema.Int16), FULL) for _ in range(300)]
            refused = await asyncio.gather(*puts, return_exceptions=True)
            assert Counter(map(type, refused)) == {IncompatibleSchema: 300}
            assert store.listings <= 2

    simulated(body)


def test_a_schema_is_not_refused_by_an_outdated_history() -> None:
    """A newer version that another broker stored is found, although no watch has told of it yet."""

    async def body(server: SimMetadataServer, store: CountingStore, loop: SimLoop) -> None:
        store.faults.watch_delay_max_s = 60.0
        schemas, other = (SchemaStore(store, KEYS, SimClock(loop)) for _ in range(2))
        any_schema = SchemaRules(Strategy.ALWAYS_COMPATIBLE)
        async with following(schemas):
            await schemas.put(TOPIC, schema(), FULL)
            await schemas.put(TOPIC, schema(), FULL)
            await other.put(TOPIC, schema(Schema.Int16), any_schema)
            await schemas.check_reader(TOPIC, schema(Schema.Int16), Strategy.FULL)
            await other.put(TOPIC, schema(Schema.Int32), any_schema)
            assert await schemas.put(TOPIC, schema(Schema.Int32), FULL) == (2).to_bytes(8)
            assert await schemas.get(TOPIC) == (schema(Schema.Int32), (2).to_bytes(8))

    simulated(body)


def test_changes_of_others_arrive_by_the_watch() -> None:
    async def body(server: SimMetadataServer, store: CountingStore, loop: SimLoop) -> None:
        schemas, other = (SchemaStore(store, KEYS, SimClock(loop)) for _ in range(2))
        async with following(schemas):
            await schemas.put(TOPIC, schema(), FULL)
            await schemas.put(TOPIC, schema(), FULL)
            await other.retire(TOPIC)
            await asyncio.sleep(1)
            assert await schemas.put(TOPIC, schema(), FULL) == (2).to_bytes(8)
            store.lose_watches()
            await other.erase(TOPIC)
            await asyncio.sleep(1)
            assert await schemas.put(TOPIC, schema(), FULL) == bytes(8)

    simulated(body)


def test_a_deleted_and_forgotten_topic_is_listed_again() -> None:
    async def body(server: SimMetadataServer, store: CountingStore, loop: SimLoop) -> None:
        store.faults.watch_delay_max_s = 60.0
        schemas = SchemaStore(store, KEYS, SimClock(loop))
        async with following(schemas):
            for _ in range(3):
                await schemas.put(TOPIC, schema(), FULL)
            await store.commit(await schemas.deletions(TOPIC))
            schemas.forget(TOPIC)
            assert await schemas.put(TOPIC, schema(), FULL) == bytes(8)
            assert len(await schemas.history(TOPIC)) == 1

    simulated(body)


def test_without_a_watch_nothing_is_kept() -> None:
    async def body(server: SimMetadataServer, store: CountingStore, loop: SimLoop) -> None:
        cache = HistoryCache(store, KEYS)
        for listings in (1, 2):
            await asyncio.gather(*(cache.get(TOPIC) for _ in range(5)))
            assert store.listings == listings
        assert cache.known(TOPIC) is None

    simulated(body)


def test_the_cache_keeps_the_topics_used_last_within_its_bytes() -> None:
    async def body(server: SimMetadataServer, store: CountingStore, loop: SimLoop) -> None:
        names = [TopicName.parse(f"orders{number}") for number in range(5)]
        for name in (*names, TOPIC):
            size = 50_000 if name is TOPIC else 1_000
            await store.put(KEYS.schema(name, 0), encode(SchemaRecord(type=Schema.Avro, data=bytes(size))))
        cache = HistoryCache(store, KEYS, bytes_max=10_000)
        following = asyncio.create_task(cache.follow())
        await asyncio.sleep(0)
        for name in names[:3]:
            await cache.get(name)
        await cache.get(names[0])
        await cache.get(names[3])
        assert [cache.known(name) is not None for name in names] == [True, False, True, True, False]
        await cache.get(TOPIC)
        assert cache.known(TOPIC) is None
        assert cache.known(names[3]) is not None
        following.cancel()
        await asyncio.wait([following])

    simulated(body)


def test_a_failed_listing_fails_its_callers_and_the_next_one_lists_again() -> None:
    async def body(server: SimMetadataServer, store: CountingStore, loop: SimLoop) -> None:
        cache = HistoryCache(store, KEYS)
        store.faults.unreachable = True
        failed = await asyncio.gather(*(cache.get(TOPIC) for _ in range(3)), return_exceptions=True)
        assert [type(each) for each in failed] == [MetadataError] * 3
        store.faults.unreachable = False
        assert (await cache.get(TOPIC)).records == []

    simulated(body)


def test_a_cancelled_caller_leaves_the_listing_to_the_others() -> None:
    async def body(server: SimMetadataServer, store: CountingStore, loop: SimLoop) -> None:
        cache = HistoryCache(store, KEYS)
        first, second = (asyncio.create_task(cache.get(TOPIC)) for _ in range(2))
        await asyncio.sleep(0)
        first.cancel()
        assert (await second).records == []
        with pytest.raises(asyncio.CancelledError):
            await first
        assert store.listings == 1

    simulated(body)
