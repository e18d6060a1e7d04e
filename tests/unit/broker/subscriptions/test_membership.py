from __future__ import annotations

from typing import Any

import pytest
from magnetar.broker.subscriptions.config import DispatchConfig
from magnetar.broker.subscriptions.consumers.consumer import Consumer, ConsumerOptions
from magnetar.broker.subscriptions.membership import Membership
from magnetar.broker.subscriptions.types.subscription_type import SubType
from magnetar.common.errors import ConsumerAssignFailed, ConsumerBusy

from tests.unit.broker.subscriptions.serving import Client
from tests.unit.broker.topics.fakes import FakeClock

TOPIC = "persistent://public/default/t-partition-1"


def consumer(name: str, **options: Any) -> Consumer:
    given: dict[str, Any] = {"priority_level": 0, "properties": {}, "epoch": None, **options}
    return Consumer(
        ConsumerOptions(1, name, **given),
        Client(name),
        partition=1,
        unacked_max=0,
        clock=FakeClock(),
        sends_entry_metadata=False,
    )


def members(**config: Any) -> Membership:
    return Membership("s", TOPIC, DispatchConfig(**config))


def test_the_first_consumer_sets_the_type_and_the_last_one_takes_it_with_it() -> None:
    made = members()
    assert (made.type, made.consumers, made.active) == (None, [], None)
    first, second = consumer("a"), consumer("b")
    made.add(first, SubType.Shared)
    made.add(second, SubType.Shared)
    assert (made.type, made.active) == (SubType.Shared, None)
    assert made.remove(first)
    assert not made.remove(first)
    with pytest.raises(ConsumerBusy, match="different type: it is Shared"):
        made.add(first, SubType.Exclusive)
    assert made.remove(second)
    made.add(first, SubType.Exclusive)
    assert (made.type, made.active) == (SubType.Exclusive, first)


def test_a_second_exclusive_consumer_is_busy() -> None:
    made = members()
    first = consumer("a")
    made.add(first, SubType.Exclusive)
    with pytest.raises(ConsumerBusy, match="already connected"):
        made.add(consumer("b"), SubType.Exclusive)
    assert made.consumers == [first]


def test_the_active_one_of_a_partition_is_chosen_by_its_number_or_on_the_ring() -> None:
    by_number, on_ring = members(), members(failover_consistent_hashing=True)
    consumers = [consumer(name) for name in "abcdef"]
    for each in consumers:
        by_number.add(each, SubType.Failover)
        on_ring.add(each, SubType.Failover)
    assert by_number.active is consumers[1]
    alone = Membership("s", TOPIC.replace("partition-1", "partition-7"), DispatchConfig())
    for each in consumers:
        alone.add(each, SubType.Failover)
    assert alone.active is consumers[1]
    assert on_ring.active is not None
    before = on_ring.active
    for each in consumers:
        if each is not before:
            on_ring.remove(each)
            assert on_ring.active is before, "on a ring nobody else matters"


@pytest.mark.parametrize(
    "other",
    [
        {"sticky": True, "hash_ranges": ((0, 9),)},
        {"allow_out_of_order": True},
    ],
)
def test_keys_are_shared_in_one_way_only(other: dict[str, Any]) -> None:
    made = members()
    first = consumer("a")
    made.add(first, SubType.Key_Shared)
    with pytest.raises(ConsumerBusy, match="share keys AUTO_SPLIT in order, not"):
        made.add(consumer("b", **other), SubType.Key_Shared)
    assert made.consumers == [first]
    made.remove(first)
    made.add(consumer("b", **other), SubType.Key_Shared)


def test_consumer_with_invalid_hash_ranges_is_not_added() -> None:
    for sub_type, sticky in ((SubType.Exclusive, False), (SubType.Key_Shared, True)):
        made = members()
        with pytest.raises(ConsumerAssignFailed):
            made.add(consumer("a", sticky=sticky, hash_ranges=((9, 3),)), sub_type)
        assert (made.type, made.consumers) == (None, [])
