"""Exclusive and Failover against a reference in a few lines, with consumers that come, go and ask again.

The reference knows which consumer the rules make active, and where its stream stands. It is asked at each
delivery, at the moment of it: nobody else gets anything, entries are in order, and only acknowledged ones are
left out. At the end everything that was published has been acknowledged by somebody.
"""

from __future__ import annotations

import hypothesis.strategies as st
import pytest
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule
from magnetar.broker.subscriptions.config import DispatchConfig
from magnetar.broker.subscriptions.consumers.consumer import Consumer
from magnetar.broker.subscriptions.types.subscription_type import SubType
from magnetar.common.errors import ConsumerBusy

from tests.examples import examples
from tests.unit.broker.subscriptions.serving import READ_S, Client, Message, Serving, client_of

DELAY_S = 1.0
PARTITION = 4


class OrderedMachine(RuleBasedStateMachine):
    """Exclusive, and what Failover has in common with it."""

    sub_type = SubType.Exclusive
    delay_s = 0.0

    @initialize(cached_from=st.sampled_from([0, 7, 1_000]), entries=st.integers(0, 30))
    def start(self, cached_from: int, entries: int) -> None:
        self.serving = Serving(
            self.sub_type,
            topic=f"persistent://public/default/t-partition-{PARTITION}",
            config=DispatchConfig(failover_delay_ms=int(DELAY_S * 1000), read_entries_max=5),
            entries=entries,
            cached_from=cached_from,
        )
        self.consumers: list[Consumer] = []
        self.acked: set[int] = set()
        self.elected: Consumer | None = None
        self.served: Consumer | None = None
        self.switch_at: float | None = None
        self.switched_at = 0.0
        self.next = 0
        """The stream of the consumer that is served stands before this entry."""
        self.given: dict[Consumer, int] = {}

    # -- the reference

    @property
    def published(self) -> int:
        return len(self.serving.topic.counts)

    def elect(self) -> Consumer | None:
        return self.consumers[0] if self.consumers else None

    def members_changed(self) -> None:
        elected = self.elect()
        if elected is None:
            self.elected = self.served = self.switch_at = None
        elif elected is not self.elected:
            self.elected = elected
            if self.switch_at is None:
                self.switch_at = self.serving.loop.time() + self.delay_s

    def switch(self) -> None:
        """If it is time: a consumer that was not served before starts behind what is acknowledged."""
        if self.switch_at is not None and self.serving.loop.time() >= self.switch_at:
            self.switched_at, self.switch_at = self.switch_at, None
            if self.served is not self.elected:
                self.served = self.elected
                self.next = 0

    def delivered(self, client: Client, message: Message) -> None:
        self.switch()
        assert self.served is not None
        assert client is client_of(self.served), f"{client.name} got {message.number}"
        assert self.switch_at is None, "nobody gets anything before the switch"
        left_out = set(range(self.next, message.number)) - self.acked
        assert message.number >= self.next, "in order"
        assert not left_out, f"{left_out} are left out"
        assert message.redelivery_count == 0
        self.next = message.number + 1
        self.given[self.served] = max(self.given.get(self.served, -1), message.number)

    def rest(self) -> set[int]:
        """What the consumer that is served has still to get."""
        return set(range(self.next, self.published)) - self.acked

    # -- what happens

    @rule(count=st.integers(1, 12))
    def publish(self, count: int) -> None:
        self.serving.publish(count)
        self.nothing_is_stuck()

    @rule(
        name=st.sampled_from("abcd"),
        level=st.sampled_from([0, 0, 1]),
        permits=st.sampled_from([0, 3, 1_000]),
        wait_s=st.sampled_from([None, 2 * DELAY_S]),
    )
    def join(self, name: str, level: int, permits: int, wait_s: float | None) -> None:
        consumer = self.serving.consumer(name, priority_level=level)
        client_of(consumer).on_message = self.delivered

        def connect() -> None:
            if self.sub_type == SubType.Exclusive and self.consumers:
                with pytest.raises(ConsumerBusy):
                    self.serving.subscription.add_consumer(consumer, self.sub_type)
                return
            self.serving.subscription.add_consumer(consumer, self.sub_type)
            self.consumers.append(consumer)
            self.members_changed()
            self.serving.subscription.add_permits(consumer, permits)

        self.serving.do(connect, wait_s)
        self.nothing_is_stuck()

    @precondition(lambda self: self.consumers)
    @rule(data=st.data(), wait_s=st.sampled_from([None, 2 * DELAY_S]))
    def leave(self, data: st.DataObject, wait_s: float | None) -> None:
        consumer = data.draw(st.sampled_from(self.consumers))

        def disconnect() -> None:
            self.consumers.remove(consumer)
            self.serving.subscription.remove_consumer(consumer)
            self.members_changed()

        self.serving.do(disconnect, wait_s)
        self.nothing_is_stuck()

    @precondition(lambda self: self.consumers)
    @rule(data=st.data(), permits=st.integers(1, 30))
    def flow(self, data: st.DataObject, permits: int) -> None:
        self.serving.flow(data.draw(st.sampled_from(self.consumers)), permits)
        self.nothing_is_stuck()

    @precondition(lambda self: self.consumers)
    @rule(data=st.data(), cumulative=st.booleans())
    def ack(self, data: st.DataObject, cumulative: bool) -> None:
        """Of what was given to a consumer that is still connected, active or not."""
        consumer = data.draw(st.sampled_from(self.consumers))
        given = self.given.get(consumer, -1)
        if given < 0:
            return
        number = data.draw(st.integers(0, given))
        if cumulative:
            self.acked.update(range(number + 1))
            self.serving.ack_cumulative(consumer, number)
        else:
            self.acked.add(number)
            self.serving.ack(consumer, number)
        self.nothing_is_stuck()

    @precondition(lambda self: self.consumers)
    @rule(data=st.data(), ids=st.none() | st.lists(st.integers(0, 20), max_size=3))
    def redeliver(self, data: st.DataObject, ids: list[int] | None) -> None:
        consumer = data.draw(st.sampled_from(self.consumers))

        def ask() -> None:
            positions = None if ids is None else list(map(self.serving.topic.position_of, ids))
            self.switch()
            if self.switch_at is not None:
                self.served = None
            elif consumer is self.served:
                self.next = 0
            self.serving.subscription.redeliver(consumer, positions, None)

        self.serving.do(ask)
        self.nothing_is_stuck()

    @precondition(lambda self: self.consumers)
    @rule(data=st.data(), seconds=st.sampled_from([0.1, 0.5, 2 * DELAY_S]))
    def stall(self, data: st.DataObject, seconds: float) -> None:
        """A socket is full for a while."""
        consumer = data.draw(st.sampled_from(self.consumers))
        client_of(consumer).writable = False
        self.serving.do(wait_s=seconds)
        client_of(consumer).writable = True
        self.serving.do(self.serving.subscription.wake)
        self.nothing_is_stuck()

    @rule(hurry=st.booleans())
    def hurry(self, hurry: bool) -> None:
        """From now on things happen while entries are being read from storage, or only when all is quiet."""
        self.serving.quiet_s = READ_S / 2 if hurry else 0.1

    @rule(seconds=st.sampled_from([0.5, 2 * DELAY_S]))
    def wait(self, seconds: float) -> None:
        self.serving.do(wait_s=seconds)
        self.nothing_is_stuck()

    def nothing_is_stuck(self) -> None:
        """When all is quiet, the active consumer has got everything there is for it, or has no permits."""
        self.switch()
        quiet = self.serving.quiet_s > READ_S
        if quiet and self.serving.loop.time() < self.switched_at + self.serving.quiet_s:
            self.serving.do()
            self.switch()
        assert self.serving.subscription.backlog() == self.published - len(self.acked)
        if quiet and self.served is not None and self.switch_at is None:
            assert self.served is self.elect()
            assert self.served.permits >= 0
            assert self.served.permits == 0 or not self.rest(), (
                self.serving.subscription.why_not_dispatching()
            )

    def teardown(self) -> None:
        if hasattr(self, "serving"):
            try:
                self.everything_is_delivered_in_the_end()
            finally:
                self.serving.close()

    def everything_is_delivered_in_the_end(self) -> None:
        self.serving.quiet_s = 0.1
        if not self.consumers:
            self.join("a", 0, 0, 0.0)
        self.serving.do(wait_s=2 * DELAY_S)
        self.switch()
        assert self.served is not None
        self.serving.flow(self.served, 10_000)
        client_of(self.served).take()
        self.next = 0
        self.serving.redeliver(self.served)
        numbers = client_of(self.served).take()
        assert numbers == sorted(set(range(self.published)) - self.acked), "nothing is lost"
        self.serving.ack(self.served, *numbers)
        assert self.serving.subscription.backlog() == 0
        assert self.serving.budget.reads == 0
        for consumer in list(self.consumers):
            self.serving.leave(consumer)


class FailoverMachine(OrderedMachine):
    """The active one is that of the partition among the best level's consumers by name."""

    sub_type = SubType.Failover
    delay_s = DELAY_S

    def elect(self) -> Consumer | None:
        best = [each for each in self.consumers if each.priority_level == self.best_level()]
        best.sort(key=lambda each: each.name)
        return best[PARTITION % len(best)] if best else None

    def best_level(self) -> int:
        return min([each.priority_level for each in self.consumers], default=0)


TestExclusive = OrderedMachine.TestCase
TestExclusive.settings = settings(max_examples=40, stateful_step_count=20, deadline=None)
TestFailover = FailoverMachine.TestCase
TestFailover.settings = settings(max_examples=examples(100), stateful_step_count=20, deadline=None)
