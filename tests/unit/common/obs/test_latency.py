"""Latencies: quantiles forget, counts and buckets do not."""

from __future__ import annotations

import itertools
import math
import random

import pytest
from magnetar.common.obs.latency import (
    BOUNDS_MS,
    QUANTILES,
    SHOWN_S,
    Latency,
    LatencyHistogram,
    LatencyWindow,
    histogram_lines,
    summary_lines,
)
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families


def test_bounds_rise_by_no_more_than_a_third_and_hold_every_bucket_that_is_shown() -> None:
    assert list(BOUNDS_MS) == sorted(set(BOUNDS_MS))
    assert max(b / a for a, b in itertools.pairwise(BOUNDS_MS)) <= 4 / 3 + 1e-9
    assert {round(bound * 1000, 6) for bound in SHOWN_S} <= set(BOUNDS_MS)


def test_quantiles_forget_after_a_minute_and_counts_do_not() -> None:
    window = LatencyWindow()
    window.observe(1000.0, 1.0)
    for now in (1029.0, 1045.0):
        assert dict(window.quantiles_ms(now))[1.0] == 1000.0
    assert math.isnan(dict(window.quantiles_ms(1200.0))[1.0])
    window.observe(1300.0, 0.001)
    assert dict(window.quantiles_ms(1300.0))[1.0] == 1.0
    assert window.count == 2
    assert window.sum_ms == pytest.approx(1001.0)
    assert window.at_most()[SHOWN_S.index(0.001)] == 1
    assert window.at_most()[SHOWN_S.index(1)] == 2


def test_buckets_only_grow_and_hold_everything_however_time_goes_on() -> None:
    rng, window = random.Random(3), LatencyWindow()
    observed: list[float] = []
    now, before = 0.0, [0] * len(SHOWN_S)
    for _ in range(400):
        now += rng.choice((0.0, 1.0, 20.0, 31.0, 100.0))
        seconds, count = 10 ** rng.uniform(-5, 2), rng.randint(1, 5)
        window.observe(now, seconds, count)
        observed += [seconds] * count
        shown = window.at_most()
        assert shown == sorted(shown)
        assert all(a <= b for a, b in zip(before, shown, strict=True))
        before = shown
    assert window.count == len(observed)
    assert before == [sum(each * 1000 <= bound * 1000 for each in observed) for bound in SHOWN_S]


def test_a_quantile_is_at_most_a_third_above_the_truth() -> None:
    window = LatencyWindow()
    for step in range(1, 1001):
        window.observe(50.0, step / 1000)
    for quantile, shown_ms in window.quantiles_ms(50.0):
        assert quantile in QUANTILES
        assert quantile * 1000 * 0.999 <= shown_ms <= quantile * 1000 * 4 / 3 + 1e-6


def test_successes_and_failures_are_apart() -> None:
    latency = Latency()
    latency.observe(50.0, 0.001, count=3)
    latency.observe(50.0, 2.0, success=False)
    assert latency.window(success=True).count == latency.succeeded.count == 3
    assert latency.window(success=False).sum_ms == pytest.approx(2000.0)


def test_prometheus_reads_a_histogram_of_the_registry_and_the_same_lines_written_by_hand() -> None:
    registry = CollectorRegistry()
    histogram = LatencyHistogram("magnetar_any_seconds", "Any.", registry)
    with pytest.raises(ValueError, match="magnetar_any_seconds"):
        LatencyHistogram("magnetar_any_seconds", "Again.", registry)
    histogram.observe(50.0, 0.0004, count=2)
    histogram.observe(50.0, 60.0)
    by_hand = "# TYPE magnetar_any_seconds histogram\n" + "".join(
        histogram_lines("magnetar_any_seconds", histogram)
    )
    for page in (generate_latest(registry).decode(), by_hand):
        (family,) = text_string_to_metric_families(page)
        samples = {(each.name, each.labels.get("le")): each.value for each in family.samples}
        assert family.type == "histogram"
        assert samples["magnetar_any_seconds_bucket", "0.0002"] == 0
        assert samples["magnetar_any_seconds_bucket", "0.0005"] == 2
        assert samples["magnetar_any_seconds_bucket", "10.0"] == 2
        assert samples["magnetar_any_seconds_bucket", "+Inf"] == 3
        assert samples["magnetar_any_seconds_count", None] == 3
        assert samples["magnetar_any_seconds_sum", None] == pytest.approx(60.0008)


def test_a_sum_grows_by_each_observation_however_much_there_was_before() -> None:
    """A rate over what is rounded to a few digits is 0, and then a jump."""
    window = LatencyWindow()

    def shown_sums() -> tuple[float, float]:
        in_s = next(line for line in histogram_lines("any_seconds", window) if "_sum" in line)
        in_ms = next(line for line in summary_lines("any", "", window, 50.0) if "_sum" in line)
        return float(in_s.split()[-1]), float(in_ms.split("_sum")[1])

    window.observe(50.0, 1.0, count=10_000_000)
    before_s, before_ms = shown_sums()
    window.observe(50.0, 0.002)
    after_s, after_ms = shown_sums()
    assert after_s - before_s == pytest.approx(0.002, rel=0.01)
    assert after_ms - before_ms == pytest.approx(2.0, rel=0.01)


def test_prometheus_reads_a_summary_with_and_without_labels() -> None:
    window = LatencyWindow()
    window.observe(50.0, 0.002)
    for labels in ("", 'cluster="c"'):
        page = "# TYPE any summary\n" + "".join(summary_lines("any", labels, window, 50.0))
        (family,) = text_string_to_metric_families(page)
        assert {each.labels.get("cluster", "") for each in family.samples} == {"c" if labels else ""}
        assert {each.value for each in family.samples if each.name == "any"} == {2.0}
        assert {each.value for each in family.samples if each.name == "any_count"} == {1.0}
