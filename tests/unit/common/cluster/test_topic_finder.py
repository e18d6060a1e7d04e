"""Where a topic is said to be served, and when somebody is asked to have it served."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

import pytest
from magnetar.common.cluster import topic_finder
from magnetar.common.cluster.broker_directory import BrokerDirectory
from magnetar.common.cluster.bundle_owners import BundleOwners
from magnetar.common.cluster.rings import Rings
from magnetar.common.cluster.topic_finder import TopicFinder
from magnetar.common.errors import MetadataError, NamespaceNotFound, ServiceNotReady, TooManyRequests
from magnetar.common.naming.bundle_range import BundleRange
from magnetar.common.naming.namespace_name import NamespaceName
from magnetar.common.naming.topic_name import TopicName
from magnetar.sim.metadata import SimMetadataServer, SimMetadataStore

from tests.unit.common.cluster.simulated import (
    KEYS,
    NAMESPACE,
    put_broker,
    put_namespace,
    put_owner,
    simulate,
    told,
)

TOPIC = TopicName.parse(f"persistent://{NAMESPACE}/my-topic")


@dataclass
class Assigner:
    """Answers with one broker after a while, or fails; counts who asked."""

    answer: str | Exception = "a:8080"
    asked: list[tuple[NamespaceName, BundleRange]] = field(default_factory=list)
    before_answer: Callable[[], Awaitable[object]] = lambda: asyncio.sleep(1)

    async def assign(self, namespace: NamespaceName, bundle: BundleRange) -> str:
        self.asked.append((namespace, bundle))
        await self.before_answer()
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


@dataclass
class Found:
    """A finder with its mirrors over a store with one namespace and two brokers."""

    store: SimMetadataStore
    assigner: Assigner
    finder: TopicFinder

    async def where(self, topic: TopicName = TOPIC, listener: str = "") -> str:
        return (await self.finder.find(topic, listener)).broker_id

    def bundle(self) -> BundleRange:
        found = self.finder.rings.bundle_of(TOPIC)
        assert found is not None
        return found


def finding(body: Callable[[Found], Awaitable[None]]) -> None:
    async def scenario(server: SimMetadataServer, store: SimMetadataStore) -> None:
        await put_namespace(store)
        await put_broker(store, "a:8080", 1)
        await put_broker(store, "b:8080", 2, listeners={"outside": "pulsar://gate:6650"})
        rings, owners, directory = Rings(store, KEYS), BundleOwners(store, KEYS), BrokerDirectory(store, KEYS)
        for mirror in (rings, owners, directory):
            await mirror.start()
        assigner = Assigner()
        finder = TopicFinder(rings, owners, directory, assigner)
        await body(Found(store, assigner, finder))
        await finder.close()
        for mirror in (rings, owners, directory):
            await mirror.close()

    simulate(scenario)


def test_owner_of_an_owned_bundle_is_found_locally() -> None:
    async def body(found: Found) -> None:
        await put_owner(found.store, found.bundle(), "b:8080", 2)
        await told()
        found.store.faults.unreachable = True
        assert await found.where() == "b:8080"
        assert found.assigner.asked == []
        found.store.faults.unreachable = False

    finding(body)


def test_concurrent_lookups_of_an_unowned_bundle_share_one_assignment() -> None:
    async def body(found: Found) -> None:
        topics = [TopicName.parse(f"persistent://{NAMESPACE}/t-{number}") for number in range(200)]
        brokers = await asyncio.gather(*(found.where(topic) for topic in topics for _ in range(5)))
        assert set(brokers) == {"a:8080"}
        assert sorted(found.assigner.asked) == sorted(set(found.assigner.asked))
        assert len(found.assigner.asked) == 4

    finding(body)


def test_cancelled_lookup_does_not_cancel_the_shared_assignment() -> None:
    async def body(found: Found) -> None:
        impatient, patient = asyncio.create_task(found.where()), asyncio.create_task(found.where())
        await asyncio.sleep(0.1)
        impatient.cancel()
        assert await patient == "a:8080"
        assert len(found.assigner.asked) == 1

    finding(body)


def test_a_run_that_is_gone_owns_nothing() -> None:
    async def body(found: Found) -> None:
        await put_owner(found.store, found.bundle(), "b:8080", 1)
        await told()
        assert await found.where() == "a:8080"
        await put_owner(found.store, found.bundle(), "c:8080", 1)
        await told()
        assert await found.where() == "a:8080"
        assert len(found.assigner.asked) == 2

    finding(body)


def test_an_unknown_namespace_is_asked_for_in_metadata_and_never_assigned() -> None:
    async def body(found: Found) -> None:
        topic = TopicName.parse("persistent://tenant/other/t")
        with pytest.raises(NamespaceNotFound, match="tenant/other does not exist"):
            await found.where(topic)
        assert found.assigner.asked == []
        found.store.faults.watch_delay_max_s = 60
        await put_namespace(found.store, namespace=topic.namespace)
        assert await found.where(topic) == "a:8080"

    finding(body)


def test_a_bundle_that_was_split_meanwhile_is_looked_for_as_it_is_cut_now() -> None:
    async def body(found: Found) -> None:
        found.store.faults.watch_delay_max_s = 60
        await put_namespace(found.store, boundaries=(TOPIC.hash,))
        found.assigner.answer = ServiceNotReady("there is no such bundle")

        async def answer_the_second() -> None:
            if len(found.assigner.asked) == 2:
                found.assigner.answer = "b:8080"

        found.assigner.before_answer = answer_the_second
        assert await found.where() == "b:8080"
        assert found.assigner.asked[1][1] == BundleRange(TOPIC.hash, 0xFFFF_FFFF)

    finding(body)


@pytest.mark.parametrize("error", [ServiceNotReady("nobody takes it"), MetadataError("away")])
def test_a_failed_assignment_fails_all_who_wait_and_the_next_one_asks_anew(error: Exception) -> None:
    async def body(found: Found) -> None:
        found.assigner.answer = error
        results = await asyncio.gather(*(found.where() for _ in range(3)), return_exceptions=True)
        assert results == [error] * 3
        assert len(found.assigner.asked) == 1
        found.assigner.answer = "a:8080"
        assert await found.where() == "a:8080"

    finding(body)


def test_an_assigned_broker_that_is_not_up_is_not_answered() -> None:
    async def body(found: Found) -> None:
        found.assigner.answer = "z:8080"
        with pytest.raises(ServiceNotReady, match="z:8080, which is not registered"):
            await found.where()

    finding(body)


def test_a_listener_that_the_broker_has_not_is_an_error() -> None:
    async def body(found: Found) -> None:
        await put_owner(found.store, found.bundle(), "b:8080", 2)
        await told()
        assert await found.where(listener="outside") == "b:8080"
        with pytest.raises(ServiceNotReady, match="no listener 'inside'"):
            await found.where(listener="inside")

    finding(body)


def test_assignments_at_the_same_time_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topic_finder, "ASSIGNMENTS_MAX", 2)

    async def body(found: Found) -> None:
        bundles = found.finder.rings.all[NAMESPACE].bundles
        waiting = [asyncio.create_task(found.finder.assigned(NAMESPACE, bundle)) for bundle in bundles[:2]]
        await asyncio.sleep(0)
        with pytest.raises(TooManyRequests, match="2 bundles are being assigned already"):
            await found.finder.assigned(NAMESPACE, bundles[2])
        await asyncio.gather(*waiting)
        await found.finder.assigned(NAMESPACE, bundles[2])

    finding(body)


def test_closing_finder_ends_all_waiting_lookups() -> None:
    async def body(found: Found) -> None:
        found.assigner.before_answer = lambda: asyncio.sleep(3600)
        waiting = asyncio.create_task(found.where())
        await asyncio.sleep(0.1)
        await found.finder.close()
        with pytest.raises(ServiceNotReady, match="shutting down"):
            await waiting
        with pytest.raises(ServiceNotReady, match="shutting down"):
            await found.where()

    finding(body)
