"""What simulated runs of replicated storage have cost, counted for the report at the end of a test run."""

from __future__ import annotations

from collections import Counter
from typing import Final

SPENT: Final = {"seeds": 0, "cpu_s": 0.0}
"""By all runs of this process; where pytest-xdist starts several, the first of them adds them up."""

HAPPENED: Final[Counter[str]] = Counter()
"""How often what their trouble is about came about."""
