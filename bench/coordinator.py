"""Measures one transaction coordinator alone: memory of open transactions, takeover, roll, and rate.

    python -m bench.coordinator --open 100000

The log is the local one, on the disk of the temporary directory; topics answer at once, in this process. So
the rate is that of the coordinator's own work and of its log, not of whole transactions.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import tempfile
import time
import tracemalloc
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import structlog
from magnetar.broker.transactions.coordinator import Coordinator, open_coordinator
from magnetar.broker.transactions.participants import EndOutcome, EndResult, TransactionEnd
from magnetar.common.naming.txn_id import Action, TxnId
from magnetar.ledger.managed_ledger import ManagedLedgerContext

from bench.holes import storage
from tests.unit.ledger.managed_ledger.harness import until

_ID: Final = 0
_TTL_MS: Final = 3_600_000
_AT_ONCE: Final = 200
_TOPICS: Final = [f"persistent://public/default/topic-{number}" for number in range(100)]


class AnsweringTopics:
    """Participants that have everything at once."""

    async def end(self, ends: Sequence[TransactionEnd]) -> list[EndResult]:
        return [EndResult(EndOutcome.DONE)] * len(ends)


async def opened(ctx: ManagedLedgerContext) -> Coordinator:
    return await open_coordinator(ctx, _ID, AnsweringTopics(), cluster="bench", active_max=0)


async def begin(coordinator: Coordinator, number: int) -> TxnId:
    """A transaction over 4 topics and 1 subscription, whose names arrive as those of a client do."""
    txn = await coordinator.begin(_TTL_MS, "".join(["application", "-1"]))
    topics = ["".join(_TOPICS[(number + offset) % len(_TOPICS)].rpartition("-")) for offset in range(4)]
    await coordinator.add_partitions(txn, topics, None)
    await coordinator.add_subscriptions(
        txn, [("".join(topics[0].rpartition("-")), "sub" + "scription")], None
    )
    return txn


async def many(coordinator: Coordinator, count: int, *, end: bool) -> list[TxnId]:
    """Runs `count` transactions from `_AT_ONCE` clients; leaves them open unless `end`."""
    numbers, made = iter(range(count)), list[TxnId]()

    async def client() -> None:
        for number in numbers:
            txn = await begin(coordinator, number)
            if end:
                await coordinator.end(txn, Action.COMMIT, None)
            else:
                made.append(txn)

    await asyncio.gather(*(client() for _ in range(_AT_ONCE)))
    return made


async def longest_stall_ms(stop: asyncio.Event) -> float:
    """Returns the longest CPU time of the event loop between two turns of this task, until `stop`."""
    longest = 0.0
    while not stop.is_set():
        start = time.thread_time()
        await asyncio.sleep(0)
        longest = max(longest, time.thread_time() - start)
    return longest * 1000


async def measure(directory: Path, open_ones: int, ended: int) -> None:
    async with storage(directory) as ctx:
        coordinator = await opened(ctx)
        start, cpu = time.perf_counter(), time.process_time()
        await many(coordinator, ended, end=True)
        wall, cpu = time.perf_counter() - start, time.process_time() - cpu
        changes, appends = coordinator.log.figures.changes, coordinator.log.figures.appends
        print(
            f"{ended:,} transactions, 4 topics and 1 subscription each, by {_AT_ONCE} clients: "
            f"{ended / wall:,.0f}/s, {cpu / ended * 1e6:,.0f} us of CPU each, {changes / appends:.1f} "
            "changes an append"
        )
        gc.collect()
        tracemalloc.start()
        before = tracemalloc.get_traced_memory()[0]
        made = await many(coordinator, open_ones, end=False)
        gc.collect()
        used = tracemalloc.get_traced_memory()[0] - before
        tracemalloc.stop()
        print(f"{open_ones:,} open transactions: {used / open_ones:,.0f} bytes each")
        gc.freeze()  # as a broker does when it is idle
        stop = asyncio.Event()
        stalls = asyncio.ensure_future(longest_stall_ms(stop))
        start, rolls = time.perf_counter(), coordinator.log.figures.rolls
        coordinator.log.roll_soon()
        await until(lambda: coordinator.log.figures.rolls > rolls)
        stop.set()
        print(
            f"roll: {time.perf_counter() - start:.2f} s, {coordinator.log.byte_length:,} bytes, longest "
            f"stall {await stalls:.1f} ms of CPU"
        )
        start = time.perf_counter()
        after = await opened(ctx)
        loaded = time.perf_counter() - start
        await after.end(made[-1], Action.COMMIT, None)
        print(
            f"takeover with {after.active:,} open ones: loaded in {loaded:.2f} s, first end answered after "
            f"{time.perf_counter() - start:.2f} s"
        )
        await after.close()
        coordinator.abandon("measured")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--open", type=int, default=10_000, help="open transactions")
    parser.add_argument("--ended", type=int, default=5_000, help="transactions that are run to their end")
    arguments = parser.parse_args()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(50))
    with tempfile.TemporaryDirectory() as directory:
        asyncio.run(measure(Path(directory), arguments.open, arguments.ended))


if __name__ == "__main__":
    main()
