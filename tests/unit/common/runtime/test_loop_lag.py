from __future__ import annotations

import asyncio
import time

import pytest
from magnetar.common.runtime import loop_lag
from magnetar.common.runtime.loop_lag import LoopLagProbe


def test_a_busy_loop_shows_as_lag(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop_lag, "PROBE_INTERVAL_S", 0.01)

    async def main() -> float:
        probe = LoopLagProbe()
        probe.start()
        time.sleep(0.2)  # noqa: ASYNC251 - the loop is to be held up
        while not probe.last_s:  # noqa: ASYNC110 - the first measurement, before the next one takes its place
            await asyncio.sleep(0)
        probe.stop()
        return probe.last_s

    assert asyncio.run(main()) > 0.1


def test_a_stopped_probe_measures_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop_lag, "PROBE_INTERVAL_S", 0.001)

    async def main() -> tuple[float, float]:
        probe = LoopLagProbe()
        probe.start()
        probe.stop()
        probe.stop()
        probe.last_s = 7.0
        await asyncio.sleep(0.02)
        return probe.last_s, 7.0

    last, untouched = asyncio.run(main())
    assert last == untouched
