"""`make mutations`: mistakes are planted, one at a time, and the tests have to notice each.

Without arguments all of them, on copies of the tree, in minutes; docs/mutations.md is written by such a run.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from pathlib import Path
from queue import SimpleQueue

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from tests.mutations.mistake import Bad, Mistake, check
from tests.mutations.mistakes import GROUPS, MISTAKES
from tests.mutations.page import PAGE, page
from tests.mutations.patched import FILES, Patched, patched
from tests.mutations.running import (
    CAUGHT,
    SUITE_SECONDS_MAX,
    Outcome,
    TreeCopy,
    module_of,
    try_mistake,
    try_suite,
)

ROOT = Path(__file__).resolve().parents[2]
Work = Callable[[TreeCopy], list[Outcome]]


def arguments() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog='make mutations ARGS="..."', description=__doc__)
    parser.add_argument("--check", action="store_true", help="only check that each mistake fits the tree")
    parser.add_argument(
        "--only", default="", help="those whose names, or files, contain this; or security, transactions"
    )
    parser.add_argument(
        "--jobs",
        type=int,
        default=min(4, os.cpu_count() or 1),
        help="copies of the tree (default %(default)s)",
    )
    return parser


def chosen(only: str) -> tuple[list[Mistake], dict[str, list[Patched]]]:
    """(planted mistakes, mutations by their file)"""
    group = GROUPS.get(only, ())
    mistakes = [each for each in MISTAKES if only in each.name or only in each.path or each in group]
    suites: dict[str, list[Patched]] = {path: [] for path in FILES}
    for each in patched(ROOT):
        if only in each.name or only in each.path:
            suites[each.path].append(each)
    return mistakes, {path: mutations for path, mutations in suites.items() if mutations}


def show_bad(console: Console, bad: Iterable[Bad]) -> None:
    for each in bad:
        console.print(f"{each.name}: {each.why}", style="red", highlight=False, soft_wrap=True)


def show(console: Console, outcomes: Sequence[Outcome]) -> None:
    """The table at the end: each planted mistake, each suite, and what a suite did not notice."""
    table = Table("mistake", "verdict", "by, or why", "s", box=None)
    suites: dict[str, list[Outcome]] = {}
    for each in outcomes:
        if each.path in FILES:
            suites.setdefault(each.path, []).append(each)
        if each.path not in FILES or not each.good:
            style = "" if each.good else "red"
            table.add_row(each.name, each.verdict, each.detail, f"{each.seconds:.1f}", style=style)
    for path, found in suites.items():
        caught = sum(each.verdict == CAUGHT for each in found)
        seconds = sum(each.seconds for each in found)
        table.add_row(path, f"{caught} of {len(found)}", "", f"{seconds:.1f}")
    console.print(table)


def check_baseline(copy: TreeCopy, mistakes: Sequence[Mistake]) -> str:
    """Why the run would show nothing: a named test fails without any mistake; empty if none does."""
    copy.check_imports(sorted({module_of(each.path) for each in mistakes if not each.equivalent}))
    tests = sorted({test for each in mistakes for test in each.tests})
    if not tests:
        return ""
    run = copy.run(tests, SUITE_SECONDS_MAX, first=False)
    if run.failed:
        return f"without any mistake {run.failed[0]} fails"
    return "" if run.code == 0 else f"without any mistake the tests do not run: {run.said}"


def run_all(
    copies: Sequence[TreeCopy], works: Sequence[Work], done: Callable[[list[Outcome]], None]
) -> list[Outcome]:
    """Each piece of work on a copy of its own; outcomes in the order of `works`."""
    free: SimpleQueue[TreeCopy] = SimpleQueue()
    for copy in copies:
        free.put(copy)

    def one(work: Work) -> list[Outcome]:
        copy = free.get()
        try:
            return work(copy)
        finally:
            free.put(copy)

    with ThreadPoolExecutor(len(copies)) as pool:
        futures: list[Future[list[Outcome]]] = [pool.submit(one, work) for work in works]
        try:
            for future in as_completed(futures):
                done(future.result())
        except BaseException:
            for future in futures:
                future.cancel()
            raise
    return [outcome for future in futures for outcome in future.result()]


def works_of(mistakes: Sequence[Mistake], suites: dict[str, list[Patched]]) -> list[Work]:
    """The longest first: the suites of mutations."""

    def suite(path: str) -> Work:
        return lambda copy: try_suite(copy, path, suites[path])

    def single(mistake: Mistake) -> Work:
        return lambda copy: [try_mistake(copy, mistake)]

    return [*map(suite, suites), *map(single, mistakes)]


def main(argv: Sequence[str]) -> int:
    options = arguments().parse_args(argv)
    console = Console()
    if not console.is_terminal:
        console.width = 200  # a log: names stay whole
    mistakes, suites = chosen(options.only)
    bad = check(ROOT, mistakes)
    if options.check or bad:
        show_bad(console, bad)
        count = sum(map(len, suites.values()))
        console.print(
            f"{len(mistakes)} mistakes and {count} mutations of suites, {len(bad)} do not fit the tree"
        )
        return 1 if bad else 0
    start = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="magnetar-mutations-") as directory:
        copies = [TreeCopy(ROOT, Path(directory, str(number))) for number in range(options.jobs)]
        console.print("the tests, without any mistake")
        if why := check_baseline(copies[0], mistakes):
            console.print(why, style="red", highlight=False)
            return 1
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        with Progress(*columns, console=console, disable=not console.is_terminal) as progress:
            total = len(mistakes) + sum(map(len, suites.values()))
            task = progress.add_task("mistakes", total=total)
            outcomes = run_all(
                copies, works_of(mistakes, suites), lambda found: progress.advance(task, len(found))
            )
    show(console, outcomes)
    seconds = time.monotonic() - start
    bad_ones = [each for each in outcomes if not each.good]
    console.print(f"{len(outcomes)} mistakes, {len(bad_ones)} not caught, {seconds:.0f} s")
    if not options.only:
        (ROOT / PAGE).write_text(page(outcomes), encoding="utf-8")
        console.print(f"{PAGE} is written")
    return 1 if bad_ones else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
