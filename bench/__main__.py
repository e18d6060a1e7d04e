"""`python -m bench`: Magnetar beside Apache Pulsar in one run; see docs/benchmarks.md."""

from __future__ import annotations

import argparse
import signal
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from bench import report
from bench.brokers import APACHE_PULSAR, MAGNETAR, anchor_version, apache_pulsar_jars
from bench.java_client import client_jars
from bench.progress import Steps
from bench.results import Results, load, machine, now, revision, together
from bench.runner import Run
from bench.scenarios import FULL, JAVA, QUICK, all_scenarios
from tests.integration.harness import ROOT

PAGE = ROOT / "docs" / "benchmarks.md"
IMAGES = ROOT / "docs" / "images"


def arguments() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog='make bench ARGS="..."', description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a few minutes: one round, small loads")
    parser.add_argument("--rounds", type=int, help="rounds of every load (default 3; quick: 1)")
    parser.add_argument("--only", nargs="+", metavar="LOAD", default=[], help="these loads only")
    parser.add_argument("--alone", action="store_true", help="Magnetar without Apache Pulsar")
    parser.add_argument(
        "--docs",
        nargs="?",
        const="figures",
        choices=report.SECTIONS,
        metavar="SECTION",
        help=f"write table and plots into this section of docs/benchmarks.md: {', '.join(report.SECTIONS)}",
    )
    parser.add_argument(
        "--render",
        type=Path,
        nargs="+",
        metavar="JSON",
        help="measure nothing: report the results of these runs",
    )
    return parser


def measure(options: argparse.Namespace, command: str) -> Results:
    """The whole run; brokers that it started have ended when it returns or raises."""
    scale = QUICK if options.quick else FULL
    if options.rounds:
        scale = replace(scale, rounds=options.rounds)
    known = [one.key for one in all_scenarios(scale)]
    if unknown := set(options.only) - set(known):
        sys.exit(f"bench: no load is called {', '.join(sorted(unknown))}; there are: {', '.join(known)}")
    results = Results(command, options.quick, now(), machine(), {MAGNETAR: revision()})
    jars = "--alone was given" if options.alone else apache_pulsar_jars(print)
    if isinstance(jars, str):
        note = f"Magnetar was measured alone, without Apache Pulsar: {jars}."
        print(f"bench: {note}")
        results.notes.append(note)
    else:
        results.brokers[APACHE_PULSAR] = anchor_version()
    left_out = _without_java(results, options.only)
    began = time.monotonic()
    anchor = jars if isinstance(jars, Path) else None
    run = Run(scale, results, anchor, frozenset(options.only), left_out)
    with Steps(run.step_count()) as steps:
        run.execute(steps)
    results.seconds = time.monotonic() - began
    return results


def _without_java(results: Results, only: Sequence[str]) -> frozenset[str]:
    """The loads of the Java client where it cannot run, which the results say; fetches it where it can."""
    loads = frozenset(key for key, _, _ in JAVA)
    if only and not loads & set(only):
        return frozenset()
    jars = client_jars(print)
    if isinstance(jars, Path):
        return frozenset()
    note = f"The loads of Apache's Java client were left out: {jars}."
    print(f"bench: {note}")
    results.notes.append(note)
    return loads


def main(argv: Sequence[str]) -> None:
    options = arguments().parse_args(argv)
    # A polite end from outside stops the brokers too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    if options.render:
        results = together([load(path) for path in options.render])
    else:
        given = " ".join(argv)
        results = measure(options, f'make bench ARGS="{given}"' if given else "make bench")
        print(f"bench: results in {results.save().relative_to(ROOT)}")
    report.show(results)
    if options.docs:
        from bench import plots

        drawn = plots.draw(results, IMAGES, report.SECTIONS[options.docs])
        paths = [(kind, path.relative_to(PAGE.parent).as_posix()) for kind, path in drawn]
        report.write_page(PAGE, results, paths, options.docs)
        print(f"bench: wrote {PAGE.relative_to(ROOT)} and the plots beside it")


if __name__ == "__main__":
    main(sys.argv[1:])
