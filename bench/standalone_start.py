"""`python -m bench.standalone_start`: how long a test that uses `magnetar.testing` waits for its
standalone.

Each round starts one on empty data, makes a first namespace and further ones, crashes it, starts it again
on its data, and stops it. Seconds are those of the caller, from the call to its return.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from statistics import median

from magnetar.testing import standalone
from magnetar.testing.namespaces import create_namespace, remove_namespace

NAMESPACES = 20


def seconds(act: Callable[[], object]) -> float:
    """Return how long a call takes."""
    began = time.perf_counter()
    act()
    return time.perf_counter() - began


def one_round() -> dict[str, float]:
    """Return seconds by what they were spent on."""
    took = {}
    began = time.perf_counter()
    with standalone() as process:
        took["start on empty data"] = time.perf_counter() - began
        took["first namespace"] = seconds(lambda: create_namespace(process.admin_url))
        many_s = seconds(lambda: _make_and_remove(process.admin_url, NAMESPACES))
        took["another namespace, made and removed"] = many_s / NAMESPACES
        process.kill()
        took["start after a kill"] = seconds(process.start)
        took["stop"] = seconds(process.stop)
    return took


def _make_and_remove(admin_url: str, count: int) -> None:
    for _ in range(count):
        remove_namespace(admin_url, create_namespace(admin_url))


def main(arguments: Sequence[str] | None = None) -> int:
    """Print a table; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m bench.standalone_start", description=__doc__)
    parser.add_argument("--rounds", type=int, default=11, help="rounds (default: %(default)s)")
    rounds = parser.parse_args(arguments).rounds
    found: dict[str, list[float]] = defaultdict(list)
    one_round()  # compiles what has no bytecode yet
    for _ in range(rounds):
        for what, took in one_round().items():
            found[what].append(took)
    print(f"| seconds, {rounds} rounds | median | best | worst |\n| --- | --- | --- | --- |")
    for what, all_took in found.items():
        print(f"| {what} | {median(all_took):.3f} | {min(all_took):.3f} | {max(all_took):.3f} |")
    return 0


if __name__ == "__main__":
    sys.exit(main())
