"""`python -m bench.transactions`: Magnetar beside Apache Pulsar; see docs/transactions-benchmarks.md."""

from __future__ import annotations

import argparse
import signal
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from bench.brokers import APACHE_PULSAR, MAGNETAR, anchor_version, apache_pulsar_jars
from bench.java_client import client_jars
from bench.progress import Steps
from bench.results import Results, load, machine, now, revision, together
from bench.table import into_page
from bench.transactions import report
from bench.transactions.run import FULL, PARTS, QUICK, Run
from tests.integration.harness import ROOT

PAGE: Final = ROOT / "docs" / "transactions-benchmarks.md"


def arguments() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog=report.COMMAND, description=__doc__)
    parser.add_argument("--quick", action="store_true", help="four minutes: one round, small loads")
    parser.add_argument("--rounds", type=int, help=f"rounds of every load (default {FULL.rounds})")
    parser.add_argument("--seconds", type=float, help=f"duration of a load (default {FULL.seconds:g})")
    parser.add_argument("--only", nargs="+", choices=PARTS, default=PARTS, help="these parts only")
    parser.add_argument("--alone", action="store_true", help="Magnetar without Apache Pulsar")
    parser.add_argument("--docs", action="store_true", help="write the table into the docs page")
    parser.add_argument(
        "--render", type=Path, nargs="+", metavar="JSON", help="measure nothing: report these results"
    )
    return parser


def measure(options: argparse.Namespace, command: str) -> Results:
    """The whole run. Exits when the Java client cannot be had."""
    scale = QUICK if options.quick else FULL
    if options.rounds:
        scale = replace(scale, rounds=options.rounds)
    if options.seconds:
        scale = replace(scale, seconds=options.seconds)
    if isinstance(why := client_jars(print), str):
        sys.exit(f"Transactions need Apache's Java client, which cannot run: {why}.")
    results = Results(command, options.quick, now(), machine(), {MAGNETAR: revision()})
    jars = "--alone was given" if options.alone else apache_pulsar_jars(print)
    if isinstance(jars, str):
        results.notes.append(f"Magnetar was measured alone, without Apache Pulsar: {jars}.")
    else:
        results.brokers[APACHE_PULSAR] = anchor_version()
    began = time.monotonic()
    run = Run(scale, results, jars if isinstance(jars, Path) else None, options.only)
    with Steps(run.step_count()) as steps:
        run.execute(steps)
    results.seconds = time.monotonic() - began
    return results


def main(argv: Sequence[str]) -> None:
    options = arguments().parse_args(argv)
    # A polite end from outside stops the brokers too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    if options.render:
        results = together([load(path) for path in options.render])
    else:
        results = measure(options, " ".join([report.COMMAND, *argv]))
        print(f"results in {results.save('transactions').relative_to(ROOT)}")
    text = report.markdown(results)
    print("\n".join(text))
    if options.docs:
        into_page(PAGE, report.PART, ["", *text, ""])
        print(f"wrote {PAGE.relative_to(ROOT)}")
    sys.exit(1 if results.failures else 0)


if __name__ == "__main__":
    main(sys.argv[1:])
