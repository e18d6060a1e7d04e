"""What is dropped is counted where it is dropped, and its rate sampled with the other figures."""

from __future__ import annotations

from magnetar.broker.message_drops import NonPersistentSubscriptionStats, NonPersistentTopicStats


def test_drops_of_a_topic_are_counted_by_producer_and_in_all() -> None:
    stats = NonPersistentTopicStats()
    stats.count_drops("a", 30)
    stats.count_drops("b", 10)
    stats.messages_in = 20
    stats.sample(10)
    assert (stats.drops.messages, stats.drops.rate, stats.message_rate_in) == (40, 4.0, 2.0)
    assert {name: drops.rate for name, drops in stats.drops_by_producer.items()} == {"a": 3.0, "b": 1.0}
    stats.sample(10)
    assert (stats.drops.messages, stats.drops.rate) == (40, 0.0)


def test_drops_of_a_subscription_have_a_rate_beside_its_others() -> None:
    stats = NonPersistentSubscriptionStats()
    stats.drops.messages += 5
    stats.messages_out += 10
    stats.sample(5)
    assert (stats.drops.rate, stats.message_rate_out) == (1.0, 2.0)
