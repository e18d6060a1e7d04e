"""Which bundles are known to be owned, by whom, since which version."""

from __future__ import annotations

from magnetar.common.cluster.bundle_owners import BundleOwners, Owned
from magnetar.common.naming.bundle_range import BundleRange, split_ring
from magnetar.common.naming.namespace_name import NamespaceName
from magnetar.sim.metadata import SimMetadataServer, SimMetadataStore

from tests.unit.common.cluster.simulated import KEYS, NAMESPACE, put_owner, simulate, told

FIRST, SECOND, *_ = split_ring(4)


def test_owners_come_change_and_go() -> None:
    async def scenario(server: SimMetadataServer, store: SimMetadataStore) -> None:
        owners = BundleOwners(store, KEYS)
        seen: list[tuple[BundleRange, str | None]] = []
        owners.on_change(
            lambda _, bundle, owned: seen.append((bundle, None if owned is None else owned.broker_id))
        )
        await owners.start()
        assert owners.owner_of(NAMESPACE, FIRST) is None
        await put_owner(store, FIRST, "a:8080", 7)
        version = await put_owner(store, FIRST, "b:8080", 8)
        await told()
        assert owners.owner_of(NAMESPACE, FIRST) == Owned("b:8080", 8, version, 0)
        assert owners.owner_of(NamespaceName.parse("tenant/other"), FIRST) is None
        await store.delete(KEYS.bundle_owner(NAMESPACE, FIRST))
        await told()
        assert owners.owner_of(NAMESPACE, FIRST) is None
        assert seen == [(FIRST, "a:8080"), (FIRST, "b:8080"), (FIRST, None)]
        await owners.close()

    simulate(scenario)


def test_the_bundles_of_a_run_are_not_those_of_an_earlier_one() -> None:
    async def scenario(server: SimMetadataServer, store: SimMetadataStore) -> None:
        await put_owner(store, FIRST, "a:8080", 1)
        await put_owner(store, SECOND, "a:8080", 2)
        owners = BundleOwners(store, KEYS)
        await owners.start()
        assert owners.of_broker("a:8080", 2) == [(NAMESPACE, SECOND)]
        assert owners.of_broker("b:8080", 2) == []
        assert len(owners) == 2
        assert [bundle for _, bundle, _ in owners.all()] == [FIRST, SECOND]
        await owners.close()

    simulate(scenario)


def test_own_changes_count_at_once() -> None:
    async def scenario(server: SimMetadataServer, store: SimMetadataStore) -> None:
        owners = BundleOwners(store, KEYS)
        await owners.start()
        version = await put_owner(store, FIRST, "a:8080", 1)
        owners.note(NAMESPACE, FIRST, Owned("a:8080", 1, version, 0))
        assert owners.owner_of(NAMESPACE, FIRST) is not None
        owners.note_gone(NAMESPACE, FIRST, version)
        assert owners.owner_of(NAMESPACE, FIRST) is None
        await owners.close()

    simulate(scenario)


def test_lost_watches_leave_no_owner_behind() -> None:
    async def scenario(server: SimMetadataServer, store: SimMetadataStore) -> None:
        await put_owner(store, FIRST, "a:8080", 1)
        await put_owner(store, SECOND, "a:8080", 1)
        owners = BundleOwners(store, KEYS)
        await owners.start()
        store.lose_watches()
        await store.delete(KEYS.bundle_owner(NAMESPACE, FIRST))
        await put_owner(store, SECOND, "b:8080", 1)
        await told()
        assert owners.owner_of(NAMESPACE, FIRST) is None
        found = owners.owner_of(NAMESPACE, SECOND)
        assert found is not None
        assert found.broker_id == "b:8080"
        await owners.close()

    simulate(scenario)
