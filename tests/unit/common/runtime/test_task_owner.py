"""Background tasks end with their owner and never fail unseen."""

from __future__ import annotations

import asyncio

import pytest
from magnetar.common.runtime.task_owner import TaskOwner
from structlog.testing import capture_logs


def test_close_cancels_every_task_and_waits_until_it_has_ended() -> None:
    ended: list[str] = []

    async def work(name: str) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            ended.append(name)

    async def main() -> None:
        owner = TaskOwner("test")
        owner.spawn(work("a"), "a")
        owner.spawn(work("b"), "b")
        await asyncio.sleep(0)
        assert len(owner) == 2
        await owner.close()
        assert sorted(ended) == ["a", "b"]
        assert len(owner) == 0
        await owner.close()

    with capture_logs() as logs:
        asyncio.run(main())
    assert logs == []


def test_a_failure_is_logged_once_with_its_task() -> None:
    async def fail() -> None:
        raise ValueError("broken")

    async def main() -> None:
        owner = TaskOwner("dispatcher")
        owner.spawn(fail(), "reads")
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert len(owner) == 0
        await owner.close()

    with capture_logs() as logs:
        asyncio.run(main())
    [event] = logs
    assert event["event"] == "background task failed"
    assert event["task"] == "dispatcher: reads"
    assert isinstance(event["exc_info"], ValueError)


def test_a_failure_during_close_is_logged_and_close_returns() -> None:
    async def fail_at_the_end() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            raise ValueError("broken at the end")

    async def main() -> None:
        owner = TaskOwner("test")
        owner.spawn(fail_at_the_end(), "task")
        await asyncio.sleep(0)
        await owner.close()
        await asyncio.sleep(0)

    with capture_logs() as logs:
        asyncio.run(main())
    assert [event["event"] for event in logs] == ["background task failed"]


def test_a_closed_owner_starts_nothing() -> None:
    async def main() -> None:
        owner = TaskOwner("test")
        await owner.close()
        with pytest.raises(RuntimeError, match="test is closed"):
            owner.spawn(asyncio.sleep(0), "late")

    asyncio.run(main())


def test_a_task_may_close_its_own_owner() -> None:
    async def main() -> None:
        owner = TaskOwner("test")
        other = owner.spawn(asyncio.Event().wait(), "other")
        await asyncio.wait_for(owner.spawn(owner.close(), "closer"), 20)
        assert other.cancelled()

    asyncio.run(main())


def test_a_result_can_be_awaited() -> None:
    async def answer() -> int:
        return 42

    async def main() -> int:
        owner = TaskOwner("test")
        result: int = await owner.spawn(answer(), "answer")
        await owner.close()
        return result

    assert asyncio.run(main()) == 42
