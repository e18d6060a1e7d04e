"""What simulated runs of replicated storage have cost, counted for the report at the end of a test run."""

from __future__ import annotations

from typing import Final

SPENT: Final = {"seeds": 0, "cpu_s": 0.0}
"""By all runs of this process; where pytest-xdist starts several, the first of them adds them up."""
