"""Which bundle a topic is in, now and after a split."""

from __future__ import annotations

import pytest
from magnetar.common.cluster.rings import Rings
from magnetar.common.errors import NamespaceNotFound
from magnetar.common.naming.bundle_range import BundleRange
from magnetar.common.naming.topic_name import TopicName
from magnetar.sim.metadata import SimMetadataServer, SimMetadataStore

from tests.unit.common.cluster.simulated import KEYS, NAMESPACE, put_namespace, simulate, told

TOPIC = TopicName.parse(f"persistent://{NAMESPACE}/my-topic")


def test_a_topic_is_in_the_bundle_that_has_its_hash() -> None:
    async def scenario(server: SimMetadataServer, store: SimMetadataStore) -> None:
        await put_namespace(store, 4)
        rings = Rings(store, KEYS)
        await rings.start()
        found = rings.bundle_of(TOPIC)
        assert found is not None
        assert TOPIC.hash in found
        assert rings.bundle_of(TopicName.parse("persistent://tenant/other/my-topic")) is None
        await put_namespace(store, boundaries=(TOPIC.hash,))
        await told()
        assert rings.bundle_of(TOPIC) == BundleRange(TOPIC.hash, 0xFFFF_FFFF)
        await store.delete(KEYS.namespace(NAMESPACE))
        await told()
        assert rings.bundle_of(TOPIC) is None
        assert not rings.all
        await rings.close()

    simulate(scenario)


def test_loading_asks_metadata_and_counts_at_once() -> None:
    async def scenario(server: SimMetadataServer, store: SimMetadataStore) -> None:
        rings = Rings(store, KEYS)
        await rings.start()
        with pytest.raises(NamespaceNotFound, match="tenant/ns does not exist"):
            await rings.load(NAMESPACE)
        store.faults.watch_delay_max_s = 60
        version = await put_namespace(store, 2)
        ring = await rings.load(NAMESPACE)
        assert (len(ring.bundles), ring.version) == (2, version)
        assert rings.get(NAMESPACE) == ring
        await store.delete(KEYS.namespace(NAMESPACE))
        with pytest.raises(NamespaceNotFound):
            await rings.load(NAMESPACE)
        assert rings.get(NAMESPACE) is None
        await rings.close()

    simulate(scenario)


def test_namespaces_that_are_cut_alike_share_it() -> None:
    async def scenario(server: SimMetadataServer, store: SimMetadataStore) -> None:
        names = [type(NAMESPACE)("tenant", name) for name in ("a", "b")]
        for name in names:
            await put_namespace(store, 4, name)
        rings = Rings(store, KEYS)
        await rings.start()
        first, second = (rings.all[name].bundles for name in names)
        assert first is second
        await rings.close()

    simulate(scenario)


def test_lost_watches_leave_no_ring_as_it_was() -> None:
    async def scenario(server: SimMetadataServer, store: SimMetadataStore) -> None:
        await put_namespace(store, 4)
        rings = Rings(store, KEYS)
        await rings.start()
        store.lose_watches()
        await put_namespace(store, 8)
        await told()
        assert len(rings.all[NAMESPACE].bundles) == 8
        await rings.close()

    simulate(scenario)
