"""Key_Shared where little may go out at a time, as under a dispatch rate: the turns of those that wait.

Entries that were looked at wait for consumers without permits. When these get some at once, the messages go
round those that can take one, whether they waited with their bytes or are read again.
"""

from __future__ import annotations

import hypothesis.strategies as st
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule
from magnetar.broker.dispatch.key_shared.sticky_key import slot_of_key
from magnetar.broker.subscriptions.config import DispatchConfig
from magnetar.broker.subscriptions.consumers.consumer import Consumer
from magnetar.broker.subscriptions.types.subscription_type import SubType

from tests.examples import examples
from tests.property.broker.shares import Shares
from tests.unit.broker.subscriptions.serving import Client, Message, Serving, client_of

KEYS = [f"key-{number}" for number in range(12)]


class OneMessage:
    """Lets one message out at each step. Implements delivery.DispatchRateGate."""

    reason = None

    def room(self) -> tuple[int, int]:
        return 1, 1 << 20

    def spent(self, entries: int, messages: int, byte_count: int) -> None:
        """There is room again at once."""


class KeySharedTurnsMachine(RuleBasedStateMachine):
    """Consumers that stay; entries of one message each, which are never acknowledged."""

    @initialize(
        consumers=st.integers(2, 4),
        bytes_max=st.sampled_from([1, 200, 1 << 20]),
        cached_from=st.sampled_from([0, 1_000]),
    )
    def start(self, consumers: int, bytes_max: int, cached_from: int) -> None:
        config = DispatchConfig(read_bytes_max=bytes_max)
        self.serving = Serving(SubType.Key_Shared, config=config, cached_from=cached_from)
        self.serving.subscription.dispatch_rate = OneMessage()
        self.consumers = [self.serving.join(f"c{number}") for number in range(consumers)]
        self.came: list[Client] = []
        self.waiting: dict[Client, list[int]] = {}
        self.permits = dict.fromkeys(map(client_of, self.consumers), 0)
        # While it can take something, all that comes is looked at, and waits for the others.
        eager = client_of(self.serving.join("eager", permits=100_000))
        self.permits[eager] = 100_000
        for client in self.permits:
            client.on_message = self.on_message
            self.waiting[client] = []
        self.shares: Shares[Client] | None = None

    def on_message(self, client: Client, message: Message) -> None:
        if self.shares is not None:
            self.shares.count(client, {each for each in self.permits if self.takes(each)})
        self.permits[client] -= 1
        assert self.waiting[client].pop(0) == message.number

    def takes(self, client: Client) -> bool:
        return self.permits[client] > 0 and bool(self.waiting[client])

    @rule(keys=st.permutations(KEYS), times=st.integers(1, 3))
    def publish(self, keys: list[str], times: int) -> None:
        """Those with permits get theirs in the order of the topic."""
        owner = self.serving.subscription.key_shared
        assert owner is not None

        def confirmed() -> None:
            for key in keys * times:
                consumer = owner.selector.owner(slot_of_key(key.encode()))
                assert consumer is not None
                self.waiting[client_of(consumer)].append(len(self.serving.topic.counts))
                self.serving.topic.append(key=key)
            self.serving.subscription.wake()

        self.serving.do(confirmed)
        self.nothing_is_stuck()

    @rule(data=st.data())
    def flow(self, data: st.DataObject) -> None:
        """Each gets permits, none of them before the others."""
        permits = st.sampled_from([0, 3, 9])
        given: dict[Consumer, int] = {each: data.draw(permits) for each in self.consumers}

        def flow() -> None:
            for consumer, count in given.items():
                self.permits[client_of(consumer)] += count
                self.serving.subscription.add_permits(consumer, count)

        self.shares = Shares()
        self.serving.do(flow)
        self.shares = None
        self.nothing_is_stuck()

    def nothing_is_stuck(self) -> None:
        assert not [client.name for client in self.permits if self.takes(client)]

    def teardown(self) -> None:
        if hasattr(self, "serving"):
            self.serving.close()


TestKeySharedTurns = KeySharedTurnsMachine.TestCase
TestKeySharedTurns.settings = settings(max_examples=examples(60), stateful_step_count=20, deadline=None)
