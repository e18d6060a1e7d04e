"""Latencies of the last minute, from pages that are kept, and brokers that are not ready."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest
from magnetar.console import process_watch
from magnetar.console.errors import AdminUnreachable
from magnetar.console.process_watch import ProcessWatch

NAME = "magnetar_publish_latency_seconds_bucket"


class _Pages:
    """Brokers whose pages a test sets by URL."""

    def __init__(self) -> None:
        self.counts: dict[str, tuple[int, int]] = {}
        """Publishes up to 1 ms and in all."""
        self.asked = 0

    async def fetch(self, url: str) -> tuple[int, str]:
        self.asked += 1
        base, _, path = url.rpartition("/")
        if base not in self.counts:
            raise AdminUnreachable(f"{url} does not answer")
        if path == "readyz":
            return 200, "ok"
        quick, total = self.counts[base]
        return 200, f'{NAME}{{le="0.001"}} {quick}\n{NAME}{{le="0.1"}} {total}\n{NAME}{{le="+Inf"}} {total}\n'


def test_latencies_are_of_the_time_between_two_pages_and_of_all_brokers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(process_watch, "FRESH_S", 0.0)

    async def body() -> None:
        pages = _Pages()
        watch = ProcessWatch(cast(Any, pages), "")
        brokers = [("a", "http://a"), ("b", "http://b"), ("c", "http://c")]
        pages.counts = {"http://a": (100, 100), "http://b": (0, 0)}
        first = await watch.figures(brokers)
        assert (first.window_s, first.latencies[0].count) == (0.0, 100)
        assert [each.problem for each in first.brokers] == ["", "", "http://c/readyz does not answer"]
        pages.counts = {"http://a": (100, 110), "http://b": (0, 10)}
        second = await watch.figures(brokers)
        (publish,) = second.latencies
        assert second.window_s > 0
        assert (publish.name, publish.count) == ("publish", 20)
        assert 50 < publish.p50_ms < publish.p99_ms < 100
        gone = await watch.figures(brokers[2:])
        assert gone.latencies == []

    asyncio.run(body())


def test_pages_are_not_read_again_while_they_are_fresh() -> None:
    async def body() -> None:
        pages = _Pages()
        pages.counts = {"http://a": (1, 1)}
        watch = ProcessWatch(cast(Any, pages), "")
        await asyncio.gather(*(watch.figures([("a", "http://a")]) for _ in range(5)))
        assert pages.asked == 2
        assert await watch.alerts() == []

    asyncio.run(body())
