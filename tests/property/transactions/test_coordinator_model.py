"""A coordinator against a dictionary: whatever clients, topics, clocks and owners do, both say the same."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from dataclasses import dataclass, field
from typing import Any, TypeVar

import hypothesis.strategies as st
import pytest
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from magnetar.broker.transactions.coordinator import GRACE_S, Coordinator, open_coordinator
from magnetar.broker.transactions.status import TxnState
from magnetar.common.errors import InvalidTxnStatus, TransactionNotFound
from magnetar.common.naming.txn_id import Action, TxnId
from magnetar.ledger.transaction_log.transaction_log import LogLimits
from magnetar.sim.loop import SimLoop, _end_tasks

from tests.simulation.power_loss import Process, World
from tests.unit.broker.transactions.harness import ID, RETRY, FakeTopics
from tests.unit.ledger.transaction_log.harness import context

T = TypeVar("T")

WHICH = st.integers(0, 5)
"""Which of the last transactions."""
TOPICS = st.sampled_from(("a", "b", "c"))
ACTIONS = st.sampled_from(tuple(Action))
NEAR_S = 2.0
OTHER = {Action.COMMIT: Action.ABORT, Action.ABORT: Action.COMMIT}


@dataclass
class Model:
    """The expected state of a transaction."""

    ends_at: float
    topics: set[str] = field(default_factory=set)
    action: Action | None = None
    told: set[str] = field(default_factory=set)

    def is_near(self, now: float) -> bool:
        """Whether its deadline is at hand, or has just passed."""
        return abs(self.ends_at - now) < NEAR_S

    @property
    def state(self) -> TxnState:
        if self.action is None:
            return TxnState.OPEN
        if self.told == self.topics:
            return TxnState.COMMITTED if self.action is Action.COMMIT else TxnState.ABORTED
        return TxnState.COMMITTING if self.action is Action.COMMIT else TxnState.ABORTING


class CoordinatorMachine(RuleBasedStateMachine):
    """Rules are what clients ask, and what happens to topics, time and owners."""

    @initialize(bytes_min=st.sampled_from((1, 400, 1 << 24)), seed=st.integers(0, 99))
    def start(self, bytes_min: int, seed: int) -> None:
        self.loop = SimLoop(seed, time_max_s=10_000)
        self.limits = LogLimits(bytes_min=bytes_min, growth=2, numbers_ahead=4)
        self.topics = FakeTopics()
        self.model: dict[TxnId, Model] = {}
        self.act(self.begin_process())

    async def begin_process(self) -> None:
        process = Process(self.loop, World.new())
        self.store = await process.open_store()
        self.ctx = context(process, self.store)
        self.coordinator = await self.opened()

    def act(self, work: Coroutine[Any, Any, T]) -> T:
        result = self.loop.run_until_complete(work)
        if self.loop.errors:
            raise self.loop.errors[0]
        return result

    async def opened(self) -> Coordinator:
        return await open_coordinator(
            self.ctx, ID, self.topics, cluster="sim", active_max=0, limits=self.limits
        )

    def teardown(self) -> None:
        if hasattr(self, "coordinator"):
            self.topics.answers.clear()
            self.act(self.coordinator.close())
            self.act(self.store.close())
        if hasattr(self, "loop"):
            _end_tasks(self.loop)
            self.loop.close()

    def chosen(self, which: int) -> TxnId:
        return list(self.model)[-1 - which % len(self.model)]

    async def settle(self) -> None:
        """Time for everything that topics do not hold up."""
        await asyncio.sleep(2.5)
        for _ in range(10):
            now = self.loop.time()
            if any(each.action is None and each.is_near(now) for each in self.model.values()):
                await asyncio.sleep(NEAR_S)
        self.deadlines_pass()
        for txn, model in self.model.items():
            if model.action is not None:
                model.told |= {topic for topic in model.topics if (txn, topic) in self.topics.ended} | (
                    model.topics - set(self.topics.answers)
                )

    def deadlines_pass(self) -> None:
        for model in self.model.values():
            if model.action is None and self.loop.time() >= model.ends_at:
                model.action = Action.ABORT

    # Clients

    @rule(ttl_s=st.sampled_from((0, 20, 20, 200)))
    def begin(self, ttl_s: int) -> None:
        txn = self.act(self.coordinator.begin(ttl_s * 1000, "ana"))
        assert txn not in self.model
        assert all(txn > other for other in self.model)
        self.model[txn] = Model(self.loop.time() + ttl_s)
        self.act(self.settle())

    @precondition(lambda self: self.model)
    @rule(which=WHICH, topic=TOPICS, subscribed=st.booleans())
    def take_part(self, which: int, topic: str, subscribed: bool) -> None:
        txn = self.chosen(which)
        model = self.model[txn]
        add = (
            self.coordinator.add_subscriptions(txn, [(topic, "s")], "ana")
            if subscribed
            else self.coordinator.add_partitions(txn, [topic], "ana")
        )
        if model.state is TxnState.OPEN:
            self.act(add)
            model.topics.add(topic)
        elif model.told == model.topics:
            with pytest.raises(TransactionNotFound):
                self.act(add)
        else:
            with pytest.raises(InvalidTxnStatus):
                self.act(add)
        self.act(self.settle())

    @precondition(lambda self: self.model)
    @rule(which=WHICH, action=ACTIONS)
    def end(self, which: int, action: Action) -> None:
        txn = self.chosen(which)
        model = self.model[txn]
        if model.action is OTHER[action]:
            with pytest.raises(InvalidTxnStatus):
                self.act(self.coordinator.end(txn, action, "ana"))
            return
        model.action = action
        self.act(self.ends(txn, model))

    async def ends(self, txn: TxnId, model: Model) -> None:
        assert model.action is not None
        ending = asyncio.ensure_future(self.coordinator.end(txn, model.action, "ana"))
        await self.settle()
        assert ending.done() == (model.told == model.topics)
        if ending.done():
            ending.result()
        else:
            ending.cancel()

    # Topics, time and owners

    @rule(topic=TOPICS)
    def topic_fails(self, topic: str) -> None:
        self.topics.answers[topic] = RETRY

    @rule()
    def topics_work(self) -> None:
        self.topics.answers.clear()
        self.act(self.settle())

    @rule()
    def time_passes(self) -> None:
        self.act(asyncio.sleep(15))
        self.act(self.settle())

    @rule(in_order=st.booleans(), away_s=st.sampled_from((0, 30)))
    def next_owner(self, in_order: bool, away_s: int) -> None:
        self.act(self.moves(in_order, away_s))

    async def moves(self, in_order: bool, away_s: int) -> None:
        if in_order:
            await self.coordinator.close()
        else:
            self.coordinator.abandon("as the test wants it")
        await asyncio.sleep(away_s)
        self.coordinator = await self.opened()
        for model in self.model.values():
            if model.action is None:
                model.ends_at = max(model.ends_at, self.loop.time() + GRACE_S)
        await self.settle()

    @rule()
    def log_rolls(self) -> None:
        self.act(self.rolls())

    async def rolls(self) -> None:
        self.coordinator.log.roll_soon()
        await self.settle()

    @invariant()
    def both_say_the_same(self) -> None:
        if not hasattr(self, "coordinator"):
            return
        for txn, model in self.model.items():
            assert self.coordinator.status(txn).state is model.state, txn
        unfinished = {each.number: set(each.participants) for each in self.coordinator.transactions()}
        expected = {
            txn.least: model.topics
            for txn, model in self.model.items()
            if model.action is None or model.told != model.topics
        }
        assert unfinished == expected
        lowest = min(expected, default=self.coordinator.last_number + 1)
        assert self.coordinator.low_watermark == lowest - 1
        for (txn, topic), action in self.topics.ended.items():
            assert self.model[txn].action is action
            assert topic in self.model[txn].topics


TestCoordinator = CoordinatorMachine.TestCase
TestCoordinator.settings = settings(stateful_step_count=25)
