"""When explain says that nothing holds a subscription up, it moves; at rest it always names what does.

Any type, limits and storage; consumers come, go, ask, acknowledge and hang at random. After each step the
subscription is asked at once, in the middle of what it does, and again when all is quiet.
"""

from __future__ import annotations

import hypothesis.strategies as st
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule
from magnetar.broker.subscriptions.config import DispatchConfig
from magnetar.broker.subscriptions.consumers.consumer import Consumer
from magnetar.broker.subscriptions.limits.broker_unacked_limit import BrokerUnackedLimit
from magnetar.broker.subscriptions.types.subscription_type import SubType
from magnetar.ledger.ledger_store import RUN_MARKER

from tests.examples import examples
from tests.unit.broker.subscriptions.serving import Serving, client_of

TYPES = [SubType.Exclusive, SubType.Failover, SubType.Shared, SubType.Key_Shared]
KEYS = [f"key-{number}" for number in range(6)]
QUIET_S = 1.5
"""Longer than reads take, and than Failover waits for more consumers."""


class ExplainMachine(RuleBasedStateMachine):
    """One subscription; its own reasons are the only reference."""

    @initialize(
        sub_type=st.sampled_from(TYPES),
        cached_from=st.sampled_from([0, 7, 1_000]),
        unacked_max=st.sampled_from([0, 6]),
        consumer_max=st.sampled_from([0, 3]),
        broker_max=st.sampled_from([0, 5]),
        look_ahead=st.sampled_from([0, 3]),
    )
    def start(
        self,
        sub_type: SubType.ValueType,
        cached_from: int,
        unacked_max: int,
        consumer_max: int,
        broker_max: int,
        look_ahead: int,
    ) -> None:
        config = DispatchConfig(read_entries_max=5, look_ahead_per_consumer=look_ahead)
        self.serving = Serving(
            sub_type,
            config=config,
            cached_from=cached_from,
            unacked_max=unacked_max,
            consumer_unacked_max=consumer_max,
            broker_limit=BrokerUnackedLimit(broker_max, 2) if broker_max else None,
        )
        self.subscription = self.serving.subscription
        self.consumers: list[Consumer] = []

    def progress(self) -> tuple[object, ...]:
        """Figures that change when a subscription moves: entries are sent, acknowledged, read or examined."""
        source, delivery = self.subscription.source, self.subscription._delivery
        return (
            sum(len(client_of(each).messages) for each in self.consumers),
            self.subscription.backlog(),
            None if source is None else source.read_position,
            None if source is None else source.replays,
            None if delivery is None else delivery.waiting,
        )

    def look(self) -> None:
        """Asks at once; then lets it rest, which it only does for a reason."""
        free = self.subscription.why_not_dispatching() is None
        before = self.progress()
        self.serving.do(wait_s=QUIET_S)
        if free:
            assert self.progress() != before, "nothing holds it up, and it does not move"
        reasons = self.subscription.reasons()
        assert any(each.stops for each in reasons), "it rests without a reason"
        self.serving.do(wait_s=QUIET_S)
        assert self.subscription.reasons() == reasons or self.subscription.why_not_dispatching() is not None

    @rule(permits=st.integers(0, 12), level=st.integers(0, 1))
    def join(self, permits: int, level: int) -> None:
        if len(self.consumers) < (1 if self.serving.sub_type == SubType.Exclusive else 3):
            name = f"c{self.serving._next_id}"
            self.consumers.append(self.serving.join(name, permits, 0, priority_level=level))
            self.look()

    @precondition(lambda self: self.consumers)
    @rule(data=st.data())
    def leave(self, data: st.DataObject) -> None:
        consumer = data.draw(st.sampled_from(self.consumers))
        self.consumers.remove(consumer)
        self.serving.leave(consumer, 0)
        self.look()

    @rule(count=st.integers(1, 9), messages=st.sampled_from([1, 1, 3]), data=st.data())
    def publish(self, count: int, messages: int, data: st.DataObject) -> None:
        keys = data.draw(st.lists(st.sampled_from(KEYS), min_size=count, max_size=count))
        flags = data.draw(st.sampled_from([0, 0, 0, RUN_MARKER]))

        def confirmed() -> None:
            for key in keys:
                self.serving.topic.append(messages, flags, key)
            self.subscription.wake()

        self.serving.do(confirmed, 0)
        self.look()

    @precondition(lambda self: self.consumers)
    @rule(permits=st.integers(1, 20), data=st.data())
    def flow(self, permits: int, data: st.DataObject) -> None:
        consumer = data.draw(st.sampled_from(self.consumers))
        self.serving.do(lambda: self.subscription.add_permits(consumer, permits), 0)
        self.look()

    @precondition(lambda self: self.consumers)
    @rule(share=st.sampled_from([1, 2, 3]), data=st.data())
    def ack(self, share: int, data: st.DataObject) -> None:
        consumer = data.draw(st.sampled_from(self.consumers))
        client = client_of(consumer)

        def ack() -> None:
            for message in client.messages[::share]:
                self.subscription.ack(*message.position, consumer)

        self.serving.do(ack, 0)
        self.look()

    @precondition(lambda self: self.consumers)
    @rule(data=st.data())
    def redeliver(self, data: st.DataObject) -> None:
        consumer = data.draw(st.sampled_from(self.consumers))
        self.serving.do(lambda: self.subscription.redeliver(consumer, None, None), 0)
        self.look()

    @precondition(lambda self: self.consumers)
    @rule(data=st.data())
    def hang(self, data: st.DataObject) -> None:
        """A socket fills up, or is emptied again."""
        client = client_of(data.draw(st.sampled_from(self.consumers)))
        client.writable = not client.writable
        self.serving.do(self.subscription.wake, 0)
        self.look()

    @rule(to=st.integers(0, 40))
    def skip(self, to: int) -> None:
        if to < len(self.serving.topic.counts):
            position = self.serving.topic.position_of(to)
            self.serving.do(lambda: self.subscription.skip_to(position), 0)
            self.look()

    def teardown(self) -> None:
        if hasattr(self, "serving"):
            for consumer in self.consumers:
                self.serving.leave(consumer)
            self.serving.close()


TestExplain = ExplainMachine.TestCase
TestExplain.settings = settings(max_examples=examples(60), stateful_step_count=20, deadline=None)
