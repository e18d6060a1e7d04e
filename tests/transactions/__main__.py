"""`make bank`: transactions of the bank on a standalone, or on Apache Pulsar, without faults."""

from __future__ import annotations

import argparse
import contextlib
import shutil
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from bench.brokers import ApachePulsar, apache_pulsar_jars, first_acknowledgement
from tests.integration.harness import Endpoint, StandaloneServer, temporary_directory
from tests.integration.rest import Rest
from tests.transactions.bank import Bank
from tests.transactions.checker import check, summary
from tests.transactions.history import History

NAMESPACE = "public/bank"
STANDSTILL_S = 30.0
SETTINGS = {"transactionCoordinatorEnabled": "true", "acknowledgmentAtBatchIndexLevelEnabled": "true"}


def arguments() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog='make bank ARGS="..."', description=__doc__)
    parser.add_argument("--anchor", action="store_true", help="Apache Pulsar instead of Magnetar")
    parser.add_argument("--seconds", type=float, default=30.0, help="time of transfers (default 30)")
    parser.add_argument("--seed", type=int, default=1, help="(default 1)")
    parser.add_argument("--workers", type=int, default=6, help="(default 6)")
    parser.add_argument("--accounts", type=int, default=40, help="(default 40)")
    return parser


@contextlib.contextmanager
def apache_pulsar() -> Iterator[Endpoint]:
    """Starts Apache Pulsar with transactions; stops it in the end."""
    jars = apache_pulsar_jars(print)
    if isinstance(jars, str):
        sys.exit(f"no Apache Pulsar to run against: {jars}")
    broker = ApachePulsar(jars)
    try:
        first_acknowledgement(broker)
        yield broker.endpoint
    finally:
        broker.stop()


@contextlib.contextmanager
def standalone(directory: Path) -> Iterator[Endpoint]:
    """Starts a standalone with transactions; kills it in the end."""
    directory.mkdir(parents=True, exist_ok=True)
    server = StandaloneServer(directory, SETTINGS)
    server.start()
    try:
        yield server.endpoint
    finally:
        server.kill()


def make_namespace(rest: Rest) -> None:
    """Makes the bank's namespace, where a message that is sent again is stored once."""
    rest.do("PUT", f"/namespaces/{NAMESPACE}", {"bundles": {"numBundles": 16}})
    rest.do("POST", f"/namespaces/{NAMESPACE}/deduplication", True)


def run_bank(
    endpoint: Endpoint, directory: Path, *, seconds: float, seed: int, workers: int, accounts: int
) -> History:
    """Runs the bank for some seconds of transfers; returns its history. Raises BankFailed."""
    make_namespace(Rest(endpoint))
    prefix = f"persistent://{NAMESPACE}/bank-{seed}"
    bank = Bank(endpoint, prefix, directory, seed=seed, workers=workers, accounts=accounts)
    try:
        bank.wait_until_open()
        bank.quiet()
        time.sleep(seconds)
        return bank.close()
    finally:
        bank.kill()


def main(argv: Sequence[str]) -> None:
    options = arguments().parse_args(argv)
    directory = temporary_directory()
    server = apache_pulsar() if options.anchor else standalone(directory)
    with server as endpoint:
        history = run_bank(
            endpoint,
            directory,
            seconds=options.seconds,
            seed=options.seed,
            workers=options.workers,
            accounts=options.accounts,
        )
    for what, count in sorted(summary(history).items()):
        print(f"bank: {count:8,} {what}")
    broken = check(history, standstill_s=STANDSTILL_S, outcomes_are_remembered=not options.anchor)
    if broken:
        print(*broken[:50], sep="\n")
        sys.exit(f"bank: {len(broken)} promises broken; the history is in {directory}")
    shutil.rmtree(directory, ignore_errors=True)
    print("bank: every promise was kept")


if __name__ == "__main__":
    main(sys.argv[1:])
