"""Tests of the full tier give way where a bounded run is slow, and the default tier never does."""

from __future__ import annotations

import time

import pytest

from tests.time_left import END_VARIABLE, FULL_TIER_RESERVE_SECONDS, seconds_left, why_no_full_tier


def test_a_run_without_an_end_leaves_nothing_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(END_VARIABLE, raising=False)
    assert seconds_left() is None
    assert why_no_full_tier() == ""


def test_the_full_tier_gives_way_shortly_before_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(END_VARIABLE, str(time.time() + FULL_TIER_RESERVE_SECONDS * 2))
    assert why_no_full_tier() == ""
    monkeypatch.setenv(END_VARIABLE, str(time.time() + FULL_TIER_RESERVE_SECONDS / 2))
    assert "make test-full" in why_no_full_tier()


pytest_plugins = ["pytester"]

TESTS = """
import pytest

@pytest.mark.full
def test_long(): ...

def test_short(): ...
"""


def test_only_tests_marked_full_are_left_out(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(END_VARIABLE, str(time.time() + 10))
    pytester.makeconftest("from tests.conftest import pytest_runtest_setup")
    pytester.makeini("[pytest]\nmarkers = full\n")
    pytester.makepyfile(TESTS)
    pytester.runpytest_inprocess().assert_outcomes(passed=1, skipped=1)
