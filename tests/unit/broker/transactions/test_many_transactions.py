"""A coordinator with very many open transactions: what they cost in memory, and at a takeover."""

from __future__ import annotations

import asyncio
import gc
import time
import tracemalloc

import pytest
from magnetar.broker.transactions.deadlines import Deadlines
from magnetar.common.naming.txn_id import Action, TxnId
from magnetar.ledger.transaction_log.coordinator_state import CoordinatorState

from tests.unit.broker.transactions.harness import Served, serving

BYTES_MAX = 1_000
"""Memory of one open transaction over 4 topics and 1 subscription."""

TAKEOVER_CPU_S = 2.0


async def open_ones(served: Served, count: int) -> list[TxnId]:
    """Begins transactions whose names arrive as new strings, as those of clients do."""
    numbers, made = iter(range(count)), list[TxnId]()

    async def client() -> None:
        for number in numbers:
            txn = await served.coordinator.begin(3_600_000, "".join(("an", "a")))
            topics = [f"persistent://public/default/topic-{(number + each) % 100}" for each in range(4)]
            await served.coordinator.add_partitions(txn, topics, None)
            await served.coordinator.add_subscriptions(txn, [(topics[0] + "", "s" + str(number % 3))], None)
            made.append(txn)

    await asyncio.gather(*(client() for _ in range(50)))
    return made


def test_an_open_transaction_takes_less_than_a_kilobyte() -> None:
    async def scenario(served: Served) -> None:
        # Beside the log, whose simulated disk is memory as well.
        state = CoordinatorState()
        deadlines = Deadlines(served.process.clock, lambda _: True, lambda _: None)
        gc.collect()
        tracemalloc.start()
        before = tracemalloc.get_traced_memory()[0]
        for number in range(1_000, 3_000):
            topics = [f"persistent://public/default/topic-{(number + each) % 50}" for each in range(4)]
            state.begin(number, "".join(("an", "a")), 10**12 + number, 60_000 + number)
            state.add_topics(number, topics)
            state.add_subscriptions(number, [(topics[0], f"sub-{number % 3}")])
            deadlines.add(number, 1_000.5 + number)
        gc.collect()
        used = tracemalloc.get_traced_memory()[0] - before
        tracemalloc.stop()
        deadlines.stop()
        assert used / 2_000 < BYTES_MAX

    serving(scenario)


@pytest.mark.full
def test_a_takeover_of_ten_thousand_open_transactions_is_quick() -> None:
    async def scenario(served: Served) -> None:
        made = await open_ones(served, 10_000)
        start = time.process_time()
        after = await served.taken_over()
        await after.coordinator.end(made[-1], Action.COMMIT, None)
        assert time.process_time() - start < TAKEOVER_CPU_S
        assert after.coordinator.active == 9_999
        await after.coordinator.close()

    serving(scenario)
