"""What a broker has for offloaded ledgers: threads by location, and none before something is read."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from magnetar.broker.cold import cold_tier
from magnetar.broker.cold.cold_tier import POOLS_MAX, ColdTier
from magnetar.broker.offload.config import OffloadConfig
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


def test_a_broker_that_reads_no_objects_has_no_threads_for_it() -> None:
    async def main() -> None:
        made = tier()
        assert cold_threads() == 0
        await made.close()

    asyncio.run(main())


def test_a_store_that_does_not_answer_keeps_nobody_from_reading_another(
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
        assert cold_threads() == 0

    asyncio.run(main())


def test_threads_are_bounded_however_many_locations_there_are() -> None:
    async def main() -> None:
        made = tier()
        pools = {id(made._pools.of(f"file:///{number}")) for number in range(100)}
        assert len(pools) == POOLS_MAX
        await made.close()

    asyncio.run(main())
