"""One run of the storage benchmark as data, and as the table of docs/storage-benchmarks.md."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import median

from rich.console import Console
from rich.table import Table

from bench.figures import Figure
from bench.report import BEGIN, END
from bench.storage.figures import FIGURES
from bench.target import RESULTS

HEADINGS = ("measured", "figure", "result (lowest to highest)", "asked for", "verdict")


@dataclass(slots=True)
class StorageResults:
    """Figures by group and name, one value a round."""

    command: str
    began: str
    revision: str
    machine: dict[str, str]
    figures: dict[str, dict[str, list[float]]] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    load_averages: list[float] = field(default_factory=list)
    """Load average of the last minute, before each part: the benchmark's own load is in it."""
    seconds: float = 0.0
    beside: dict[str, str] = field(default_factory=dict)
    """Conditions that the figures beside BookKeeper depend on."""

    def add(self, group: str, figures: dict[str, float]) -> None:
        for key, value in figures.items():
            self.figures.setdefault(group, {}).setdefault(key, []).append(value)

    def take(self, other: StorageResults) -> None:
        """Add the groups of another run, in place of this one's where both have them."""
        self.figures.update(other.figures)
        loads = ", ".join(f"{load:.1f}" for load in other.load_averages)
        self.notes += [
            f"Measured later: {', '.join(sorted(other.figures))}: `{other.command}`, {other.began}, Magnetar "
            f"{other.revision}, load average {loads}.",
            *other.notes,
        ]

    def save(self) -> Path:
        RESULTS.mkdir(parents=True, exist_ok=True)
        path = RESULTS / f"storage-{self.began.replace(':', '')}.json"
        path.write_text(json.dumps(asdict(self), indent=1) + "\n")
        return path


def load_results(path: Path) -> StorageResults:
    return StorageResults(**json.loads(path.read_text()))


def rows(results: StorageResults) -> list[tuple[str, ...]]:
    """The body of the table: what was measured only."""
    found = []
    for group, figures in FIGURES.items():
        title = group
        for figure in figures:
            values = results.figures.get(group, {}).get(figure.key, [])
            if values:
                found.append((title, *_row(figure, values)))
                title = ""
    return found


def _row(figure: Figure, values: list[float]) -> tuple[str, ...]:
    middle, unit = median(values), f" {figure.unit}" if figure.unit else ""
    text = number(middle) + unit
    if len(values) > 1:
        text += f" ({number(min(values))} to {number(max(values))})"
    if figure.floor is None:
        return figure.key, text, "", ""
    sign = "at least" if figure.better == "higher" else "at most"
    return figure.key, text, f"{sign} {number(figure.floor)}{unit}", verdict(figure, middle)


def verdict(figure: Figure, value: float) -> str:
    """Met, or missed by how much."""
    said = figure.verdict(value, None)
    return said.replace("floor ", "").replace("aim ", "")


def number(value: float) -> str:
    if abs(value) >= 10_000:
        return f"{round(value, -2):,.0f}"
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"


def summary(results: StorageResults) -> list[str]:
    """The conditions, a sentence each."""
    machine = results.machine
    loads = ", ".join(f"{load:.1f}" for load in results.load_averages)
    return [
        f"`{results.command}`, {results.began}, {results.seconds:.0f} s, Magnetar {results.revision}.",
        f"{machine['cores']} cores ({machine['cpu']}) shared with the generator, etcd and every bookie, "
        f"{machine['memory']}, Linux {machine['kernel']}, CPython {machine['python']}; load average of the "
        f"last minute before each part: {loads}.",
        *results.notes,
    ]


def markdown(results: StorageResults) -> str:
    return markdown_table(HEADINGS, rows(results), summary(results))


def markdown_table(headings: Sequence[str], body: Iterable[Sequence[str]], conditions: Iterable[str]) -> str:
    """The conditions, then the table."""
    lines = [*conditions, "", "| " + " | ".join(headings) + " |", "|" + " --- |" * len(headings)]
    lines += ["| " + " | ".join(row) + " |" for row in body]
    return "\n".join(lines)


def write_page(page: Path, text: str, begin: str = BEGIN, end: str = END) -> None:
    """Replace what stands between the markers."""
    head, _, rest = page.read_text().partition(begin)
    _, _, tail = rest.partition(end)
    if not tail:
        raise ValueError(f"{page} lacks the markers {begin} and {end}")
    page.write_text(f"{head}{begin}\n{text}\n{end}{tail}")


def show(results: StorageResults) -> None:
    """Print the table and the conditions."""
    print_table(HEADINGS, rows(results), summary(results))


def print_table(headings: Sequence[str], body: Iterable[Sequence[str]], conditions: Iterable[str]) -> None:
    """Print a table for a terminal, and a line for each condition under it."""
    table = Table(*headings, box=None, pad_edge=False)
    for row in body:
        table.add_row(*(cell.replace("**", "") for cell in row))
    console = Console()
    (console if console.is_terminal else Console(width=200)).print(table)
    for line in conditions:
        print(line)
