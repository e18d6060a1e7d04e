"""Compaction stops on filling disks before publishing does."""

from __future__ import annotations

import pytest
from magnetar.common.errors import LogFull
from magnetar.ledger.compacted import page as pages
from magnetar.ledger.managed_ledger import compaction_run

from tests.simulation.power_loss import Process
from tests.unit.ledger.compacted.compacted_topic import CompactedTopic
from tests.unit.ledger.compacted.test_topic_compaction import check_ledgers, compacted, entries, view_of
from tests.unit.ledger.managed_ledger.harness import load, simulated


def test_a_run_stops_on_full_disks_before_publishing_does() -> None:
    async def scenario(process: Process) -> None:
        topic = await compacted(process)
        await topic.publish(*entries(30, 20, 4, 2_000))
        before = view_of(process)
        disk = process.world.disk
        disk.capacity = round((disk.capacity - disk.free_bytes()) / 0.95)
        assert await topic.topic.ctx.ledgers.disk_usage(1) == pytest.approx(0.95, abs=0.001)
        with pytest.raises(LogFull, match=r"95\.\d% full.*magnetarCompactionDiskUsageThreshold=0\.9: free"):
            await topic.compact()
        assert view_of(process) == before
        check_ledgers(process)
        await topic.compact(disk_usage_max=0.96)
        await topic.check()

    simulated(scenario)


def test_disks_that_fill_during_a_run_stop_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compaction_run, "_CHECK_DISKS_BYTES", 3_000)
    monkeypatch.setattr(pages, "PAGE_BYTES_MAX", 1_000)

    async def scenario(process: Process) -> None:
        topic = CompactedTopic(await load(process))
        await topic.publish(*entries(0, 40, 40, 400))
        used = iter([0.2, 0.8, 0.91])
        asked = 0

        async def usage(copies: int) -> float | None:
            nonlocal asked
            asked += 1
            assert copies == topic.topic.ctx.config.write_quorum
            return next(used)

        monkeypatch.setattr(topic.topic.ctx.ledgers, "disk_usage", usage)
        with pytest.raises(LogFull):
            await topic.compact()
        assert asked == 3
        assert topic.topic.ledger.compaction.horizon is None
        check_ledgers(process)

    simulated(scenario)
