"""Every topic learns the outcome, whatever fails on the way, in bounded calls, and none delays the others."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from magnetar.broker.transactions.figures import CoordinatorFigures
from magnetar.broker.transactions.outcome_delivery import (
    CALLS_MAX,
    ENDS_MAX,
    FIRST_RETRY_S,
    RETRY_CALLS_MAX,
    RETRY_S,
    OutcomeDelivery,
)
from magnetar.broker.transactions.participants import EndOutcome, EndResult
from magnetar.common.errors import MetadataError
from magnetar.common.naming.txn_id import Action, TxnId
from magnetar.ledger.transaction_log.coordinator_state import Transaction
from magnetar.sim.loop import SimClock, SimLoop, run

from tests.unit.broker.transactions.harness import ID, RETRY, FakeTopics
from tests.unit.ledger.managed_ledger.harness import until

Scenario = Callable[[OutcomeDelivery, FakeTopics, list[int]], Awaitable[None]]


def delivering(scenario: Scenario) -> None:
    loop = SimLoop(0)

    async def main() -> None:
        topics, confirmed = FakeTopics(), list[int]()
        clock, figures = SimClock(loop), CoordinatorFigures("sim", ID)
        delivery = OutcomeDelivery(ID, topics, lambda: 17, confirmed.append, clock, figures)
        await scenario(delivery, topics, confirmed)
        await delivery.close()

    run(loop, main())


def decided(number: int, *topics: str, action: Action = Action.COMMIT) -> Transaction:
    return Transaction(number, "", 0, 0, topics, (), action)


def test_ends_of_a_turn_share_one_call() -> None:
    async def scenario(delivery: OutcomeDelivery, topics: FakeTopics, confirmed: list[int]) -> None:
        delivery.deliver(decided(1, "a", "b"))
        delivery.deliver(decided(2, "a", action=Action.ABORT))
        await until(lambda: len(confirmed) == 2)
        (call,) = topics.calls
        assert [(each.txn, each.topic, each.action, each.low_watermark) for each in call] == [
            (TxnId(ID, 1), "a", Action.COMMIT, 17),
            (TxnId(ID, 1), "b", Action.COMMIT, 17),
            (TxnId(ID, 2), "a", Action.ABORT, 17),
        ]
        assert delivery.unconfirmed == 0

    delivering(scenario)


def test_calls_are_bounded_in_number_and_size() -> None:
    async def scenario(delivery: OutcomeDelivery, topics: FakeTopics, confirmed: list[int]) -> None:
        topics.delay_s = 0.1
        for number in range(10):
            delivery.deliver(decided(number, *(f"{number}-{topic}" for topic in range(1_000))))
        assert delivery.unconfirmed == 10_000
        await until(lambda: len(confirmed) == 10)
        assert max(map(len, topics.calls)) == ENDS_MAX
        assert topics.in_flight_max == CALLS_MAX

    delivering(scenario)


def test_a_topic_that_fails_is_told_again_until_it_confirms() -> None:
    async def scenario(delivery: OutcomeDelivery, topics: FakeTopics, confirmed: list[int]) -> None:
        loop = asyncio.get_running_loop()
        start = loop.time()
        topics.answers = {
            "a": RETRY,
            "b": EndResult(EndOutcome.NOT_MINE, owner="x"),
            "c": MetadataError("no"),
        }
        for number, topic in enumerate("abc"):
            delivery.deliver(decided(number, topic))
            await asyncio.sleep(0)
            await asyncio.sleep(0)
        await asyncio.sleep(FIRST_RETRY_S + 3 * RETRY_S + 0.1)
        assert confirmed == []
        assert 5 <= topics.asked["a"] <= 6
        topics.answers.clear()
        await until(lambda: sorted(confirmed) == [0, 1, 2])
        assert loop.time() - start < FIRST_RETRY_S + 5 * RETRY_S

    delivering(scenario)


def test_a_topic_that_was_deleted_needs_no_end() -> None:
    async def scenario(delivery: OutcomeDelivery, topics: FakeTopics, confirmed: list[int]) -> None:
        topics.answers = {"a": EndResult(EndOutcome.GONE)}
        delivery.deliver(decided(1, "a"))
        await until(lambda: confirmed == [1])

    delivering(scenario)


def test_a_topic_that_hangs_delays_no_other_after_its_first_call() -> None:
    async def scenario(delivery: OutcomeDelivery, topics: FakeTopics, confirmed: list[int]) -> None:
        loop = asyncio.get_running_loop()
        topics.answers = {"slow": RETRY}
        delivery.deliver(decided(0, "slow"))
        await asyncio.sleep(0.01)
        topics.hanging.add("slow")
        await asyncio.sleep(2)
        for number in range(1, 21):
            begun = loop.time()
            delivery.deliver(decided(100 + number, "slow"))
            delivery.deliver(decided(number, "fast"))
            await until(lambda number=number: number in confirmed)
            assert loop.time() - begun < 0.1
        assert 0 < topics.in_flight <= RETRY_CALLS_MAX
        topics.answers.clear()
        topics.free("slow")
        await until(lambda: len(confirmed) == 41)
        assert delivery._failing == {}

    delivering(scenario)


def test_an_unexpected_error_of_the_calls_is_retried_too() -> None:
    async def scenario(delivery: OutcomeDelivery, topics: FakeTopics, confirmed: list[int]) -> None:
        topics.answers = {"a": RuntimeError("a bug")}
        delivery.deliver(decided(1, "a"))
        await asyncio.sleep(0.05)
        topics.answers.clear()
        await until(lambda: confirmed == [1])

    delivering(scenario)


def test_nothing_is_told_after_a_stop() -> None:
    async def scenario(delivery: OutcomeDelivery, topics: FakeTopics, confirmed: list[int]) -> None:
        topics.answers = {"a": RETRY}
        delivery.deliver(decided(1, "a"))
        delivery.deliver(decided(2))
        delivery.stop()
        delivery.deliver(decided(3, "b"))
        await asyncio.sleep(5)
        assert (topics.calls, confirmed) == ([], [])

    delivering(scenario)
