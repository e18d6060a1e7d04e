"""A topic's transactions against a naive model, with the topic loaded anew at any moment."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from magnetar.common.errors import TransactionConflict
from magnetar.common.naming.position import Position
from magnetar.common.naming.txn_id import Action, TxnId

from tests.simulation.killed import kill
from tests.simulation.managed_ledger_workload import CONFIG
from tests.simulation.power_loss import Process
from tests.simulation.transaction_workload import OPEN_MAX, Promises, Topic, prepare
from tests.unit.ledger.managed_ledger.harness import simulated

ANY = st.integers(0, 1_000)

STEPS = st.one_of(
    st.tuples(st.just("begin"), st.integers(0, 1)),
    st.tuples(st.just("publish"), ANY, st.integers(1, 3)),
    st.tuples(st.just("publish plainly"), st.integers(1, 3)),
    st.tuples(st.just("end"), ANY, st.sampled_from(Action)),
    st.tuples(st.just("acknowledge"), ANY, st.sets(ANY, min_size=1, max_size=3)),
    st.tuples(st.just("acknowledge up to"), ANY, ANY),
    st.tuples(st.just("acknowledge plainly"), ANY),
    st.tuples(st.just("wait"), st.sampled_from((0.0, 0.001, 0.05, 6.0))),
    st.tuples(st.just("kill")),
    st.tuples(st.just("close")),
)


class Machine:
    """Takes steps on a topic in a simulated process."""

    def __init__(self, process: Process, *, rolls: bool) -> None:
        self.process = process
        self.config = CONFIG if rolls else replace(CONFIG, cursor_ledger_entries_max=1_000)
        self.promises = Promises()
        self.ends: list[asyncio.Task[None]] = []
        self.topic = Topic(self.promises, self.config)

    async def start(self) -> None:
        await self.topic.load(self.process, create=True)
        await prepare(self.topic)

    async def step(self, what: str, *arguments: Any) -> None:
        await getattr(self, what.replace(" ", "_"))(*arguments)

    def live(self, number: int) -> TxnId | None:
        live = self.promises.live
        return live[number % len(live)] if live else None

    def position(self, number: int) -> Position | None:
        positions = list(self.promises.entries)
        return positions[number % len(positions)] if positions else None

    async def begin(self, most: int) -> None:
        if len(self.promises.live) < OPEN_MAX:
            self.promises.next_least[most] += 1

    async def publish(self, number: int, count: int) -> None:
        self.topic.publish(self.live(number), count)

    async def publish_plainly(self, count: int) -> None:
        self.topic.publish(None, count)

    async def end(self, number: int, action: Action) -> None:
        txn = self.live(number)
        if txn is not None:
            self.ends.append(asyncio.create_task(self.topic.end(txn, action)))
            await asyncio.sleep(0)

    async def acknowledge(self, number: int, numbers: set[int]) -> None:
        txn = self.live(number)
        positions = {position for each in numbers if (position := self.position(each)) is not None}
        if txn is not None and positions:
            try:
                self.topic.ack(txn, positions)
            except TransactionConflict:
                self.topic.check_conflict(txn, positions)

    async def acknowledge_up_to(self, number: int, at: int) -> None:
        txn, position = self.live(number), self.position(at)
        if txn is not None and position is not None:
            try:
                self.topic.ack_up_to(txn, position)
            except TransactionConflict:
                self.topic.check_cumulative_conflict(txn, position)

    async def acknowledge_plainly(self, number: int) -> None:
        position = self.position(number)
        if position is not None:
            self.topic.ack_plainly(position)

    async def wait(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    async def kill(self) -> None:
        self.topic.lost = True
        kill(self.process, self.topic.ledger)
        await self._load()

    async def close(self) -> None:
        await self.topic.ledger.close()
        self.process.world.kill()
        await self._load()

    async def _load(self) -> None:
        await asyncio.gather(*self.ends)
        self.ends = []
        self.topic = Topic(self.promises, self.config)
        await self.topic.load(self.process, create=False)
        await self.topic.compare()


@given(st.lists(STEPS, max_size=30), st.booleans())
def test_transactions_do_what_the_model_does(steps: list[tuple[Any, ...]], rolls: bool) -> None:
    async def scenario(process: Process) -> None:
        machine = Machine(process, rolls=rolls)
        await machine.start()
        for what, *arguments in steps:
            await machine.step(what, *arguments)
        await asyncio.gather(*machine.ends)
        await asyncio.sleep(0.1)
        await machine.topic.compare()
        await machine.topic.finish()
        await machine.topic.compare()
        await machine.kill()

    simulated(scenario)
