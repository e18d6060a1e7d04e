"""Delivery of a topic with transactions against lists: whatever consumers do, nothing open or aborted comes.

Transactions begin, publish among others, and end in any order, while consumers of one subscription come, go,
ask for redelivery, acknowledge and seek. In the end every committed entry was acknowledged, and no backlog is
left.
"""

from __future__ import annotations

import hypothesis.strategies as st
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from magnetar.broker.subscriptions.config import DispatchConfig
from magnetar.broker.subscriptions.consumers.consumer import Consumer
from magnetar.broker.subscriptions.types.subscription_type import SubType
from magnetar.common.naming.position import Position
from magnetar.common.naming.txn_id import TxnId

from tests.unit.broker.subscriptions.serving import Client, Message, client_of
from tests.unit.broker.subscriptions.transactional_topic import TransactionalServing

FAILOVER_S = 1.5
"""Longer than a new consumer of a Failover subscription waits to become active."""


class TransactionalDeliveryMachine(RuleBasedStateMachine):
    """One subscription of a type; entries are one message each."""

    sub_type = SubType.Shared

    @initialize(cached_from=st.sampled_from([0, 7, 1_000]), run_entries=st.sampled_from([1, 4]))
    def start(self, cached_from: int, run_entries: int) -> None:
        self.serving = TransactionalServing(self.sub_type, config=DispatchConfig(read_entries_max=5))
        self.serving.quiet_s = FAILOVER_S if self.sub_type == SubType.Failover else 0.05
        self.topic = self.serving.topic
        self.topic.cached_from = cached_from
        self.topic.run_entries = run_entries
        self.numbers = 0
        self.consumers: list[Consumer] = []
        self.acked: set[int] = set()
        self.aborted: set[int] = set()

    # What is published

    def live(self) -> list[TxnId]:
        return list(self.topic.open)

    @rule(which=st.integers(0, 3), count=st.integers(1, 6))
    def publish(self, which: int, count: int) -> None:
        """Plain entries, entries of a transaction that is open, or of a new one."""
        txn: TxnId | None = None
        if which == 1 and self.live():
            txn = self.live()[0]
        elif which >= 2:
            txn, self.numbers = TxnId(0, self.numbers), self.numbers + 1
        self.serving.publish_in(txn, count)

    @precondition(lambda self: self.live())
    @rule(data=st.data(), abort=st.booleans())
    def end(self, data: st.DataObject, abort: bool) -> None:
        txn = data.draw(st.sampled_from(self.live()))
        if abort:
            self.aborted |= {number for number, each in enumerate(self.topic.txns) if each == txn}
        self.serving.end(txn, abort=abort)

    # What consumers do

    @precondition(lambda self: len(self.consumers) < (1 if self.sub_type == SubType.Exclusive else 3))
    @rule(permits=st.integers(0, 30))
    def join(self, permits: int) -> None:
        consumer = self.serving.consumer(f"c{len(self.consumers)}")
        client_of(consumer).on_message = self.check

        def connect() -> None:
            self.serving.subscription.add_consumer(consumer, self.sub_type)
            self.serving.subscription.add_permits(consumer, permits)

        self.consumers.append(consumer)
        self.serving.do(connect)

    def check(self, client: Client, message: Message) -> None:
        assert message.number < self.topic.readable, "delivered before the transactions before it ended"
        assert message.number not in self.aborted, "delivered although its transaction was aborted"

    @precondition(lambda self: self.consumers)
    @rule(data=st.data(), permits=st.integers(1, 30))
    def flow(self, data: st.DataObject, permits: int) -> None:
        self.serving.flow(data.draw(st.sampled_from(self.consumers)), permits)

    @precondition(lambda self: self.consumers)
    @rule(data=st.data())
    def leave(self, data: st.DataObject) -> None:
        consumer = data.draw(st.sampled_from(self.consumers))
        self.consumers.remove(consumer)
        self.serving.leave(consumer)

    @precondition(lambda self: self.consumers)
    @rule(data=st.data(), some=st.booleans())
    def redeliver(self, data: st.DataObject, some: bool) -> None:
        consumer = data.draw(st.sampled_from(self.consumers))
        seen = client_of(consumer).numbers
        self.serving.redeliver(consumer, seen[::2] if some else None)

    @precondition(lambda self: self.consumers)
    @rule(data=st.data(), some=st.booleans())
    def acknowledge(self, data: st.DataObject, some: bool) -> None:
        consumer = data.draw(st.sampled_from(self.consumers))
        numbers = client_of(consumer).numbers[:: 2 if some else 1]
        self.serving.ack(consumer, *numbers)
        self.acked.update(numbers)

    @rule()
    def seek_to_the_start(self) -> None:
        def seek() -> None:
            self.serving.cursor.replace(Position(5, -1))
            self.serving.subscription.rewind()

        for consumer in self.consumers:
            client_of(consumer).messages.clear()
            consumer.pending.clear()
        self.acked.clear()
        if self.topic.spans.spans:
            self.serving.do(seek)

    @invariant()
    def a_consumer_with_permits_gets_what_is_readable(self) -> None:
        if not getattr(self, "consumers", None) or any(each.permits <= 0 for each in self.consumers):
            return
        readable = set(range(self.topic.readable)) - self.aborted - self.acked
        held = {number for each in self.consumers for number in client_of(each).numbers}
        assert readable <= held, "nothing readable is left behind"

    def teardown(self) -> None:
        if not hasattr(self, "serving"):
            return
        for txn in self.live():
            self.serving.end(txn)
        while self.consumers:
            self.serving.leave(self.consumers.pop())
        self.join(permits=10_000)
        (last,) = self.consumers
        got = client_of(last).numbers
        committed = set(range(len(self.topic.txns))) - self.aborted
        assert got == sorted(committed - self.acked), "each one that was not acknowledged, once"
        self.serving.ack(last, *got)
        assert self.serving.cursor.backlog() == 0
        self.serving.close()


class ExclusiveMachine(TransactionalDeliveryMachine):
    sub_type = SubType.Exclusive


class FailoverMachine(TransactionalDeliveryMachine):
    sub_type = SubType.Failover


class KeySharedMachine(TransactionalDeliveryMachine):
    sub_type = SubType.Key_Shared


_USUAL = settings(max_examples=15, stateful_step_count=25, deadline=None)

TestExclusive = ExclusiveMachine.TestCase
TestExclusive.settings = _USUAL
TestFailover = FailoverMachine.TestCase
TestFailover.settings = _USUAL
TestShared = TransactionalDeliveryMachine.TestCase
TestShared.settings = _USUAL
TestKeyShared = KeySharedMachine.TestCase
TestKeyShared.settings = _USUAL
