"""Cost of security, beside Apache Pulsar in the same run: `python -m bench.security`.

Throughput and CPU a message, handshakes, and memory of connections, each plain and with TLS at both brokers,
by turns, so that a busy machine touches all of them; and authorization decisions. CPU and memory are those of
the broker's process alone.
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

from bench.brokers import APACHE_PULSAR, MAGNETAR, anchor_version, apache_pulsar_jars
from bench.progress import Steps
from bench.results import Results, load, machine, now, revision, together
from bench.security import report
from bench.security.run import DECISIONS, FULL, PARTS, QUICK, Run
from bench.table import into_page
from tests.integration.harness import ROOT

PAGE: Final = ROOT / "docs" / "security-benchmarks.md"
IMAGES: Final = ROOT / "docs" / "images"


def arguments() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m bench.security", description=__doc__.partition("\n\n")[0]
    )
    parser.add_argument("--quick", action="store_true", help="a minute or two: one round, small loads")
    parser.add_argument("--rounds", type=int, help="rounds of every measurement (default 3; quick: 1)")
    parser.add_argument("--only", nargs="+", choices=PARTS, default=PARTS, help="these parts only")
    parser.add_argument("--alone", action="store_true", help="Magnetar without Apache Pulsar")
    parser.add_argument("--docs", action="store_true", help="write tables and plot into the docs page")
    parser.add_argument(
        "--render", type=Path, nargs="+", metavar="JSON", help="measure nothing: report these results"
    )
    return parser


def measure(options: argparse.Namespace, command: str) -> Results:
    """The whole run."""
    scale = QUICK if options.quick else FULL
    if options.rounds:
        scale = replace(scale, rounds=options.rounds)
    results = Results(command, options.quick, now(), machine(), {MAGNETAR: revision()})
    jars: Path | str = "--alone was given"
    if set(options.only) == {DECISIONS}:
        jars = "decisions are asked for without a broker"
    elif not options.alone:
        jars = apache_pulsar_jars(print)
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
        results = measure(options, " ".join(["python -m bench.security", *argv]))
        print(f"results in {results.save('security').relative_to(ROOT)}")
    print("\n".join(report.markdown(results, ())))
    if options.docs:
        from bench.security import plots

        drawn = [path.relative_to(PAGE.parent).as_posix() for path in plots.draw(results, IMAGES)]
        into_page(PAGE, report.PART, ["", *report.markdown(results, drawn), ""])
        print(f"wrote {PAGE.relative_to(ROOT)}")
    sys.exit(1 if results.failures else 0)


if __name__ == "__main__":
    main(sys.argv[1:])
