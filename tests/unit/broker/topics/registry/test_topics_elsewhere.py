"""What other brokers have loaded counts where only brokers know: in lists, and before anything is deleted."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

import pytest
from magnetar.broker import deletions
from magnetar.broker.orphans.config import OrphanConfig
from magnetar.broker.orphans.reconciler import Reconciler
from magnetar.broker.topics.watch.topic_lists import ELSEWHERE_S
from magnetar.broker.topics.watch.topic_pattern import TopicPattern
from magnetar.common.errors import MagnetarError, NamespaceNotEmpty, ServiceNotReady, TopicBusy
from magnetar.common.metadata.values import BundleOwner, encode
from magnetar.common.naming.bundle_range import split_ring
from magnetar.common.naming.namespace_name import DEFAULT_NAMESPACE, NamespaceName
from magnetar.common.naming.topic_name import TopicName

from tests.simulation.power_loss import KEYS
from tests.unit.broker.namespaces_in_use import DEMO, furnish, make
from tests.unit.broker.topics.watch.test_topic_lists import full, told
from tests.unit.broker.topics.world import ListeningPeer, Topics, in_a_broker

THERE = "non-persistent://public/default/orders-there"
HERE = "non-persistent://public/default/orders-here"


@dataclass
class Others:
    """What other brokers say that they have; `silent` is why they say nothing."""

    names: list[str] = field(default_factory=list)
    silent: MagnetarError | None = None
    asked: int = 0

    async def non_persistent(self, namespace: NamespaceName) -> list[str]:
        self.asked += 1
        if self.silent is not None:
            raise self.silent
        return [name for name in self.names if TopicName.parse(name).namespace == namespace]


def test_lists_have_the_topics_of_all_brokers_without_the_systems() -> None:
    async def scenario(made: Topics) -> None:
        system = "non-persistent://public/default/__change_events"
        made.lists.elsewhere = others = Others([THERE, system])
        await made.load(HERE)
        assert await made.lists.non_persistent(DEFAULT_NAMESPACE) == [HERE, THERE]
        assert await made.lists.non_persistent(DEFAULT_NAMESPACE, system_too=True) == [system, HERE, THERE]
        others.silent = ServiceNotReady("b2 does not answer")
        with pytest.raises(ServiceNotReady, match="b2"):
            await made.lists.non_persistent(DEFAULT_NAMESPACE)

    in_a_broker(scenario)


def test_a_watcher_hears_some_seconds_late_of_topics_of_other_brokers() -> None:
    async def scenario(made: Topics) -> None:
        made.lists.elsewhere = others = Others([THERE])
        peer = ListeningPeer()
        pattern = TopicPattern("non-persistent://public/default/orders.*")
        watcher = await made.lists.watch(DEFAULT_NAMESPACE, 1, pattern, peer)
        assert watcher.begin()[0] == [THERE]
        await made.load(HERE)
        await asyncio.sleep(0)
        assert told(peer) == (full(HERE), set()), "what is here is known at once"
        others.silent = ServiceNotReady("b2 does not answer")
        await asyncio.sleep(2 * ELSEWHERE_S)
        assert told(peer) == (full(HERE), set()), "nothing is known to be gone"
        others.silent = None
        others.names = [THERE.replace("there", "new")]
        await asyncio.sleep(2 * ELSEWHERE_S)
        assert told(peer) == (full(HERE, others.names[0]), full(THERE))
        made.lists.unwatch(DEFAULT_NAMESPACE, watcher)
        asked = others.asked
        await asyncio.sleep(3 * ELSEWHERE_S)
        assert others.asked == asked, "nobody watches"

    in_a_broker(scenario)


def test_a_namespace_with_a_topic_that_only_another_broker_knows_is_not_empty() -> None:
    async def scenario(made: Topics) -> None:
        await make(made)
        made.deletions.elsewhere = Others([f"non-persistent://{DEMO}/there"])
        with pytest.raises(NamespaceNotEmpty):
            await made.deletions.delete_namespace(DEMO)
        assert KEYS.namespace(DEMO) in made.process.world.metadata.dump()
        await made.deletions.delete_namespace(DEMO, force=True)
        assert KEYS.namespace(DEMO) not in made.process.world.metadata.dump()

    in_a_broker(scenario)


@pytest.mark.parametrize("gives_up_s", [1.0, 1000.0])
def test_nothing_of_a_namespace_is_deleted_before_its_owners_have_given_it_up(gives_up_s: float) -> None:
    """An owner that does not is waited for, but not for ever."""

    async def scenario(made: Topics) -> None:
        await furnish(made)
        metadata = made.process.metadata
        owner = KEYS.bundle_owner(DEMO, split_ring(4)[1])
        await metadata.put(owner, encode(BundleOwner(broker_id="b2", run=2)))
        heads = KEYS.topic_heads_prefix("persistent", DEMO)
        assert (await metadata.children(heads)).items
        deleting = asyncio.create_task(made.deletions.delete_namespace(DEMO, force=True))
        waits_s = min(gives_up_s, deletions.OWNERS_S) - 0.5
        await asyncio.sleep(waits_s)
        assert (await metadata.children(heads)).items, "its owner may still write to them"
        if gives_up_s < deletions.OWNERS_S:
            await metadata.delete(owner)
        await asyncio.wait_for(deleting, 5.0)
        assert not (await metadata.children(heads)).items

    in_a_broker(scenario)


def test_a_partition_that_another_broker_makes_at_the_last_moment_keeps_its_topic(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def scenario(made: Topics) -> None:
        made.partitioned.elsewhere = Others()
        name = TopicName.parse("persistent://public/default/p")
        await made.partitioned.create_partitioned(name, 3, {})

        async def gone(_name: TopicName) -> bool:
            return False

        monkeypatch.setattr(made.registry, "exists", gone)
        with pytest.raises(TopicBusy, match="has partitions"):
            await made.partitioned.delete_partitioned(name, force=False, unless_partitions=True)
        monkeypatch.undo()
        assert await made.registry.partitions(name) == 3
        assert await made.registry.exists(name.partition(0))
        for index in range(3):
            await made.registry.delete(name.partition(index), force=False)
        await made.partitioned.delete_partitioned(name, force=False, unless_partitions=True)
        assert await made.registry.partitions(name) == 0

    in_a_broker(scenario)


def test_a_non_persistent_partition_on_another_broker_keeps_its_topic() -> None:
    async def scenario(made: Topics) -> None:
        name = TopicName.parse("non-persistent://public/default/p")
        await made.partitioned.create_partitioned(name, 3, {})
        made.partitioned.elsewhere = others = Others([name.partition(1).full])
        with pytest.raises(TopicBusy):
            await made.partitioned.delete_partitioned(name, force=False, unless_partitions=True)
        others.names.clear()
        await made.partitioned.delete_partitioned(name, force=False, unless_partitions=True)
        assert await made.registry.partitions(name) == 0

    in_a_broker(scenario)


def test_who_does_not_lead_looks_for_no_orphans_until_it_does() -> None:
    async def scenario(made: Topics) -> None:
        reconciler = Reconciler(made.ledgers, made.registry, OrphanConfig(check_interval_s=100))
        leads = False
        reconciler.leads = lambda: leads
        running = asyncio.create_task(reconciler.run())
        await asyncio.sleep(350)
        assert not reconciler.looked_ms
        leads = True
        await asyncio.sleep(100)
        assert reconciler.looked_ms
        running.cancel()

    in_a_broker(scenario)
