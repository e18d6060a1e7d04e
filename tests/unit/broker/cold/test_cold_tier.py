"""What a broker has for offloaded ledgers: threads by location, and none before something is read."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from magnetar.broker.cold import cold_tier
from magnetar.broker.cold.cold_tier import POOLS_MAX, ColdTier
from magnetar.broker.cold.store_threads import StoreThreads
from magnetar.broker.offload_policy.config import OffloadConfig
from magnetar.common.runtime.clock import SystemClock
from magnetar.ledger.cold.objects import ObjectStore
from magnetar.ledger.managed_ledger.context import ManagedLedgerContext

from tests.unit.broker.cold.parquet_ledgers import messages, write_ledger


def tier() -> ColdTier:
    ledgers = SimpleNamespace(clock=SystemClock(), cold=None)
    made = ColdTier(dict, cast(ManagedLedgerContext, ledgers), OffloadConfig())
    assert ledgers.cold is made.ledgers
    return made


def cold_threads() -> int:
    return sum(thread.name.startswith("cold") for thread in threading.enumerate())


async def until(condition: Callable[[], bool]) -> None:
    """A thread that said that it ends is there for a moment more."""
    async with asyncio.timeout(20):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.001)


def test_a_broker_that_reads_no_objects_has_no_threads_for_it() -> None:
    async def main() -> None:
        made = tier()
        assert cold_threads() == 0
        await made.close()

    asyncio.run(main())


def test_unresponsive_store_delays_no_read_of_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow, quick = (write_ledger(tmp_path / name, messages(20)) for name in ("slow", "quick"))
    answers = threading.Event()
    read = ObjectStore.read

    def wait(self: ObjectStore, *arguments: Any) -> bytes:
        if self.location.endswith("slow"):
            answers.wait(60)
        return read(self, *arguments)

    monkeypatch.setattr(ObjectStore, "read", wait)
    monkeypatch.setattr(cold_tier, "CLOSE_WAIT_S", 30.0)

    async def main() -> None:
        made = tier()
        waiting = [asyncio.ensure_future(made.ledgers.read(slow, n, n, 1)) for n in range(10)]
        await asyncio.sleep(0)
        for number in range(20):
            (run,) = await made.ledgers.read(quick, number, number, 1)
            assert run.first_entry_id == number
        assert not any(each.done() for each in waiting)
        answers.set()
        assert [runs[0].first_entry_id for runs in await asyncio.gather(*waiting)] == list(range(10))
        await made.close()
        await until(lambda: cold_threads() == 0)

    asyncio.run(main())


def test_threads_are_bounded_however_many_locations_there_are() -> None:
    async def main() -> None:
        made = tier()
        pools = {id(made._pools.of(f"file:///{number}")) for number in range(100)}
        assert len(pools) == POOLS_MAX
        await made.close()

    asyncio.run(main())


HANGS = """
import asyncio, threading
from magnetar.broker.cold import cold_tier

cold_tier.CLOSE_WAIT_S = 0.2

async def main():
    pools = cold_tier._Pools(2)
    calls = [pools.of("s3://hangs").run(threading.Event().wait) for _ in range(5)]
    await asyncio.sleep(0.1)
    await pools.close_soon()
    print([call.cancelled() for call in calls])

asyncio.run(main())
print("ended")
"""


def test_a_process_ends_although_a_store_does_not_answer() -> None:
    found = subprocess.run([sys.executable, "-c", HANGS], capture_output=True, text=True, timeout=60)
    assert found.stdout.splitlines()[-2:] == ["[False, False, True, True, True]", "ended"], found.stderr
    assert found.returncode == 0


def test_threads_give_results_and_errors_and_run_no_more_at_once_than_there_are() -> None:
    async def main() -> None:
        threads = StoreThreads(2, "cold")
        lock, at_once, most = threading.Lock(), 0, 0

        def call(number: int) -> int:
            nonlocal at_once, most
            with lock:
                at_once += 1
                most = max(most, at_once)
            time.sleep(0.002)
            with lock:
                at_once -= 1
            if number == 7:
                raise ValueError("seven")
            return number

        answers = [threads.run(partial(call, number)) for number in range(20)]
        answers[19].cancel()
        found = await asyncio.gather(*answers, return_exceptions=True)
        assert [each for each in found if isinstance(each, int)] == [n for n in range(19) if n != 7]
        assert isinstance(found[7], ValueError)
        assert isinstance(found[19], asyncio.CancelledError)
        assert most == 2
        threads.close()
        threads.close()
        assert cold_threads() == 0
        with pytest.raises(RuntimeError, match="closed"):
            threads.run(lambda: None)

    asyncio.run(main())
