"""Which brokers are known to be up, as which run, where, and which leads."""

from __future__ import annotations

import pytest
from magnetar.common.cluster.broker_directory import BrokerDirectory, addresses_of
from magnetar.common.errors import ServiceNotReady
from magnetar.common.metadata.values import BrokerRegistration, Leader, encode
from magnetar.sim.metadata import SimMetadataServer, SimMetadataStore

from tests.unit.common.cluster.simulated import KEYS, put_broker, simulate, told


def test_brokers_come_change_and_go() -> None:
    async def scenario(server: SimMetadataServer, store: SimMetadataStore) -> None:
        await put_broker(store, "b:8080", 1)
        directory = BrokerDirectory(store, KEYS)
        changed: list[str] = []
        directory.on_change(changed.append)
        await directory.start()
        await put_broker(store, "a:8080", 2)
        await put_broker(store, "b:8080", 1, draining=True)
        await told()
        assert [each.broker_id for each in directory.all()] == ["a:8080", "b:8080"]
        found = directory.get("b:8080")
        assert found is not None
        assert found.draining
        await store.delete(KEYS.broker("a:8080"))
        await told()
        assert directory.get("a:8080") is None
        assert changed == ["b:8080", "a:8080", "b:8080", "a:8080"]
        await directory.close()

    simulate(scenario)


def test_only_the_run_that_is_up_is_current() -> None:
    async def scenario(server: SimMetadataServer, store: SimMetadataStore) -> None:
        directory = BrokerDirectory(store, KEYS)
        await directory.start()
        version = await put_broker(store, "a:8080", 1)
        assert not directory.is_current("a:8080", 1)
        directory.note(BrokerRegistration(broker_id="a:8080", run=1), version)
        assert directory.is_current("a:8080", 1)
        await put_broker(store, "a:8080", 2)
        await told()
        assert not directory.is_current("a:8080", 1)
        assert directory.is_current("a:8080", 2)
        directory.note_gone("a:8080", version)
        assert directory.is_current("a:8080", 2)
        directory.note_gone("a:8080", version + 1)
        assert directory.get("a:8080") is None
        await directory.close()

    simulate(scenario)


def test_the_leader_is_known() -> None:
    async def scenario(server: SimMetadataServer, store: SimMetadataStore) -> None:
        directory = BrokerDirectory(store, KEYS)
        leaders: list[str | None] = []
        directory.on_leader(lambda leader: leaders.append(None if leader is None else leader.id))
        await directory.start()
        assert directory.leader is None
        await store.put(KEYS.broker_leader, encode(Leader(id="a:8080")))
        await told()
        assert directory.leader is not None
        assert directory.leader.id == "a:8080"
        await store.delete(KEYS.broker_leader)
        await told()
        assert directory.leader is None
        assert leaders == ["a:8080", None]
        await directory.close()

    simulate(scenario)


def test_lost_watches_leave_no_stale_broker() -> None:
    async def scenario(server: SimMetadataServer, store: SimMetadataStore) -> None:
        await put_broker(store, "a:8080", 1)
        await put_broker(store, "b:8080", 1)
        directory = BrokerDirectory(store, KEYS)
        await directory.start()
        store.lose_watches()
        await store.delete(KEYS.broker("a:8080"))
        await put_broker(store, "b:8080", 2)
        await told()
        assert directory.get("a:8080") is None
        assert directory.is_current("b:8080", 2)
        await directory.close()

    simulate(scenario)


def test_a_listener_is_found_by_its_name_and_a_missing_one_is_named() -> None:
    async def scenario(server: SimMetadataServer, store: SimMetadataStore) -> None:
        await put_broker(store, "a:8080", 1, listeners={"outside": "pulsar://gate:6650"})
        directory = BrokerDirectory(store, KEYS)
        await directory.start()
        found = directory.get("a:8080")
        assert found is not None
        assert addresses_of(found).broker_url == "pulsar://a:8080"
        assert addresses_of(found, "outside").broker_url == "pulsar://gate:6650"
        with pytest.raises(ServiceNotReady, match=r"a:8080 has no listener 'inside'.*'outside'"):
            addresses_of(found, "inside")
        await directory.close()

    simulate(scenario)
