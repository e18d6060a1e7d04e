"""`python -m bench.client`: the asyncio client beside pulsar-client, both against one standalone.

Every load runs with one library and then with the other, round by round, each in a process of its own. The
table goes to bench/results/client.md, and with --docs into docs/client-benchmarks.md.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import version
from statistics import median
from typing import Final

from bench.brokers import Broker, Magnetar, first_acknowledgement
from bench.client.loads import CPU, IMPORT, IMPORT_BESIDE, MEMORY, OURS, P50, P99, RATE, THEIRS
from bench.progress import Steps
from bench.results import machine
from bench.table import into_page, lines, markdown
from bench.target import RESULTS, new_topic, report
from tests.integration.harness import ROOT

PAGE: Final = ROOT / "docs" / "client-benchmarks.md"
PART: Final = "figures"
ROUNDS: Final = 5
MESSAGES: Final = 200_000
PACED: Final = 2_000
PACED_S: Final = 10
IDLE_PRODUCERS: Final = 10_000
IDLE_TOPICS: Final = 10
LOAD_S_MAX: Final = 300.0

FIRST: Final = (OURS, THEIRS)


@dataclass(frozen=True, slots=True)
class Row:
    """A figure of the table."""

    load: str
    title: str
    figure: str
    better: str
    """higher or lower"""
    need: str
    """The target in words; empty for none."""
    floor: float = 0.0
    """The smallest ratio (higher: ours by theirs, lower: theirs by ours), or the largest value of ours."""
    is_value: bool = False


def _rows() -> list[Row]:
    rows = []
    for size in (100, 1_024):
        for batched in (False, True):
            how = "batched" if batched else "unbatched"
            load = f"produce {size} {how}"
            rows += [
                Row(load, f"produce {size} B, {how}", RATE, "higher", "2 times", 2.0),
                Row(load, f"produce {size} B, {how}", CPU, "lower", ""),
            ]
            load = f"consume {size} {how}"
            title = f"consume {size} B, {how}, acknowledged one by one"
            rows += [
                Row(load, title, RATE, "higher", "2 times", 2.0),
                Row(load, title, CPU, "lower", ""),
            ]
    paced = f"{PACED:,}/s of 1 KiB, unbatched"
    return [
        *rows,
        Row("paced", paced, P50, "lower", ""),
        Row("paced", paced, P99, "lower", "lower", 1.0),
        Row("idle", f"{IDLE_PRODUCERS:,} idle producers", MEMORY, "lower", "4 KiB", 4.0, is_value=True),
        Row("import", "import of Client", IMPORT, "lower", "100 ms", 100.0, is_value=True),
        Row("import", "import of Client", IMPORT_BESIDE, "lower", "100 ms", 100.0, is_value=True),
    ]


def run_load(library: str, load: str, *words: object) -> dict[str, float]:
    """Runs a load in a process of its own and returns its figures."""
    given = [json.dumps(word) if isinstance(word, bool) else str(word) for word in words]
    done = subprocess.run(
        [sys.executable, "-m", "bench.client.loads", library, load, *given],
        capture_output=True,
        text=True,
        timeout=LOAD_S_MAX,
        check=False,
        cwd=ROOT,
    )
    if done.returncode:
        raise SystemExit(f"{library}, {load}: {done.stderr[-2_000:]}")
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


def measure(broker: Broker, rounds: int, messages: int) -> dict[str, dict[str, dict[str, list[float]]]]:
    """Returns figures by load, figure and library, one a round."""
    found: dict[str, dict[str, dict[str, list[float]]]] = {}

    def add(load: str, library: str, figures: dict[str, float]) -> None:
        for figure, value in figures.items():
            found.setdefault(load, {}).setdefault(figure, {}).setdefault(library, []).append(value)

    first_acknowledgement(broker)
    url = broker.target.service_url
    with Steps(rounds * 9 + 2) as steps:
        for number in range(rounds):
            order = FIRST if number % 2 == 0 else FIRST[::-1]
            for size in (100, 1_024):
                for batched in (False, True):
                    how = "batched" if batched else "unbatched"
                    topics = {library: new_topic() for library in order}
                    steps.begin(f"round {number + 1}: produce {size} B {how}")
                    for library in order:
                        figures = run_load(library, "produce", url, topics[library], size, batched, messages)
                        add(f"produce {size} {how}", library, figures)
                    steps.begin(f"round {number + 1}: consume {size} B {how}")
                    for library in order:  # The same messages: those of the library measured first.
                        figures = run_load(library, "consume", url, topics[order[0]], messages)
                        add(f"consume {size} {how}", library, figures)
            steps.begin(f"round {number + 1}: {PACED:,} messages a second")
            for library in order:
                figures = run_load(library, "paced", url, new_topic(), 1_024, PACED, PACED * PACED_S)
                add("paced", library, figures)
        steps.begin(f"{IDLE_PRODUCERS:,} idle producers")
        for library in FIRST:
            figures = run_load(library, "idle", url, new_topic(), IDLE_TOPICS, IDLE_PRODUCERS)
            add("idle", library, figures)
        steps.begin("import")
        for library in FIRST:
            add("import", library, run_load(library, "import"))
    return found


def table(
    found: dict[str, dict[str, dict[str, list[float]]]],
) -> tuple[list[str], list[list[object]]]:
    """Returns headings and rows: medians of both libraries, the ratio, and the verdict."""
    headings = ["", "figure", OURS, THEIRS, "ratio", "target"]
    rows: list[list[object]] = []
    for row in _rows():
        by_library = found.get(row.load, {}).get(row.figure)
        if by_library is None:
            continue
        ours, theirs = median(by_library[OURS]), median(by_library[THEIRS])
        ratio = ours / theirs if row.better == "higher" else theirs / ours
        verdict = ""
        if row.need:
            met = ours < row.floor if row.is_value else ratio >= row.floor
            verdict = f"{row.need}: {'met' if met else 'missed'}"
        rows.append([row.title, row.figure, ours, theirs, f"{ratio:.2f}x", verdict])
    return headings, rows


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.client", description=__doc__)
    parser.add_argument("--rounds", type=int, default=ROUNDS, help=f"rounds (default {ROUNDS})")
    parser.add_argument("--messages", type=int, default=MESSAGES, help=f"of a load (default {MESSAGES:,})")
    parser.add_argument("--docs", action="store_true", help="write the table into the docs page")
    options = parser.parse_args(argv)
    broker = Magnetar()
    try:
        found = measure(broker, options.rounds, options.messages)
    finally:
        broker.stop()
    flat = {f"{load}, {figure}": by for load, figures in found.items() for figure, by in figures.items()}
    report("client", {"rounds": options.rounds, "messages": options.messages, **flat})
    headings, rows = table(found)
    markdown(RESULTS / "client.md", headings, rows)
    text = lines(headings, rows)
    print("\n".join(text))
    if options.docs:
        described = ", ".join(f"{name} {value}" for name, value in machine().items())
        about = (
            f"`python -m bench.client`: medians of {options.rounds} rounds, {options.messages:,} messages "
            f"a load, pulsar-client {version('pulsar-client')}. {described}."
        )
        into_page(PAGE, PART, ["", about, "", *text, ""])
        print(f"wrote {PAGE.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
