"""The results as Markdown, and as a table on a terminal."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from statistics import median
from typing import Final

from rich.console import Console
from rich.table import Table

from bench.brokers import APACHE_PULSAR, MAGNETAR
from bench.figures import Figure, spread
from bench.results import Results
from bench.scenarios import FULL, QUICK, Scenario, all_scenarios

BEGIN: Final = "<!-- figures: begin -->"
END: Final = "<!-- figures: end -->"
SECTIONS: Final = {"figures": "bench", "semantics": "bench-semantics", "java": "bench-java"}
"""Generated parts of docs/benchmarks.md: what they are marked by, and how the names of their plots begin."""

PLOTS: Final = {
    "floors": "Each figure as a ratio to its floor",
    "throughput": "Throughput of both brokers",
    "latency": "Latency percentiles at 2,000 messages a second",
}
HEADINGS: Final = ("load", "figure", "Magnetar", "Apache Pulsar", "ratio", "floor", "aim", "verdict")


def rows(results: Results, scenarios: Sequence[Scenario] = ()) -> list[tuple[str, ...]]:
    """The table: one row a figure; a load's title stands in its first row only.

    `scenarios` are those of a benchmark that has its own; those of `python -m bench` when empty.
    """
    found = []
    for scenario in scenarios or all_scenarios(QUICK if results.quick else FULL):
        title = scenario.title
        for figure in scenario.figures:
            ours = results.values(scenario.key, figure.key, MAGNETAR)
            anchor = results.values(scenario.key, figure.key, APACHE_PULSAR)
            if not ours and not anchor:
                continue
            found.append((title, *_row(figure, ours, anchor)))
            title = ""
    return found


def _row(figure: Figure, ours: list[float], anchor: list[float]) -> tuple[str, ...]:
    ratio = median(ours) / median(anchor) if ours and anchor and median(anchor) else None
    if ours:
        verdict = figure.verdict(median(ours), median(anchor) if anchor else None)
    else:
        verdict = "" if figure.floor is None else "**not measured**"
    return (
        figure.key,
        values_cell(ours, figure.unit),
        values_cell(anchor, figure.unit),
        "" if ratio is None else f"{ratio:.2f}" if ratio >= 0.1 else f"{ratio:.3f}",
        _limit(figure, figure.floor),
        _limit(figure, figure.aim),
        verdict,
    )


def values_cell(values: Sequence[float], unit: str) -> str:
    """The median, and the lowest and highest of several."""
    if not values:
        return ""
    one = spread(values)
    text = f"{_number(one.median)} {unit}".strip().replace(" /s", "/s")
    if len(values) > 1:
        text += f" ({_number(one.lowest)} to {_number(one.highest)})"
    return text


def _number(value: float) -> str:
    if abs(value) >= 10_000:
        return f"{round(value, -2):,.0f}"
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"


def _limit(figure: Figure, limit: float | None) -> str:
    if limit is None:
        return ""
    if figure.of == "value":
        return f"{_number(limit)} {figure.unit}"
    return f"1/{1 / limit:g}" if limit < 1 else f"{limit:g}"


def summary(results: Results) -> list[str]:
    """The conditions, a sentence each."""
    machine = results.machine
    brokers = ", ".join(f"{name} {version}" for name, version in results.brokers.items())
    loads = ", ".join(f"{load:.1f}" for load in results.load_averages)
    rounds = max(
        (len(v) for f in results.figures.values() for b in f.values() for v in b.values()), default=0
    )
    lines = [
        f"`{results.command}`, {results.began}, {results.seconds / 60:.0f} minutes: {brokers}.",
        f"{machine['cores']} cores ({machine['cpu']}) shared with the generator, {machine['memory']}, "
        f"Linux {machine['kernel']}, CPython {machine['python']}.",
        f"Medians of {rounds} rounds, lowest and highest in brackets; "
        f"load average before each round: {loads}.",
    ]
    return lines + results.notes + [f"Failed: {failure}" for failure in results.failures]


def missed(results: Results, scenarios: Sequence[Scenario] = ()) -> list[str]:
    """The figures below their floor."""
    title = ""
    found = []
    for row in rows(results, scenarios):
        title = row[0] or title
        if "missed" in row[-1] or "not measured" in row[-1]:
            found.append(f"{title}: {row[1]}: {row[-1].replace('*', '')}")
    return found


def markdown(results: Results, plots: Iterable[tuple[str, str]], scenarios: Sequence[Scenario] = ()) -> str:
    """A generated part of docs/benchmarks.md; `plots` are their kinds and their paths from there."""
    lines = [*summary(results), ""]
    lines.append("| " + " | ".join(HEADINGS) + " |")
    lines.append("|" + " --- |" * len(HEADINGS))
    lines += ["| " + " | ".join(row) + " |" for row in rows(results, scenarios)]
    for kind, path in plots:
        lines += ["", f"![{PLOTS[kind]}]({path})"]
    return "\n".join(lines)


def write_page(
    page: Path,
    results: Results,
    plots: Iterable[tuple[str, str]] = (),
    section: str = "figures",
    scenarios: Sequence[Scenario] = (),
) -> None:
    """Replace what stands between the markers of a section."""
    begin, end = BEGIN.replace("figures", section), END.replace("figures", section)
    text = page.read_text()
    head, _, rest = text.partition(begin)
    _, _, tail = rest.partition(end)
    if not tail:
        raise ValueError(f"{page} lacks the markers {begin} and {end}")
    page.write_text(f"{head}{begin}\n{markdown(results, plots, scenarios)}\n{end}{tail}")


def show(results: Results, scenarios: Sequence[Scenario] = ()) -> None:
    """Print the table and the verdict."""
    console = Console()
    table = Table(*HEADINGS, box=None, pad_edge=False)
    for row in rows(results, scenarios):
        table.add_row(*(cell.replace("**", "") for cell in row))
    if console.is_terminal:
        console.print(table)
    else:
        # Wide enough for every row: a pipe has no columns.
        Console(width=220).print(table)
    for line in summary(results):
        print(line)
    short = missed(results, scenarios)
    print(f"floors missed: {len(short)}" + "".join(f"\n  {line}" for line in short))
