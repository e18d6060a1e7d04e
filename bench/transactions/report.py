"""The results as tables, for a terminal and for docs/transactions-benchmarks.md."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median
from typing import Final

from bench.brokers import APACHE_PULSAR, MAGNETAR
from bench.figures import Figure, spread
from bench.report import summary
from bench.results import Results
from bench.table import lines, shown
from bench.transactions import recovery
from bench.transactions.program import (
    COMMIT_P50,
    COMMIT_P99,
    CPU,
    MESSAGE_CPU,
    MESSAGES,
    RATE,
    WHOLE_P50,
    WHOLE_P99,
)
from bench.transactions.run import ABORTED, COORDINATOR, CYCLES, INSIDE, LOADS, OUTSIDE, PUBLISHING, RECOVERY

PART: Final = "figures"
COMMAND: Final = "python -m bench.transactions"
NEED: Final = {RATE: 2.0, COMMIT_P99: 0.5, WHOLE_P99: 0.5}
"""The required ratio to Apache Pulsar."""

_CYCLE: Final = (
    Figure(RATE, "", floor=NEED[RATE]),
    Figure(COMMIT_P50, "", "lower"),
    Figure(COMMIT_P99, "", "lower", floor=NEED[COMMIT_P99]),
    Figure(WHOLE_P50, "", "lower"),
    Figure(WHOLE_P99, "", "lower", floor=NEED[WHOLE_P99]),
    Figure(CPU, "", "lower"),
)
_PUBLISH: Final = (Figure(MESSAGES, ""), Figure(MESSAGE_CPU, "", "lower"))
_COORDINATOR: Final = (
    Figure(recovery.SERVING, "", "lower"),
    Figure(recovery.FIRST_END, "", "lower", floor=2.0, of="value"),
    Figure(recovery.MORE, "", "lower"),
)
_ABORTED: Final = (Figure(recovery.PRODUCER, "", "lower"), Figure(recovery.FIRST_MESSAGE, "", "lower"))

_HEADINGS: Final = ("", "figure", MAGNETAR, APACHE_PULSAR, "ratio", "target", "command")


def rows(results: Results) -> list[list[object]]:
    """A row a load and figure: both brokers, the ratio, the verdict and the command."""
    found: list[list[object]] = []
    for load in LOADS:
        figures = _CYCLE if load.part == CYCLES else _PUBLISH
        found += _rows(results, load.key, load.title, figures, f"`{COMMAND} --only {load.part}`")
    command = f"`{COMMAND} --only {RECOVERY}`"
    found += _rows(results, COORDINATOR, "coordinator with open transactions", _COORDINATOR, command)
    return found + _rows(results, ABORTED, "topic with aborted transactions", _ABORTED, command)


def _rows(
    results: Results, key: str, title: str, figures: Sequence[Figure], command: str
) -> list[list[object]]:
    rows: list[list[object]] = []
    for figure in figures:
        ours, theirs = (results.values(key, figure.key, name) for name in (MAGNETAR, APACHE_PULSAR))
        if not ours:
            continue
        anchor = median(theirs) if theirs else None
        ratio = f"{median(ours) / anchor:.2f}" if anchor else ""
        verdict = figure.verdict(median(ours), anchor).replace("floor", "target")
        rows.append([title, figure.key, _cell(ours), _cell(theirs), ratio, verdict, command])
    return rows


def _cell(values: Sequence[float]) -> str:
    if not values:
        return ""
    of = spread(values)
    return (
        shown(of.median)
        if len(values) == 1
        else f"{shown(of.median)} [{shown(of.lowest)}, {shown(of.highest)}]"
    )


def inside_by_outside(results: Results, name: str) -> float | None:
    """Rate of publishing inside of transactions by that outside; None when one was not measured."""
    inside, outside = (results.values(key, MESSAGES, name) for key in (INSIDE, OUTSIDE))
    return median(inside) / median(outside) if inside and outside else None


def markdown(results: Results) -> list[str]:
    """All that a run found: the conditions, the table, and publishing inside by outside."""
    found = [*summary(results), "", *lines(_HEADINGS, rows(results))]
    shares = [
        f"{name} {share:.2f}"
        for name in (MAGNETAR, APACHE_PULSAR)
        if (share := inside_by_outside(results, name)) is not None
    ]
    if shares:
        by = f"Rate of publishing inside of transactions by that outside (`{COMMAND} --only {PUBLISHING}`): "
        found += ["", f"{by}{', '.join(shares)}."]
    return found
