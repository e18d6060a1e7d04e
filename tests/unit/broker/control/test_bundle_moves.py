"""What operators ask of bundles wherever they are: merging what others move meanwhile."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest
from magnetar.broker.control.bundle_moves import BundleMoves
from magnetar.broker.ownership.split_merge import PARTS_MAX
from magnetar.common.control.methods import MERGE, UNLOAD
from magnetar.common.errors import InvalidName, NotAllowed
from magnetar.common.metadata.values import BrokerRegistration
from magnetar.common.naming.bundle_range import BundleRange, split_ring
from magnetar.common.naming.namespace_name import NamespaceName

NAMESPACE = NamespaceName("acme", "demo")
(WHOLE,) = split_ring(1)
HERE, THERE = (BrokerRegistration(broker_id=name, run=1) for name in ("here:8080", "there:8080"))


class Brokers:
    """This broker, another one, and a namespace of so many bundles, of which each has every other one."""

    def __init__(self, bundles: int) -> None:
        self.ring = split_ring(bundles)
        self.asked: list[str] = []

    async def load(self, namespace: NamespaceName) -> Any:
        return SimpleNamespace(bundles=self.ring)

    def owner(self, namespace: NamespaceName, bundle: BundleRange) -> BrokerRegistration:
        return (HERE, THERE)[self.ring.index(bundle) % 2]

    async def call(self, broker: BrokerRegistration, method: Any, request: Any) -> None:
        self.asked.append(method.name)
        if method is UNLOAD:
            raise NotAllowed(f"{request.bundle} is at {request.to_broker_id} already")

    async def merge(self, namespace: NamespaceName, bundle: BundleRange) -> None:
        self.asked.append("merged here")

    def merged(self) -> None:
        finder = SimpleNamespace(rings=self, owner=self.owner)
        presence = SimpleNamespace(is_run=lambda broker_id, run: broker_id == HERE.broker_id)
        cluster: Any = SimpleNamespace(presence=presence, ownership=SimpleNamespace(finder=finder))
        mover: Any = self
        client: Any = self
        asyncio.run(BundleMoves(cluster, mover, client).merge(NAMESPACE, WHOLE))


def test_bundles_moved_concurrently_are_merged_with_the_rest() -> None:
    brokers = Brokers(3)
    brokers.merged()
    assert brokers.asked == [UNLOAD.name, "merged here"]
    assert MERGE.name not in brokers.asked


def test_more_bundles_than_become_one_at_a_time_stay_where_they_are() -> None:
    brokers = Brokers(PARTS_MAX + 1)
    with pytest.raises(InvalidName, match=f"{PARTS_MAX} bundles at most"):
        brokers.merged()
    assert brokers.asked == []
