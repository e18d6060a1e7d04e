"""Topics that another broker serves, or serves from now on, are not served here."""

from __future__ import annotations

import asyncio

import pytest
from magnetar.broker.ownership.ownership import not_served
from magnetar.broker.ownership.sole_ownership import SoleOwnership
from magnetar.broker.topics.publish.persistent_publishing import PersistentPublishing
from magnetar.common.errors import OwnershipLost, ServiceNotReady, TopicNotFound
from magnetar.common.naming.bundle_range import split_ring
from magnetar.common.naming.topic_name import TopicName
from magnetar.ledger.managed_ledger.managed_ledger import ManagedLedger

from tests.unit.broker.topics.world import ListeningPeer, Topics, in_a_broker, producer_of

NAMES = [TopicName.parse(f"t-{number}") for number in range(20)]
HALF, OTHER_HALF = split_ring(2)
(ALL,) = split_ring(1)
OURS = [name for name in NAMES if name.hash in HALF]
THEIRS = [name for name in NAMES if name.hash in OTHER_HALF]
LOST = OwnershipLost("bundle is another broker's")


def owning_a_half(monkeypatch: pytest.MonkeyPatch) -> list[TopicName]:
    """Only the topics of one half are served here; returns what is claimed."""
    claimed: list[TopicName] = []

    def check(self: SoleOwnership, name: TopicName) -> None:
        if name.hash not in HALF:
            raise not_served(name)

    async def claim(self: SoleOwnership, name: TopicName) -> None:
        claimed.append(name)
        check(self, name)

    monkeypatch.setattr(SoleOwnership, "check", check)
    monkeypatch.setattr(SoleOwnership, "claim", claim)
    return claimed


def owning_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """From now on no topic is served here."""

    def check(self: SoleOwnership, name: TopicName) -> None:
        raise not_served(name)

    monkeypatch.setattr(SoleOwnership, "check", check)


def test_a_topic_of_another_broker_is_neither_loaded_nor_deleted(monkeypatch: pytest.MonkeyPatch) -> None:
    claimed = owning_a_half(monkeypatch)

    async def scenario(made: Topics) -> None:
        await made.registry.get(OURS[0], create=True)
        with pytest.raises(ServiceNotReady, match="not served by this broker; look it up again"):
            await made.registry.get(THEIRS[0], create=True)
        with pytest.raises(ServiceNotReady, match="not served by this broker"):
            await made.registry.get(THEIRS[0], create=True, claim=True)
        with pytest.raises(ServiceNotReady, match="not served by this broker"):
            await made.registry.delete(THEIRS[0], force=True)
        assert claimed == [THEIRS[0], THEIRS[0]]
        assert list(made.registry.loaded) == [OURS[0].full]

    in_a_broker(scenario)


def test_a_topic_that_is_not_served_any_more_is_not_given_to_newcomers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def scenario(made: Topics) -> None:
        await made.registry.get(THEIRS[0], create=True)
        owning_a_half(monkeypatch)
        with pytest.raises(ServiceNotReady, match="not served by this broker"):
            await made.registry.get(THEIRS[0], create=False)

    in_a_broker(scenario)


def test_the_topics_of_a_lost_bundle_are_dropped_at_once_and_no_others() -> None:
    async def scenario(made: Topics) -> None:
        peers = {}
        for name in (OURS[0], THEIRS[0]):
            topic = await made.registry.get(name, create=True)
            peers[name] = ListeningPeer()
            await producer_of(topic, peers[name])
        volatile = TopicName.parse(f"non-{THEIRS[0].full}")
        namespace, bundle = volatile.namespace, split_ring(1)[0]
        made.registry.abandon_bundle(THEIRS[0].namespace, OTHER_HALF, LOST)
        assert list(made.registry.loaded) == [OURS[0].full]
        await asyncio.sleep(0.01)
        assert not peers[THEIRS[0]].connected
        assert peers[OURS[0]].connected
        assert peers[OURS[0]].types == []
        await made.registry.get(THEIRS[0], create=True)  # it can be ours again
        await made.registry.get(volatile, create=True)
        made.registry.abandon_bundle(namespace, bundle, LOST)
        assert not made.registry.loaded

    in_a_broker(scenario)


def test_who_waits_for_a_topic_of_a_lost_bundle_is_told_to_look_it_up() -> None:
    async def scenario(made: Topics) -> None:
        waiting = [asyncio.create_task(made.registry.get(THEIRS[0], create=True)) for _ in range(3)]
        ours = asyncio.create_task(made.registry.get(OURS[0], create=True))
        await asyncio.sleep(0)
        waiting[0].cancel()
        await asyncio.sleep(0)
        made.registry.abandon_bundle(THEIRS[0].namespace, OTHER_HALF, LOST)
        results = await asyncio.gather(*waiting, return_exceptions=True)
        assert isinstance(results[0], asyncio.CancelledError)
        for result in results[1:]:
            assert isinstance(result, ServiceNotReady)
            assert "moved to another broker" in str(result)
        assert (await ours).name == OURS[0]
        assert list(made.registry.loaded) == [OURS[0].full]

    in_a_broker(scenario)


def test_a_topic_that_went_to_another_broker_while_its_load_was_waited_for_is_not_deleted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def scenario(made: Topics) -> None:
        loading = asyncio.create_task(made.registry.get(NAMES[0], create=True))
        await asyncio.sleep(0)
        deleting = asyncio.create_task(made.registry.delete(NAMES[0], force=False))
        await asyncio.sleep(0)
        owning_nothing(monkeypatch)
        loading.add_done_callback(lambda _: made.registry.abandon_bundle(NAMES[0].namespace, ALL, LOST))
        with pytest.raises(ServiceNotReady, match="not served by this broker"):
            await deleting
        assert await made.registry.exists(NAMES[0])

    in_a_broker(scenario)


def test_whoever_asks_again_because_a_load_was_not_allowed_to_create_is_asked_whose_the_topic_is_by_then(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def scenario(made: Topics) -> None:
        looking = asyncio.create_task(made.registry.get(NAMES[0], create=False))
        await asyncio.sleep(0)
        creating = asyncio.create_task(made.registry.get(NAMES[0], create=True))
        await asyncio.sleep(0)
        owning_nothing(monkeypatch)
        with pytest.raises(TopicNotFound):
            await looking
        with pytest.raises(ServiceNotReady, match="not served by this broker"):
            await creating
        assert not await made.registry.exists(NAMES[0])

    in_a_broker(scenario)


def test_a_load_that_a_lost_bundle_ends_waits_for_no_storage(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(made: Topics) -> None:
        await made.registry.get(THEIRS[0], create=True)
        await made.registry.unload(THEIRS[0])
        attaching, closing = asyncio.Event(), asyncio.Event()

        async def begin(self: PersistentPublishing) -> None:
            attaching.set()
            await asyncio.Event().wait()

        async def close(self: ManagedLedger) -> None:
            closing.set()
            await asyncio.Event().wait()

        monkeypatch.setattr(PersistentPublishing, "begin", begin)
        monkeypatch.setattr(ManagedLedger, "close", close)
        waiting = asyncio.create_task(made.registry.get(THEIRS[0], create=True))
        await attaching.wait()
        made.registry.abandon(LOST)
        async with asyncio.timeout(1):
            await made.registry.close()
        with pytest.raises(ServiceNotReady):
            await waiting
        assert not closing.is_set()

    in_a_broker(scenario)
