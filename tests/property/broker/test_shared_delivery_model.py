"""Shared against a reference in a few lines, with consumers that come, go, and give back at random.

The reference knows who holds which entry, what has to be delivered again and how often it was asked for. It
is asked at each delivery: an entry has one holder at a time and comes to somebody who can take it, better
priority levels first, what is to be delivered again before anything new; counts rise only when somebody
asked. When all is quiet nobody waits in vain, and at the end everything was acknowledged by somebody.
Of messages that come one at a time, consumers of one level that can take them get equally many, or one more.
"""

from __future__ import annotations

import hypothesis.strategies as st
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule
from magnetar.broker.subscriptions.config import DispatchConfig
from magnetar.broker.subscriptions.consumers.consumer import Consumer
from magnetar.broker.subscriptions.limits.broker_unacked_limit import BrokerUnackedLimit
from magnetar.broker.subscriptions.types.subscription_type import SubType

from tests.examples import examples
from tests.property.broker.shares import Shares
from tests.unit.broker.subscriptions.serving import READ_S, Client, Message, Serving, client_of


class Taker:
    """What the reference knows of one consumer."""

    def __init__(self, consumer: Consumer, limit: int) -> None:
        self.consumer = consumer
        self.permits = 0
        self.held: set[int] = set()
        self.limit = limit
        self.blocked = False
        """At its limit of unacknowledged messages, and not at half of it since."""


class SharedMachine(RuleBasedStateMachine):
    """One Shared subscription of entries that hold one to three messages each."""

    @initialize(
        cached_from=st.sampled_from([0, 7, 1_000]),
        counts=st.lists(st.integers(1, 3), max_size=30),
        limit=st.sampled_from([0, 6, 20]),
        consumer_limit=st.sampled_from([0, 4, 10]),
        broker_limit=st.booleans(),
        consumers=st.integers(0, 4),
        delays=st.booleans(),
        run_entries=st.sampled_from([1, 4]),
    )
    def start(
        self,
        cached_from: int,
        counts: list[int],
        limit: int,
        consumer_limit: int,
        broker_limit: bool,
        consumers: int,
        delays: bool,
        run_entries: int,
    ) -> None:
        self.broker_limit = BrokerUnackedLimit(1_000, 100) if broker_limit else None
        self.serving = Serving(
            SubType.Shared,
            config=DispatchConfig(read_entries_max=5, round_robin_entries_max=3),
            cached_from=cached_from,
            unacked_max=limit,
            consumer_unacked_max=consumer_limit,
            broker_limit=self.broker_limit,
        )
        self.serving.topic.run_entries = run_entries
        if delays:
            # No entry has a time of its own, but all are asked, many at a time.
            self.serving.subscription.delay_delivery(1_000)
        self.counts = self.serving.topic.counts
        for count in counts:
            self.serving.topic.append(count)
        self.limit, self.consumer_limit = limit, consumer_limit
        self.blocked = False
        self.takers: dict[Client, Taker] = {}
        self.acked: set[int] = set()
        self.again: set[int] = set()
        """To be delivered again, before anything new."""
        self.asked: dict[int, int] = {}
        self.new_from = 0
        """Entries from here on were never delivered since the last first consumer came."""
        self.shares: Shares[Taker] = Shares()
        self.turns: list[tuple[Taker, set[Taker]]] = []
        """Deliveries of the last step: to whom, and to whom it could have been."""
        for _ in range(consumers):
            self.join(0, 1_000)

    # -- the reference

    def messages(self, numbers: set[int]) -> int:
        return sum([self.counts[number] for number in numbers])

    def unacked(self) -> int:
        return sum([self.messages(taker.held) for taker in self.takers.values()])

    def look_at_limits(self) -> None:
        """A consumer is free at half of its limit; a subscription is blocked at its own and free at half."""
        for taker in self.takers.values():
            if self.messages(taker.held) <= taker.limit // 2:
                taker.blocked = False
        if self.limit and self.unacked() >= self.limit:
            self.blocked = True
        elif self.unacked() <= self.limit // 2:
            self.blocked = False

    def can_take(self, taker: Taker) -> bool:
        return taker.permits > 0 and not taker.blocked and client_of(taker.consumer).writable

    def in_turn(self) -> set[Taker]:
        """The consumers of the best level that can take something: equals."""
        free = [taker for taker in self.takers.values() if self.can_take(taker)]
        best = min([taker.consumer.priority_level for taker in free], default=0)
        return {taker for taker in free if taker.consumer.priority_level == best}

    def delivered(self, client: Client, message: Message) -> None:
        number, taker = message.number, self.takers[client]
        self.turns.append((taker, self.in_turn()))
        assert number not in self.acked, "what is acknowledged is not delivered"
        holders = [other for other in self.takers.values() if number in other.held]
        assert not holders, "an entry is with one consumer at a time"
        assert message.redelivery_count == self.asked.get(number, 0)
        assert taker.permits > 0, "nothing without permits"
        assert not taker.blocked
        assert client.writable
        if number in self.again:
            self.again.discard(number)
        else:
            assert not self.again, "what is delivered again comes before anything new"
            assert not self.limit or self.unacked() < self.limit
            left_out = set(range(self.new_from, number)) - self.acked
            assert number >= self.new_from, "new entries come in order"
            assert not left_out, f"{left_out} are left out"
            self.new_from = number + 1
        taker.held.add(number)
        taker.permits -= self.counts[number]
        if taker.limit and self.messages(taker.held) >= taker.limit:
            taker.blocked = True
        self.look_at_limits()

    def better_come_first(self, client: Client, message: Message) -> None:
        taker = self.takers[client]
        level = taker.consumer.priority_level
        better = [each for each in self.takers.values() if each.consumer.priority_level < level]
        # A turn that began in this moment has been decided for all its entries.
        assert not [each for each in better if self.can_take(each) and each.permits > 3]
        self.delivered(client, message)

    # -- what happens

    @rule(count=st.integers(1, 12), messages=st.integers(1, 3))
    def publish(self, count: int, messages: int) -> None:
        self.serving.publish(count, messages)
        self.nothing_is_stuck()

    @rule(count=st.integers(2, 9), messages=st.integers(1, 3))
    def publish_one_by_one(self, count: int, messages: int) -> None:
        """Each entry comes when all is quiet again, so that each is a turn of its own."""
        for _ in range(count):
            self.publish(1, messages)

    @rule(level=st.sampled_from([0, 0, 1, 2]), permits=st.sampled_from([0, 3, 20, 1_000]))
    def join(self, level: int, permits: int) -> None:
        consumer = self.serving.consumer("c", priority_level=level)
        client = client_of(consumer)
        client.on_message = self.better_come_first

        def connect() -> None:
            taker = self.takers[client] = Taker(consumer, self.consumer_limit)
            taker.permits = permits
            self.shares.joined(taker)
            self.serving.subscription.add_consumer(consumer, SubType.Shared)
            self.serving.subscription.add_permits(consumer, permits)

        self.serving.do(connect)
        self.nothing_is_stuck()

    @precondition(lambda self: self.takers)
    @rule(data=st.data())
    def leave(self, data: st.DataObject) -> None:
        client = data.draw(st.sampled_from(list(self.takers)))

        def disconnect() -> None:
            taker = self.takers.pop(client)
            self.again |= taker.held
            if not self.takers:
                # The next one starts behind what is acknowledged.
                self.again.clear()
                self.new_from = 0
            self.look_at_limits()
            self.serving.subscription.remove_consumer(taker.consumer)

        self.serving.do(disconnect)
        self.nothing_is_stuck()

    @precondition(lambda self: self.takers)
    @rule(data=st.data(), permits=st.integers(1, 30))
    def flow(self, data: st.DataObject, permits: int) -> None:
        taker = data.draw(st.sampled_from(list(self.takers.values())))
        taker.permits += permits
        self.serving.flow(taker.consumer, permits)
        self.nothing_is_stuck()

    @precondition(lambda self: any(taker.held for taker in self.takers.values()))
    @rule(data=st.data(), many=st.booleans(), by_another=st.booleans())
    def ack(self, data: st.DataObject, many: bool, by_another: bool) -> None:
        """Entries that are held, by their holder or (a client that mixes its consumers up) by another one."""
        holder = data.draw(st.sampled_from([each for each in self.takers.values() if each.held]))
        numbers = data.draw(st.lists(st.sampled_from(sorted(holder.held)), min_size=1, unique=True))
        if not many:
            numbers = numbers[:1]
        taker = data.draw(st.sampled_from(list(self.takers.values()))) if by_another else holder
        by_ledger: dict[int, list[int]] = {}
        for number in numbers:
            ledger_id, entry_id = self.serving.topic.position_of(number)
            by_ledger.setdefault(ledger_id, []).append(entry_id)

        def acknowledge() -> None:
            self.acked.update(numbers)
            for each in self.takers.values():
                each.held.difference_update(numbers)
            self.look_at_limits()
            for ledger_id, entry_ids in by_ledger.items():
                if many:
                    self.serving.subscription.ack_many(ledger_id, entry_ids, taker.consumer)
                else:
                    self.serving.subscription.ack(ledger_id, entry_ids[0], taker.consumer)

        self.serving.do(acknowledge)
        self.nothing_is_stuck()

    @precondition(lambda self: self.takers and self.again)
    @rule(data=st.data(), everything=st.booleans())
    def ack_what_waits(self, data: st.DataObject, everything: bool) -> None:
        """A client acknowledges what it had before it lost its connection, or gave back."""
        taker = data.draw(st.sampled_from(list(self.takers.values())))
        waiting = sorted(self.again)
        self.acknowledge_waiting(taker, waiting if everything else [data.draw(st.sampled_from(waiting))])
        self.nothing_is_stuck()

    def acknowledge_waiting(self, taker: Taker, numbers: list[int]) -> None:
        def acknowledge() -> None:
            self.acked.update(numbers)
            self.again.difference_update(numbers)
            for number in numbers:
                self.serving.subscription.ack(*self.serving.topic.position_of(number), taker.consumer)

        self.serving.do(acknowledge)

    @precondition(lambda self: self.takers)
    @rule(data=st.data(), everything=st.booleans())
    def give_back(self, data: st.DataObject, everything: bool) -> None:
        """Asked for by ids, of which only those count that this consumer holds, or for all it holds."""
        taker = data.draw(st.sampled_from(list(self.takers.values())))
        ids = st.lists(st.integers(0, max(0, len(self.counts) - 1)), max_size=5, unique=True)
        self.redeliver(taker, None if everything else data.draw(ids))
        self.nothing_is_stuck()

    @precondition(lambda self: self.takers)
    @rule(data=st.data(), permits=st.integers(1, 30))
    def ack_what_is_read_again(self, data: st.DataObject, permits: int) -> None:
        """All that is given back is acknowledged while it is read for the next one who has permits."""
        taker = data.draw(st.sampled_from(list(self.takers.values())))
        quiet_s, self.serving.quiet_s = self.serving.quiet_s, READ_S / 2
        self.redeliver(taker, None)
        taker.permits += permits
        self.serving.flow(taker.consumer, permits)
        self.acknowledge_waiting(taker, sorted(self.again))
        self.serving.quiet_s = quiet_s
        self.serving.do()
        self.nothing_is_stuck()

    def redeliver(self, taker: Taker, asked: list[int] | None) -> None:
        """Ask again for these messages, or for all that the consumer holds."""
        numbers = sorted(taker.held) if asked is None else asked
        positions = None if asked is None else list(map(self.serving.topic.position_of, asked))

        def ask() -> None:
            back = taker.held & set(numbers)
            taker.held -= back
            self.again |= back
            for number in back:
                self.asked[number] = self.asked.get(number, 0) + 1
            if back:
                taker.blocked = False
            self.look_at_limits()
            self.serving.subscription.redeliver(taker.consumer, positions, None)

        self.serving.do(ask)

    @precondition(lambda self: self.takers)
    @rule(data=st.data())
    def stall(self, data: st.DataObject) -> None:
        """A socket is full for a while."""
        client = data.draw(st.sampled_from(list(self.takers)))
        client.writable = False
        self.serving.do()
        client.writable = True
        self.serving.do(self.serving.subscription.wake)
        self.nothing_is_stuck()

    @rule(to=st.integers(0, 40))
    def expire(self, to: int) -> None:
        """Somebody else acknowledges everything up to an entry."""
        if to < len(self.counts):
            position = self.serving.topic.position_of(to)

            def skip() -> None:
                self.acked.update(range(to + 1))
                for taker in self.takers.values():
                    taker.held -= self.acked
                self.again -= self.acked
                self.look_at_limits()
                self.serving.subscription.skip_to(position)

            self.serving.do(skip)
            self.nothing_is_stuck()

    @rule()
    def memory_is_short(self) -> None:
        """Others need what was read ahead."""
        source = self.serving.subscription._source
        if source is not None:
            self.serving.do(source.give_back)
            self.serving.do(self.serving.subscription.wake)
            self.nothing_is_stuck()

    @rule(hurry=st.booleans())
    def hurry(self, hurry: bool) -> None:
        """From now on things happen while entries are being read from storage, or only when all is quiet."""
        self.serving.quiet_s = READ_S / 2 if hurry else 0.1
        self.serving.do()

    def nothing_is_stuck(self) -> None:
        """When all is quiet, what is left waits for permits, sockets or acknowledgements."""
        if len(self.turns) == 1:
            self.shares.count(*self.turns[0])
        elif self.turns:
            self.shares.forget()
        self.turns.clear()
        subscription = self.serving.subscription
        assert subscription.backlog() == len(self.counts) - len(self.acked)
        assert subscription.unacked_messages == self.unacked()
        if self.broker_limit is not None:
            assert self.broker_limit.total == self.unacked()
        if self.serving.quiet_s < READ_S:
            return
        takers = [taker for taker in self.takers.values() if self.can_take(taker)]
        if takers:
            assert not self.again - self.acked, subscription.why_not_dispatching()
            new = set(range(self.new_from, len(self.counts))) - self.acked
            assert self.blocked or not new, subscription.why_not_dispatching()

    def teardown(self) -> None:
        if hasattr(self, "serving"):
            try:
                self.everything_is_delivered_in_the_end()
            finally:
                self.serving.close()

    def everything_is_delivered_in_the_end(self) -> None:
        self.serving.quiet_s = 0.1
        self.serving.do()
        for _ in range(len(self.counts) + 1):
            for taker in list(self.takers.values()):
                numbers = sorted(taker.held)
                self.acked.update(numbers)
                taker.held.clear()
                self.look_at_limits()
                self.serving.ack(taker.consumer, *numbers)
            if len(self.acked) == len(self.counts):
                break
            self.join(0, 1_000)
        assert self.serving.subscription.backlog() == 0
        assert self.serving.budget.reads == 0, "what was delivered or acknowledged takes no memory"
        for taker in list(self.takers.values()):
            self.serving.leave(taker.consumer)
        assert self.serving.budget.reads == 0


TestShared = SharedMachine.TestCase
TestShared.settings = settings(max_examples=examples(100), stateful_step_count=25, deadline=None)
