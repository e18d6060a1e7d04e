"""`python -m bench.commits OTHER`: this checkout beside another one, such as the commit before a change.

`--sources` in place of OTHER: the compiled modules of this checkout (`make speedups`) beside their sources.
Both serve the same loads by turns, so that a machine whose speed drifts slows both. Each ratio is of this
checkout to the other one; below 1 is better.
"""

from __future__ import annotations

import argparse
import shutil
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Final

from magnetar.common.runtime import speedups

from bench.brokers import first_acknowledgement
from bench.loads import AtRate, Drain, Measure, Produce, Tail
from bench.progress import Steps
from bench.target import Target, report
from tests.integration.harness import StandaloneServer, temporary_directory

CPU: Final = "server CPU per million"
PACED_A_SECOND: Final = 2_000
PACED_S: Final = 4


@dataclass(frozen=True)
class Side:
    """One side of the comparison: a checkout, and environment variables of its server."""

    name: str
    checkout: Path
    environment: dict[str, str] = field(default_factory=dict)


class CheckoutBroker:
    """A standalone started by the `magnetar` command of a checkout, with default settings and no data."""

    def __init__(self, side: Side, settings: dict[str, str]) -> None:
        self._directory = temporary_directory()
        self.server = StandaloneServer(self._directory, settings, side.environment)
        self.server.program = [str(side.checkout / ".venv" / "bin" / "magnetar")]

    @property
    def target(self) -> Target:
        return Target(self.server.endpoint.service_url, self.server.endpoint.http_url, self.server.pid)

    def launch(self) -> None:
        self.server.launch()

    def stop(self) -> None:
        """End the process and remove its directory."""
        self.server.kill()
        shutil.rmtree(self._directory, ignore_errors=True)

    def died(self) -> str | None:
        """The end of the log of a process that ended; None while it runs."""
        return None if self.server.running else self.server.log_tail()


def loads(entries: int) -> dict[str, Measure]:
    """Loads of a fixed size, so that both checkouts do the same work."""
    return {
        "produce 100 B unbatched": Produce(100, entries=entries),
        "produce 1 KiB unbatched": Produce(1_024, entries=entries),
        "produce 100 x 1 KiB batches": Produce(1_024, batch=100, window=100, entries=entries // 20),
        "tail 1 KiB, Exclusive": Tail(1_024, "cumulative", entries=entries),
        "tail 1 KiB, Shared": Tail(1_024, "individual", entries=entries),
        "drain 1 KiB unbatched": Drain(1_024, entries),
        "drain 100 x 1 KiB batches": Drain(1_024, entries // 20, batch=100),
    }


def measure(side: Side, settings: dict[str, str], entries: int) -> dict[str, float]:
    """Start a broker of this side, and return its start, idle memory, and CPU of each load."""
    broker = CheckoutBroker(side, settings)
    try:
        figures = {"start to first acknowledged message": first_acknowledgement(broker)}
        time.sleep(1.0)
        figures["idle RSS"] = broker.target.rss_bytes() / 1e6
        Produce(1_024, entries=entries)(broker.target)  # warms up
        for name, load in loads(entries).items():
            figures[f"{name}: CPU"] = load(broker.target).figures[CPU]
        paced, cpu_before = AtRate(1_024, PACED_A_SECOND, PACED_S), broker.target.cpu_seconds()
        paced(broker.target)
        figures["2,000/s of 1 KiB, consumed at once: CPU"] = broker.target.cpu_seconds() - cpu_before
        figures["RSS after all loads"] = broker.target.rss_bytes() / 1e6
        return figures
    finally:
        broker.stop()


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.commits", description=__doc__)
    parser.add_argument(
        "other", type=Path, nargs="?",
        help="a checkout with its .venv (make setup-tests), of the commit before",
    )  # fmt: skip
    parser.add_argument(
        "--sources",
        action="store_true",
        help="compare compiled modules with their sources, both of this checkout",
    )
    parser.add_argument("--rounds", type=int, default=6, help="pairs of runs (default 6)")
    parser.add_argument("--entries", type=int, default=100_000, help="entries of each load (default 100,000)")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="a setting of both")
    options = parser.parse_args(argv)
    if (options.other is None) != options.sources:
        parser.error("name another checkout, or give --sources")
    settings = dict(one.split("=", 1) for one in options.set)
    checkout = Path(__file__).resolve().parent.parent
    if options.sources:
        here, other = Side("compiled", checkout), Side("sources", checkout, {speedups.VARIABLE: "off"})
    else:
        here, other = Side(checkout.name, checkout), Side(str(options.other), options.other.resolve())
    ratios: dict[str, list[float]] = {}
    with Steps(2 * options.rounds) as steps:
        for number in range(options.rounds):
            order = (here, other) if number % 2 == 0 else (other, here)
            found = {}
            for side in order:
                steps.begin(f"round {number + 1}: {side.name}")
                found[side.name] = measure(side, settings, options.entries)
            for key, value in found[here.name].items():
                ratios.setdefault(key, []).append(value / found[other.name][key])
    print(f"ratios of {here.name} to {other.name}, {options.rounds} pairs: median (lowest to highest)")
    report(
        "commits",
        {key: f"{median(each):.3f} ({min(each):.2f} to {max(each):.2f})" for key, each in ratios.items()},
    )


if __name__ == "__main__":
    main()
