from __future__ import annotations

import asyncio
import gc
from collections.abc import Iterator

import pytest
from magnetar.standalone import idle_collection


@pytest.fixture(autouse=True)
def _unfrozen(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(idle_collection, "CHECK_INTERVAL_S", 0.01)
    monkeypatch.setattr(idle_collection, "YOUNG_OBJECTS_MIN", 0)
    yield
    gc.unfreeze()


def frozen_after(cpu_per_look_s: float) -> int:
    spent = 0.0

    def cpu_s() -> float:
        nonlocal spent
        spent += cpu_per_look_s
        return spent

    async def main() -> None:
        task = asyncio.ensure_future(idle_collection.collect_when_idle(cpu_s))
        await asyncio.sleep(0.1)
        task.cancel()

    gc.unfreeze()
    asyncio.run(main())
    return gc.get_freeze_count()


def test_live_objects_are_frozen_when_idle() -> None:
    assert frozen_after(0.0) > 0


def test_a_busy_process_is_left_alone() -> None:
    assert frozen_after(1.0) == 0
