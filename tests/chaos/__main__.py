"""`make chaos`: a cluster of real processes, a workload, faults as a seed says, and a checker."""

from __future__ import annotations

import argparse
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Sequence

from rich.console import Console
from rich.table import Table

from tests.chaos.chaos import Load, Outcome, run
from tests.chaos.chaos_cluster import ChaosCluster
from tests.chaos.faults import faults, pairs, partitions
from tests.chaos.network import why_impossible
from tests.clients.programs import CannotBuild
from tests.integration.harness import temporary_directory
from tests.transactions.bank import BANK
from tools.local_cluster.etcd_program import find_etcd


def arguments() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog='make chaos ARGS="..."', description=__doc__)
    parser.add_argument(
        "--minutes", type=float, default=10.0, help="of faults, before the drain (default 10)"
    )
    parser.add_argument("--topics", type=int, default=100, help="(default 100)")
    parser.add_argument("--seed", type=int, help="chooses the faults (default: another one each time)")
    parser.add_argument("--only", default="", help="faults whose names contain this")
    parser.add_argument("--pause", type=float, default=30.0, help="seconds of a SIGSTOP (default 30)")
    parser.add_argument("--etcd", type=float, default=60.0, help="seconds without etcd (default 60)")
    parser.add_argument("--library-topics", type=int, default=4, help="of the PyPI client (default 4)")
    parser.add_argument(
        "--bank",
        type=int,
        default=4,
        help="Java clients with transactions, where Java is (default 4; 0: none)",
    )
    return parser


def show(console: Console, outcome: Outcome) -> None:
    """The tables at the end."""
    struck = Table(
        "fault",
        "of",
        "publish gap p50",
        "p99",
        "max",
        "PyPI",
        "idle then",
        "new topic",
        "served anew",
        "goes on",
        box=None,
    )
    for each in outcome.struck:
        gaps = each.publish or [0.0]
        row = (
            gaps[len(gaps) // 2],
            gaps[(len(gaps) * 99 - 1) // 100],
            gaps[-1],
            each.library,
            each.idle,
            each.created,
        )
        times = [f"{value:.2f} s" for value in row]
        struck.add_row(each.fault, each.target, *times, f"{each.moved}", f"{each.settled:.2f} s")
    console.print(struck)
    columns = ("topics", "confirmed", "delivered", "owners", "once")
    kinds = Table("subscription type", *columns[:-1], "confirmed once", box=None)
    for kind, counts in outcome.by_kind.items():
        kinds.add_row(kind, *(f"{counts[name]:,}" for name in columns))
    console.print(kinds)
    for title, counter in (
        ("what happened", outcome.counts),
        ("what was refused meanwhile", outcome.refusals),
    ):
        table = Table(title, "times", box=None)
        for name, count in sorted(counter.items()):
            table.add_row(name, f"{count:,}")
        console.print(table)


def main(argv: Sequence[str]) -> None:
    options = arguments().parse_args(argv)
    seed = random.SystemRandom().randrange(1_000_000) if options.seed is None else options.seed
    command = f'make chaos ARGS="--minutes {options.minutes:g} --seed {seed} --topics {options.topics}"'
    began = time.monotonic()
    # What is terminated takes its namespaces with it.
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))

    def say(text: str) -> None:
        print(f"chaos: {time.monotonic() - began:6.1f} s  {text}", flush=True)

    say(command)
    directory = temporary_directory()
    kinds = faults(options.pause, options.etcd) + pairs(options.pause)
    if reason := why_impossible():
        say(f"no partitions: {reason}")
    else:
        kinds += partitions(options.pause)
    chosen = [one for one in kinds if options.only in one.name]
    bank_workers = options.bank
    try:
        BANK.build()
    except CannotBuild as error:
        say(f"no transactions: {error}")
        bank_workers = 0
    with ChaosCluster.up(directory, partitions=not reason) as cluster:
        etcd = subprocess.run([find_etcd(), "--version"], capture_output=True, text=True).stdout
        say(f"the cluster serves, over three members of {etcd.splitlines()[0]}; logs are in {directory}")
        load = Load(
            seed, options.minutes * 60, options.topics, options.library_topics, bank_workers=bank_workers
        )
        outcome = run(cluster, load, chosen, say)
    show(Console(width=160), outcome)
    for violation in outcome.violations[:50]:
        print(f"chaos: {violation}")
    if outcome.violations:
        sys.exit(
            f"chaos: {len(outcome.violations)} promises broken; kept for a look: {directory}\n"
            f"chaos: again: {command}"
        )
    shutil.rmtree(directory, ignore_errors=True)
    print("chaos: every promise was kept")


if __name__ == "__main__":
    main(sys.argv[1:])
