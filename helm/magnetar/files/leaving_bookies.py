"""Checks that bookies to be removed are decommissioned.

    python3 -I leaving_bookies.py NAME REPLICAS [--must-know]

Of the bookies NAME-0, NAME-1 and so on, REPLICAS stay. For a job before an upgrade or a rollback, in the
image of a bookie, whose command line queries metadata. If metadata is unavailable, the removal is allowed (a
rollback may repair it), unless --must-know is given.
"""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
from typing import Any

LIST = ("magnetar", "admin", "--output", "json", "bookies", "list")
TRIES = 3
SECONDS_MAX = 30.0


def known_bookies() -> list[dict[str, Any]] | None:
    """Bookies in metadata; None when the command failed and has printed the reason."""
    for _ in range(TRIES):
        with contextlib.suppress(subprocess.TimeoutExpired):
            done = subprocess.run(LIST, stdout=subprocess.PIPE, text=True, check=False, timeout=SECONDS_MAX)
            if done.returncode == 0:
                found: list[dict[str, Any]] = json.loads(done.stdout)
                return found
    return None


def not_to_go(bookies: list[dict[str, Any]], name: str, replicas: int) -> dict[int, str]:
    """Those that would be taken away and may have data, by their numbers: how they stand."""
    found = {}
    for bookie in bookies:
        of, _, number = bookie["id"].rpartition("-")
        leaves = of == name and number.isdecimal() and int(number) >= replicas
        if leaves and bookie["state"] != "decommissioned":
            found[int(number)] = bookie["state"]
    return found


def main() -> None:
    name, replicas, *more = sys.argv[1:]
    bookies = known_bookies()
    if bookies is None:
        told = f"metadata does not say what bookies beyond {name}-{int(replicas) - 1} have"
        if "--must-know" in more:
            sys.exit(f"{told}; nothing is changed. Wait for etcd, or leave bookie.replicas as it is")
        print(f"{told}; going on without", flush=True)
        return
    if found := not_to_go(bookies, name, int(replicas)):
        told = ", ".join(f"{name}-{number} ({state})" for number, state in sorted(found.items()))
        sys.exit(
            f"{replicas} replicas: these would go, and entries with them that may be nowhere else: {told}. "
            "Nothing is changed. Decommission each before, the highest number first: "
            f"magnetar admin bookies decommission {name}-{max(found)}"
        )
    print(f"no bookie beyond {name}-{int(replicas) - 1} has data", flush=True)


if __name__ == "__main__":
    main()
