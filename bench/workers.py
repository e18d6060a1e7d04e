"""`python -m bench.workers`: what a message costs with one and with two workers of `magnetar broker`.

Each worker has a topic of its own, published to and consumed from by a process of its own at the same rate,
so that CPU a message is compared at equal load. etcd, a bookie that keeps the only copy, workers and clients
share this machine: how many messages a second several workers take together is a question for a machine with
more cores than processes.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import time
import urllib.request
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from magnetar.testing.free_ports import free_run

from bench.loads import AtRate, Measured
from bench.runner import run_apart
from bench.target import Target, new_topic, report
from tests.cluster.processes import CLUSTER_NAME, Cluster
from tests.integration.harness import MagnetarProcess, eventually, temporary_directory

PORTS: Final = ("brokerServicePort", "webServicePort", "magnetarControlPort")
LOOK_SECONDS_MAX: Final = 60.0
WARM_UP_SECONDS: Final = 1.0
ONE_COPY: Final = {
    "managedLedgerDefaultEnsembleSize": "1",
    "managedLedgerDefaultWriteQuorum": "1",
    "managedLedgerDefaultAckQuorum": "1",
}


@dataclass(frozen=True, slots=True)
class Load:
    """The task of each worker."""

    size: int
    rate: float
    seconds: float


@contextlib.contextmanager
def running(workers: int) -> Iterator[list[Target]]:
    """A cluster with so many workers, and each of them."""
    directory = temporary_directory()
    try:
        with Cluster.running(directory, bookies=1) as cluster:
            ports = {key: free_run(workers) for key in PORTS}
            process = MagnetarProcess(
                directory,
                "workers",
                ["broker", "--workers", str(workers)],
                f"http://127.0.0.1:{ports['webServicePort']}/health",
                {
                    "clusterName": CLUSTER_NAME,
                    "metadataStoreUrl": cluster.etcd.url,
                    **{key: str(port) for key, port in ports.items()},
                    **ONE_COPY,
                },
            )
            try:
                process.start()
                eventually(lambda: "magnetar ready in" in process.log_path.read_text(), "all serve")
                pids = [process.pid] if workers == 1 else _children(process.pid)
                yield [
                    Target(
                        f"pulsar://127.0.0.1:{ports['brokerServicePort'] + number}",
                        f"http://127.0.0.1:{ports['webServicePort'] + number}",
                        pid,
                    )
                    for number, pid in enumerate(pids)
                ]
            finally:
                process.kill()
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def _children(pid: int) -> list[int]:
    """The workers of a process, in the order of their numbers."""
    numbers = {}
    for child in map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split()):
        words = Path(f"/proc/{child}/cmdline").read_text().split("\0")
        if "--worker" in words:
            numbers[int(words[words.index("--worker") + 1])] = child
    return [numbers[number] for number in sorted(numbers)]


def topic_of(target: Target) -> str:
    """A fresh topic that this worker serves."""
    deadline = time.monotonic() + LOOK_SECONDS_MAX
    while time.monotonic() < deadline:
        topic = new_topic()
        url = f"{target.http_url}/lookup/v2/topic/{topic.replace('://', '/')}"
        with urllib.request.urlopen(url, timeout=30) as response:
            if json.load(response)["brokerUrl"] == target.service_url:
                return topic
    raise TimeoutError(f"no topic is served by {target.service_url}")


def measure(workers: int, load: Load) -> dict[str, float]:
    """The same load on each of so many workers at once."""
    with running(workers) as targets, ThreadPoolExecutor(workers) as pool:

        def one(target: Target, topic: str) -> Measured:
            return run_apart(AtRate(load.size, load.rate, load.seconds, topic=topic), target)

        for target in targets:
            run_apart(AtRate(load.size, load.rate, WARM_UP_SECONDS, topic=topic_of(target)), target)
        topics = list(map(topic_of, targets))
        found = [measured.figures for measured in pool.map(one, targets, topics)]
    each_us = [figures["server CPU"] / 100 * 1e6 / figures["entries/s"] for figures in found]
    name = f"{workers} worker{'s' if workers > 1 else ''}"
    return {
        f"{name}: messages/s": sum(figures["entries/s"] for figures in found),
        f"{name}: CPU us per message": sum(each_us) / len(each_us),
        f"{name}: ack p50 ms": max(figures["ack p50"] for figures in found),
        f"{name}: ack p99 ms": max(figures["ack p99"] for figures in found),
    }


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--size", type=int, default=1_024, help="payload bytes of a message (default 1,024)")
    parser.add_argument("--rate", type=float, default=2_000.0, help="messages a second and worker")
    parser.add_argument("--seconds", type=float, default=10.0, help="of each load (default 10)")
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2], help="numbers (default 1 2)")
    options = parser.parse_args(argv)
    load = Load(options.size, options.rate, options.seconds)
    figures: dict[str, float] = {}
    print(f"workers, on {os.cpu_count()} cores shared with etcd, a bookie and the clients:")
    for workers in options.workers:
        figures |= measure(workers, load)
    report("workers", figures)


if __name__ == "__main__":
    main()
