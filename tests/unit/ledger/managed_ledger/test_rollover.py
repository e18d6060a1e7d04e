"""When a ledger rolls: Pulsar's meaning of the four limits."""

from __future__ import annotations

import pytest
from magnetar.ledger.managed_ledger import ManagedLedgerConfig
from magnetar.ledger.managed_ledger.rollover import plan

CONFIG = ManagedLedgerConfig(
    ledger_entries_max=100, ledger_megabytes_max=1, ledger_age_min_minutes=10, ledger_age_max_minutes=240
)
MEGABYTE = 1 << 20


@pytest.mark.parametrize(
    ("entries", "byte_length", "minutes", "rolls"),
    [
        (99, MEGABYTE - 1, 239, False),
        (100, 0, 10, True),
        (1, MEGABYTE, 10, True),
        (100, MEGABYTE, 9.9, False),
        (1, 1, 240, True),
        (0, 0, 1_000, False),
    ],
)
def test_a_ledger_rolls_when_full_and_old_enough_or_used_and_too_old(
    entries: int, byte_length: int, minutes: float, rolls: bool
) -> None:
    assert plan(CONFIG, entries, byte_length, minutes * 60).now is rolls


def test_a_ledger_that_does_not_roll_says_when_to_ask_again() -> None:
    fresh = plan(CONFIG, 5, 10, 60.0)
    assert (fresh.entries, fresh.byte_length, fresh.seconds) == (100, MEGABYTE, 239 * 60.0)
    full = plan(CONFIG, 500, 10, 60.0)
    assert full.seconds == 9 * 60.0
    assert full.entries > 1 << 60
    old_and_empty = plan(CONFIG, 0, 0, 241 * 60.0)
    assert old_and_empty.entries == 1
