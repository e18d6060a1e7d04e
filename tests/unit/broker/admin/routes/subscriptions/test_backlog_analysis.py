"""A backlog of any length is looked at within bounds, over a simulated ledger."""

from __future__ import annotations

from itertools import count

from magnetar.broker.admin.routes.subscriptions.backlog_analysis import analyze
from magnetar.broker.config import BacklogScanConfig
from magnetar.common.naming.position import EARLIEST, Position

from tests.simulation.power_loss import Process
from tests.unit.ledger.managed_ledger.harness import load, simulated

DEFAULTS = BacklogScanConfig()


def still() -> float:
    return 0.0


def test_messages_of_batches_are_counted_and_what_is_acknowledged_is_not() -> None:
    async def scenario(process: Process) -> None:
        topic = await load(process)
        ledger = topic.ledger
        cursor = await ledger.create_cursor("sub", EARLIEST, {})
        topic.publish(3, counts=[1, 5, 10])
        await topic.published_all()
        last = ledger.last_confirmed
        cursor.ack(last.ledger_id, 1)
        found = await analyze(ledger, cursor, EARLIEST, DEFAULTS, still)
        assert (found["entries"], found["messages"], found["aborted"]) == (2, 11, False)
        assert (found["firstMessageId"], found["lastMessageId"]) == (
            f"{last.ledger_id}:0",
            f"{last.ledger_id}:2",
        )
        behind = await analyze(ledger, cursor, last, DEFAULTS, still)
        assert (behind["entries"], behind["messages"]) == (1, 10)
        beyond = Position(last.ledger_id, last.entry_id + 1)
        assert (await analyze(ledger, cursor, beyond, DEFAULTS, still))["entries"] == 0

    simulated(scenario)


def test_it_ends_after_so_many_entries_and_after_its_time() -> None:
    async def scenario(process: Process) -> None:
        topic = await load(process, ledger_entries_max=4_000)
        ledger = topic.ledger
        cursor = await ledger.create_cursor("sub", EARLIEST, {})
        await topic.publish_confirmed(1_000, runs=11)
        found = await analyze(ledger, cursor, EARLIEST, DEFAULTS, still)
        assert (found["entries"], found["aborted"]) == (DEFAULTS.entries_max, True)
        seconds = count(0, 40)
        short = await analyze(ledger, cursor, EARLIEST, DEFAULTS, lambda: float(next(seconds)))
        assert short["aborted"]
        assert short["entries"] == 1_000, "two reads of 500, and it is time"

    simulated(scenario)
