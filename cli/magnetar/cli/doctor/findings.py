"""One finding of `magnetar doctor`."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

State = Literal["ok", "warning", "failure", "skipped"]


@dataclass(frozen=True, slots=True)
class Finding:
    """Result of one check; `what_next` is the remedy, empty if none is needed."""

    check: str
    state: State
    found: str
    what_next: str = ""


def graded(
    check: str, value: float, warn: float, fail: float, found: str, what_next: str, *, higher: bool = False
) -> Finding:
    """Rate a value by two limits: a failure at `fail` or beyond, a warning at `warn` or beyond.

    Small values are good; with `higher`, large values are.
    """
    sign = -1 if higher else 1
    if sign * value >= sign * fail:
        return Finding(check, "failure", found, what_next)
    if sign * value >= sign * warn:
        return Finding(check, "warning", found, what_next)
    return Finding(check, "ok", found)


def exit_code(findings: Iterable[Finding]) -> int:
    """Return the exit code: 1 when any finding is a failure or a warning."""
    return int(any(finding.state in ("warning", "failure") for finding in findings))
