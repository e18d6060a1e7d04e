"""`make soak`: topics of all subscription types under churn, and a checker that knows everything."""

from __future__ import annotations

import argparse
import random
import shutil
import sys
import time
from collections.abc import Sequence

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from tests.integration.harness import StandaloneServer, temporary_directory
from tests.soak.soak import SETTINGS, Load, Outcome, run

LINE_SECONDS = 15.0


def arguments() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog='make soak ARGS="..."', description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0, help="of churn, before the drain (default 10)")
    parser.add_argument("--topics", type=int, default=200, help="of the raw clients (default 200)")
    parser.add_argument("--library-topics", type=int, default=8, help="of the PyPI client (default 8)")
    parser.add_argument("--seed", type=int, help="repeats a run (default: another one each time)")
    return parser


class Shown:
    """Bars on a terminal, a line now and then elsewhere."""

    def __init__(self, console: Console) -> None:
        columns = (TextColumn("{task.description:>8}"), BarColumn(), TextColumn("{task.percentage:>3.0f} %"))
        self.bars = Progress(*columns, TimeElapsedColumn(), console=console, disable=not console.is_terminal)
        self._plain = not console.is_terminal
        self._tasks = {name: self.bars.add_task(name, total=None) for name in ("topics", "churn", "drain")}
        self._said = 0.0

    def __call__(self, phase: str, done: float, total: float) -> None:
        self.bars.update(self._tasks[phase], completed=done, total=total)
        if self._plain and (done >= total or time.monotonic() - self._said > LINE_SECONDS):
            self._said = time.monotonic()
            print(f"soak: {phase}: {done:.0f} of {total:.0f}", flush=True)


def show(console: Console, outcome: Outcome) -> None:
    """The tables at the end."""
    table = Table("subscription type", "topics", "messages", "deliveries", box=None)
    for kind, counts in outcome.by_kind.items():
        row = (counts["topics"], counts["messages"], counts["delivered"])
        table.add_row(kind, *(f"{value:,}" for value in row))
    console.print(table)
    totals = Table("what happened", "times", box=None)
    for name, count in sorted(outcome.counts.items()):
        totals.add_row(name, f"{count:,}")
    totals.add_row("peak memory of the server", f"{outcome.peak_mib:.0f} MiB")
    console.print(totals)


def main(argv: Sequence[str]) -> None:
    options = arguments().parse_args(argv)
    seed = random.SystemRandom().randrange(1_000_000) if options.seed is None else options.seed
    load = Load(seed, options.minutes * 60, options.topics, options.library_topics)
    console = Console()
    print(f"soak: {load.command}", flush=True)
    directory = temporary_directory()
    server = StandaloneServer(directory, SETTINGS)
    try:
        shown = Shown(console)
        with shown.bars:
            outcome = run(server, load, shown)
    finally:
        server.kill()
    show(console, outcome)
    for violation in outcome.violations[:50]:
        print(f"soak: {violation}")
    if outcome.violations:
        sys.exit(
            f"soak: {len(outcome.violations)} promises broken; kept for a look: {directory}\n"
            f"soak: again: {load.command}"
        )
    shutil.rmtree(directory, ignore_errors=True)
    print("soak: every promise was kept")


if __name__ == "__main__":
    main(sys.argv[1:])
