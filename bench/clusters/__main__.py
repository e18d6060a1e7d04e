"""`python -m bench.clusters`: Magnetar's cluster beside Apache Pulsar's; see docs/benchmarks.md.

Each has a metadata store, three bookies and a broker on this machine, and a second broker while brokers are
killed. Apache's comes from the same jars as in `make bench`.
"""

from __future__ import annotations

import argparse
import signal
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from bench import report
from bench.brokers import APACHE_PULSAR, MAGNETAR, anchor_version, apache_pulsar_jars
from bench.clusters.run import RESULTS_KIND, Run
from bench.clusters.scenarios import FULL, QUICK, all_scenarios
from bench.progress import Steps
from bench.results import Results, load, machine, now, revision, together
from tests.integration.harness import ROOT

COMMAND: Final = "python -m bench.clusters"
PAGE: Final = ROOT / "docs" / "benchmarks.md"
SECTIONS: Final = ("cluster", "cluster-quick")
"""Generated parts of the page."""


def arguments() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog=COMMAND, description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="one round, small loads: about 9 minutes")
    parser.add_argument("--rounds", type=int, help=f"rounds of every load (default {FULL.rounds}; quick: 1)")
    parser.add_argument("--only", nargs="+", metavar="LOAD", default=[], help="these loads only")
    parser.add_argument("--alone", action="store_true", help="Magnetar without Apache Pulsar")
    parser.add_argument(
        "--docs",
        nargs="?",
        const=SECTIONS[0],
        choices=SECTIONS,
        metavar="SECTION",
        help=f"write the table into this section of docs/benchmarks.md: {', '.join(SECTIONS)}",
    )
    parser.add_argument(
        "--render", type=Path, nargs="+", metavar="JSON", help="measure nothing: report these results"
    )
    return parser


def measure(options: argparse.Namespace, command: str) -> Results:
    """The whole run; processes that it started have ended when it returns or raises."""
    scale = QUICK if options.quick else FULL
    if options.rounds:
        scale = replace(scale, rounds=options.rounds)
    known = [one.key for one in all_scenarios(scale)]
    if unknown := set(options.only) - set(known):
        sys.exit(f"bench: no load is called {', '.join(sorted(unknown))}; there are: {', '.join(known)}")
    results = Results(command, options.quick, now(), machine(), {MAGNETAR: revision()})
    jars = "--alone was given" if options.alone else apache_pulsar_jars(print)
    if isinstance(jars, str):
        results.notes.append(f"Magnetar was measured alone, without Apache Pulsar: {jars}.")
    else:
        results.brokers[APACHE_PULSAR] = anchor_version()
    began = time.monotonic()
    run = Run(scale, results, jars if isinstance(jars, Path) else None, frozenset(options.only))
    with Steps(run.step_count()) as steps:
        run.execute(steps)
    results.seconds = time.monotonic() - began
    return results


def main(argv: Sequence[str]) -> None:
    options = arguments().parse_args(argv)
    # A polite end from outside stops the clusters too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    if options.render:
        results = together([load(path) for path in options.render])
    else:
        results = measure(options, " ".join([COMMAND, *argv]))
        print(f"bench: results in {results.save(RESULTS_KIND).relative_to(ROOT)}")
    scenarios = all_scenarios(QUICK if results.quick else FULL)
    report.show(results, scenarios)
    if options.docs:
        report.write_page(PAGE, results, section=options.docs, scenarios=scenarios)
        print(f"bench: wrote {PAGE.relative_to(ROOT)}")


if __name__ == "__main__":
    main(sys.argv[1:])
