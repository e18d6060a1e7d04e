"""Balances that Pulsar's Java client moves in transactions keep their sum, and every other promise."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.clients.programs import CannotFetch
from tests.transactions.__main__ import STANDSTILL_S, run_bank, standalone
from tests.transactions.bank import BANK
from tests.transactions.checker import check, summary

SECONDS = 5.0

pytestmark = pytest.mark.timeout(400)


@pytest.mark.full
def test_the_bank_on_a_standalone_keeps_its_sum(tmp_path: Path) -> None:
    try:
        BANK.build()
    except CannotFetch as error:
        pytest.skip(str(error))
    with standalone(tmp_path) as endpoint:
        history = run_bank(endpoint, tmp_path, seconds=SECONDS, seed=1, workers=4, accounts=20)
    assert check(history, standstill_s=STANDSTILL_S) == []
    assert summary(history)["committed"] > 0
