"""Following metadata never ends by itself, and never keeps anything busy."""

from __future__ import annotations

import asyncio
import itertools

from magnetar.common.errors import MetadataError, WatchLost
from magnetar.common.metadata.watch_loop import FAILURES, RETRY_MAX_S, RETRY_MIN_S, follow_for_ever
from magnetar.sim.loop import SimLoop
from magnetar.sim.loop import run as run_loop
from structlog.testing import capture_logs


def followed(*ends: tuple[float, Exception | None]) -> tuple[list[float], list[str]]:
    """Each try lasts so long and ends so; returns when the tries began, and what was logged."""
    loop = SimLoop(0)
    began: list[float] = []
    left = list(ends)

    async def follow() -> None:
        began.append(loop.time())
        lasts, error = left.pop(0)
        await asyncio.sleep(lasts)
        if error is not None:
            raise error

    with capture_logs() as logged:
        run_loop(loop, follow_for_ever("test", follow))
    assert not left
    return [round(each - began[0], 3) for each in began], [entry["error"] for entry in logged]


def failures() -> float:
    return float(FAILURES.labels("test")._value.get())


def test_it_ends_with_its_store() -> None:
    assert followed((1.0, None)) == ([0.0], [])


def test_a_lost_watch_is_made_again_at_once_but_not_in_a_loop() -> None:
    before = failures()
    lost = (0.0, WatchLost("behind"))
    began, logged = followed(lost, lost, lost, (0.0, None))
    assert began == [0.0, 0.0, RETRY_MIN_S, round(3 * RETRY_MIN_S, 3)]
    assert not logged
    assert failures() == before


def test_whatever_fails_is_tried_again_ever_more_seldom_counted_and_logged_once() -> None:
    before = failures()
    ends = [(0.0, error) for error in (KeyError("bug"), MetadataError("away"), *[OSError("?")] * 8)]
    began, logged = followed(*ends, (0.0, None))
    waits = [round(after - before, 3) for before, after in itertools.pairwise(began)]
    assert waits == [min(RETRY_MIN_S * 2**number, RETRY_MAX_S) for number in range(10)]
    assert logged == ["'bug'"]
    assert failures() == before + 10


def test_after_a_time_in_which_all_was_well_it_begins_anew() -> None:
    away = MetadataError("away")
    began, logged = followed((0.0, away), (0.0, away), (RETRY_MAX_S, away), (0.0, None))
    assert round(began[3] - began[2], 3) == RETRY_MAX_S + RETRY_MIN_S
    assert logged == ["away", "away"]


def test_it_can_be_cancelled() -> None:
    async def scenario() -> None:
        async def follow() -> None:
            await asyncio.Event().wait()

        task = asyncio.create_task(follow_for_ever("test", follow))
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait([task])
        assert task.cancelled()

    asyncio.run(scenario())
