"""The results as tables, for a terminal and for docs/security-benchmarks.md."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median
from typing import Final

from bench.brokers import APACHE_PULSAR, MAGNETAR
from bench.report import summary
from bench.results import Results
from bench.security.measures import CPU_MS, IDLE_KIB, RATE, USED_KIB
from bench.security.run import DECISIONS, HANDSHAKES, MEMORY, loads
from bench.security.services import RSA_BITS, column
from bench.table import lines, shown

KEPT_MIN: Final = 0.8
"""Least share of plain text's ratio to Apache Pulsar that has to be left with TLS."""
CPU: Final = "server CPU per million"
PART: Final = "figures"

_COLUMNS: Final = tuple(column(name, tls) for name in (MAGNETAR, APACHE_PULSAR) for tls in (False, True))


def kept(results: Results, load: str, figure: str, *, higher: bool) -> float | None:
    """Share of plain text's advantage over Apache Pulsar that TLS leaves; None when one was not measured."""
    values = [results.values(load, figure, name) for name in _COLUMNS]
    if not all(values):
        return None
    ours, ours_tls, theirs, theirs_tls = map(median, values)
    with_tls, plain = ours_tls / theirs_tls, ours / theirs
    return with_tls / plain if higher else plain / with_tls


def throughput(results: Results) -> list[list[object]]:
    """A row a load and figure: four columns, both ratios, and what is kept."""
    rows: list[list[object]] = []
    for load in loads(0):
        for figure, unit, higher in ((load.rate, "", True), (CPU, " s", False)):
            found = [results.values(load.key, figure, name) for name in _COLUMNS]
            if not any(found):
                continue
            share = kept(results, load.key, figure, higher=higher)
            cells: list[object] = [_cell(values, unit) for values in found]
            cells += [_ratio(found[0], found[2]), _ratio(found[1], found[3])]
            verdict = "" if share is None else "met" if share >= KEPT_MIN else "**missed**"
            title = f"{load.title}: {figure if higher else 'CPU a million'}"
            rows.append([title, *cells, "" if share is None else f"{share:.2f}", verdict])
    return rows


def connections(results: Results) -> list[list[object]]:
    """A row a kind of connection: CPU and rate of each broker."""
    rows: list[list[object]] = []
    for certificate in RSA_BITS:
        key = f"{HANDSHAKES} {certificate}"
        for tls in (False, True):
            found = [
                results.values(key, figure, column(name, tls))
                for name in (MAGNETAR, APACHE_PULSAR)
                for figure in (CPU_MS, RATE)
            ]
            what = f"TLS 1.3, {certificate}" if tls else f"plain, beside {certificate}"
            if any(found):
                rows.append([what, *(_cell(values) for values in found)])
    return rows


def memory(results: Results) -> list[list[object]]:
    """A row a state of a connection: KiB of each broker, plain and with TLS."""
    found = {
        figure: [results.values(MEMORY, figure, name) for name in _COLUMNS] for figure in (IDLE_KIB, USED_KIB)
    }
    return [[figure, *(_cell(each) for each in values)] for figure, values in found.items() if any(values)]


def decisions(results: Results) -> list[list[object]]:
    """A row a kind of decision."""
    return [
        [kind, f"{median(by[MAGNETAR]):,.0f}", f"{1e9 / median(by[MAGNETAR]):,.0f}"]
        for kind, by in results.figures.get(DECISIONS, {}).items()
    ]


def tables(results: Results) -> list[str]:
    """All tables that there are figures for, with their headings, in Markdown."""
    parts: list[tuple[str, Sequence[str], list[list[object]]]] = [
        (
            "### Throughput and CPU",
            ("load", *_COLUMNS, "ratio", "ratio TLS", "kept", f"at least {KEPT_MIN:g}"),
            throughput(results),
        ),
        (
            "### Handshakes",
            (
                "connections, four at a time",
                *(f"{name}: {figure}" for name in (MAGNETAR, APACHE_PULSAR) for figure in (CPU_MS, RATE)),
            ),
            connections(results),
        ),
        ("### Memory of a connection", ("resident memory", *_COLUMNS), memory(results)),
        ("### Authorization", ("decision", "a second", "ns"), decisions(results)),
    ]
    found: list[str] = []
    for heading, columns, rows in parts:
        if rows:
            found += ["", heading, "", *lines(columns, rows)]
    return found


def markdown(results: Results, plots: Sequence[str]) -> list[str]:
    """The generated part of the page; `plots` are paths from there."""
    found = [*summary(results), *tables(results)]
    for path in plots:
        found += ["", f"![Throughput, plain and with TLS]({path})"]
    return found


def _cell(values: Sequence[float], unit: str = "") -> str:
    """The median, with the range of several rounds."""
    if not values:
        return ""
    text = f"{shown(median(values))}{unit}"
    return text if len(values) == 1 else f"{text} ({shown(min(values))} to {shown(max(values))})"


def _ratio(ours: Sequence[float], theirs: Sequence[float]) -> str:
    return f"{median(ours) / median(theirs):.2f}" if ours and theirs and median(theirs) else ""
