"""Quantiles of Prometheus pages, as Prometheus computes them."""

from __future__ import annotations

from math import inf

import pytest
from magnetar.console.latency_histograms import added, quantile, read_histograms, since

BUCKETS = {0.001: 50.0, 0.01: 90.0, 0.1: 100.0, inf: 100.0}


@pytest.mark.parametrize(
    ("part", "seconds"), [(0.5, 0.001), (0.25, 0.0005), (0.7, 0.0055), (0.9, 0.01), (0.99, 0.091), (1.0, 0.1)]
)
def test_quantiles_are_linear_within_a_bucket(part: float, seconds: float) -> None:
    assert quantile(part, BUCKETS) == pytest.approx(seconds)


def test_beyond_the_last_bound_it_is_that_bound_and_without_counts_there_is_none() -> None:
    assert quantile(0.99, {0.1: 1.0, inf: 100.0}) == 0.1
    assert quantile(0.99, {}) is None
    assert quantile(0.99, {0.1: 0.0, inf: 0.0}) is None


def test_pages_are_subtracted_unless_the_process_started_anew() -> None:
    assert since({0.1: 9.0, inf: 12.0}, {0.1: 4.0, inf: 4.0}) == {0.1: 5.0, inf: 8.0}
    assert since({0.1: 1.0, inf: 2.0}, {0.1: 4.0, inf: 4.0}) == {0.1: 1.0, inf: 2.0}
    assert added([{0.1: 1.0, inf: 2.0}, {0.1: 3.0, inf: 3.0}, {}]) == {0.1: 4.0, inf: 5.0}


def test_a_page_is_read_whatever_else_is_on_it() -> None:
    page = """# HELP a_seconds text
a_seconds_bucket{cluster="x,le=\\"9\\"",le="0.5"} 3.0
a_seconds_bucket{cluster="y",le="0.5"} 4.0
a_seconds_bucket{le="+Inf"} 9.0
a_seconds_bucket{le="soon"} 9.0
a_seconds_bucket{le="1.0"} many
other_seconds_bucket{le="0.5"} 1.0
<html>
"""
    assert read_histograms(page, ["a_seconds", "b_seconds"]) == {"a_seconds": {0.5: 7.0, inf: 9.0}}
