"""Runs the simulation's seeded tests over many seeds, and writes down what became of them in docs/faults.md.

    make sim-record ARGS="--seeds 10000"

Seeds go in pieces: one run of pytest each, whose result is a file under data/sim-record. A run that was
interrupted goes on with the first piece that is missing; one of another commit begins anew, since its seeds
are other runs. Failures do not end a run: they are counted and named.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from bench.progress import Steps
from bench.results import machine, revision
from tests.simulation.recording import FILE_VARIABLE, HAPPENED_LINE

ROOT: Final = Path(__file__).resolve().parents[2]
STATE: Final = ROOT / "data" / "sim-record"
PAGE: Final = ROOT / "docs" / "faults.md"
BEGIN: Final = "<!-- written by make sim-record -->"
END: Final = "<!-- end of what make sim-record writes -->"
TESTS: Final = ("tests/simulation", "tests/transactions", "tests/unit/spark/offload/test_races.py")
"""Where every test that is marked `seeds` is."""

NAMED_MAX: Final = 20
"""Failures that the page names."""


@dataclass(slots=True)
class Tally:
    """What became of one test, or of all."""

    runs: int = 0
    cpu_s: float = 0.0
    failures: list[str] = field(default_factory=list)


@dataclass(slots=True)
class Record:
    """Of several pieces."""

    seeds: int = 0
    wall_s: float = 0.0
    tests: dict[str, Tally] = field(default_factory=dict)
    happened: Counter[str] = field(default_factory=Counter)

    @property
    def everything(self) -> Tally:
        tallies = self.tests.values()
        failures = [each for tally in tallies for each in tally.failures]
        return Tally(sum(t.runs for t in tallies), sum(t.cpu_s for t in tallies), failures)


def pieces(seeds: int, size: int) -> list[range]:
    """Seeds from 0 on, so many at a time."""
    return [range(first, min(first + size, seeds)) for first in range(0, seeds, size)]


def added_up(done: Iterable[dict[str, Any]]) -> Record:
    """The record of pieces, each as `run_piece` left it."""
    record = Record()
    for piece in done:
        record.seeds += piece["seeds"]
        record.wall_s += piece["wall_s"]
        for line in piece["lines"]:
            if HAPPENED_LINE in line:
                record.happened.update(line[HAPPENED_LINE])
                continue
            name = line["test"].partition("[")[0]
            tally = record.tests.setdefault(name, Tally())
            tally.runs += 1
            tally.cpu_s += line["cpu_s"]
            if line["failed"]:
                tally.failures.append(line["test"])
    return record


def page_text(record: Record, about: dict[str, str], command: str, commit: str) -> str:
    """What docs/faults.md says of a record."""
    every = record.everything
    rate = every.runs / every.cpu_s if every.cpu_s else 0.0
    hours = record.wall_s / 3600
    lines = [
        BEGIN,
        f"{record.seeds:,} seeds of each of {len(record.tests)} tests, {every.runs:,} simulated runs: "
        f"**{len(every.failures)} failed**. {rate:.1f} runs a second of processor time, {hours:.1f} hours "
        f"in all ({about['cpu']}, {about['cores']} cores, {about['memory']}, Python {about['python']}; "
        f"commit {commit}).",
        "",
        "```sh",
        command,
        "```",
        "",
        "| test | runs | failed | a second of processor time |",
        "| --- | --- | --- | --- |",
    ]
    for name, tally in sorted(record.tests.items()):
        each = tally.runs / tally.cpu_s if tally.cpu_s else 0.0
        lines.append(
            f"| `{name.removeprefix('tests/')}` | {tally.runs:,} | {len(tally.failures)} | {each:.1f} |"
        )
    if record.happened:
        lines += ["", "Trouble that came about in replicated storage meanwhile, by its name in the code:", ""]
        counts = ", ".join(f"{name} {count:,}" for name, count in sorted(record.happened.items()))
        lines.append(f"{counts}.")
    if every.failures:
        lines += ["", *(f"- `{name}`" for name in every.failures[:NAMED_MAX])]
        if (left := len(every.failures) - NAMED_MAX) > 0:
            lines.append(f"- and {left:,} more")
    return "\n".join([*lines, END])


def put_into(page: str, text: str) -> str:
    """A page with what stood between the marks replaced. Raises ValueError when it has none."""
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"{PAGE.name} lacks the lines {BEGIN!r} and {END!r}")
    return before + text + after


def run_piece(seeds: range, workers: str, chosen: Sequence[str]) -> dict[str, Any] | None:
    """Run pytest over some seeds; None when it was interrupted, or broke down."""
    notes = STATE / "under-way.jsonl"
    notes.unlink(missing_ok=True)
    environment = {
        **os.environ,
        "PYTHONHASHSEED": "0",
        "MAGNETAR_SIM_SEEDS": f"{seeds.start}-{seeds.stop}",
        FILE_VARIABLE: str(notes),
    }
    command = [sys.executable, "-m", "pytest", "-q", "-m", "seeds", "--timeout", "0", "-n", workers]
    command += ["-p", "tests.simulation.recording", "-p", "no:cacheprovider", *TESTS, *chosen]
    began = time.monotonic()
    with open(STATE / "last-piece.log", "w") as log:
        done = subprocess.run(command, cwd=ROOT, env=environment, stdout=log, stderr=subprocess.STDOUT)
    if done.returncode not in (0, 1) or not notes.exists():
        return None
    lines = [json.loads(line) for line in notes.read_text().splitlines()]
    return {"seeds": len(seeds), "wall_s": round(time.monotonic() - began, 1), "lines": lines}


def main() -> None:
    parser = argparse.ArgumentParser(prog='make sim-record ARGS="..."', description=__doc__)
    parser.add_argument(
        "--seeds", type=int, default=10_000, help="of each test, from 0 on (default: %(default)s)"
    )
    parser.add_argument(
        "--piece", type=int, default=50, help="seeds of each test at a time (default: %(default)s)"
    )
    parser.add_argument("--workers", default="auto", help="processes (default: one for each core)")
    parser.add_argument(
        "-k", dest="tests", metavar="EXPRESSION", help="only some tests, as pytest chooses them"
    )
    parser.add_argument(
        "--no-page", action="store_true", help="print the record, and leave docs/faults.md alone"
    )
    parser.add_argument("--anew", action="store_true", help="forget the pieces that are done")
    options = parser.parse_args()
    chosen = ["-k", options.tests] if options.tests else []
    commit = revision()
    key = {"commit": commit, "piece": options.piece, "tests": options.tests}
    STATE.mkdir(parents=True, exist_ok=True)
    same = STATE / "of.json"
    if options.anew or not same.exists() or json.loads(same.read_text()) != key:
        for path in STATE.glob("piece-*.json"):
            path.unlink()
        same.write_text(json.dumps(key))
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    todo = pieces(options.seeds, options.piece)
    done: list[dict[str, Any]] = []
    with Steps(len(todo)) as steps:
        for seeds in todo:
            path = STATE / f"piece-{seeds.start:06}-{seeds.stop:06}.json"
            if not path.exists():
                failed = len(added_up(done).everything.failures)
                steps.begin(f"seeds {seeds.start} to {seeds.stop - 1}, {failed} failed so far")
                piece = run_piece(seeds, options.workers, chosen)
                if piece is None:
                    log = (STATE / "last-piece.log").relative_to(ROOT)
                    sys.exit(f"pytest ended early, see {log}; the same command goes on with this piece")
                path.with_suffix(".new").write_text(json.dumps(piece))
                path.with_suffix(".new").rename(path)
            else:
                steps.begin(f"seeds {seeds.start} to {seeds.stop - 1} were done before")
            done.append(json.loads(path.read_text()))
    record = added_up(done)
    arguments = [f"--seeds {options.seeds}", *([f"-k {shlex.quote(options.tests)}"] if options.tests else [])]
    command = f'make sim-record ARGS="{" ".join(arguments)}"'
    text = page_text(record, machine(), command, commit)
    print(text)
    if not options.no_page:
        PAGE.write_text(put_into(PAGE.read_text(), text))
        print(f"written into {PAGE.relative_to(ROOT)}")
    sys.exit(1 if record.everything.failures else 0)


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit("interrupted; the same command goes on with the piece that was under way")
