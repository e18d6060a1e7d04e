"""Each of the 147 verdicts, for every strategy: producers, consumers, and the version that is found."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from magnetar.common.errors import IncompatibleSchema, InvalidSchema
from magnetar.common.schemas.definition import SchemaDefinition
from magnetar.common.schemas.rules import (
    Strategy,
    Versions,
    check_put,
    check_subscribe,
    find,
    since_deletion,
)

from tests.schemas.verdicts import STRATEGIES, VerdictCase, verdict_cases

CASES = verdict_cases()

Check = Callable[[SchemaDefinition, Versions, Strategy], None]


def test_the_table_is_whole() -> None:
    assert len(CASES) == len({case.name for case in CASES}) == 147


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_producer_gets_the_verdict_of_the_table(case: VerdictCase) -> None:
    taken = "y" if find(case.new, case.history) is None else "="
    assert _letters(check_put, case, taken) == case.put


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_consumer_gets_the_verdict_of_the_table(case: VerdictCase) -> None:
    refused = "n" if since_deletion(case.history) else "m"
    assert _letters(check_subscribe, case, "y", refused) == case.subscribe


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_the_version_of_the_same_schema_is_found(case: VerdictCase) -> None:
    assert find(case.new, case.history) == case.find


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_an_undefined_strategy_refuses_like_always_incompatible(case: VerdictCase) -> None:
    for check in (check_put, check_subscribe):
        undefined = _letter(check, case, Strategy.UNDEFINED, "y", "n")
        assert undefined == _letter(check, case, Strategy.ALWAYS_INCOMPATIBLE, "y", "n")


def _letters(check: Check, case: VerdictCase, taken: str, refused: str = "n") -> str:
    return "".join(_letter(check, case, strategy, taken, refused) for strategy in STRATEGIES)


def _letter(check: Check, case: VerdictCase, strategy: Strategy, taken: str, refused: str) -> str:
    try:
        check(case.new, case.history, strategy)
    except InvalidSchema:
        return "x"
    except IncompatibleSchema:
        return refused
    return taken
