"""The classes of operations and their refusals."""

from __future__ import annotations

import pytest
from magnetar.common.security.authorization.operations import Operation


@pytest.mark.parametrize(
    ("letter", "status"),
    [
        *((letter, 401) for letter in ("S", "T", "C", "L", "A", "produce")),
        *((letter, 403) for letter in ("N", "Nc", "Ncp", "P")),
    ],
)
def test_a_refusal_looks_as_in_pulsar(letter: str, status: int) -> None:
    [operation] = [each for each in Operation if each.letter == letter]
    assert operation.status == status
    assert operation.needs


def test_classes_are_not_aliases_of_each_other() -> None:
    assert len({each.letter for each in Operation}) == len(Operation) == 12
