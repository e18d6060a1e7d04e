"""Figures as pages show them."""

from __future__ import annotations

import pytest
from magnetar.console.figures import age_text, byte_text, count_text, rate_text, time_text


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1536, "1.5 KiB"),
        (200 << 20, "200 MiB"),
        (3 << 60, "3072 PiB"),
        (-1, "–"),
        (None, "–"),
    ],
)
def test_bytes_have_a_binary_unit(number: float | None, text: str) -> None:
    assert byte_text(number) == text


@pytest.mark.parametrize(
    ("number", "text"), [(0, "0"), (12_345, "12,345"), (2_500_000, "2.5 M"), (None, "–")]
)
def test_counts_are_exact_below_a_million(number: float | None, text: str) -> None:
    assert count_text(number) == text


@pytest.mark.parametrize(("number", "text"), [(0.0, "0"), (0.25, "0.2"), (1234.5, "1,234"), (7e6, "7.0 M")])
def test_small_rates_have_a_fraction(number: float, text: str) -> None:
    assert rate_text(number) == text


@pytest.mark.parametrize(
    ("seconds", "text"), [(-1, "–"), (59, "59 s"), (90, "1.5 min"), (7200, "2.0 h"), (86_400 * 30, "30 d")]
)
def test_ages_have_their_largest_unit(seconds: float, text: str) -> None:
    assert age_text(seconds) == text


@pytest.mark.parametrize(
    ("time_ms", "text"),
    [(0, "–"), (1_700_000_000_123, "2023-11-14 22:13:20.123"), (-5, "–"), (10**18, "–"), (None, "–")],
)
def test_times_are_utc_and_what_is_no_time_is_not_shown(time_ms: float | None, text: str) -> None:
    assert time_text(time_ms) == text
