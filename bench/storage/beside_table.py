"""Loads that three of our bookies and three of Apache BookKeeper's take by turns, and the table of both."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median
from typing import Final

from bench.storage.appends import AppendLoad
from bench.storage.results import StorageResults, markdown_table, number, print_table

OURS: Final = "Magnetar"
THEIRS: Final = "BookKeeper"
BEGIN: Final = "<!-- bookkeeper: begin -->"
END: Final = "<!-- bookkeeper: end -->"

LATENCIES: Final = ("p50 ms", "p95 ms", "p99 ms")
RATE: Final = "entries/s"
CPU: Final = ("CPU of a bookie, us/entry", "CPU of the client, us/entry", "CPU of all, us/entry")
"""One bookie, the mean of three; the client's process; three bookies and the client."""
HEADINGS: Final = ("load", "figure", OURS, THEIRS, "ratio, round by round")

IDLE: Final = "CPU while the other is measured"


def loads(seconds: float) -> dict[str, AppendLoad]:
    """By the names of the table. BookKeeper's client takes entries one by one: it has as many in flight as
    the runs of our window hold."""
    singles = {
        f"100 B, single entries, {window:,} in flight": AppendLoad(
            size=100, batch=1, window=window, seconds=seconds
        )
        for window in (1, 10, 100, 1_000)
    }
    return {
        **singles,
        "1 KiB, single entries, 1,000 in flight": AppendLoad(
            size=1_024, batch=1, window=1_000, seconds=seconds
        ),
        "10,000 B, single entries, 100 in flight": AppendLoad(
            size=10_000, batch=1, window=100, seconds=seconds
        ),
        "100 B, 10,000 in flight; ours in runs of 100": AppendLoad(
            size=100, batch=100, window=100, seconds=seconds
        ),
        "1 KiB, 4,000 in flight; ours in runs of 100": AppendLoad(
            size=1_024, batch=100, window=40, seconds=seconds
        ),
    }


def group(load: str, side: str) -> str:
    """Where the results keep a load's figures of one side."""
    return f"beside BookKeeper: {load}: {side}"


def with_cpu(figures: dict[str, float], bookies: int) -> dict[str, float]:
    """The figures with CPU time under the table's names."""
    bookie, client = figures["bookie us/entry"], figures["process us/entry"]
    return figures | dict(zip(CPU, (bookie, client, bookies * bookie + client), strict=True))


def figures_of(load: AppendLoad) -> tuple[str, ...]:
    """The reported figures of a load: latency only with few in flight, else it is a queue length."""
    return (RATE, *(LATENCIES if load.window * load.batch <= 10 else ()), *CPU)


def rows(results: StorageResults) -> list[tuple[str, ...]]:
    """The body of the table: what was measured on both sides only."""
    found: list[tuple[str, ...]] = []
    for name, load in loads(0.0).items():
        title = name
        for key in figures_of(load):
            ours, theirs = (results.figures.get(group(name, side), {}).get(key) for side in (OURS, THEIRS))
            if ours and theirs:
                cells = (with_range(ours), with_range(theirs), with_range(ratios(ours, theirs)))
                found.append((title, key, *cells))
                title = ""
    return found


def ratios(ours: Sequence[float], theirs: Sequence[float]) -> list[float]:
    """Ours by theirs, round by round: what else the machine does then counts less than between rounds."""
    return [one / other for one, other in zip(ours, theirs, strict=True) if other]


def with_range(values: Sequence[float]) -> str:
    """The median, and the lowest and highest of several."""
    if not values:
        return "not measurable"
    text = number(median(values))
    return text if len(values) == 1 else f"{text} ({number(min(values))} to {number(max(values))})"


def conditions(results: StorageResults) -> list[str]:
    """Sentences for above the table; no date, as the page says what holds until it is measured again."""
    machine, beside = results.machine, results.beside
    idle = [results.figures.get(group(IDLE, side), {}).get("% of a core", []) for side in (OURS, THEIRS)]
    found = [
        f"`{results.command}`: rounds: {beside['rounds']}, {beside['seconds']} s a load and side, "
        f"{results.seconds:.0f} s in all, Magnetar {results.revision}, BookKeeper {beside['version']} on "
        f"Java {beside['java']}.",
        f"{machine['cores']} cores ({machine['cpu']}) shared with the clients and every bookie, "
        f"{machine['memory']}, Linux {machine['kernel']}, CPython {machine['python']}; data on "
        f"{beside['file system']}, a sync before each confirmation on both sides.",
        f"Load average of the last minute before each round, the benchmark's own load in it: "
        f"{beside['load averages']}.",
    ]
    if all(idle):
        found.append(
            "While one side is measured the other stands idle: Magnetar's processes took "
            f"{with_range(idle[0])} % of a core then, BookKeeper's {with_range(idle[1])} %."
        )
    return found


def markdown(results: StorageResults) -> str:
    return markdown_table(HEADINGS, rows(results), conditions(results))


def show(results: StorageResults) -> None:
    """Print the table and the conditions."""
    print_table(HEADINGS, rows(results), conditions(results))
