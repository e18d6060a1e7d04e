"""The parts of the benchmark: each starts what it needs, measures and ends it."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from bench.storage.appends import AppendLoad
from bench.storage.figures import (
    KIND_BOOKIES,
    KIND_LOCAL,
    MEMORY,
    ONE_IN_FLIGHT,
    READ_BOOKIE,
    READ_LOCAL,
    READ_RUNS,
    RESTART,
    loads,
    one_in_flight,
    read_group,
)
from bench.storage.footprint import bookie_over, memory_figures, restart_seconds
from bench.storage.results import StorageResults
from bench.storage.stores import BOOKIE_SETTINGS
from bench.storage.synthetic import Shape
from tests.cluster.processes import BookieProcess, Cluster
from tests.etcd_server import EtcdServer
from tests.integration.harness import ROOT

STARTS_MAX: Final = 5
WORKER_SECONDS_MAX: Final = 120
BACKLOG_BYTES: Final = 128 << 20
BACKLOG_BYTES_MIN: Final = 16 << 20
READ_PASSES: Final = 5
SEGMENTS_10_GB: Final = 40
SEGMENTS_50_GB: Final = 200
LEDGERS: Final = 100_000
LEDGERS_PER_SEGMENT: Final = 5_000
MEMORY_READS: Final = 60_000
RESTARTS: Final = 3
COMPACTS_SOON: Final = {
    "gcWaitTime": "200",
    "magnetarLogSortAfterSeconds": "0.001",
    "compactionRateByBytes": str(1 << 30),
}
COMPACTION_SECONDS_MAX: Final = 60.0


@dataclass(slots=True)
class Run:
    """One run of the benchmark. Everything is written under `directory`."""

    directory: Path
    results: StorageResults
    rounds: int
    seconds: float
    scale: float

    def cluster(self, name: str, bookies: int, settings: Mapping[str, str] | None = None) -> Cluster:
        """Bookies and an etcd that does not sync; not running."""
        return Cluster(
            self.directory / name, bookies=bookies, bookie_settings={**BOOKIE_SETTINGS, **(settings or {})}
        )


def start(cluster: Cluster) -> None:
    """Start it; a port that was free may have been taken meanwhile, so more than once."""
    for attempt in range(STARTS_MAX):
        try:
            cluster.start()
        except AssertionError:
            cluster.kill()
            if attempt + 1 == STARTS_MAX:
                raise
            time.sleep(1.0)
        else:
            return


def worker(task: Mapping[str, Any]) -> dict[str, Any]:
    """Results of `bench.storage.worker`. Raises RuntimeError with the end of what it printed."""
    command = [sys.executable, "-m", "bench.storage.worker", json.dumps(task)]
    done = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, timeout=WORKER_SECONDS_MAX, check=False
    )
    if done.returncode != 0:
        raise RuntimeError(f"{task} failed:\n{done.stderr[-4_000:]}")
    figures: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return figures


def append_on(cluster: Cluster, load: AppendLoad) -> dict[str, float]:
    """A load through the quorum client, Qw = E = 3, Qa = 2."""
    figures = worker(
        {
            "do": "append",
            "load": asdict(load),
            "etcd": cluster.etcd.url,
            "pids": [bookie.pid for bookie in cluster.bookies],
        }
    )
    figures["client CPU"] = figures["process us/entry"]
    return figures


def appends(run: Run) -> None:
    """The local log and three bookies, by turns."""
    cluster = run.cluster("appends", 3)
    try:
        start(cluster)
        for _ in range(run.rounds):
            for name, load in loads(run.seconds).items():
                local = worker(
                    {"do": "append", "load": asdict(load), "directory": str(run.directory / "local")}
                )
                shutil.rmtree(run.directory / "local")
                bookies = append_on(cluster, load)
                share = bookies["entries/CPU s of one bookie"] / local["entries/CPU s"]
                bookies["of the local log's entries/CPU s"] = 100 * share
                run.results.add(f"{name}: {KIND_LOCAL}", local)
                run.results.add(f"{name}: {KIND_BOOKIES}", bookies)
    finally:
        cluster.kill()
        shutil.rmtree(cluster.directory, ignore_errors=True)


def latency(run: Run) -> None:
    """One run in flight over three bookies."""
    cluster = run.cluster("latency", 3)
    try:
        start(cluster)
        for _ in range(run.rounds):
            for title, load in one_in_flight(run.seconds).items():
                run.results.add(f"{ONE_IN_FLIGHT}, {title}: {KIND_BOOKIES}", append_on(cluster, load))
    finally:
        cluster.kill()
        shutil.rmtree(cluster.directory, ignore_errors=True)


def reads(run: Run) -> None:
    """Catching up, in this process's log and from a bookie, each after compaction."""
    for run_entries in READ_RUNS:
        _local_reads(run, run_entries)
        _bookie_reads(run, run_entries)


def backlog_bytes(run: Run) -> int:
    """With fewer a segment has too few records for compaction to sort it."""
    return max(int(BACKLOG_BYTES * run.scale), BACKLOG_BYTES_MIN)


def _local_reads(run: Run, run_entries: int) -> None:
    directory = run.directory / "local"
    task = {"do": "read local", "directory": str(directory), "passes": READ_PASSES}
    length = backlog_bytes(run)
    run.results.add(
        read_group(READ_LOCAL, run_entries), worker({**task, "bytes": length, "run": run_entries})
    )
    shutil.rmtree(directory)


def _bookie_reads(run: Run, run_entries: int) -> None:
    cluster = run.cluster("reads", 1, COMPACTS_SOON)
    try:
        start(cluster)
        bookie = cluster.bookies[0]
        length = backlog_bytes(run)
        task = {"etcd": cluster.etcd.url, "passes": READ_PASSES}
        ledger = worker({"do": "write backlog", "bytes": length, "run": run_entries, **task})
        bookie.restart()  # seals the open segment
        _await_compaction(bookie)
        figures = worker({"do": "read bookie", "ledger": ledger, "pids": [bookie.pid], **task})
        run.results.add(read_group(READ_BOOKIE, run_entries), figures)
    finally:
        cluster.kill()
        shutil.rmtree(cluster.directory, ignore_errors=True)


def _await_compaction(bookie: BookieProcess) -> None:
    deadline = time.monotonic() + COMPACTION_SECONDS_MAX
    while "segments compacted" not in bookie.log_tail():
        if time.monotonic() > deadline:
            raise RuntimeError(f"no segment was compacted\n{bookie.log_tail()}")
        time.sleep(0.1)


def restart(run: Run) -> None:
    """A bookie over made-up segments, started a few times."""
    shape = _shape(SEGMENTS_10_GB, run.scale)
    with EtcdServer.running(run.directory / "etcd") as etcd:
        bookie = bookie_over(run.directory, etcd, shape, 10)
        try:
            for seconds in restart_seconds(bookie, RESTARTS):
                run.results.add(RESTART, {"seconds": seconds})
        finally:
            bookie.kill()
            shutil.rmtree(bookie.data_dir, ignore_errors=True)


def memory(run: Run) -> None:
    """A bookie over made-up segments, whose indexes are asked for."""
    shape = _shape(SEGMENTS_50_GB, run.scale)
    with EtcdServer.running(run.directory / "etcd-50") as etcd:
        bookie = bookie_over(run.directory, etcd, shape, 50)
        try:
            run.results.add(MEMORY, memory_figures(bookie, etcd, shape, int(MEMORY_READS * run.scale)))
        finally:
            bookie.kill()
            shutil.rmtree(bookie.data_dir, ignore_errors=True)


def _shape(segments: int, scale: float) -> Shape:
    return Shape(
        segments=max(2, int(segments * scale)),
        ledgers=max(100, int(LEDGERS * scale)),
        ledgers_per_segment=max(100, int(LEDGERS_PER_SEGMENT * scale)),
    )
