"""Comparison of a run of the client matrix with the recorded one."""

from __future__ import annotations

from tests.clients.verdicts import Outcome, Verdict, recorded


def assert_as_recorded(service: str, verdicts: list[Verdict]) -> None:
    """Every scenario that passed when docs/clients.md was written passes; no more features are lacking."""
    before = {(one.program, one.scenario): one.outcome for one in recorded(service)}
    worse = [
        one
        for one in verdicts
        if one.outcome is Outcome.FAIL or before.get((one.program, one.scenario)) is not one.outcome
    ]
    assert not worse, "\n".join(f"{one.program}: {one.scenario}: {one.outcome} {one.reason}" for one in worse)
