"""`python -m bench.scale`: the control plane of a very large cluster; see docs/scale.md.

`leader` measures the leader's functions at full size, `costs` what etcd and calls between brokers cost on
this machine; `simulate` runs the scenarios with these costs, over the real code of ownership and load
balancing in virtual time; `topics` counts the metadata of topics in a real cluster. Each keeps its figures in
bench/results/scale.json, which `show` shows.
"""

from __future__ import annotations

import argparse
import gc
from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import Final

from magnetar.common.obs.logs import configure

from bench.progress import Steps
from bench.scale import calls, etcd_costs, leader, report, results, topics
from bench.scale.costs import Costs
from bench.scale.scenarios import STEPS, Told, simulate
from bench.scale.world import Size

BUNDLES_A_BROKER: Final = 100
LEADER_SIZES: Final = (10, 100, 300, 1_000)
OWN_MIRRORS_MAX: Final = 30
"""Brokers up to which each has mirrors of its own."""


def measure_leader(told: Told) -> None:
    """Measures the leader's functions by size."""
    found = []
    for brokers in LEADER_SIZES:
        told(f"the leader's functions with {brokers:,} brokers")
        found.append(asdict(leader.measure(brokers, brokers * BUNDLES_A_BROKER)))
    results.save("leader", found)


def measure_costs(told: Told) -> None:
    """Measures calls, and etcd."""
    told("calls")
    results.save("calls", calls.measure())
    told("etcd")
    results.save("etcd", asdict(etcd_costs.measure()))


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parts = ("leader", "costs", "simulate", "topics")
    parser.add_argument(
        "parts", nargs="*", metavar="PART", default=parts, help=f"of {', '.join(parts)}, show"
    )
    parser.add_argument("--brokers", type=int, nargs="+", default=[10, 30, 100], help="sizes to simulate")
    parser.add_argument("--bundles", type=int, help=f"of all brokers (default {BUNDLES_A_BROKER} each)")
    parser.add_argument("--scenarios", nargs="+", choices=list(STEPS), default=list(STEPS))
    parser.add_argument("--shared", action="store_true", help="share mirrors also in small clusters")
    parser.add_argument("--etcd-cores", type=int, default=Costs().etcd_cores, help="of all members")
    parser.add_argument("--topics", type=int, default=500, help="topics of which metadata is counted")
    parser.add_argument("--docs", action="store_true", help=f"put the tables into {report.PAGE.name}")
    options = parser.parse_args(argv)
    if unknown := set(options.parts) - {*parts, "show"}:
        parser.error(f"there is no {', '.join(sorted(unknown))}: choose from {', '.join(parts)}, show")
    configure(level="critical")
    # Very many objects live until the end: looking through all of them again and again takes long.
    gc.set_threshold(200_000, 20, 100)
    steps = len(LEADER_SIZES) if "leader" in options.parts else 0
    if "costs" in options.parts:
        steps += 2
    if "simulate" in options.parts:
        steps += len(options.brokers) * len(options.scenarios)
    if "topics" in options.parts:
        steps += topics.STEPS
    with Steps(steps) as progress:
        if "leader" in options.parts:
            measure_leader(progress.begin)
        if "costs" in options.parts:
            measure_costs(progress.begin)
        if "simulate" in options.parts:
            costs = replace(results.costs_now(), etcd_cores=options.etcd_cores)
            for brokers in options.brokers:
                bundles = options.bundles or brokers * BUNDLES_A_BROKER
                size = Size(brokers, bundles, options.shared or brokers > OWN_MIRRORS_MAX)
                simulate(size, costs, progress.begin, results.add_outcome, options.scenarios)
        if "topics" in options.parts:
            results.save("topics", asdict(topics.measure(options.topics, progress.begin)))
    found = results.load()
    report.show(found)
    if options.docs:
        report.write(found)


if __name__ == "__main__":
    main()
