from __future__ import annotations

from magnetar.broker.dispatch.key_shared.draining import DrainingSlots


def test_only_slots_with_unacknowledged_messages_at_the_old_owner_drain() -> None:
    draining: DrainingSlots[str] = DrainingSlots()
    owner = {7: "new", 8: "new", 9: "old"}
    draining.owners_changed([("old", {7: 2, 9: 1}), ("new", {})], owner.get)
    assert list(draining.slots) == [7], "8 is free, 9 did not move"
    assert draining.slots[7].holder == "old"
    assert draining.by_holder()["old"].keys() == {7}
    assert draining.by_holder().keys() == {"old"}


def test_a_slot_waits_until_the_last_message_is_settled() -> None:
    draining: DrainingSlots[str] = DrainingSlots()
    draining.owners_changed([("old", {7: 2})], {7: "new"}.get)
    assert draining.settled("old", [7]) == []
    assert draining.settled("new", [7]) == [], "somebody else's messages do not count"
    assert draining.settled("old", [7, 9]) == [7]
    assert draining.slots == {}
    assert (draining.cleared, draining.cleared_by("old")) == (1, 1)


def test_a_slot_that_moves_back_stops_draining_at_once() -> None:
    draining: DrainingSlots[str] = DrainingSlots()
    draining.owners_changed([("old", {7: 2})], {7: "new"}.get)
    draining.owners_changed([("old", {7: 2})], {7: "old"}.get)
    assert draining.slots == {}
    assert draining.cleared == 1


def test_a_slot_that_moves_on_keeps_draining_at_its_holder() -> None:
    draining: DrainingSlots[str] = DrainingSlots()
    draining.owners_changed([("old", {7: 2})], {7: "new"}.get)
    draining.slots[7].blocked_attempts = 3
    draining.owners_changed([("old", {7: 1}), ("newer", {})], {7: "newer"}.get)
    assert (draining.slots[7].holder, draining.slots[7].unacked) == ("old", 1)
    assert draining.slots[7].blocked_attempts == 3
    assert draining.cleared == 0


def test_a_holder_that_leaves_frees_its_slots() -> None:
    draining: DrainingSlots[str] = DrainingSlots()
    draining.owners_changed([("old", {7: 2, 8: 1})], {7: "new", 8: "new"}.get)
    draining.owners_changed([("new", {})], {7: "new", 8: "new"}.get)
    assert draining.slots == {}
    assert draining.cleared == 2
    assert draining.cleared_by("old") == 0, "nothing is remembered of who left"
