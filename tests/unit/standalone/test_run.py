"""Signals and stopping, with a service that does what the test wants."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Awaitable, Callable

import pytest
from magnetar.bookie.config import BookieConfig
from magnetar.common.config.setting_values import settings_of
from magnetar.discovery.config import DiscoveryConfig
from magnetar.standalone import process, run
from magnetar.standalone.cluster_config import ClusterBrokerConfig
from magnetar.standalone.service import Address, Service
from structlog.testing import capture_logs


class Ended(Exception):
    """What `_end_now` does instead of ending the test's process."""


class FakeService:
    def __init__(self, shutdown_timeout_ms: int = 60_000) -> None:
        self.shutdown_timeout_ms = shutdown_timeout_ms
        self.addresses: list[Address] = []
        self.events: list[str] = []
        self.start_hangs = False
        self.undoing: Callable[[], Awaitable[object]] | None = None
        """What a start does last that is given up."""
        self.close_hangs = False
        self.over = asyncio.Event()
        """The process has ended."""

    async def start(self) -> None:
        self.events.append("start")
        if self.start_hangs:
            asyncio.get_running_loop().call_soon(os.kill, os.getpid(), signal.SIGTERM)
            try:
                await asyncio.Event().wait()
            finally:
                self.events.append("start undone")
                if self.undoing is not None:
                    await self.undoing()

    async def close(self) -> None:
        self.events.append("close")
        if self.close_hangs:
            await asyncio.Event().wait()
        self.events.append("closed")


@pytest.fixture(autouse=True)
def in_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    def end(reason: str, code: int) -> None:
        raise Ended(f"{code}: {reason}")

    monkeypatch.setattr(run, "_end_now", end)
    monkeypatch.setattr(process, "freeze_what_is_loaded", lambda: None)


def serve(fake: FakeService, *signals: signal.Signals) -> None:
    def on_ready(service: Service) -> None:
        fake.events.append("ready")
        for each in signals:
            asyncio.get_running_loop().call_soon(os.kill, os.getpid(), each)

    async def bounded() -> None:
        async with asyncio.timeout(20):
            try:
                await run.serve(fake, on_ready)
            finally:
                fake.over.set()
                await asyncio.sleep(0)

    asyncio.run(bounded())


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_stops_it_in_good_order(number: signal.Signals) -> None:
    fake = FakeService()
    serve(fake, number)
    assert fake.events == ["start", "ready", "close", "closed"]


def test_a_signal_during_the_start_ends_the_start() -> None:
    fake = FakeService()
    fake.start_hangs = True
    serve(fake)
    assert fake.events == ["start", "start undone"]


def test_a_start_that_cannot_be_undone_in_time_is_ended() -> None:
    fake = FakeService(shutdown_timeout_ms=10)
    fake.start_hangs = True
    fake.undoing = fake.over.wait
    with pytest.raises(Ended, match="1: the interrupted start was not rolled back within 10 ms"):
        serve(fake)


def test_a_start_that_fails_while_it_is_undone_is_told_and_ends_as_asked() -> None:
    fake = FakeService()
    fake.start_hangs = True

    async def fail() -> None:
        raise OSError("no space left")

    fake.undoing = fail
    with capture_logs() as logged:
        serve(fake)
    assert [line["reason"] for line in logged if line["log_level"] == "warning"] == ["no space left"]


def test_a_stop_that_takes_too_long_is_ended() -> None:
    fake = FakeService(shutdown_timeout_ms=10)
    fake.close_hangs = True
    with pytest.raises(Ended, match="1: the service did not stop within 10 ms") as ended:
        serve(fake, signal.SIGTERM)
    limits = [
        key for each in (BookieConfig, ClusterBrokerConfig, DiscoveryConfig) for key in settings_of(each)
    ]
    allowing_more = [key for key in limits if key.endswith("ShutdownTimeoutMs")]
    assert len(allowing_more) == 3
    assert all(key in str(ended.value) for key in allowing_more)


def test_a_second_signal_ends_it_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    ended: list[int] = []
    monkeypatch.setattr(run, "_end_now", lambda reason, code: ended.append(code))
    monkeypatch.setattr(run, "SAME_REQUEST_S", 0.0)
    fake = FakeService(shutdown_timeout_ms=200)
    fake.close_hangs = True
    serve(fake, signal.SIGTERM, signal.SIGINT)
    assert ended[0] == 128 + signal.SIGINT


def test_the_same_signal_by_two_ways_stops_it_in_good_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "SAME_REQUEST_S", 60.0)
    fake = FakeService()
    serve(fake, signal.SIGTERM, signal.SIGTERM)
    assert fake.events == ["start", "ready", "close", "closed"]


def test_an_error_of_the_start_is_raised_and_nothing_waits_on() -> None:
    class Failing(FakeService):
        async def start(self) -> None:
            raise OSError("no")

    with pytest.raises(OSError, match="no"):
        serve(Failing())


def test_the_age_of_the_process_counts_from_its_start() -> None:
    assert 0 < run._age_s() < 24 * 3600
