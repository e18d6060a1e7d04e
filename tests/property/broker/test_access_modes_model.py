"""Producers of all access modes that come, go and come back: one holder at a time, in their order."""

from __future__ import annotations

from dataclasses import dataclass

import hypothesis.strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from magnetar.broker.topics.publish.access_modes import (
    EXCLUSIVE,
    EXCLUSIVE_WITH_FENCING,
    SHARED,
    WAIT_FOR_EXCLUSIVE,
    AccessModes,
    Decision,
)

EXCLUSIVE_MODES = (EXCLUSIVE, WAIT_FOR_EXCLUSIVE, EXCLUSIVE_WITH_FENCING)


@dataclass(eq=False)
class Client:
    """`epoch`: the one under which it has or had the topic; 0: it never had."""

    epoch: int = 0


class AccessMachine(RuleBasedStateMachine):
    """A naive topic beside the real state: a list of who publishes, and a list of who waits."""

    @initialize()
    def start(self) -> None:
        self.access: AccessModes[Client] = AccessModes()
        self.epoch = 0
        self.sharing: list[Client] = []
        self.holder: Client | None = None
        self.queue: list[Client] = []
        self.gone: list[Client] = []
        self.history: list[Client] = []

    def take(self, client: Client) -> None:
        """What a topic does with its holder: the next epoch, unless the client had the latest one."""
        self.holder = client
        if not client.epoch:
            self.epoch += 1
            client.epoch = self.epoch
        assert client.epoch == self.epoch, "nobody takes a topic back that another one had since"
        if not self.history or self.history[-1] is not client:
            self.history.append(client)

    @rule()
    def share(self) -> None:
        client = Client()
        decision = self.access.arrive(
            client, SHARED, claimed_epoch=0, topic_epoch=self.epoch, shared=bool(self.sharing)
        )
        if self.holder is None and not self.queue:
            assert decision is Decision.JOINS
            self.sharing.append(client)
        else:
            assert decision is Decision.BUSY

    @rule(mode=st.sampled_from(EXCLUSIVE_MODES), data=st.data())
    def come(self, mode: int, data: st.DataObject) -> None:
        """A new client, or one that had the topic and comes back."""
        client = Client()
        comes_back = data.draw(st.booleans())
        if self.gone and comes_back:
            client = data.draw(st.sampled_from(self.gone))
            self.gone.remove(client)
        occupied = self.holder is not None or bool(self.sharing) or bool(self.queue)
        decision = self.access.arrive(
            client,
            mode,  # type: ignore[arg-type]
            claimed_epoch=client.epoch,
            topic_epoch=self.epoch,
            shared=bool(self.sharing),
        )
        if client.epoch and client.epoch < self.epoch:
            assert decision is Decision.FENCED, "for ever"
            self.gone.append(client)
        elif not occupied:
            assert decision is Decision.TAKES
            self.take(client)
        elif mode == EXCLUSIVE:
            assert decision is Decision.FENCED
            if client.epoch:
                self.gone.append(client)
        elif mode == WAIT_FOR_EXCLUSIVE:
            assert decision is Decision.WAITS
            self.queue.append(client)
        else:
            assert decision is Decision.FENCES
            assert self.access.fence_waiting() == self.queue
            fenced = [*self.sharing, *([self.holder] if self.holder is not None else [])]
            self.gone += [each for each in [*fenced, *self.queue] if each.epoch]
            self.sharing, self.queue = [], []
            for each in fenced:
                assert self.access.leave(each, shared=False) is None, "the new holder stays"
            self.take(client)

    @precondition(lambda self: self.sharing or self.holder or self.queue)
    @rule(data=st.data())
    def go(self, data: st.DataObject) -> None:
        everybody = [*self.sharing, *self.queue, *([self.holder] if self.holder is not None else [])]
        client = data.draw(st.sampled_from(everybody))
        if client in self.sharing:
            self.sharing.remove(client)
        elif client in self.queue:
            self.queue.remove(client)
        else:
            self.holder = None
        if client.epoch:
            self.gone.append(client)
        promoted = self.access.leave(client, shared=bool(self.sharing))
        self.promote(promoted)

    def go_stale(self, client: Client) -> None:
        """A promoted client whose epoch is over leaves at once; the next one is promoted."""
        self.holder = None
        self.gone.append(client)
        promoted = self.access.leave(client, shared=bool(self.sharing))
        self.promote(promoted)

    def promote(self, promoted: Client | None) -> None:
        """Who waits longest has the topic as soon as nobody else has it."""
        if self.holder is not None or self.sharing or not self.queue:
            assert promoted is None
            return
        first = self.queue.pop(0)
        assert promoted is first, "first come, first served"
        if first.epoch and first.epoch < self.epoch:
            # Somebody had the topic while it waited: its topic finds that out, and it goes.
            self.holder = first
            self.go_stale(first)
        else:
            self.take(first)

    @rule()
    def a_stranger_leaves(self) -> None:
        """Somebody who was refused goes as well, and nothing changes."""
        assert self.access.leave(Client(), shared=bool(self.sharing)) is None

    @invariant()
    def it_is_as_the_naive_topic_says(self) -> None:
        assert self.access.holder is self.holder
        assert list(self.access.waiting) == self.queue
        assert self.access.idle == (self.holder is None and not self.queue)

    @invariant()
    def a_holder_is_alone(self) -> None:
        assert self.holder is None or not self.sharing

    @invariant()
    def every_holder_had_an_epoch_of_its_own(self) -> None:
        epochs = [client.epoch for client in self.history]
        assert epochs == sorted(set(epochs)), "no epoch twice, none lower than one before"


TestAccessModes = AccessMachine.TestCase
