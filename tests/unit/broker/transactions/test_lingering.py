"""A transaction whose end a topic missed is settled by what its coordinator says, and by nothing else."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, cast

import pytest
from magnetar.broker.topics.persistent_topic import PersistentTopic
from magnetar.broker.transactions.lingering import (
    GRACE_S,
    STATUSES_PER_QUESTION_MAX,
    UNKNOWN_CONFIRMED_S,
    LingeringTransactions,
)
from magnetar.broker.transactions.participants import EndOutcome, EndResult, TransactionEnd
from magnetar.broker.transactions.status import TransactionStatus, TransactionStatuses, TxnState
from magnetar.common.errors import ServiceNotReady
from magnetar.common.naming.txn_id import Action, TxnId
from magnetar.common.obs.metrics import REGISTRY

TOPIC = "persistent://a/b/t"
TXN = TxnId(3, 7)


@dataclass
class World:
    """One topic, its coordinator, and time that passes on request."""

    open: dict[TxnId, Any] = field(default_factory=dict)
    states: dict[TxnId, TransactionStatus] = field(default_factory=dict)
    reachable: bool = True
    questions: list[tuple[int, list[TxnId]]] = field(default_factory=list)
    ended: list[TransactionEnd] = field(default_factory=list)
    result: EndOutcome = EndOutcome.DONE
    now: float = 1_000.0
    lingering: LingeringTransactions = field(init=False)

    def __post_init__(self) -> None:
        topic = PersistentTopic.__new__(PersistentTopic)
        topic.name = cast(Any, SimpleNamespace(full=TOPIC))
        topic.state = cast(Any, SimpleNamespace(closing=False))
        topic.ledger = cast(Any, SimpleNamespace(transactions=SimpleNamespace(open=self.open)))
        plain = PersistentTopic.__new__(PersistentTopic)
        plain.state = topic.state
        plain.ledger = cast(Any, SimpleNamespace(transactions=None))
        topics = cast(Any, {TOPIC: topic, "plain": plain})
        self.lingering = LingeringTransactions(lambda: topics, lambda: self, self, self)

    def wall_ms(self) -> int:
        return int(self.now * 1000)

    def monotonic(self) -> float:
        return self.now

    def begin(self, txn: TxnId = TXN, *, found_at_load: bool = False) -> None:
        self.open[txn] = SimpleNamespace(began_ms=0 if found_at_load else self.wall_ms())

    def say(self, state: TxnState, until_s: float = 0.0) -> None:
        self.states[TXN] = TransactionStatus(state, int((self.now + until_s) * 1000) if until_s else 0)

    async def status(self, coordinator_id: int, transactions: Sequence[TxnId]) -> TransactionStatuses:
        self.questions.append((coordinator_id, list(transactions)))
        if not self.reachable:
            raise ServiceNotReady("no coordinator")
        return TransactionStatuses({txn: self.states[txn] for txn in transactions if txn in self.states}, 5)

    async def end(self, ends: Sequence[TransactionEnd]) -> list[EndResult]:
        self.ended += ends
        if self.result is EndOutcome.DONE:
            for each in ends:
                del self.open[each.txn]
        return [EndResult(self.result)] * len(ends)

    async def after(self, seconds: float) -> None:
        self.now += seconds
        await self.lingering.check()


def scenario(body: Callable[[World], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(body(World()))


def settled(action: str) -> float:
    return REGISTRY.get_sample_value("magnetar_txn_lingering_settled_total", {"action": action}) or 0.0


def test_a_young_transaction_is_left_to_its_coordinator() -> None:
    async def body(world: World) -> None:
        world.begin()
        await world.after(GRACE_S - 1)
        assert world.questions == []
        world.say(TxnState.OPEN, until_s=60)
        await world.after(2)
        assert world.questions == [(3, [TXN])]

    scenario(body)


def test_the_next_question_about_an_open_transaction_comes_after_its_deadline() -> None:
    async def body(world: World) -> None:
        world.begin()
        world.say(TxnState.OPEN, until_s=100)
        await world.after(GRACE_S)
        await world.after(69 + GRACE_S)
        assert len(world.questions) == 1
        world.say(TxnState.ABORTED)
        await world.after(2)
        assert world.ended == [TransactionEnd(TXN, TOPIC, Action.ABORT, 5)]

    scenario(body)


@pytest.mark.parametrize(
    ("state", "action"), [(TxnState.COMMITTED, Action.COMMIT), (TxnState.ABORTED, Action.ABORT)]
)
def test_a_transaction_found_at_load_is_asked_about_at_once_and_ends_as_it_ended(
    state: TxnState, action: Action
) -> None:
    async def body(world: World) -> None:
        before = settled(action.value)
        world.begin(found_at_load=True)
        world.say(state)
        await world.after(0)
        assert world.ended == [TransactionEnd(TXN, TOPIC, action, 5)]
        assert settled(action.value) == before + 1
        await world.after(10 * GRACE_S)
        assert len(world.questions) == 1

    scenario(body)


@pytest.mark.parametrize("state", [TxnState.OPEN, TxnState.COMMITTING, TxnState.ABORTING])
def test_a_transaction_that_is_not_over_is_left_to_its_coordinator(state: TxnState) -> None:
    async def body(world: World) -> None:
        world.begin(found_at_load=True)
        world.say(state, until_s=10_000)
        for _ in range(20):
            await world.after(GRACE_S)
        assert world.ended == []

    scenario(body)


def test_a_coordinator_that_cannot_be_asked_is_never_taken_for_an_abort() -> None:
    async def body(world: World) -> None:
        world.begin(found_at_load=True)
        world.reachable = False
        for _ in range(100):
            await world.after(GRACE_S)
        assert world.ended == []
        assert len(world.questions) == 100
        world.reachable = True
        world.say(TxnState.COMMITTED)
        await world.after(GRACE_S)
        assert world.ended == [TransactionEnd(TXN, TOPIC, Action.COMMIT, 5)]

    scenario(body)


def test_a_transaction_that_its_coordinator_forgot_is_aborted_once_that_is_confirmed() -> None:
    async def body(world: World) -> None:
        before = settled("abort_unknown")
        world.begin(found_at_load=True)
        world.say(TxnState.UNKNOWN)
        await world.after(0)
        await world.after(UNKNOWN_CONFIRMED_S - 1)
        assert world.ended == []
        await world.after(GRACE_S)
        assert world.ended == [TransactionEnd(TXN, TOPIC, Action.ABORT, 5)]
        assert settled("abort_unknown") == before + 1

    scenario(body)


def test_an_interrupted_series_of_unknown_answers_begins_anew() -> None:
    async def body(world: World) -> None:
        world.begin(found_at_load=True)
        for break_with in ("silence", "open"):
            world.reachable = True
            world.say(TxnState.UNKNOWN)
            await world.after(GRACE_S)
            await world.after(GRACE_S)
            world.reachable = break_with != "silence"
            world.say(TxnState.OPEN)
            await world.after(GRACE_S)
        world.reachable = True
        world.say(TxnState.UNKNOWN)
        await world.after(GRACE_S)
        assert world.ended == []

    scenario(body)


def test_an_end_that_fails_is_tried_again() -> None:
    async def body(world: World) -> None:
        world.begin(found_at_load=True)
        world.say(TxnState.COMMITTED)
        world.result = EndOutcome.RETRY
        await world.after(0)
        world.result = EndOutcome.DONE
        await world.after(GRACE_S)
        assert len(world.ended) == 2
        assert world.open == {}

    scenario(body)


def test_many_transactions_are_asked_about_in_bounded_questions_by_coordinator() -> None:
    async def body(world: World) -> None:
        for number in range(STATUSES_PER_QUESTION_MAX + 1):
            world.begin(TxnId(0, number), found_at_load=True)
        world.begin(TxnId(1, 0), found_at_load=True)
        await world.after(0)
        counts = [(coordinator, len(asked)) for coordinator, asked in world.questions]
        assert counts == [(0, STATUSES_PER_QUESTION_MAX), (0, 1), (1, 1)]

    scenario(body)
