"""Subscriptions are given up only where their cursors are lost and their messages are kept."""

from __future__ import annotations

import pytest
from magnetar.bookie.restoration.inventory import Inventory, take_inventory
from magnetar.bookie.restoration.reconciler import NotReconcilable
from magnetar.bookie.restoration.subscriptions import forget_subscriptions
from magnetar.common.metadata.values import Restoration, TopicHead, decode, encode
from magnetar.common.naming.topic_name import TopicName

from tests.simulation.power_loss import KEYS
from tests.unit.bookie.autorecovery.cluster import Cluster, DirectClients, on_a_cluster, ref_of

ABC = ("b1", "b2", "b3")
TOPIC = TopicName.parse("persistent://a/b/t")


async def a_topic(cluster: Cluster, cursor_ledger: int, state: Restoration.State.ValueType) -> Inventory:
    """With entries in ledger 1, and cursors in that one; returns what bookies hold."""
    await cluster.ledger(1, [(0, ABC)], 10)
    head = TopicHead(creation_id=9, owner_epoch=4)
    head.open_ledgers.add().id = 1
    ref = ref_of(cursor_ledger)
    head.cursor_ledger.id, head.cursor_ledger.key = ref.id, ref.key
    await cluster.metadata.put(KEYS.topic_head(TOPIC), encode(head))
    await cluster.metadata.put(KEYS.restoration, encode(Restoration(state=state)))
    return await take_inventory(DirectClients(cluster), ABC)


async def head_of(cluster: Cluster) -> TopicHead:
    found = await cluster.metadata.get(KEYS.topic_head(TOPIC))
    assert found is not None
    return decode(TopicHead, found.value)


@pytest.mark.parametrize("state", [Restoration.RESTORED, Restoration.RECONCILED])
def test_topic_with_lost_cursors_has_no_subscriptions(
    state: Restoration.State.ValueType,
) -> None:
    async def act(cluster: Cluster) -> None:
        inventory = await a_topic(cluster, 2, state)
        await cluster.ledger(2, [(0, ABC)], 0)
        assert await forget_subscriptions(cluster.metadata, KEYS, inventory, TOPIC) == 2
        head = await head_of(cluster)
        assert not head.HasField("cursor_ledger")
        assert [each.id for each in head.open_ledgers] == [1]
        assert await cluster.metadata.get(KEYS.ledger(2)) is None, "nobody misses it any more"
        with pytest.raises(NotReconcilable, match="has no subscriptions"):
            await forget_subscriptions(cluster.metadata, KEYS, inventory, TOPIC)

    on_a_cluster(act)


def test_cursors_that_a_bookie_has_stay() -> None:
    async def act(cluster: Cluster) -> None:
        inventory = await a_topic(cluster, 1, Restoration.RECONCILED)
        with pytest.raises(NotReconcilable, match="b1, b2, b3 hold ledger 1"):
            await forget_subscriptions(cluster.metadata, KEYS, inventory, TOPIC)
        assert (await head_of(cluster)).HasField("cursor_ledger")

    on_a_cluster(act)


def test_nothing_is_given_up_where_messages_would_go_with_it() -> None:
    async def act(cluster: Cluster) -> None:
        inventory = await a_topic(cluster, 2, Restoration.RELEASED)
        with pytest.raises(NotReconcilable, match="would be trimmed"):
            await forget_subscriptions(cluster.metadata, KEYS, inventory, TOPIC)
        await cluster.metadata.delete(KEYS.restoration)
        with pytest.raises(NotReconcilable, match="would be trimmed"):
            await forget_subscriptions(cluster.metadata, KEYS, inventory, TOPIC)
        await cluster.metadata.put(KEYS.restoration, encode(Restoration(state=Restoration.RECONCILED)))
        other = TopicName.parse("persistent://a/b/other")
        with pytest.raises(NotReconcilable, match="no topic persistent://a/b/other"):
            await forget_subscriptions(cluster.metadata, KEYS, inventory, other)
        assert (await head_of(cluster)).HasField("cursor_ledger")

    on_a_cluster(act)
