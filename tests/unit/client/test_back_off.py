"""Pauses between attempts."""

from __future__ import annotations

import random

from magnetar.client.back_off import BackOff


def test_pauses_double_up_to_the_largest_with_at_most_a_fifth_less() -> None:
    pauses = BackOff(0.1, 5.0, random.Random(0))
    for wanted in (0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 5.0, 5.0):
        assert 0.8 * wanted <= pauses.next_s() <= wanted


def test_a_new_series_begins_with_the_first_pause() -> None:
    pauses = BackOff(1.0, 60.0, random.Random(0))
    for _ in range(5):
        pauses.next_s()
    pauses.reset()
    assert pauses.next_s() <= 1.0


def test_two_clients_do_not_pause_alike() -> None:
    assert BackOff().next_s() != BackOff().next_s()
