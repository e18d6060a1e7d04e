"""The tiers of the chart's tests that need a real Kubernetes, and what happens where one cannot run."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any, Final, NoReturn

import pytest

from tests.time_left import seconds_left

REQUIRED_VARIABLE: Final = "KUBERNETES_REQUIRED"
"""Set by `make kubernetes`: what cannot run fails."""
RECORD_VARIABLE: Final = "KUBERNETES_RECORD"
"""Names the page to which a run is written."""
NODE_SECONDS: Final = 720.0
"""What the tests of a release may take on two cores: 7 minutes of their own with all images built."""
TIERS: Final = {
    "tests/kubernetes/test_dry_run.py": "tier 1, a real API server",
    "tests/kubernetes/test_full_node.py": "tier 2, a release with its pods",
}
PART_TIERS: Final = {
    "secure": {"tests/kubernetes/test_secure_chart.py": "tier 2, a release with TLS and authentication"}
}
"""Tiers with a page of their own, by what it is about."""


def cannot_run(reason: str) -> NoReturn:
    """Skip, or fail where all of it was asked for."""
    if os.environ.get(REQUIRED_VARIABLE):
        pytest.fail(reason)
    pytest.skip(reason)


def why_no_time() -> str:
    """Why the tests of a release are not run now; empty where they were asked for, or there is time."""
    if os.environ.get(REQUIRED_VARIABLE):
        return ""
    left = seconds_left()
    if left is None:
        return f"takes {NODE_SECONDS / 60:.0f} minutes: make kubernetes runs it"
    return "" if left > NODE_SECONDS else f"takes {NODE_SECONDS:.0f} s, and {max(left, 0.0):.0f} s are left"


def what_ran(stats: Mapping[str, Sequence[Any]], part: str = "") -> dict[str, str]:
    """Return of each tier of a page whether it ran, wholly or in part, from pytest's reports by outcome."""
    found = {}
    for path, tier in (PART_TIERS[part] if part else TIERS).items():
        reports = {
            outcome: [each for each in stats.get(outcome, ()) if str(each.nodeid).startswith(path)]
            for outcome in ("passed", "failed", "error", "skipped", "deselected")
        }
        told = ", ".join(f"{len(each)} {outcome}" for outcome, each in reports.items() if each)
        left_out = bool(reports["skipped"] or reports["deselected"])
        ran = any(reports[outcome] for outcome in ("passed", "failed", "error"))
        word = "DID NOT RUN" if not ran else "ran IN PART" if left_out else "ran"
        reasons = sorted({_reason(each) for each in reports["skipped"]} - {""})
        found[tier] = ": ".join(filter(None, (word, told, "; ".join(reasons))))
    return found


def _reason(skipped: Any) -> str:
    """Why pytest left a test out."""
    told = getattr(skipped, "longrepr", None)
    return str(told[2]).removeprefix("Skipped: ") if isinstance(told, tuple) else ""
