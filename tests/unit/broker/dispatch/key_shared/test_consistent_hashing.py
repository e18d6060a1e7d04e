from __future__ import annotations

import random

from magnetar.broker.dispatch.key_shared.consistent_hashing import ConsistentHashing
from magnetar.broker.dispatch.key_shared.sticky_key import slot_of_key

from tests.unit.broker.dispatch.key_shared.fakes import Fake, layout

POINTS = 100


def ring_of(*consumers: Fake, points: int = POINTS) -> ConsistentHashing[Fake]:
    ring: ConsistentHashing[Fake] = ConsistentHashing(points)
    for consumer in consumers:
        ring.add(consumer)
    return ring


def slots_of_points(name: str, points: int = POINTS) -> list[int]:
    return [slot_of_key(f"{name}\0{0}\0{number}".encode()) for number in range(points)]


def test_a_slot_goes_to_the_next_point_and_past_the_last_one_to_the_first() -> None:
    one, other = Fake("one"), Fake("other")
    ring = ring_of(one, other)
    owners = {slot: each for each in (other, one) for slot in slots_of_points(each.name)}
    points = sorted(owners)
    assert len(points) <= 200
    for slot in range(1, 65_536):
        point = next((point for point in points if point >= slot), points[0])
        assert ring.owner(slot) is owners[point]


def test_shares_are_fair_within_reason() -> None:
    consumers = [Fake(f"consumer-{number}") for number in range(4)]
    ring = ring_of(*consumers)
    for consumer in consumers:
        share = sum(last - first + 1 for first, last in ring.ranges()[consumer])
        assert 0.15 < share / 65_536 < 0.35


def test_the_number_of_a_consumer_and_that_of_a_point_are_told_apart() -> None:
    others = [Fake(f"worker-{number}") for number in range(20) if number != 1]
    last = Fake("worker-1")
    ring = ring_of(*others, last)
    share = sum(last - first + 1 for first, last in ring.ranges()[last])
    assert 0.7 < share * 20 / 65_536 < 1.3


def test_consumers_of_one_name_have_points_of_their_own() -> None:
    first, second, third = Fake("same"), Fake("same"), Fake("same")
    ring = ring_of(first, second, third)
    assert len(ring.bounds) > 290
    ring.remove(second)
    without = layout(ring)
    assert set(ring.owners) == {first, third}
    ring.add(second)
    ring.remove(second)
    assert layout(ring) == without


def test_consumers_on_one_hash_point_own_it_in_order_of_arrival() -> None:
    # With so many points each, some are shared.
    one, two = Fake("one"), Fake("two")
    ring = ring_of(one, two, points=2_000)
    both = set(slots_of_points("one", 2_000)) & set(slots_of_points("two", 2_000))
    assert both, "a premise of this test"
    assert all(ring.owner(point) is one for point in both)
    ring.remove(one)
    ring.add(one)
    assert all(ring.owner(point) is two for point in both)


def test_an_empty_ring_has_no_owner() -> None:
    one = Fake("one")
    ring = ring_of(one)
    assert ring.ranges()[one] == [(0, 65535)]
    ring.remove(one)
    assert layout(ring) == [(0, 65535, None)]
    ring.remove(one)
    assert ring.owner(1) is None


class FewPoints(ConsistentHashing[Fake]):
    """Points that collide, the last slot among them."""

    __slots__ = ()

    def _points_of(self, name: str, number: int) -> list[int]:
        chosen = random.Random(f"{name}{number}")
        return [chosen.choice([1, 2, 500, 65_534, 65_535]) for _ in range(self._points)]


def test_the_ring_depends_on_who_is_there_and_not_on_who_was() -> None:
    rng = random.Random(1)
    ring, present = FewPoints(2), list[Fake]()
    for _ in range(300):
        if present and rng.random() < 0.45:
            ring.remove(present.pop(rng.randrange(len(present))))
        else:
            present.append(Fake(rng.choice("abcdefgh")))
            ring.add(present[-1])
        points = sorted(ring._ring)
        owners: list[Fake | None] = [ring._ring[point][0] for point in points]
        if 65_535 not in points:
            points.append(65_535)
            owners.append(owners[0] if owners else None)
        assert ring.bounds == points
        assert ring.owners == owners
