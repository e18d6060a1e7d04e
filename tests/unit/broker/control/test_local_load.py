"""What a broker's own load is looked at through."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

from magnetar.broker.control.local_load import OwnLoad
from magnetar.common.metadata.values import BrokerRegistration
from magnetar.common.naming.namespace_name import NamespaceName

from tests.unit.broker.control.test_broker_calls import FakeMover
from tests.unit.broker.ownership.world import FIRST, NAMESPACE, SECOND, World, in_a_cluster, topic_in


def test_it_is_that_of_the_bundles_that_are_ours() -> None:
    async def body(world: World) -> None:
        (a,) = await world.started("a:8080")
        mover = FakeMover()
        topics = SimpleNamespace(loaded={"t": "a topic"})
        load = OwnLoad(a.cluster, cast(Any, topics), mover)
        await a.take(FIRST)
        assert [own.range for own in load.bundles()] == [FIRST]
        found = load.bundle_of(topic_in(FIRST))
        assert found is not None
        assert found.version == cast(Any, world.owner(FIRST)).version
        assert load.bundle_of(topic_in(SECOND)) is None
        assert list(load.topics()) == cast(Any, ["a topic"])
        assert load.bundles_of(NAMESPACE) == 4
        assert load.bundles_of(NamespaceName("a", "b")) == 0
        await load.split((NAMESPACE, FIRST), [5], unload=True)
        assert mover.asked == [("split", FIRST, [5], "", True)]
        assert not load.draining

        def drain(registration: BrokerRegistration) -> None:
            registration.draining = True

        await a.cluster.register(drain)
        assert load.draining

    in_a_cluster(body)
