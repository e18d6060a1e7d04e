"""`make bench-storage`: the speed of ledger storage, local and replicated; see docs/storage-benchmarks.md."""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from bench.results import machine, now, revision
from bench.storage import beside, beside_table, parts
from bench.storage.results import StorageResults, load_results, markdown, rows, show, write_page
from tests.integration.harness import ROOT

PAGE = ROOT / "docs" / "storage-benchmarks.md"

PARTS: dict[str, Callable[[parts.Run], None]] = {
    "appends": parts.appends,
    "latency": parts.latency,
    "reads": parts.reads,
    "restart": parts.restart,
    "memory": parts.memory,
    "bookkeeper": beside.bookkeeper,
}
BY_DEFAULT = [name for name in PARTS if name != "bookkeeper"]
"""BookKeeper needs Java, Maven and more memory than the others."""


def arguments() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog='make bench-storage ARGS="..."', description=__doc__)
    parser.add_argument("--rounds", type=int, default=2, help="rounds of each load (default 2)")
    parser.add_argument("--seconds", type=float, default=3.0, help="how long each load runs (default 3)")
    parser.add_argument("--scale", type=float, default=1.0, help="of segments, ledgers and backlogs")
    parser.add_argument("--only", nargs="+", metavar="PART", choices=PARTS, default=BY_DEFAULT)
    parser.add_argument("--onto", type=Path, metavar="JSON", help="keep an earlier run's other figures")
    parser.add_argument("--directory", type=Path, help="where data goes (default: the temporary directory)")
    parser.add_argument("--docs", action="store_true", help=f"write {PAGE.relative_to(ROOT)}")
    return parser


def main(argv: Sequence[str]) -> None:
    options = arguments().parse_args(argv)
    # A polite end from outside stops the bookies too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    given = " ".join(argv)
    command = f'make bench-storage ARGS="{given}"' if given else "make bench-storage"
    results = StorageResults(command, now(), revision(), machine())
    began = time.monotonic()
    directory = Path(tempfile.mkdtemp(prefix="magnetar-storage-", dir=options.directory))
    try:
        run = parts.Run(directory, results, options.rounds, options.seconds, options.scale)
        for name in options.only:
            results.load_averages.append(os.getloadavg()[0])
            PARTS[name](run)
            results.save()
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    results.seconds = time.monotonic() - began
    pairs = results
    if options.onto:
        earlier = load_results(options.onto)
        earlier.take(results)
        results = earlier
    print(f"bench: results in {results.save().relative_to(ROOT)}")
    if rows(results):
        show(results)
    if beside_table.rows(pairs):
        beside_table.show(pairs)
    if options.docs:
        if rows(results):
            write_page(PAGE, markdown(results))
        if beside_table.rows(pairs):
            write_page(PAGE, beside_table.markdown(pairs), beside_table.BEGIN, beside_table.END)
        print(f"bench: wrote {PAGE.relative_to(ROOT)}")


if __name__ == "__main__":
    main(sys.argv[1:])
