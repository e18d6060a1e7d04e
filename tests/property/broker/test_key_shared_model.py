"""Key_Shared under random joins, leaves, acks, nacks, permits, reads and memory: who gets what, what waits.

Every delivery is judged at its moment, and after every step what is not delivered has to have a reason.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import hypothesis.strategies as st
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from magnetar.broker.dispatch.key_shared.sticky_key import slot_of_key
from magnetar.broker.subscriptions.config import DispatchConfig
from magnetar.broker.subscriptions.consumers.consumer import Consumer
from magnetar.broker.subscriptions.types.key_shared.key_shared import KeySharedDelivery
from magnetar.broker.subscriptions.types.subscription_type import SubType

from tests.examples import examples
from tests.unit.broker.subscriptions.serving import READ_S, Client, Message, Serving, client_of

KEYS = [f"key-{number}" for number in range(7)]
RANGES = [((0, 20_000),), ((20_001, 40_000),), ((40_001, 50_000), (60_000, 65_535))]
LOOK_AHEAD = 15
BATCH = 3
WAIT_S = 1.0


class KeySharedMachine(RuleBasedStateMachine):
    """The reference knows what is acknowledged, who holds what, and everybody's permits."""

    sharing = "in order"
    unacked_max = 0
    consumer_unacked_max = 0

    @initialize(
        consistent_hashing=st.booleans(),
        bytes_max=st.sampled_from([1, 200, 1 << 20]),
        cached_from=st.sampled_from([0, 1_000]),
    )
    def start(self, consistent_hashing: bool, bytes_max: int, cached_from: int) -> None:
        config = DispatchConfig(
            key_shared_consistent_hashing=consistent_hashing,
            key_shared_points=3,
            look_ahead_per_consumer=LOOK_AHEAD,
            read_bytes_max=bytes_max,
        )
        self.serving = Serving(
            SubType.Key_Shared,
            config=config,
            cached_from=cached_from,
            unacked_max=self.unacked_max,
            consumer_unacked_max=self.consumer_unacked_max,
        )
        self.consumers: list[Consumer] = []
        self.permits: dict[str, int] = {}
        self.held: dict[int, str] = {}  # number of an entry: name of the consumer that has it
        self.unacked: list[int] = []  # messages of each entry that are not acknowledged
        self.asked = Counter[int]()
        self.slots: list[int] = []
        self.names = 0
        self.wait_s = WAIT_S
        self.quiet = True
        self.join(20)
        self.publish(KEYS * 2, batches=False)
        self.join(20)

    # -- every delivery is right

    def on_message(self, client: Client, message: Message) -> None:
        number, slot = message.number, self.slots[message.number]
        assert self.unacked[number], "acknowledged"
        assert number not in self.held, "somebody has it"
        assert self.permits[client.name] > 0, "without a permit"
        assert client.writable
        for other, holder in self.held.items():
            if self.slots[other] == slot and self.sharing == "in order":
                assert holder == client.name, "a key is with one consumer at a time"
        for older in range(number):
            if self.slots[older] == slot and self.unacked[older]:
                assert older in self.held, "an older message of the key waits"
        assert message.redelivery_count == self.asked[number]
        self.held[number] = client.name
        self.permits[client.name] -= self.unacked[number]

    # -- what happens

    def do(self, change: Callable[[], object]) -> None:
        self.serving.do(change, self.wait_s)
        self.quiet = self.wait_s == WAIT_S

    @rule(wait_s=st.sampled_from([0.0, READ_S / 2, READ_S * 1.5]))
    def what_follows_happens_while_something_is_on_its_way(self, wait_s: float) -> None:
        self.wait_s = wait_s

    @rule()
    def all_is_done_before_the_next_thing_happens(self) -> None:
        self.wait_s = WAIT_S
        self.do(lambda: None)

    @rule(keys=st.lists(st.sampled_from(KEYS), min_size=1, max_size=8), batches=st.booleans())
    def publish(self, keys: list[str], batches: bool) -> None:
        def confirmed() -> None:
            for key in keys:
                self.slots.append(slot_of_key(key.encode()))
                self.unacked.append(BATCH if batches else 1)
                self.serving.topic.append(self.unacked[-1], key=key)
            self.serving.subscription.wake()

        self.do(confirmed)

    @precondition(lambda self: len(self.consumers) < 4)
    @rule(permits=st.sampled_from([0, 2, 50]))
    def join(self, permits: int) -> None:
        self.names += 1
        options = {}
        if self.sharing == "sticky":
            taken = {each.hash_ranges for each in self.consumers}
            free = [ranges for ranges in RANGES if ranges not in taken]
            if not free:
                return
            options = {"sticky": True, "hash_ranges": free[0]}
        elif self.sharing == "out of order":
            options = {"allow_out_of_order": True}
        consumer = self.serving.consumer(f"c{self.names}", **options)
        client_of(consumer).on_message = self.on_message
        self.permits[consumer.name] = permits
        self.consumers.append(consumer)

        def connect() -> None:
            self.serving.subscription.add_consumer(consumer, SubType.Key_Shared)
            self.serving.subscription.add_permits(consumer, permits)

        self.do(connect)

    @precondition(lambda self: self.consumers)
    @rule(data=st.data())
    def leave(self, data: st.DataObject) -> None:
        self.disconnect(data.draw(st.sampled_from(self.consumers)))

    def disconnect(self, consumer: Consumer) -> None:
        self.consumers.remove(consumer)

        def leave() -> None:
            client_of(consumer).connected = False
            self.held = {number: name for number, name in self.held.items() if name != consumer.name}
            self.serving.subscription.remove_consumer(consumer)

        self.do(leave)

    @precondition(lambda self: self.consumers)
    @rule(data=st.data(), permits=st.integers(1, 10))
    def flow(self, data: st.DataObject, permits: int) -> None:
        consumer = data.draw(st.sampled_from(self.consumers))
        self.permits[consumer.name] += permits
        self.do(lambda: self.serving.subscription.add_permits(consumer, permits))

    def some_held(self, data: st.DataObject) -> tuple[Consumer, list[int]]:
        consumer = data.draw(st.sampled_from([each for each in self.consumers if self.held_by(each)]))
        held = self.held_by(consumer)
        return consumer, data.draw(st.lists(st.sampled_from(held), min_size=1, max_size=10, unique=True))

    def held_by(self, consumer: Consumer) -> list[int]:
        return [number for number, name in self.held.items() if name == consumer.name]

    @precondition(lambda self: self.held)
    @rule(data=st.data(), at_once=st.booleans())
    def ack(self, data: st.DataObject, at_once: bool) -> None:
        consumer, numbers = self.some_held(data)
        subscription = self.serving.subscription
        positions = [self.serving.topic.position_of(number) for number in numbers]

        def ack() -> None:
            for number in numbers:
                self.unacked[number] = 0
                del self.held[number]
            if not at_once:
                for position in positions:
                    subscription.ack(*position, consumer)
                return
            for ledger_id in sorted({position.ledger_id for position in positions}):
                ids = [position.entry_id for position in positions if position.ledger_id == ledger_id]
                subscription.ack_many(ledger_id, ids, consumer)

        self.do(ack)

    @precondition(lambda self: any(self.unacked[number] > 1 for number in self.held))
    @rule(data=st.data())
    def ack_one_of_a_batch(self, data: st.DataObject) -> None:
        number = data.draw(st.sampled_from([each for each in self.held if self.unacked[each] > 1]))
        consumer = next(each for each in self.consumers if each.name == self.held[number])
        position = self.serving.topic.position_of(number)
        index = BATCH - self.unacked[number]
        self.unacked[number] -= 1
        self.do(lambda: self.serving.subscription.ack_batch(*position, 1 << index, BATCH, consumer))

    @precondition(lambda self: self.held)
    @rule(data=st.data(), everything=st.booleans(), permits=st.integers(0, 5))
    def nack(self, data: st.DataObject, everything: bool, permits: int) -> None:
        consumer, numbers = self.some_held(data)
        self.give_back(consumer, None if everything else numbers, permits)

    @precondition(lambda self: self.held)
    @rule(data=st.data(), permits=st.integers(0, 5))
    def nack_one_of_several_of_a_key(self, data: st.DataObject, permits: int) -> None:
        """The others of the key stay with its consumer, who may not own it any more."""
        counts = Counter(self.slots[number] for number in self.held)
        several = [number for number in self.held if counts[self.slots[number]] > 1]
        if several:
            number = data.draw(st.sampled_from(several))
            consumer = next(each for each in self.consumers if each.name == self.held[number])
            self.give_back(consumer, [number], permits)

    @precondition(lambda self: self.held)
    @rule(data=st.data(), permits=st.integers(0, 5), wait_s=st.sampled_from([0.0, READ_S / 2, READ_S * 1.5]))
    def nack_the_newest_of_a_key_and_then_an_older_one(
        self, data: st.DataObject, permits: int, wait_s: float
    ) -> None:
        """While the newest is read again, or has just been."""
        consumer, (number, *_) = self.some_held(data)
        same = sorted(each for each in self.held_by(consumer) if self.slots[each] == self.slots[number])
        self.cache_forgets(len(self.slots))
        before, self.wait_s = self.wait_s, wait_s
        self.give_back(consumer, [same[-1]], permits)
        self.wait_s = before
        older = [each for each in same[:-1] if each in self.held]
        if older:
            self.give_back(consumer, [data.draw(st.sampled_from(older))], permits)

    def give_back(self, consumer: Consumer, numbers: list[int] | None, permits: int) -> None:
        """None: everything that it holds."""
        self.permits[consumer.name] += permits

        def redeliver() -> None:
            positions = None
            if numbers is not None:
                positions = [self.serving.topic.position_of(number) for number in numbers]
            for number in self.held_by(consumer) if numbers is None else numbers:
                del self.held[number]
                self.asked[number] += 1
            self.serving.subscription.redeliver(consumer, positions, None)
            self.serving.subscription.add_permits(consumer, permits)

        self.do(redeliver)

    @precondition(lambda self: any(self.unacked))
    @rule(data=st.data())
    def skip(self, data: st.DataObject) -> None:
        """Everything up to some entry is acknowledged for the consumers, as when it expires."""
        last = data.draw(
            st.integers(0, min(len(self.unacked) - 1, self.unacked.index(max(self.unacked)) + 9))
        )
        position = self.serving.topic.position_of(last)

        def skip() -> None:
            for number in range(last + 1):
                self.unacked[number] = 0
                self.held.pop(number, None)
            self.serving.subscription.skip_to(position)

        self.do(skip)

    @precondition(lambda self: self.consumers)
    @rule(data=st.data())
    def socket_fills_or_drains(self, data: st.DataObject) -> None:
        client = client_of(data.draw(st.sampled_from(self.consumers)))
        client.writable = not client.writable
        self.do(self.serving.subscription.wake)

    @rule(entries=st.integers(0, 100))
    def cache_forgets(self, entries: int) -> None:
        """What it has forgotten never comes back to it."""
        topic = self.serving.topic
        topic.cached_from = max(entries, topic.cached_from)

    @precondition(lambda self: self.consumers)
    @rule()
    def memory_is_short(self) -> None:
        def give_back() -> None:
            self.delivery.give_back()
            self.delivery._source.give_back()

        self.do(give_back)

    # -- and then all is as it should be

    @property
    def delivery(self) -> KeySharedDelivery:
        delivery = self.serving.subscription._delivery
        assert isinstance(delivery, KeySharedDelivery)
        return delivery

    @invariant()
    def what_is_not_delivered_has_a_reason(self) -> None:
        if not getattr(self, "consumers", None) or not self.quiet:
            return
        delivery = self.delivery
        owner = delivery._dispatcher.selector.owner
        if delivery.waiting >= LOOK_AHEAD * len(self.consumers):
            return
        if self.serving.subscription.blocked_on_unacked:
            return
        for number, unacked in enumerate(self.unacked):
            if not unacked or number in self.held:
                continue
            slot = self.slots[number]
            its_owner = owner(slot)
            assert (
                its_owner is None
                or its_owner.capacity <= 0
                or slot in delivery.draining.slots
                or sum(each.capacity for each in self.consumers) <= 0
            ), f"{number} could have been delivered to {its_owner.name}"

    @invariant()
    def what_drains_is_what_another_than_the_owner_holds(self) -> None:
        if not getattr(self, "consumers", None) or not self.quiet:
            return
        owner = self.delivery._dispatcher.selector.owner
        expected: Counter[tuple[int, str]] = Counter()
        if self.sharing == "in order":
            for number, name in self.held.items():
                its_owner = owner(self.slots[number])
                if its_owner is None or its_owner.name != name:
                    expected[self.slots[number], name] += 1
        slots = self.delivery.draining.slots
        assert {(slot, each.holder.name): each.unacked for slot, each in slots.items()} == expected

    @invariant()
    def what_waits_is_counted_and_so_are_its_bytes(self) -> None:
        if not getattr(self, "consumers", None):
            return
        delivery = self.delivery
        assert delivery._held_count == sum(map(len, delivery._held.values()))
        waiting = [share for each in delivery._waiting.values() for share in each._shares]
        assert delivery._held_bytes == sum(share.byte_length for share in waiting)
        assert self.serving.budget.reads >= delivery._held_bytes

    @invariant()
    def consumers_hold_what_they_were_given(self) -> None:
        for consumer in getattr(self, "consumers", ()):
            numbers = sorted(self.held_by(consumer))
            positions = [self.serving.topic.position_of(number) for number in numbers]
            assert list(consumer.pending.positions()) == positions
            assert consumer.pending.messages == sum(self.unacked[number] for number in numbers)
            assert consumer.permits == self.permits[consumer.name]

    def teardown(self) -> None:
        if not hasattr(self, "serving"):
            return
        self.wait_s = WAIT_S
        try:
            self.do(lambda: None)
            for consumer in list(self.consumers):
                self.disconnect(consumer)
            assert self.serving.budget.reads == 0, "nothing is reserved any more"
            self.sharing = "in order"
            self.unacked_max = self.consumer_unacked_max = self.serving.consumer_unacked_max = 10_000
            self.serving.subscription.limit_unacked(self.unacked_max, self.consumer_unacked_max)
            self.join(10_000)
            assert sorted(self.held) == [number for number, unacked in enumerate(self.unacked) if unacked]
        finally:
            self.serving.close()


class OutOfOrderMachine(KeySharedMachine):
    """Consumers that want their keys at once."""

    sharing = "out of order"


class StickyMachine(KeySharedMachine):
    """Consumers that name their slots; some slots are nobody's."""

    sharing = "sticky"


class LimitedMachine(KeySharedMachine):
    """Consumers, and all of them together, may hold so many messages and no more."""

    unacked_max = 24
    consumer_unacked_max = 9

    def on_message(self, client: Client, message: Message) -> None:
        super().on_message(client, message)
        assert self.messages() < self.unacked_max + BATCH
        consumer = next(each for each in self.consumers if each.name == client.name)
        assert self.messages(consumer) < self.consumer_unacked_max + BATCH

    def messages(self, consumer: Consumer | None = None) -> int:
        numbers = self.held if consumer is None else self.held_by(consumer)
        return sum(self.unacked[number] for number in numbers)

    @invariant()
    def whoever_holds_half_of_the_limit_goes_on(self) -> None:
        if not getattr(self, "consumers", None) or not self.quiet:
            return
        if self.messages() <= self.unacked_max // 2:
            assert not self.serving.subscription.blocked_on_unacked
        for consumer in self.consumers:
            if self.messages(consumer) <= self.consumer_unacked_max // 2:
                assert not consumer.blocked_on_unacked


TestKeyShared = KeySharedMachine.TestCase
TestKeyShared.settings = settings(max_examples=examples(60), stateful_step_count=40, deadline=None)
TestOutOfOrder = OutOfOrderMachine.TestCase
TestOutOfOrder.settings = settings(max_examples=20, stateful_step_count=30, deadline=None)
TestSticky = StickyMachine.TestCase
TestSticky.settings = TestOutOfOrder.settings
TestLimited = LimitedMachine.TestCase
TestLimited.settings = TestOutOfOrder.settings
