"""Calls of brokers about transactions: what is sent, what is answered, and within which bounds."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, cast

import pytest
from magnetar.broker.control import transaction_calls, transaction_peers
from magnetar.broker.control.transaction_calls import TransactionCalls
from magnetar.broker.control.transaction_messages import (
    read_end,
    read_result,
    read_statuses,
    write_end,
    write_ids,
    write_result,
    write_statuses,
)
from magnetar.broker.control.transaction_peers import TransactionPeers
from magnetar.broker.transactions.participants import EndOutcome, EndResult, TransactionEnd
from magnetar.broker.transactions.status import TransactionStatus, TransactionStatuses, TxnState
from magnetar.common.control.control_errors import BrokerUnreachable
from magnetar.common.control.control_pb2 import (
    EndTransactionsRequest,
    EndTransactionsResponse,
    TransactionEndResult,
    TransactionState,
    TransactionStatusRequest,
    TransactionStatusResponse,
)
from magnetar.common.control.control_pb2 import TransactionEnd as EndMessage
from magnetar.common.control.methods import CALLERS, END_TRANSACTIONS, TRANSACTION_STATUS
from magnetar.common.errors import (
    MagnetarError,
    NamespaceNotFound,
    NotAllowed,
    ServiceNotReady,
    TooManyRequests,
)
from magnetar.common.metadata.values import BrokerRegistration
from magnetar.common.naming.topic_name import TopicName
from magnetar.common.naming.txn_id import Action, TxnId
from magnetar.common.security.services.service_identity import Service
from magnetar.sim.loop import SimLoop, run

HERE = BrokerRegistration(broker_id="here", run=1)
THERE = BrokerRegistration(broker_id="there", run=2)
TIMEOUT_S = 3.0


def end_of(number: int, topic: str = "persistent://a/b/t", action: Action = Action.COMMIT) -> TransactionEnd:
    return TransactionEnd(TxnId(1, number), topic, action, number - 1)


@dataclass
class Topics:
    """Ends everything, but what is held back."""

    ended: list[TransactionEnd] = field(default_factory=list)
    held: set[int] = field(default_factory=set)
    released: asyncio.Event = field(default_factory=asyncio.Event)

    async def end(self, ends: Sequence[TransactionEnd]) -> list[EndResult]:
        for each in ends:
            if each.txn.least in self.held:
                await self.released.wait()
        self.ended += ends
        return [EndResult(EndOutcome.DONE)] * len(ends)


@dataclass
class Coordinators:
    """Knows every transaction as open."""

    asked: list[tuple[int, list[TxnId]]] = field(default_factory=list)

    async def status(self, coordinator_id: int, transactions: Sequence[TxnId]) -> TransactionStatuses:
        self.asked.append((coordinator_id, list(transactions)))
        return TransactionStatuses({each: TransactionStatus(TxnState.OPEN, 17) for each in transactions}, 4)


@dataclass
class Network:
    """Carries calls to the broker `there`."""

    calls: TransactionCalls
    requests: list[EndTransactionsRequest] = field(default_factory=list)
    failure: MagnetarError | None = None
    in_flight: int = 0
    in_flight_max: int = 0

    async def call(self, broker: Any, method: Any, request: Any, *, deadline_s: float | None = None) -> Any:
        assert broker == THERE
        if self.failure is not None:
            raise self.failure
        if method is TRANSACTION_STATUS:
            return await self.calls.status(request)
        assert method is END_TRANSACTIONS
        self.requests.append(request)
        self.in_flight += len(request.ends)
        self.in_flight_max = max(self.in_flight_max, self.in_flight)
        try:
            async with asyncio.timeout(deadline_s):
                return await self.calls.end(request)
        finally:
            self.in_flight -= len(request.ends)


@dataclass
class World:
    """Two brokers: topics named `here...` are owned by the one that calls."""

    here: Topics = field(default_factory=Topics)
    there: Topics = field(default_factory=Topics)
    here_knows: Coordinators = field(default_factory=Coordinators)
    there_knows: Coordinators = field(default_factory=Coordinators)
    requests_max: int = 1_000
    network: Network = field(init=False)
    peers: TransactionPeers = field(init=False)

    def __post_init__(self) -> None:
        self.network = Network(TransactionCalls(self.there, self.there_knows))
        cluster = SimpleNamespace(
            presence=SimpleNamespace(is_run=lambda broker, run: (broker, run) == ("here", 1)),
            ownership=SimpleNamespace(finder=self),
        )
        self.peers = TransactionPeers(
            cast(Any, cluster),
            cast(Any, self.network),
            self.here,
            self.here_knows,
            requests_max=self.requests_max,
            timeout_s=TIMEOUT_S,
        )

    @property
    def rings(self) -> Any:
        return SimpleNamespace(bundle_of=lambda topic: None)

    async def find(self, topic: TopicName) -> BrokerRegistration:
        if topic.local_name.startswith("missing"):
            raise NamespaceNotFound(str(topic))
        return HERE if topic.local_name.startswith("here") or topic.partition_index == 0 else THERE


def scenario(body: Callable[[World], Awaitable[None]], **given: Any) -> None:
    async def main() -> None:
        world = World(**given)
        try:
            await body(world)
        finally:
            await world.peers.close()

    run(SimLoop(0), main())


def test_messages_come_back_as_they_were() -> None:
    for action in Action:
        end = TransactionEnd(TxnId(0, 0), "persistent://a/b/c", action, -1)
        assert read_end(write_end(end)) == end
    for outcome in EndOutcome:
        result = EndResult(outcome, "b:1", "why")
        assert read_result(write_result(result)) == result
    ids = [TxnId(1, number) for number in range(len(TxnState))]
    of = {txn: TransactionStatus(state, 5) for txn, state in zip(ids, TxnState, strict=True)}
    statuses = TransactionStatuses(of, 9)
    assert read_statuses(ids, write_statuses(ids, statuses)) == statuses


def test_what_a_later_release_says_is_never_taken_for_an_end() -> None:
    with pytest.raises(NotAllowed):
        read_end(EndMessage(txn_most=1, action=cast(Any, 9)))
    assert read_result(TransactionEndResult(outcome=cast(Any, 99))).outcome is EndOutcome.RETRY
    assert read_result(TransactionEndResult()).outcome is EndOutcome.RETRY
    answer = TransactionStatusResponse(states=[TransactionState(status=cast(Any, 99))])
    with pytest.raises(ServiceNotReady):
        read_statuses([TxnId(0, 0)], answer)
    with pytest.raises(ServiceNotReady):
        read_statuses([TxnId(0, 0)], TransactionStatusResponse())


def test_only_brokers_may_call() -> None:
    for method in (END_TRANSACTIONS, TRANSACTION_STATUS):
        assert CALLERS[method.name] == {Service.BROKER}


def test_ends_go_to_the_owners_of_their_topics_and_keep_their_order() -> None:
    async def body(world: World) -> None:
        ends = [
            end_of(1, "persistent://a/b/here"),
            end_of(2),
            end_of(3, "persistent://a/b/missing"),
            end_of(4),
        ]
        results = await world.peers.end(ends)
        found = [result.outcome for result in results]
        assert found == [EndOutcome.DONE, EndOutcome.DONE, EndOutcome.GONE, EndOutcome.DONE]
        assert world.here.ended == [ends[0]]
        assert world.there.ended == [ends[1], ends[3]]
        assert len(world.network.requests) == 1

    scenario(body)


def test_ends_of_one_turn_travel_in_one_call() -> None:
    async def body(world: World) -> None:
        results = await asyncio.gather(*(world.peers.end([end_of(number)]) for number in range(100)))
        assert all(result.over for (result,) in results)
        assert len(world.network.requests) == 1

    scenario(body)


def test_ends_in_flight_to_one_broker_are_bounded() -> None:
    async def body(world: World) -> None:
        world.there.held = set(range(100))
        ending = asyncio.create_task(world.peers.end([end_of(number) for number in range(100)]))
        await asyncio.sleep(0.1)
        assert world.network.in_flight_max == 7
        world.there.released.set()
        assert all(result.over for result in await ending)
        assert world.network.in_flight_max == 7

    scenario(body, requests_max=7)


def test_a_slow_topic_does_not_hold_back_the_others() -> None:
    async def body(world: World) -> None:
        world.there.held = {1}
        slow, quick = (asyncio.create_task(world.peers.end([end_of(number)])) for number in (1, 2))
        await asyncio.sleep(transaction_peers.ANSWER_WITHIN_MS / 1000 + 0.01)
        assert quick.done()
        assert not slow.done()
        world.there.released.set()
        assert (await slow)[0].outcome is EndOutcome.DONE
        assert len(world.network.requests) > 1

    scenario(body)


def test_an_end_that_takes_too_long_is_to_be_retried() -> None:
    async def body(world: World) -> None:
        world.there.held = {1}
        world.here.held = {2}
        started = asyncio.get_running_loop().time()
        results = await world.peers.end([end_of(1), end_of(2, "persistent://a/b/here")])
        assert [result.outcome for result in results] == [EndOutcome.RETRY] * 2
        assert asyncio.get_running_loop().time() - started == pytest.approx(TIMEOUT_S, abs=0.1)
        await asyncio.sleep(1)
        assert not world.peers._peers, "nothing is kept of a broker without ends"

    scenario(body)


def test_a_broker_that_does_not_answer_leaves_ends_to_be_retried() -> None:
    async def body(world: World) -> None:
        world.network.failure = BrokerUnreachable("gone")
        (result,) = await world.peers.end([end_of(1)])
        assert result.outcome is EndOutcome.RETRY
        assert "gone" in result.reason
        world.network.failure = None
        (result,) = await world.peers.end([end_of(1)])
        assert result.outcome is EndOutcome.DONE

    scenario(body)


def test_a_broker_that_stops_leaves_ends_to_be_retried() -> None:
    async def body(world: World) -> None:
        world.there.held = {1, 2}
        ending = asyncio.create_task(world.peers.end([end_of(1), end_of(2)]))
        await asyncio.sleep(0.05)
        await world.peers.close()
        assert [result.outcome for result in await ending] == [EndOutcome.RETRY] * 2

    scenario(body, requests_max=1)


def test_the_broker_of_a_coordinator_is_asked_about_its_transactions() -> None:
    async def body(world: World) -> None:
        asked = [TxnId(0, 5), TxnId(0, 6)]
        statuses = await world.peers.status(0, asked)
        assert world.here_knows.asked == [(0, asked)]
        asked = [TxnId(1, 5)]
        statuses = await world.peers.status(1, asked)
        assert world.there_knows.asked == [(1, asked)]
        assert statuses == TransactionStatuses({asked[0]: TransactionStatus(TxnState.OPEN, 17)}, 4)

    scenario(body)


def test_requests_without_bounds_are_refused() -> None:
    async def body(world: World) -> None:
        calls = world.network.calls
        assert await calls.end(EndTransactionsRequest()) == EndTransactionsResponse()
        many = [write_end(end_of(number)) for number in range(transaction_calls.ENDS_MAX + 1)]
        with pytest.raises(TooManyRequests):
            await calls.end(EndTransactionsRequest(ends=many))
        with pytest.raises(TooManyRequests):
            await calls.status(
                write_ids([TxnId(0, number) for number in range(transaction_calls.STATUSES_MAX + 1)])
            )
        for ids in ([], [TxnId(0, 1), TxnId(1, 1)]):
            with pytest.raises(NotAllowed):
                await calls.status(write_ids(ids))
        assert world.there.ended == []
        assert TransactionStatusRequest() == write_ids([])

    scenario(body)


def test_a_caller_that_gives_up_leaves_no_task_behind() -> None:
    async def body(world: World) -> None:
        world.there.held = {1}
        request = EndTransactionsRequest(ends=[write_end(end_of(1))], answer_within_ms=1_000)
        calling = asyncio.create_task(world.network.calls.end(request))
        await asyncio.sleep(0.01)
        calling.cancel()
        await asyncio.wait([calling])
        assert calling.cancelled()
        assert [each.get_name() for each in asyncio.all_tasks() if "end (1,1)" in each.get_name()] == []

    scenario(body)
