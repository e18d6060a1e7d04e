"""Which runs are reported to have waited for a ledger: those that did, and no others."""

from __future__ import annotations

import asyncio

from tests.simulation.power_loss import Process
from tests.unit.ledger.managed_ledger.harness import Topic, until
from tests.unit.ledger.managed_ledger.scripted_ledgers import ScriptedLedgers
from tests.unit.ledger.managed_ledger.test_failed_ledgers import scripted


def test_only_the_runs_that_waited_are_reported_with_their_wait() -> None:
    async def scenario(process: Process, ledgers: ScriptedLedgers, topic: Topic) -> None:
        writes = topic.ledger.writes
        topic.publish(1)
        await until(lambda: 1 in ledgers.ledgers and bool(ledgers.ledgers[1].runs))
        ledger = ledgers.ledgers[1]
        ledger.confirm()
        direct = topic.publish(2)
        ledger.room = 0  # others have taken all there is
        waiting = [topic.publish(1), topic.publish(3)]
        await asyncio.sleep(0.5)
        ledger.room = 1_000
        await until(lambda: len(ledger.runs) == 4)
        later = topic.publish(1)
        assert [writes.write_report(run)[1] for run in (direct, later)] == [None, None]
        for run in waiting:
            waited = writes.write_report(run)[1]
            assert waited is not None
            assert waited.handed_s >= process.clock.monotonic() - 0.1
            assert waited.cause == "ledger 1 takes 0 unconfirmed entries"
        ledger.confirm()

    scripted(scenario)
