"""Publishes that wait for storage that fails or refuses: held for a time, then given back in order."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import replace

import pytest
from magnetar.common.errors import LogFailed, LogFull
from magnetar.common.naming.position import EARLIEST

from tests.simulation.power_loss import Process
from tests.unit.ledger.managed_ledger.harness import ROLL_AT_10, Topic, load, load_again, simulated, until

BIG_LEDGERS = replace(ROLL_AT_10, ledger_entries_max=1_000)


async def publishing_resumes(topic: Topic) -> None:
    """Within the longest pause between two tries; message indexes go on as if the refused had never come."""
    before = len(await topic.read_all())
    loop = asyncio.get_running_loop()
    end = loop.time() + 6
    while True:
        assert loop.time() < end, "publishing does not resume"
        with suppress(LogFailed, LogFull):
            run = topic.publish(2)
            break
        await asyncio.sleep(0.1)
    await until(lambda: topic.ledger.next_position(EARLIEST) is not None and run.first_entry_id >= 0)
    await until(lambda: bool(topic.listener.confirmed) and topic.listener.confirmed[-1][1] == run.entries[-1])
    assert run.first_index == before
    assert [data for _, data in await topic.read_all()][before:] == run.entries
    assert not topic.listener.lost


def test_publishes_waiting_on_failing_syncs_are_refused_in_order_and_not_stored() -> None:
    async def scenario(process: Process) -> None:
        topic = await load(process, BIG_LEDGERS)
        await topic.ledger.create_cursor("sub", EARLIEST, {})
        await topic.publish_confirmed(3)
        disk = process.world.disk
        disk.faults.sync_errors = set(range(disk.operations, disk.operations + 100_000))
        topic.publish(2)
        topic.publish(3)
        await until(lambda: bool(topic.listener.refused), 10)
        assert topic.listener.refused == [b"%d" % number for number in range(3, 8)]
        assert len(topic.listener.confirmed) == 3
        disk.faults.sync_errors = set()
        await publishing_resumes(topic)

    simulated(scenario)


def test_publishes_waiting_on_a_full_disk_and_later_ones_are_refused() -> None:
    async def scenario(process: Process) -> None:
        first = await load(process, BIG_LEDGERS)
        await first.ledger.create_cursor("sub", EARLIEST, {})
        disk = process.world.disk
        room = disk.capacity
        disk.capacity -= disk.free_bytes() - process.config.reserve_bytes + 1
        await first.publish_confirmed()  # the group that finds out
        topic = await load_again(first.ctx)
        topic.publish(4)  # there is no ledger: it queues for one, which then refuses it
        await until(lambda: bool(topic.listener.refused), 10)
        assert topic.listener.refused == [b"0", b"1", b"2", b"3"]
        with pytest.raises(LogFull):
            topic.publish()
        disk.capacity = room
        await publishing_resumes(topic)

    simulated(scenario)


def test_a_short_failure_refuses_nothing() -> None:
    async def scenario(process: Process) -> None:
        topic = await load(process, BIG_LEDGERS)
        await topic.publish_confirmed(3)
        disk = process.world.disk
        for _ in range(5):
            disk.faults.sync_errors = set(range(disk.operations, disk.operations + 4))
            topic.publish(2)
            await topic.published_all()
        assert not topic.listener.refused
        assert [data for _, data in topic.listener.confirmed] == [b"%d" % number for number in range(13)]

    simulated(scenario)
