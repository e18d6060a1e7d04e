"""Each mistake that is planted by replacing a part of the code still finds that part.

The nightly tier, and `make mutations`, run the suites that have to notice them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.property.broker import test_dispatcher_mutations
from tests.simulation import (
    test_cold_mutations,
    test_compaction_mutations,
    test_coordinator_mutations,
    test_garbage_mutations,
    test_managed_ledger_mutations,
    test_mutations,
)
from tests.simulation.quorum import test_quorum_mutations, test_rarer_mutations

_SUITES = (
    test_cold_mutations,
    test_compaction_mutations,
    test_coordinator_mutations,
    test_garbage_mutations,
    test_managed_ledger_mutations,
    test_mutations,
    test_quorum_mutations,
    test_rarer_mutations,
)

MISTAKES: list[Callable[[pytest.MonkeyPatch], None]] = [
    *(case.values[0] for suite in _SUITES for case in suite.MUTATIONS),
    *(mutation for mutation, _ in test_dispatcher_mutations.MUTATIONS),
]


@pytest.mark.parametrize("mistake", MISTAKES, ids=lambda each: each.__name__)
def test_a_planted_mistake_fits_the_code(mistake: Callable[[pytest.MonkeyPatch], Any]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        mistake(patch)
        assert patch._setattr or patch._setitem, "it replaces a part of the code"
