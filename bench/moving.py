"""`python -m bench.moving`: what clients notice when topics move to another broker, or theirs is killed.

A cluster of three bookies and brokers is started for it, on this machine, on its disk, with etcd writing
through. The gap is the time from the last message confirmed by the former owner to the first one confirmed by
the next, of a publisher with one message on its way: one that speaks raw frames and follows the URL that it
is told (PIP-307), and the client from PyPI, which looks the topic up.
"""

from __future__ import annotations

import argparse
import os
import shutil
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Final

import pulsar

from bench.figures import percentile
from bench.target import report
from tests.cluster.moving import Follower
from tests.cluster.processes import BrokerProcess, Cluster
from tests.cluster.test_moving import brokers_of, serving, unload
from tests.integration.harness import eventually, temporary_directory

SESSION: Final = {"metadataStoreSessionTimeoutMillis": "3000"}
PAUSE_S: Final = 0.3
BETWEEN_S: Final = 0.002
KILL_SECONDS_MAX: Final = 60.0


@dataclass
class Times:
    """When messages were confirmed."""

    at: list[float]

    def more_than(self, count: int) -> bool:
        return len(self.at) > count

    def gap_after(self, moment: float) -> float:
        """The longest time between two confirmations since then, in ms."""
        times = [each for each in self.at if each >= moment - 1.0]
        return max(after - before for before, after in pairwise(times)) * 1e3


@contextmanager
def sending(send: Callable[[bytes], None]) -> Iterator[Times]:
    """One message after the other meanwhile."""
    times, over = Times([]), threading.Event()

    def run() -> None:
        while not over.is_set():
            send(b"x" * 100)
            times.at.append(time.monotonic())
            time.sleep(BETWEEN_S)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield times
    finally:
        over.set()
        thread.join()


def move(brokers: Sequence[BrokerProcess], topic: str) -> None:
    owner = serving(list(brokers), topic)
    to = brokers[(brokers.index(owner) + 1) % len(brokers)]
    reply = unload(owner, topic, to)
    assert reply.status == 204, reply


def move_gaps(brokers: Sequence[BrokerProcess], topic: str, times: Times, rounds: int) -> list[float]:
    found = []
    for _ in range(rounds):
        time.sleep(PAUSE_S)
        since = time.monotonic()
        move(brokers, topic)
        eventually(partial(times.more_than, len(times.at) + 5), "messages go on")
        found.append(times.gap_after(since))
    return found


def raw_moves(brokers: Sequence[BrokerProcess], rounds: int) -> list[float]:
    topic = "persistent://public/default/moved-raw"
    follower = Follower(brokers[0].endpoint, topic)
    with sending(follower.send) as times:
        gaps = move_gaps(brokers, topic, times, rounds)
    follower.close()
    return gaps


def client_moves(brokers: Sequence[BrokerProcess], rounds: int) -> list[float]:
    topic = "persistent://public/default/moved-pypi"
    logger = pulsar.ConsoleLogger(pulsar.LoggerLevel.Error)
    client = pulsar.Client(brokers[0].endpoint.service_url, logger=logger)
    producer = client.create_producer(topic, batching_enabled=False)
    with sending(producer.send) as times:
        gaps = move_gaps(brokers, topic, times, rounds)
    client.close()
    return gaps


def kills(brokers: Sequence[BrokerProcess], rounds: int) -> list[float]:
    """Milliseconds from kill -9 of the owner to the next confirmed message."""
    topic = "persistent://public/default/killed"
    found = []
    for _ in range(rounds):
        victim = serving(list(brokers), topic)
        survivor = next(broker for broker in brokers if broker is not victim)
        follower = Follower(survivor.endpoint, topic)
        follower.send(b"before")
        victim.kill()
        since = time.monotonic()
        follower.send(b"after")
        found.append((time.monotonic() - since) * 1e3)
        follower.close()
        victim.start()
    return found


def measure(options: argparse.Namespace) -> dict[str, float]:
    directory = temporary_directory()
    cluster = Cluster(directory, etcd_fsync=True)
    figures: dict[str, float] = {}
    try:
        cluster.start()
        brokers = brokers_of(cluster, 2, **SESSION)
        figures |= told("unload, raw frames", raw_moves(brokers, options.moves))
        figures |= told("unload, PyPI client", client_moves(brokers, max(1, options.moves // 5)))
        if options.kills:
            figures |= told("kill -9, 3 s lease", kills(brokers, options.kills))
    finally:
        cluster.kill()
        shutil.rmtree(directory, ignore_errors=True)
    return figures


def told(what: str, gaps: list[float]) -> dict[str, float]:
    return {
        f"{what}: rounds": len(gaps),
        f"{what}: p50 ms": percentile(gaps, 0.5),
        f"{what}: p99 ms": percentile(gaps, 0.99),
        f"{what}: max ms": max(gaps),
    }


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--moves", type=int, default=100, help="of a topic from broker to broker (100)")
    parser.add_argument("--kills", type=int, default=20, help="of the broker that serves a topic (20)")
    options = parser.parse_args(argv)
    load = os.getloadavg()[0]
    print(f"moving, {os.cpu_count()} cores, load before it {load:.1f}:")
    report("moving", {"load before": load, **measure(options)})


if __name__ == "__main__":
    main()
