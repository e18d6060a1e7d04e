"""Redelivery in virtual time: back-off, negative acknowledgements, ack timeouts."""

from __future__ import annotations

import pytest
from magnetar.client.consumer.redelivery import AckTimeouts, NegativeAcknowledgements, RedeliveryDelay


def test_a_delay_grows_to_its_limit() -> None:
    delay = RedeliveryDelay(1, 60, 2)
    assert [delay.delay_s(count) for count in range(8)] == [1, 2, 4, 8, 16, 32, 60, 60]
    assert delay.delay_s(2**32 - 1) == 60


@pytest.mark.parametrize("values", [(-1.0, 1.0, 1.0), (2.0, 1.0, 1.0), (1.0, 2.0, 0.5)])
def test_an_invalid_delay_is_refused(values: tuple[float, float, float]) -> None:
    with pytest.raises(ValueError, match="invalid delay"):
        RedeliveryDelay(*values)


def test_negative_acknowledgements_are_due_by_their_count() -> None:
    nacks = NegativeAcknowledgements(RedeliveryDelay(1, 60, 2))
    nacks.add([(1, 0)], 3, 100.0)
    nacks.add([(1, 1), (1, 2)], 0, 100.0)
    nacks.add([(1, 1), (1, 2)], 0, 100.5)
    assert nacks.due_at == 101.0
    assert nacks.take_due(100.9) == []
    assert nacks.take_due(101.0) == [(1, 1), (1, 2)]
    assert nacks.due_at == 108.0
    assert nacks.take_due(200.0) == [(1, 0)]
    assert nacks.due_at is None
    assert len(nacks) == 0


def test_an_acknowledged_entry_is_not_redelivered() -> None:
    nacks = NegativeAcknowledgements(RedeliveryDelay(1, 1))
    for entry in range(10):
        nacks.add([(1, entry)], 0, float(entry))
    for entry in range(9):
        nacks.discard((1, entry))
    assert nacks.due_at == 10.0
    nacks.add([(1, 0)], 0, 20.0)
    assert nacks.take_due(30.0) == [(1, 9), (1, 0)]


def test_an_entry_expires_between_its_timeout_and_a_tick_later() -> None:
    timeouts = AckTimeouts(10.0, 1.0)
    for entry in range(4):
        timeouts.add((1, entry), 100.0 + entry * 0.9)
    expired: dict[int, float] = {}
    now = 100.0
    while len(timeouts):
        now = timeouts.due_at or now
        expired |= dict.fromkeys([entry for _, entry in timeouts.take_due(now)], now)
    assert sorted(expired) == [0, 1, 2, 3]
    for entry, when in expired.items():
        assert 10.0 <= when - (100.0 + entry * 0.9) <= 11.0 + 1e-9


def test_an_acknowledged_entry_does_not_expire() -> None:
    timeouts = AckTimeouts(1.0)
    for entry in range(5):
        timeouts.add((1, entry), 0.0)
    timeouts.discard((1, 4))
    timeouts.discard_through((1, 2))
    assert timeouts.take_due(10.0) == [(1, 3)]
    assert timeouts.due_at is None
    assert len(timeouts) == 0


@pytest.mark.parametrize(("timeout_s", "tick_s"), [(0.5, 0.1), (2.0, 0.0), (2.0, 3.0)])
def test_an_invalid_ack_timeout_is_refused(timeout_s: float, tick_s: float) -> None:
    with pytest.raises(ValueError, match="invalid"):
        AckTimeouts(timeout_s, tick_s)
