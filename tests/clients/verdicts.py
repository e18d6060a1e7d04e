"""Verdicts of the client matrix: what one run found, and the tables in which runs are recorded.

`tests/golden/clients/<service>.tsv` holds the verdicts of the last recorded run of a service.
docs/clients.md is written from these files (`make docs`), and test_clients.py compares its run with them.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from pathlib import Path
from typing import Final, NamedTuple

GOLDEN: Final = Path(__file__).resolve().parents[1] / "golden" / "clients"
STANDALONE: Final = "standalone"
CLUSTER: Final = "cluster"
APACHE: Final = "apache-pulsar-4.0.7"
SERVICES: Final = (STANDALONE, CLUSTER, APACHE)

NO_TRANSACTIONS: Final = "no transactions"
"""Reason of a library that lacks every scenario of transactions."""

_HEADER: Final = "program\tscenario\toutcome\treason"


class Outcome(StrEnum):
    """How a scenario ended."""

    PASS = "pass"
    FAIL = "fail"
    LACKS = "lacks"
    """The library does not have the feature."""


class Verdict(NamedTuple):
    """One cell of the matrix."""

    program: str
    scenario: str
    outcome: Outcome
    reason: str = ""


def recorded(service: str) -> list[Verdict]:
    """The verdicts of the last recorded run."""
    header, *lines = (GOLDEN / f"{service}.tsv").read_text().splitlines()
    assert header == _HEADER, f"the table of {service} begins with {header!r}"
    cells = (line.split("\t") for line in lines)
    return [
        Verdict(program, scenario, Outcome(outcome), reason) for program, scenario, outcome, reason in cells
    ]


def record(service: str, verdicts: Iterable[Verdict]) -> None:
    """Keep the verdicts of a run; those of other programs and scenarios stay as they were recorded."""
    path = GOLDEN / f"{service}.tsv"
    cells = {(one.program, one.scenario): one for one in recorded(service)} if path.exists() else {}
    cells |= {(one.program, one.scenario): one for one in verdicts}
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = ("\t".join(cells[key]) for key in sorted(cells))
    path.write_text("\n".join([_HEADER, *lines]) + "\n")
