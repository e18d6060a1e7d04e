"""Key_Shared over a topic in memory: who gets which key, in which order, and what waits for whom."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
from magnetar.broker.dispatch.key_shared.draining import DrainingSlots
from magnetar.broker.dispatch.key_shared.sticky_key import slot_of_key
from magnetar.broker.subscriptions.config import DispatchConfig
from magnetar.broker.subscriptions.consumers.consumer import Consumer
from magnetar.broker.subscriptions.types.key_shared.key_shared import KeySharedDelivery
from magnetar.broker.subscriptions.types.subscription_type import SubType
from magnetar.common.errors import ConsumerAssignFailed, ConsumerBusy

from tests.unit.broker.subscriptions.serving import READ_S, Serving, client_of

LOW, HIGH = (0, 32_768), (32_769, 65_535)

Serve = Callable[..., "KeyShared"]


class KeyShared(Serving):
    """Keys are published, not numbers of messages."""

    def __init__(self, **options: Any) -> None:
        super().__init__(SubType.Key_Shared, **options)

    def publish_keys(self, keys: Sequence[str], messages: int = 1) -> None:
        def confirmed() -> None:
            for key in keys:
                self.topic.append(messages, key=key)
            self.subscription.wake()

        self.do(confirmed)

    @property
    def delivery(self) -> KeySharedDelivery:
        delivery = self.subscription._delivery
        assert isinstance(delivery, KeySharedDelivery)
        return delivery


@pytest.fixture
def serve() -> Iterator[Serve]:
    """Makes servings that are closed after the test."""
    made: list[KeyShared] = []

    def make(**options: Any) -> KeyShared:
        options.setdefault("config", DispatchConfig(key_shared_consistent_hashing=False))
        made.append(KeyShared(**options))
        return made[-1]

    yield make
    for serving in made:
        serving.close()


def key_in(first: int, last: int, salt: str = "") -> str:
    """A key whose slot is in a range."""
    return next(key for n in range(100_000) if first <= slot_of_key((key := f"{salt}{n}").encode()) <= last)


LOW_KEY, HIGH_KEY = key_in(*LOW), key_in(*HIGH)
OTHER_LOW_KEY = key_in(0, slot_of_key(LOW_KEY.encode()) - 1)


def two(serving: KeyShared, permits: int = 100) -> tuple[Consumer, Consumer]:
    """(owner of the upper half, owner of the lower half), as hash ranges give them out."""
    return serving.join("upper", permits), serving.join("lower", permits)


def test_a_single_consumer_gets_everything_in_order(serve: Serve) -> None:
    serving = serve()
    consumer = serving.join("a", permits=100)
    serving.publish_keys([LOW_KEY, HIGH_KEY] * 10)
    assert client_of(consumer).numbers == list(range(20))


@pytest.mark.parametrize("cached_from", [0, 7, 100])
def test_each_key_goes_to_its_owner_in_order(serve: Serve, cached_from: int) -> None:
    serving = serve(cached_from=cached_from)
    serving.publish_keys([LOW_KEY, HIGH_KEY, HIGH_KEY] * 10)
    upper, lower = two(serving, permits=0)
    serving.flow(upper, 100)
    serving.do(lambda: serving.subscription.add_permits(lower, 100), wait_s=2)
    assert client_of(lower).numbers == list(range(0, 30, 3))
    assert client_of(upper).numbers == [number for number in range(30) if number % 3]


def test_a_consumer_without_permits_holds_up_only_its_own_slots(serve: Serve) -> None:
    serving = serve()
    upper, lower = two(serving)
    serving.publish_keys([LOW_KEY] * 100)
    serving.publish_keys([LOW_KEY, HIGH_KEY] * 20)
    assert len(client_of(lower).take()) == 100
    assert client_of(upper).numbers == list(range(101, 140, 2))
    serving.flow(lower, 5)
    assert client_of(lower).take() == [100, 102, 104, 106, 108]
    serving.publish_keys([LOW_KEY])
    serving.flow(lower, 50)
    assert client_of(lower).take() == [*range(110, 140, 2), 140]
    assert serving.delivery.waiting == 0


def test_looking_ahead_is_bounded(serve: Serve) -> None:
    config = DispatchConfig(key_shared_consistent_hashing=False, look_ahead_per_consumer=10)
    serving = serve(config=config)
    upper, lower = two(serving, permits=10)
    serving.publish_keys([LOW_KEY] * 10 + [LOW_KEY] * 30 + [HIGH_KEY])
    assert client_of(upper).numbers == [], "20 entries wait, so that the last one is out of sight"
    why = serving.subscription.why_not_dispatching()
    assert why is not None
    assert "wait for consumers" in why
    serving.flow(lower, 40)
    assert client_of(lower).numbers == list(range(40))
    assert client_of(upper).numbers == [40]


def test_a_slot_that_moves_waits_until_its_old_owner_has_acknowledged_all_of_it(serve: Serve) -> None:
    serving = serve()
    old = serving.join("old", permits=100)
    serving.publish_keys([LOW_KEY, LOW_KEY, HIGH_KEY])
    new = serving.join("new", permits=100)
    serving.publish_keys([LOW_KEY, HIGH_KEY, OTHER_LOW_KEY])
    assert client_of(old).take() == [0, 1, 2, 4]
    assert client_of(new).take() == [5], "only the slot with unacknowledged messages waits"
    draining = serving.delivery.draining
    assert [(each.unacked, each.blocked_attempts) for each in draining.by_holder()[old].values()] == [(2, 1)]
    serving.ack(old, 0)
    assert client_of(new).take() == []
    serving.ack(old, 1)
    assert client_of(new).take() == [3]
    assert draining.cleared_by(old) == 1


def test_acks_end_draining_even_when_the_old_owner_has_no_permits(serve: Serve) -> None:
    serving = serve()
    old = serving.join("old", permits=1)
    serving.publish_keys([LOW_KEY])
    new = serving.join("new", permits=100)
    serving.publish_keys([LOW_KEY])
    serving.do(lambda: serving.subscription.ack_many(5, [0], old))
    assert client_of(new).take() == [1]


def test_a_slot_that_moves_back_stops_draining_at_once(serve: Serve) -> None:
    serving = serve()
    old = serving.join("old", permits=100)
    serving.publish_keys([LOW_KEY])
    new = serving.join("new", permits=100)
    serving.publish_keys([LOW_KEY])
    serving.leave(new)
    assert client_of(old).take() == [0, 1]
    assert serving.delivery.draining.slots == {}


def test_entries_of_a_closed_consumer_reach_new_owners_in_order_first(serve: Serve) -> None:
    serving = serve()
    upper, lower = two(serving, permits=4)
    serving.publish_keys([LOW_KEY] * 8)
    assert client_of(lower).take() == [0, 1, 2, 3]
    serving.ack(lower, 1)
    serving.flow(upper, 100)
    serving.leave(lower)
    serving.publish_keys([LOW_KEY])
    assert client_of(upper).take() == [0, 2, 3, 4, 5, 6, 7, 8]
    assert all(message.redelivery_count == 0 for message in client_of(upper).messages)


def test_what_a_leaver_held_is_not_overtaken_by_what_it_had_given_back(serve: Serve) -> None:
    serving = serve()
    leaver = serving.join("a", permits=100)
    serving.publish_keys(["k"] * 6)
    serving.topic.cached_from = 6
    other = serving.join("b", permits=100)
    assert client_of(leaver).take() == [0, 1, 2, 3, 4, 5]
    serving.quiet_s = READ_S / 2
    serving.redeliver(leaver, [5])
    serving.quiet_s = 0.1
    serving.leave(leaver)
    assert client_of(other).take() == [0, 1, 2, 3, 4, 5]


def test_a_holder_that_leaves_frees_its_draining_slots_in_order(serve: Serve) -> None:
    serving = serve()
    old = serving.join("old", permits=100)
    serving.publish_keys([LOW_KEY, LOW_KEY])
    new = serving.join("new", permits=100)
    serving.publish_keys([LOW_KEY])
    serving.leave(old)
    assert client_of(new).take() == [0, 1, 2]


def test_consumers_that_leave_together_cost_one_look_at_what_is_held(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks = 0
    owners_changed = DrainingSlots.owners_changed

    def counting(*args: Any) -> None:
        nonlocal looks
        looks += 1
        owners_changed(*args)

    monkeypatch.setattr(DrainingSlots, "owners_changed", counting)
    serving = serve()
    leavers = [serving.join(str(number), permits=4) for number in range(8)]
    stays = serving.join("stays")
    serving.publish_keys([str(number) for number in range(100)])
    assert serving.delivery.waiting
    looks = 0

    def leave() -> None:
        for each in leavers:
            serving.subscription.remove_consumer(each)

    serving.do(leave)
    assert looks == 1
    serving.flow(stays, 200)
    assert client_of(stays).take() == list(range(100))
    assert serving.budget.reads == 0


def test_redelivery_keeps_the_order_of_a_key(serve: Serve) -> None:
    serving = serve()
    upper, lower = two(serving, permits=4)
    serving.publish_keys([LOW_KEY] * 6)
    client_of(lower).take()
    serving.redeliver(lower, [2, 0])
    serving.flow(lower, 3)
    assert client_of(lower).take() == [0, 2, 4]
    serving.redeliver(lower)
    serving.flow(lower, 100)
    messages = client_of(lower).messages
    assert [message.number for message in messages] == [0, 1, 2, 3, 4, 5]
    assert [message.redelivery_count for message in messages] == [2, 1, 2, 1, 1, 0]
    assert client_of(upper).take() == []


def test_what_is_given_back_does_not_pass_what_was_given_back_before(serve: Serve) -> None:
    serving = serve()
    _, lower = two(serving, permits=2)
    serving.publish_keys([LOW_KEY] * 4)
    assert client_of(lower).take() == [0, 1]
    serving.redeliver(lower, [0])
    assert client_of(lower).take() == [], "there is no permit"

    def give_back_and_flow() -> None:
        serving.subscription.redeliver(lower, [serving.topic.position_of(1)], None)
        serving.subscription.add_permits(lower, 1)

    serving.do(give_back_and_flow)
    assert client_of(lower).take() == [0]
    serving.flow(lower, 9)
    assert client_of(lower).take() == [1, 2, 3]


def test_what_is_given_back_while_newer_entries_are_read_again_comes_before_them(serve: Serve) -> None:
    serving = serve()
    upper, lower = two(serving)
    serving.publish_keys([LOW_KEY, HIGH_KEY] * 30)
    serving.topic.cached_from = 60
    assert client_of(lower).take() == list(range(0, 60, 2))
    client_of(upper).take()
    serving.quiet_s = READ_S / 4
    serving.redeliver(lower, [56, 58])
    serving.redeliver(upper, [53])
    serving.redeliver(lower, [20])
    serving.quiet_s = 0.1
    serving.redeliver(lower, [0])
    assert client_of(lower).take() == [0, 20, 56, 58]
    assert client_of(upper).take() == [53]
    assert serving.budget.reads == 0


def test_what_the_old_owner_gives_back_goes_to_the_new_one_after_draining(serve: Serve) -> None:
    serving = serve()
    old = serving.join("old", permits=100)
    serving.publish_keys([LOW_KEY, LOW_KEY])
    new = serving.join("new", permits=100)
    serving.publish_keys([LOW_KEY])
    serving.redeliver(old, [0])
    assert client_of(new).take() == [], "the old owner still holds 1"
    serving.ack(old, 1)
    assert client_of(new).take() == [0, 2]
    assert client_of(old).take() == [0, 1]


def test_a_batch_costs_permits_by_its_messages_and_is_never_split(serve: Serve) -> None:
    serving = serve()
    upper, lower = two(serving, permits=0)
    serving.flow(lower, 5)
    serving.publish_keys([LOW_KEY] * 4, messages=3)
    assert client_of(lower).take() == [0, 1]
    assert lower.permits == -1
    assert lower.pending.messages == 6
    serving.flow(lower, 2)
    assert client_of(lower).take() == [2]
    assert client_of(upper).take() == []


def test_without_order_a_newcomer_gets_its_keys_at_once(serve: Serve) -> None:
    serving = serve()
    serving.join("old", permits=100, allow_out_of_order=True)
    serving.publish_keys([LOW_KEY])
    with pytest.raises(ConsumerBusy, match="different type"):
        serving.join("other", allow_out_of_order=False)
    new = serving.join("new", permits=100, allow_out_of_order=True)
    serving.publish_keys([LOW_KEY])
    assert client_of(new).take() == [1]


def test_sticky_consumers_get_their_ranges_and_the_rest_waits(serve: Serve) -> None:
    serving = serve()
    lower = serving.join("lower", permits=100, sticky=True, hash_ranges=(LOW,))
    serving.publish_keys([LOW_KEY, HIGH_KEY, LOW_KEY, HIGH_KEY])
    assert client_of(lower).take() == [0, 2]
    with pytest.raises(ConsumerAssignFailed):
        serving.join("overlapping", sticky=True, hash_ranges=((32_768, 40_000),))
    with pytest.raises(ConsumerBusy):
        serving.join("auto")
    upper = serving.join("upper", permits=100, sticky=True, hash_ranges=(HIGH,))
    assert client_of(upper).take() == [1, 3]
    assert serving.delivery.waiting == 0


def test_a_refused_first_consumer_leaves_the_type_open(serve: Serve) -> None:
    serving = serve()
    with pytest.raises(ConsumerAssignFailed, match="no hash ranges"):
        serving.join("bad", sticky=True)
    assert serving.subscription.type is None
    serving.join("good", permits=1)
    assert serving.subscription.type == SubType.Key_Shared


def test_what_waits_is_given_back_when_memory_is_short_and_read_again(serve: Serve) -> None:
    serving = serve()
    _, lower = two(serving, permits=10)
    serving.publish_keys([LOW_KEY] * 30)
    assert serving.budget.reads > 0
    serving.delivery.give_back()
    assert serving.budget.reads == 0
    assert serving.delivery.waiting == 20
    serving.publish_keys([LOW_KEY] * 3)
    serving.flow(lower, 100)
    assert client_of(lower).numbers == list(range(33))
    assert serving.budget.reads == 0


def test_many_bytes_wait_by_position_only(serve: Serve) -> None:
    serving = serve(config=DispatchConfig(key_shared_consistent_hashing=False, read_bytes_max=100))
    _, lower = two(serving, permits=10)
    serving.publish_keys([LOW_KEY] * 13)
    serving.publish_keys([LOW_KEY] * 17)
    assert 0 < serving.budget.reads <= 100
    serving.flow(lower, 100)
    assert client_of(lower).numbers == list(range(30))
    assert serving.budget.reads == 0


def test_what_is_acknowledged_while_it_waits_is_not_delivered(serve: Serve) -> None:
    serving = serve()
    _, lower = two(serving, permits=1)
    serving.publish_keys([LOW_KEY] * 10)
    serving.do(lambda: serving.cursor.ack_cumulative(serving.topic.position_of(4)))
    serving.flow(lower, 100)
    assert client_of(lower).numbers == [0, 5, 6, 7, 8, 9]
    assert serving.budget.reads == 0


def test_what_waits_goes_on_behind_what_was_acknowledged_while_it_waited(serve: Serve) -> None:
    serving = serve()
    _, lower = two(serving, permits=1)
    serving.publish_keys([LOW_KEY] * 10)
    serving.do(serving.delivery.give_back)
    serving.do(lambda: serving.subscription.skip_to(serving.topic.position_of(4)))
    serving.flow(lower, 3)
    assert client_of(lower).numbers == [0, 5, 6, 7], "the first three that are read again are gone"


def test_a_rewind_starts_anew_without_what_waited(serve: Serve) -> None:
    serving = serve()
    _, lower = two(serving, permits=2)
    serving.publish_keys([LOW_KEY] * 10)
    serving.do(lambda: serving.subscription.rewind())
    serving.flow(lower, 100)
    assert client_of(lower).numbers == [0, 1, *range(10)]
