"""Percentiles, histograms and verdicts say what their names say."""

from __future__ import annotations

import math

import pytest

from bench.figures import QUANTILES, Figure, curve, histogram_quantile, percentile, spread
from bench.scenarios import FULL, QUICK, all_scenarios


def test_a_percentile_is_a_value_that_was_measured() -> None:
    values = [float(n) for n in range(100, 0, -1)]
    assert percentile(values, 0.5) == 50
    assert percentile(values, 0.99) == 99
    assert percentile(values, 0.999) == 100
    assert percentile(values, 0.0) == 1
    assert percentile([7.0], 0.99) == 7
    assert percentile([], 0.5) == 0


def test_one_stall_in_a_thousand_is_seen_at_p99_9_and_not_at_p99() -> None:
    values = [1.0] * 998 + [500.0] * 2
    assert percentile(values, 0.99) == 1
    assert percentile(values, 0.999) == 500


def test_a_curve_rises_over_its_quantiles() -> None:
    values = curve([3.0, 1.0, 2.0])
    assert len(values) == len(QUANTILES)
    assert values == sorted(values)
    assert (values[0], values[-1]) == (1, 3)


def test_a_histogram_is_interpolated_inside_the_bucket_that_holds_the_quantile() -> None:
    buckets = [(0.001, 90.0), (0.002, 90.0), (0.005, 100.0), (math.inf, 100.0)]
    assert histogram_quantile(buckets, 0.45) == pytest.approx(0.0005)
    assert histogram_quantile(buckets, 0.99) == pytest.approx(0.002 + 0.003 * 0.9)
    assert histogram_quantile([], 0.99) == 0
    assert histogram_quantile([(0.001, 0.0), (math.inf, 0.0)], 0.99) == 0


def test_value_above_all_finite_buckets_counts_as_the_last_bound() -> None:
    assert histogram_quantile([(0.001, 1.0), (5.0, 1.0), (math.inf, 100.0)], 0.99) == 5.0


def test_rounds_are_summed_up_by_median_and_range() -> None:
    one = spread([3.0, 1.0, 10.0])
    assert (one.median, one.lowest, one.highest) == (3, 1, 10)


@pytest.mark.parametrize(
    ("ours", "anchor", "said"),
    [
        (400.0, 100.0, "aim met"),
        (250.0, 100.0, "floor met"),
        (200.0, 100.0, "**floor missed** by 1.25 times"),
        (200.0, None, "not paired"),
    ],
)
def test_a_rate_is_judged_by_its_ratio(ours: float, anchor: float | None, said: str) -> None:
    assert Figure("entries/s", "/s", "higher", floor=2.5, aim=4.0).verdict(ours, anchor) == said


@pytest.mark.parametrize(
    ("ours", "anchor", "said"),
    [(1.0, 24.0, "aim met"), (2.0, 24.0, "floor met"), (3.0, 24.0, "**floor missed** by 1.50 times")],
)
def test_a_latency_is_judged_the_other_way_round(ours: float, anchor: float, said: str) -> None:
    assert Figure("ack p50", "ms", "lower", floor=1 / 12, aim=1 / 20).verdict(ours, anchor) == said


def test_a_limit_of_the_value_itself_needs_no_anchor() -> None:
    figure = Figure("idle CPU %", "%", "lower", floor=1.0, of="value")
    assert figure.verdict(0.2, None) == "floor met"
    assert figure.verdict(2.0, 50.0) == "**floor missed** by 2.00 times"


def test_aims_ask_for_more_than_floors() -> None:
    for scenario in all_scenarios(FULL):
        for figure in scenario.figures:
            if figure.aim is not None:
                assert figure.floor is not None
                asks_more = figure.aim > figure.floor
                assert asks_more == (figure.better == "higher"), (scenario.key, figure.key)


def test_a_quick_run_measures_the_same_loads() -> None:
    assert [one.key for one in all_scenarios(QUICK)] == [one.key for one in all_scenarios(FULL)]
    assert len({one.key for one in all_scenarios(FULL)}) == len(all_scenarios(FULL))
