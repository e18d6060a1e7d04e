"""A coordinator over the local store in a simulated process, with topics that answer as a test says."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field

from magnetar.broker.transactions.coordinator import Coordinator, open_coordinator
from magnetar.broker.transactions.participants import EndOutcome, EndResult, TransactionEnd
from magnetar.common.naming.txn_id import Action, TxnId
from magnetar.ledger.managed_ledger import ManagedLedgerContext

from tests.simulation.power_loss import Process
from tests.unit.ledger.managed_ledger.harness import simulated, until
from tests.unit.ledger.transaction_log.harness import context

ID = 3
DONE = EndResult(EndOutcome.DONE)
RETRY = EndResult(EndOutcome.RETRY, reason="as the test wants it")


@dataclass
class FakeTopics:
    """Participants: records ends, and fails or hangs where the test says so."""

    ended: dict[tuple[TxnId, str], Action] = field(default_factory=dict)
    asked: Counter[str] = field(default_factory=Counter)
    calls: list[list[TransactionEnd]] = field(default_factory=list)
    answers: dict[str, EndResult | Exception] = field(default_factory=dict)
    """By topic, in place of a success."""
    hanging: set[str] = field(default_factory=set)
    """Topics whose calls are not answered before the test says so."""
    freed: asyncio.Event = field(default_factory=asyncio.Event)
    in_flight: int = 0
    in_flight_max: int = 0
    delay_s: float = 0.0

    async def end(self, ends: Sequence[TransactionEnd]) -> list[EndResult]:
        self.calls.append(list(ends))
        self.in_flight += 1
        self.in_flight_max = max(self.in_flight_max, self.in_flight)
        try:
            self.asked.update(end.topic for end in ends)
            if self.delay_s:
                await asyncio.sleep(self.delay_s)
            while self.hanging & {end.topic for end in ends}:
                await self.freed.wait()
                self.freed.clear()
            return [self._end(each) for each in ends]
        finally:
            self.in_flight -= 1

    def _end(self, end: TransactionEnd) -> EndResult:
        answer = self.answers.get(end.topic, DONE)
        if isinstance(answer, Exception):
            raise answer
        if answer.outcome is EndOutcome.DONE:
            assert self.ended.setdefault((end.txn, end.topic), end.action) is end.action
        return answer

    def free(self, topic: str) -> None:
        self.hanging.discard(topic)
        self.freed.set()


@dataclass
class Served:
    """A coordinator with its topics."""

    process: Process
    ctx: ManagedLedgerContext
    coordinator: Coordinator
    topics: FakeTopics

    async def begin(self, *topics: str, ttl_ms: int = 60_000) -> TxnId:
        txn = await self.coordinator.begin(ttl_ms, "ana")
        if topics:
            await self.coordinator.add_partitions(txn, topics, "ana")
        return txn

    async def taken_over(self, topics: FakeTopics | None = None) -> Served:
        """The same coordinator at its next owner."""
        topics = topics or FakeTopics()
        return Served(self.process, self.ctx, await opened(self.ctx, topics), topics)


async def opened(ctx: ManagedLedgerContext, topics: FakeTopics, active_max: int = 0) -> Coordinator:
    return await open_coordinator(ctx, ID, topics, cluster="sim", active_max=active_max)


def serving(scenario: Callable[[Served], Awaitable[None]], *, active_max: int = 0) -> None:
    """Runs a scenario with a fresh coordinator."""

    async def main(process: Process) -> None:
        store = await process.open_store()
        ctx = context(process, store)
        topics = FakeTopics()
        coordinator = await opened(ctx, topics, active_max)
        served = Served(process, ctx, coordinator, topics)
        await scenario(served)
        await served.coordinator.close()
        await store.close()

    simulated(main)


async def ended(coordinator: Coordinator) -> None:
    """Waits until every decided transaction is over."""
    await until(lambda: not any(each.action for each in coordinator.transactions()))
