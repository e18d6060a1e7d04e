"""Every answer has the fields that Apache Pulsar's has, but for differences that are listed with a reason.

The table of Apache Pulsar's answers is recorded by `python -m bench.answers`; see answer_shapes.py.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from bench.answers import DIFFERENCES, TABLE
from tests.integration.harness import Endpoint
from tests.integration.raw.answer_shapes import Row, read_differences, read_table, rows
from tests.integration.raw.exchange import Exchange
from tests.integration.raw.exchanges import EXCHANGES

pytestmark = pytest.mark.usefixtures("our_contract")

_ALLOWED = read_differences(DIFFERENCES)
_APACHE = read_table(TABLE)
_used: set[int] = set()


@pytest.fixture
def exchange(endpoint: Endpoint) -> Iterator[Exchange]:
    made = Exchange(endpoint)
    yield made
    made.close()


def test_every_exchange_is_in_the_table() -> None:
    assert {row.exchange for row in _APACHE} <= set(EXCHANGES)


@pytest.mark.parametrize("name", EXCHANGES)
def test_answers_have_the_fields_of_apache_pulsar(exchange: Exchange, name: str) -> None:
    EXCHANGES[name](exchange)
    ours = set(rows(name, exchange.frames))
    theirs = {row for row in _APACHE if row.exchange == name}
    surprises = [
        *(f"only Apache Pulsar: {row}" for row in sorted(theirs - ours) if not _allowed(row, of_apache=True)),
        *(f"only Magnetar: {row}" for row in sorted(ours - theirs) if not _allowed(row, of_apache=False)),
    ]
    assert not surprises, "\n".join(surprises)


def test_every_listed_difference_still_exists() -> None:
    """Runs last in this file; what is mended has to leave the list."""
    unused = [difference for n, difference in enumerate(_ALLOWED) if n not in _used]
    assert not unused, "\n".join(map(str, unused))


def _allowed(row: Row, *, of_apache: bool) -> bool:
    covering = [n for n, one in enumerate(_ALLOWED) if one.covers(row, of_apache=of_apache)]
    _used.update(covering)
    return bool(covering)
