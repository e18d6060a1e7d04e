"""Percentiles of `magnetar perf`, and what it shows of them."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from magnetar.cli.client.perf.latencies import Latencies
from magnetar.cli.client.perf.report import Measurement, show_figures


@given(st.lists(st.integers(0, 10**9), min_size=1, max_size=200), st.floats(0.1, 100))
def test_percentiles_are_those_of_the_sorted_list_to_two_percent(values: list[int], percent: float) -> None:
    latencies = Latencies()
    latencies.add([value / 1e6 for value in values])
    wanted = max(-(-len(values) * percent // 100), 1)
    exact = sorted(values)[int(wanted) - 1] / 1000
    assert latencies.percentile_ms(percent) == pytest.approx(exact, rel=0.02, abs=0.0021)


def test_nothing_and_clocks_that_differ() -> None:
    latencies = Latencies()
    assert latencies.summary()["p99"] == 0
    latencies.add([-1.0])
    assert (latencies.count, latencies.max_ms) == (1, 0)


def test_figures_are_those_of_the_time_between_the_first_and_the_last(
    capsys: pytest.CaptureFixture[str],
) -> None:
    times = iter([10.0, 11.0, 12.0])
    measured = Measurement("produced", now=lambda: next(times))
    measured.start()
    measured.add([0.001] * 10, 1_000)
    measured.add([0.003] * 10, 1_000)
    show_figures(measured, as_json=True)
    figures = json.loads(capsys.readouterr().out)
    assert figures["messages"] == 20
    assert figures["messagesPerSecond"] == 10.0
    assert figures["megabitsPerSecond"] == 0.008
    assert figures["latencyMs"]["mean"] == 2.0
    assert figures["latencyMs"]["max"] == 3.0


def test_a_line_is_about_its_interval() -> None:
    times = iter([0.0, 1.0, 1.0, 3.0])
    measured = Measurement("consumed", now=lambda: next(times))
    measured.start()
    measured.add([0.5] * 4, 400)
    assert measured.line().startswith("consumed 4 msg --- 4.0 msg/s")
    assert measured.line().startswith("consumed 4 msg --- 0.0 msg/s")
