"""`python -m bench.peers`: Magnetar beside NATS JetStream and Apache Kafka; see docs/benchmarks.md."""

from __future__ import annotations

import argparse
import signal
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from bench.brokers import MAGNETAR
from bench.disk import sync_ms
from bench.figures import percentile
from bench.peers.loads import KAFKA, LOADS, NATS, STARTS
from bench.peers.programs import kafka_version, nats_version, ready
from bench.peers.report import markdown
from bench.peers.run import Run
from bench.progress import Steps
from bench.results import Results, load, machine, now, revision
from bench.table import into_page
from tests.integration.harness import ROOT

PAGE: Final = ROOT / "docs" / "benchmarks.md"
PART: Final = "peers"
COMMAND: Final = ".venv/bin/python -m bench.peers"
SYNC_BYTES: Final = 4_096


def arguments() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m bench.peers", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a tenth of the messages, one round, one start")
    parser.add_argument("--rounds", type=int, help="rounds of every load, and starts (default 3; quick: 1)")
    parser.add_argument("--only", nargs="+", metavar="LOAD", default=[], help="these loads only")
    parser.add_argument("--docs", action="store_true", help=f"write the tables into {PAGE.relative_to(ROOT)}")
    parser.add_argument("--render", type=Path, metavar="JSON", help="measure nothing: report this run")
    return parser


def measure(options: argparse.Namespace, command: str) -> Results:
    """The whole run; servers that it started have ended when it returns or raises."""
    known = [one.key for one in (*LOADS, *STARTS)]
    if unknown := set(options.only) - set(known):
        sys.exit(f"bench: no load is called {', '.join(sorted(unknown))}; loads: {', '.join(known)}")
    programs = ready(print)
    if isinstance(programs.generator, str):
        sys.exit(f"bench: nothing can be measured without the generator: {programs.generator}")
    results = Results(command, options.quick, now(), machine(), {MAGNETAR: revision()})
    for name, program, version in (
        (NATS, programs.nats, nats_version()),
        (KAFKA, programs.kafka, kafka_version()),
    ):
        if isinstance(program, Path):
            results.brokers[name] = version
        else:
            results.notes.append(f"{name} was left out: {program}.")
            print(f"bench: {results.notes[-1]}")
    sync = percentile(sync_ms(Path(tempfile.gettempdir()), SYNC_BYTES), 0.5)
    results.notes.append(f"A write and sync of {SYNC_BYTES:,} B without any server: p50 {sync:.3f} ms.")
    rounds = options.rounds or (1 if options.quick else 3)
    began = time.monotonic()
    run = Run(programs, results, rounds=rounds, starts=rounds, only=frozenset(options.only))
    try:
        with Steps(run.step_count()) as steps:
            run.execute(steps)
    except (KeyboardInterrupt, SystemExit):
        results.notes.append("The run was ended early; what it had measured by then is here.")
    results.seconds = time.monotonic() - began
    return results


def main(argv: Sequence[str]) -> None:
    options = arguments().parse_args(argv)
    # A polite end from outside stops the servers too, and keeps what was measured.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    if options.render:
        results = load(options.render)
    else:
        results = measure(options, " ".join((COMMAND, *argv)))
        print(f"bench: results in {results.save('peers').relative_to(ROOT)}")
    text = markdown(results)
    print("\n".join(text))
    if options.docs:
        into_page(PAGE, PART, text)
        print(f"bench: wrote {PAGE.relative_to(ROOT)}")


if __name__ == "__main__":
    main(sys.argv[1:])
