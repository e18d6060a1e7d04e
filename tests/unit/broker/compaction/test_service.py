"""Runs of compactions: one for a topic, a bounded number at a time, each with an outcome."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, cast

import pytest
from magnetar.broker.compaction.service import CompactionService
from magnetar.broker.policies.config import CompactionConfig
from magnetar.broker.topics.compaction_state import NEVER_COMPACTED, CompactionStatus
from magnetar.common.errors import LogFull, ServiceNotReady
from magnetar.common.naming.position import Position
from magnetar.common.runtime.task_owner import TaskOwner
from magnetar.ledger.compacted.figures import CompactionResult, ViewFigures, WriteTimes
from magnetar.ledger.compacted.settings import CompactionLimits
from structlog.testing import capture_logs

from tests.unit.broker.compaction.fakes import FakeClock, FakeTopic


def in_service(scenario: Callable[[CompactionService, TaskOwner], Awaitable[None]], **config: Any) -> None:
    async def run() -> None:
        tasks = TaskOwner("test")
        service = CompactionService(CompactionConfig(**config), cast(Any, FakeClock()), tasks.spawn)
        try:
            await scenario(service, tasks)
        finally:
            await tasks.close()

    asyncio.run(run())


def result(removed: int = 0, read: int = 0, written: int = 0) -> CompactionResult:
    """A run of one second."""
    return CompactionResult(
        horizon=Position(9, 5),
        removed_messages=removed,
        figures=ViewFigures(),
        entries_read=0,
        bytes_read=read,
        bytes_written=written,
        duration_s=1.0,
        did_anything=True,
    )


def start(service: CompactionService, topic: FakeTopic) -> bool:
    return service.start(cast(Any, topic))


async def settled(tasks: TaskOwner) -> None:
    """Let the loop turn until no run can go on."""
    for _ in range(20):
        await asyncio.sleep(0)


def test_a_run_gets_the_settings_and_its_result_is_kept() -> None:
    async def scenario(service: CompactionService, tasks: TaskOwner) -> None:
        topic = FakeTopic()
        assert topic.compaction is NEVER_COMPACTED
        assert start(service, topic)
        assert topic.compaction.status is CompactionStatus.RUNNING
        await settled(tasks)
        ((limit, settings),) = topic.view.asked
        assert (limit, settings.retain_null_key, settings.limits) == ((9, 5), True, limits)
        assert len(settings.hash_key) == 16
        topic.view.end(result(removed=4, read=100, written=50))
        await settled(tasks)
        state = topic.compaction
        assert (state.status, state.last_error) == (CompactionStatus.SUCCESS, "")
        assert (state.removed, state.removed_total, state.succeeded, state.failed) == (4, 4, 1, 0)
        assert (state.succeeded_ms, state.duration_ms) == (1_001, 1_000)
        assert (state.read_rate, state.write_rate) == (100.0, 50.0)
        assert start(service, topic)
        await settled(tasks)
        topic.view.end(LogFull("the disk is full"))
        await settled(tasks)
        assert state.writes == WriteTimes([0, 0, 0, 2, 0, 0, 0, 0, 0, 0], 15.0), "of failed runs too"
        assert NEVER_COMPACTED.writes == WriteTimes()
        assert NEVER_COMPACTED.succeeded == 0, "the shared state stays as it is"

    limits = CompactionLimits(memory_bytes=1 << 20, bytes_per_second=7)
    in_service(scenario, retain_null_key=True, limits=limits)


def test_a_topic_has_one_run_at_a_time_and_others_wait_for_their_turn() -> None:
    async def scenario(service: CompactionService, tasks: TaskOwner) -> None:
        topics = [FakeTopic() for _ in range(3)]
        assert [start(service, topic) for topic in topics] == [True] * 3
        assert not start(service, topics[0])
        assert not start(service, topics[2]), "one that waits is not queued twice"
        await settled(tasks)
        assert [len(topic.view.asked) for topic in topics] == [1, 1, 0]
        assert topics[2].compaction.status is CompactionStatus.RUNNING, "as in Pulsar"
        topics[1].view.end(result())
        await settled(tasks)
        assert [len(topic.view.asked) for topic in topics] == [1, 1, 1]
        assert start(service, topics[1]), "it has ended and may run again"

    in_service(scenario, runs_max=2)


@pytest.mark.parametrize(
    ("error", "shown"),
    [(LogFull("the disk is full"), "the disk is full"), (ValueError("bug"), "unexpected error: bug")],
)
def test_a_failed_run_says_why_and_leaves_its_turn_to_the_next(error: Exception, shown: str) -> None:
    async def scenario(service: CompactionService, tasks: TaskOwner) -> None:
        failing, other = FakeTopic(), FakeTopic()
        start(service, failing)
        start(service, other)
        await settled(tasks)
        with capture_logs() as logs:
            failing.view.end(error)
            await settled(tasks)
        assert [each["topic"] for each in logs] == [failing.name.full]
        state = failing.compaction
        assert (state.status, state.last_error) == (CompactionStatus.ERROR, shown)
        assert (state.failed, state.failed_ms, state.succeeded) == (1, 1_001, 0)
        assert len(other.view.asked) == 1
        assert start(service, failing)
        assert failing.compaction.last_error == ""

    in_service(scenario)


def test_a_topic_that_closes_while_it_waits_is_not_compacted() -> None:
    async def scenario(service: CompactionService, tasks: TaskOwner) -> None:
        topic = FakeTopic()
        topic.closed = ServiceNotReady("moved")
        start(service, topic)
        await settled(tasks)
        assert topic.view.asked == []
        assert topic.compaction.last_error == "moved"

    in_service(scenario)


def test_removing_a_view_waits_for_the_run() -> None:
    async def scenario(service: CompactionService, tasks: TaskOwner) -> None:
        topic = FakeTopic()
        start(service, topic)
        await settled(tasks)
        removing = asyncio.ensure_future(service.remove(cast(Any, topic)))
        await settled(tasks)
        assert topic.view.removed == 0
        topic.view.end(result())
        await removing
        assert topic.view.removed == 1
        await service.remove(cast(Any, topic))
        assert topic.view.removed == 2

    in_service(scenario)


def test_a_run_that_the_shutdown_cancels_is_no_success() -> None:
    topic = FakeTopic()

    async def scenario(service: CompactionService, tasks: TaskOwner) -> None:
        start(service, topic)
        await settled(tasks)

    in_service(scenario)
    assert topic.compaction.status is CompactionStatus.ERROR
