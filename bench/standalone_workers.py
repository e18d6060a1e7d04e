"""`python -m bench.standalone_workers`: what `magnetar standalone` serves with a core for each worker.

Worker i is pinned to core i, and so is the generator of its load: each core has one worker and one generator,
so that the figures of one and of two workers compare. The standalone without workers and `--workers 2` take
turns. Loads are publishing as fast as acknowledgements come (1,000 in flight), and the same with a consumer
beside it. The parent process, which has the metadata, is not pinned; its CPU is counted with the workers'.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import time
import urllib.request
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any, Final

from bench.connection import connect
from bench.figures import percentile
from bench.frames import SendTemplate
from bench.generator import produce, produce_and_consume
from bench.loads import ENTRIES_MAX, Measured
from bench.runner import run_apart, settle
from bench.target import Target, new_topic, report
from tests.integration.harness import StandaloneServer, eventually, temporary_directory

LOOK_SECONDS_MAX: Final = 60.0
WARM_UP_SECONDS: Final = 1.0
WINDOW: Final = 1_000


@dataclass(frozen=True, slots=True)
class Pinned:
    """A load on one topic, from the core `core`."""

    core: int
    topic: str
    size: int
    seconds: float
    consume: bool

    def __call__(self, target: Target) -> Measured:
        os.sched_setaffinity(0, {self.core})
        template = SendTemplate(self.size)
        consumer = None
        if self.consume:
            consumer = connect(target)
            consumer.subscribe(self.topic)
        producer = connect(target)
        producer.open_producer(self.topic)
        cpu_before, own_before = target.cpu_seconds(), time.process_time()
        if consumer is None:
            run = produce(
                producer.hand_over_any(), template, window=WINDOW, entries=ENTRIES_MAX, seconds=self.seconds
            )
        else:
            run = produce_and_consume(
                producer.hand_over_any(),
                consumer.hand_over_any(),
                template,
                window=WINDOW,
                entries=ENTRIES_MAX,
                seconds=self.seconds,
                acks="cumulative",
            )
        figures = {
            "entries": float(run.entries),
            "messages/s": run.entries / run.seconds,
            "ack p99": percentile(run.ack_ms, 0.99),
            "server CPU": target.cpu_seconds() - cpu_before,
            "generator CPU": time.process_time() - own_before,
        }
        return Measured(figures, {})


@dataclass(frozen=True, slots=True)
class Load:
    """The load of every core."""

    name: str
    size: int
    consume: bool


LOADS: Final = (
    Load("publish 100 B", 100, consume=False),
    Load("publish 1 KiB", 1_024, consume=False),
    Load("publish and consume 1 KiB", 1_024, consume=True),
)


@dataclass(frozen=True, slots=True)
class Running:
    """A standalone and its workers, or itself as the only one."""

    targets: list[Target]
    parent: Target | None


@contextmanager
def running(workers: int) -> Iterator[Running]:
    """A standalone with so many workers, each pinned to a core; 1 is the one without workers."""
    directory = temporary_directory()
    server = StandaloneServer(directory)
    server.arguments += ["--workers", str(workers)] if workers > 1 else []
    try:
        server.start()
        eventually(lambda: "magnetar ready in" in server.log_path.read_text(), "all serve")
        whole = Target(server.endpoint.service_url, server.endpoint.http_url, server.pid)
        if workers == 1:
            pin(server.pid, 0)
            yield Running([whole], None)
        else:
            pids = _children(server.pid)
            for core, pid in enumerate(pids):
                pin(pid, core)
            yield Running([Target(url, whole.http_url, pid) for url, pid in _addresses(pids)], whole)
        server.stop()
    finally:
        server.kill()
        shutil.rmtree(directory, ignore_errors=True)


def pin(pid: int, core: int) -> None:
    """Pin all threads of a process to one core; later ones inherit it."""
    for thread in Path(f"/proc/{pid}/task").iterdir():
        os.sched_setaffinity(int(thread.name), {core})


def _children(pid: int) -> list[int]:
    """The workers of a process, in the order of their numbers."""
    return [pid for pid, _ in sorted(_plans(pid), key=lambda each: int(each[1]["number"]))]


def _plans(pid: int) -> list[tuple[int, dict[str, Any]]]:
    found = []
    for child in map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split()):
        plan = _plan(child)
        if plan is not None:
            found.append((child, plan))
    return found


def _plan(pid: int) -> dict[str, Any] | None:
    words = Path(f"/proc/{pid}/cmdline").read_text().split("\0")
    if "--worker" not in words:
        return None
    plan: dict[str, Any] = json.loads(words[words.index("--worker") + 1])
    return plan


def _addresses(pids: Sequence[int]) -> Iterator[tuple[str, int]]:
    """The address that each worker has for itself."""
    for pid in pids:
        plan = _plan(pid)
        assert plan is not None
        yield f"pulsar://127.0.0.1:{plan['own']['brokerServicePort']}", pid


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


def measure(served: Running, load: Load, seconds: float) -> dict[str, float]:
    """The load on every worker at once."""
    topics = list(map(topic_of, served.targets))
    settle()
    parent_before = 0.0 if served.parent is None else served.parent.cpu_seconds()

    def one(core: int) -> Measured:
        pinned = Pinned(core, topics[core], load.size, seconds, load.consume)
        return run_apart(pinned, served.targets[core])

    count = len(served.targets)
    with ThreadPoolExecutor(count) as pool:
        found = [each.figures for each in pool.map(one, range(count))]
    parent = 0.0 if served.parent is None else served.parent.cpu_seconds() - parent_before
    entries = sum(each["entries"] for each in found)
    return {
        "messages/s": sum(each["messages/s"] for each in found),
        "server CPU us": (sum(each["server CPU"] for each in found) + parent) / entries * 1e6,
        "generator CPU us": sum(each["generator CPU"] for each in found) / entries * 1e6,
        "ack p99 ms": max(each["ack p99"] for each in found),
    }


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=8.0, help="of each load (default 8)")
    parser.add_argument("--rounds", type=int, default=3, help="of every number of workers (default 3)")
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2], help="numbers (default 1 2)")
    options = parser.parse_args(argv)
    cores = len(os.sched_getaffinity(0))
    if max(options.workers) > cores:
        parser.error(f"{max(options.workers)} workers need a core each, there are {cores}")
    print(f"a worker and its generator on each core, {cores} cores, load average {os.getloadavg()[0]:.1f}:")
    collected: dict[str, list[float]] = {}
    for _ in range(options.rounds):
        for workers in options.workers:
            with running(workers) as served:
                for load in LOADS:
                    measure(served, load, WARM_UP_SECONDS)
                    for name, value in measure(served, load, options.seconds).items():
                        collected.setdefault(f"{load.name}, {workers} on cores: {name}", []).append(value)
    figures = {name: median(values) for name, values in collected.items()}
    report("standalone-workers", figures | {"load average at the end": os.getloadavg()[0]})


if __name__ == "__main__":
    main()
