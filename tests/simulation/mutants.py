"""Mutations: a guard of the code is taken away, and the simulation has to notice, or it would miss that bug.

MUTATIONS = [noticed(no_data_sync, power_loss, 1), ...]

@pytest.mark.parametrize(("mutation", "suite", "seeds"), MUTATIONS)
def test_the_suite_catches(mutation, suite, seeds, monkeypatch):
    assert_noticed(mutation, suite, seeds, monkeypatch)
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import pytest

Patch: TypeAlias = pytest.MonkeyPatch
Mutation: TypeAlias = Callable[[Patch], None]
Suite: TypeAlias = Callable[[int], object]
"""Runs under one seed; raises where a promise does not hold."""


def noticed(mutation: Mutation, suite: Suite, seeds: int, first: int = 0) -> object:
    """A case: within `seeds` seeds from `first` on, which is one that is known to, the suite must notice."""
    return pytest.param(mutation, suite, range(first, first + seeds), id=mutation.__name__)


def assert_noticed(mutation: Mutation, suite: Suite, seeds: range, patch: Patch) -> None:
    """Fails when the suite passes under every seed although the guard is gone."""
    mutation(patch)
    for tried, seed in enumerate(seeds, 1):
        try:
            suite(seed)
        except (AttributeError, NameError, TypeError):
            raise  # the mutation does not fit the code any more, and shows nothing
        except (Exception, pytest.fail.Exception) as error:
            print(f"noticed under seed {seed}, the {tried}. of {len(seeds)}: {type(error).__name__}: {error}")
            return
    pytest.fail(f"{mutation.__name__} survived {len(seeds)} seeds")
