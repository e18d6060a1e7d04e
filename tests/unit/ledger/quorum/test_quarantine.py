"""Quarantine: who fails too often, or is too slow, gets no new fragments for a while."""

from __future__ import annotations

import pytest
from magnetar.ledger.quorum.config import QuorumConfig
from magnetar.ledger.quorum.quarantine import Quarantine


class ManualClock:
    """Moves when told."""

    def __init__(self) -> None:
        self.now = 100.0

    def monotonic(self) -> float:
        return self.now

    def wall_ms(self) -> int:
        return int(self.now * 1000)


CONFIG = QuorumConfig(quarantine_errors=3, quarantine_interval_s=60.0, quarantine_s=300.0)


def fail(quarantine: Quarantine, clock: ManualClock, *gaps_s: float) -> None:
    for gap_s in gaps_s:
        clock.now += gap_s
        quarantine.failed("b", "a test says so")


def test_so_many_failures_within_the_interval_quarantine_a_bookie_for_a_while() -> None:
    clock = ManualClock()
    quarantine = Quarantine(clock, CONFIG)
    fail(quarantine, clock, 2, 2)
    assert "b" not in quarantine
    fail(quarantine, clock, 2)
    assert "b" in quarantine
    assert "other" not in quarantine
    clock.now += 299
    assert "b" in quarantine
    clock.now += 2
    assert "b" not in quarantine
    fail(quarantine, clock, 2)
    assert "b" not in quarantine, "it begins anew"


def test_failures_far_apart_do_not_add_up() -> None:
    clock = ManualClock()
    quarantine = Quarantine(clock, CONFIG)
    fail(quarantine, clock, *[40] * 20)
    assert "b" not in quarantine


def test_one_failure_that_every_ledger_reports_is_one_failure() -> None:
    clock = ManualClock()
    quarantine = Quarantine(clock, CONFIG)
    fail(quarantine, clock, *[0.0] * 1000)
    assert "b" not in quarantine


def test_a_slow_bookie_is_quarantined_at_once_and_a_new_start_ends_it() -> None:
    clock = ManualClock()
    quarantine = Quarantine(clock, CONFIG)
    quarantine.too_slow("b", "a test says so")
    assert "b" in quarantine
    quarantine.lift("b")
    assert "b" not in quarantine


def test_the_bookies_remembered_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("magnetar.ledger.quorum.quarantine.BOOKIES_MAX", 2)
    quarantine = Quarantine(ManualClock(), CONFIG)
    for bookie_id in ("a", "b", "c"):
        quarantine.failed(bookie_id, "a test says so")
        quarantine.too_slow(bookie_id, "a test says so")
    assert [each in quarantine for each in ("a", "b", "c")] == [False, True, True]
