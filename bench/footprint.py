"""`python -m bench.footprint`: start to the first acknowledged message, and what an idle broker costs."""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from statistics import median

from bench.brokers import Magnetar, first_acknowledgement
from bench.target import Target, report


def idle(target: Target, seconds: float) -> dict[str, float]:
    """Return memory and the share of one core of an idle process."""
    cpu_before, since = target.cpu_seconds(), time.perf_counter()
    time.sleep(seconds)
    share = (target.cpu_seconds() - cpu_before) / (time.perf_counter() - since)
    return {"idle RSS MB": target.rss_bytes() / 1e6, "idle CPU %": share * 100}


def measure(idle_seconds: float) -> dict[str, float]:
    """One start of Magnetar on an empty data directory."""
    broker = Magnetar()
    try:
        seconds = first_acknowledgement(broker)
        time.sleep(1)
        return {"start to first acknowledged message s": seconds, **idle(broker.target, idle_seconds)}
    finally:
        broker.stop()


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3, help="starts; the medians are reported (default 3)")
    parser.add_argument("--idle", type=float, default=5.0, help="seconds of idling watched each time")
    options = parser.parse_args(argv)
    rounds = [measure(options.idle) for _ in range(options.rounds)]
    print("footprint:")
    report("footprint", {key: median(one[key] for one in rounds) for key in rounds[0]})


if __name__ == "__main__":
    main()
