"""The time that a bounded run of all tests has left, and the tests that it leaves out when that is short."""

from __future__ import annotations

import os
import time
from typing import Final

END_VARIABLE: Final = "TESTS_END_BY"
"""Set by `.ci/run`: when all tests have to be over, in seconds since 1970."""
FULL_TIER_RESERVE_SECONDS: Final = 900.0
"""For tests of the default tier that may still come: on a slow machine, the full tier gives way."""


def seconds_left() -> float | None:
    """Seconds until the end of the run, negative behind it; None where the run has no end."""
    end = os.environ.get(END_VARIABLE)
    return None if end is None else float(end) - time.time()


def why_no_full_tier() -> str:
    """The reason to leave out a test of the full tier; empty where there is time for it."""
    left = seconds_left()
    if left is None or left > FULL_TIER_RESERVE_SECONDS:
        return ""
    return f"full tier: this run ends in {left:.0f} s, which the default tier needs; make test-full runs it"
