"""Three of our bookies beside three of Apache BookKeeper's: the same loads by turns, in the same rounds."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

from bench.storage.appends import AppendLoad
from bench.storage.beside_table import IDLE, OURS, THEIRS, group, loads, with_cpu
from bench.storage.bookkeeper import BookKeeper, bookkeeper_jars, bookkeeper_version
from bench.storage.parts import Run, append_on, start
from bench.storage.procfs import available_bytes, cpu_seconds, file_system

BOOKIES: Final = 3
FREE_MEMORY_MIN: Final = 7 << 30
"""Five JVMs of BookKeeper's with their heaps and buffers, and ours."""
DISK_BYTES_PER_S: Final = 1 << 30
"""About what both sides keep of a second of every load."""
STARTS_SECONDS: Final = 900
"""For both sides to start, on a machine that is busy with other work."""
OVERHEAD_SECONDS_MAX: Final = 20
"""Seconds of a load beyond its own duration."""


@dataclass(frozen=True, slots=True)
class Side:
    """One of both, running."""

    name: str
    append: Callable[[AppendLoad], dict[str, float]]
    pids: Sequence[int]
    """Processes whose CPU use would disturb the other store."""

    def cpu_seconds(self) -> float:
        return sum(map(cpu_seconds, self.pids))


def bookkeeper(run: Run) -> None:
    """Give each load once to each without counting, then measure by turns. Raises SystemExit with the reason
    where BookKeeper cannot run."""
    if isinstance(jars := bookkeeper_jars(print), str):
        raise SystemExit(f"bench: BookKeeper cannot be measured: {jars}")
    memory = available_bytes(Path("/proc/meminfo").read_text())
    disk = shutil.disk_usage(run.directory).free
    if lacking := lacks(memory, disk, run.rounds, run.seconds):
        raise SystemExit(f"bench: BookKeeper cannot be measured: {lacking}")
    run.results.beside = {
        "version": bookkeeper_version(),
        "java": _java_version(),
        "file system": file_system(Path("/proc/self/mounts").read_text(), run.directory.resolve()),
        "rounds": str(run.rounds),
        "seconds": f"{run.seconds:g}",
    }
    turns = 2 * (run.rounds + 1) * len(loads(0.0))
    seconds_max = STARTS_SECONDS + turns * (run.seconds + OVERHEAD_SECONDS_MAX)
    theirs = BookKeeper(run.directory / "bookkeeper", jars, bookies=BOOKIES, seconds_max=seconds_max)
    try:
        theirs.start()
        _round(run, theirs, 0)
        averages = []
        for number in range(1, run.rounds + 1):
            averages.append(f"{os.getloadavg()[0]:.1f}")
            _round(run, theirs, number)
            run.results.beside["load averages"] = ", ".join(averages)
            run.results.save()
    finally:
        theirs.kill()


def lacks(memory: int, disk: int, rounds: int, seconds: float) -> str:
    """The missing resource and its amount; "" when there is enough."""
    if memory < FREE_MEMORY_MIN:
        return f"{FREE_MEMORY_MIN >> 30} GiB of memory must be free, {memory / 2**30:.1f} GiB are"
    wanted = int((rounds + 1) * seconds * DISK_BYTES_PER_S)
    if disk < wanted:
        return f"{wanted / 2**30:.0f} GiB of disk must be free, {disk / 2**30:.1f} GiB are; see --directory"
    return ""


def _round(run: Run, theirs: BookKeeper, number: int) -> None:
    """Each load on both sides; round 0 is for the JVMs to compile what they run often, and does not count.

    Our bookies are new ones in each round, as their data would fill the disk.
    """
    cluster = run.cluster(f"beside-{number}", BOOKIES)
    try:
        start(cluster)
        sides = (
            Side(OURS, partial(append_on, cluster), [bookie.pid for bookie in cluster.bookies]),
            Side(THEIRS, theirs.append, theirs.pids),
        )
        for name, load in loads(run.seconds).items():
            for side, other in order(sides, number):
                before, began = other.cpu_seconds(), time.monotonic()
                figures = with_cpu(side.append(load), BOOKIES)
                idle = (other.cpu_seconds() - before) / (time.monotonic() - began)
                if number > 0:
                    run.results.add(group(name, side.name), figures)
                    run.results.add(group(IDLE, other.name), {"% of a core": 100 * idle})
    finally:
        cluster.kill()
        shutil.rmtree(cluster.directory, ignore_errors=True)


def order(sides: tuple[Side, Side], number: int) -> tuple[tuple[Side, Side], tuple[Side, Side]]:
    """Each side with the other one; the next round begins with the side that was second."""
    first, second = sides if number % 2 == 0 else sides[::-1]
    return (first, second), (second, first)


def _java_version() -> str:
    done = subprocess.run(["java", "-version"], capture_output=True, text=True, timeout=60, check=True)
    return done.stderr.split('"')[1]
