"""The tiers of the chart's tests that need a real Kubernetes, and what happens where one cannot run."""

from __future__ import annotations

import os
from typing import Final, NoReturn

import pytest

REQUIRED_VARIABLE: Final = "KUBERNETES_REQUIRED"
"""Set by `make kubernetes`: what cannot run fails."""
RECORD_VARIABLE: Final = "KUBERNETES_RECORD"
"""Names the page to which a run that passes is written."""
TIERS: Final = {
    "tests/kubernetes/test_dry_run.py": "tier 1, a real API server",
    "tests/kubernetes/test_full_node.py": "tier 2, a whole node",
}


def cannot_run(reason: str) -> NoReturn:
    """Skip, or fail where all of it was asked for."""
    if os.environ.get(REQUIRED_VARIABLE):
        pytest.fail(reason)
    pytest.skip(reason)
