"""`python -m bench.interruptions`: how long publishers wait when a process of a cluster dies or is stopped.

A cluster of three bookies, three brokers and two discoveries is started for it, on this machine. Topics of
every broker are published to, one message in flight each, by a client that looks its topic up again through
the discoveries 0.1 s after each failure. The figure is the longest time between two acknowledgements of one
topic around the event: the longest of all topics, and of half of them; where a broker is stopped or killed,
of its topics alone.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import shutil
import time
from collections.abc import Callable, Sequence
from itertools import pairwise
from statistics import median
from typing import Final

import uvloop

from bench.cluster_client import RETRY_S, ClusterClient, Link, Refused, one_send
from bench.frames import SendTemplate
from bench.target import report
from tests.cluster.processes import BrokerProcess
from tests.cluster.whole_cluster import WholeCluster
from tests.integration.harness import temporary_directory

TOPICS: Final = 12
BEFORE_S: Final = 1.0
QUIET_S: Final = 2.0
"""After the event, once every topic is acknowledged again."""

PATIENCE_S: Final = 60.0
ETCD_AWAY_S: Final = 10.0
BETWEEN_S: Final = 0.005

Event = Callable[[WholeCluster, BrokerProcess], None]
"""Happens to a cluster; the broker is one that serves some of the topics."""


def stop_broker(cluster: WholeCluster, serving: BrokerProcess) -> None:
    serving.stop()


def kill_broker(cluster: WholeCluster, serving: BrokerProcess) -> None:
    serving.kill()


def kill_bookie(cluster: WholeCluster, serving: BrokerProcess) -> None:
    cluster.bookies[0].kill()


def pause_bookie(cluster: WholeCluster, serving: BrokerProcess) -> None:
    cluster.bookies[0].pause()


def kill_discovery(cluster: WholeCluster, serving: BrokerProcess) -> None:
    cluster.discoveries[0].kill()


def etcd_away(cluster: WholeCluster, serving: BrokerProcess) -> None:
    cluster.etcd.kill()
    time.sleep(ETCD_AWAY_S)
    cluster.etcd.start()


EVENTS: Final[dict[str, Event]] = {
    "broker-stopped": stop_broker,
    "broker-killed": kill_broker,
    "bookie-killed": kill_bookie,
    "bookie-paused": pause_bookie,
    "discovery-killed": kill_discovery,
    "etcd-away": etcd_away,
}
OF_BROKERS: Final = (stop_broker, kill_broker)


class Publisher:
    """Publishes one message after the other on one topic, at its current owner."""

    def __init__(self, client: ClusterClient, topic: str, template: SendTemplate) -> None:
        self.at: list[float] = []
        self._client = client
        self._topic = topic
        self._template = template

    async def run(self) -> None:
        """Publish until canceled."""
        while True:
            try:
                await self._publish()
            except (Refused, OSError, TimeoutError):
                await asyncio.sleep(RETRY_S)

    def gap(self, since: float) -> float:
        """Return the longest time between two acknowledgements after a given time."""
        times = [at for at in self.at if at >= since - BEFORE_S]
        return max((after - before for before, after in pairwise(times)), default=0.0)

    async def _publish(self) -> None:
        link: Link = await self._client.link(await self._client.where(self._topic))
        number = link.next_id()
        await link.ask("producer", topic=self._topic, producer_id=number)
        frame = one_send(self._template, number)
        while True:
            await link.send(number, frame)
            self.at.append(time.perf_counter())
            await asyncio.sleep(BETWEEN_S)


async def gaps(cluster: WholeCluster, event: Event) -> list[float]:
    """Gaps of each topic around an event; only of the broker's topics, if it concerns one broker."""
    clients = [ClusterClient(one.endpoint.service_url) for one in cluster.discoveries]
    template = SendTemplate(100)
    names = [f"persistent://public/default/interrupted-{number}" for number in range(TOPICS)]
    publishers = [Publisher(clients[n % len(clients)], name, template) for n, name in enumerate(names)]
    tasks = [asyncio.create_task(one.run()) for one in publishers]
    try:
        await _until(lambda: all(len(one.at) > 50 for one in publishers))
        await asyncio.sleep(BEFORE_S)
        where = await asyncio.gather(*map(clients[-1].where, names))
        serving = cluster.by_url(where[0])
        since = time.perf_counter()
        await asyncio.to_thread(event, cluster, serving)
        ended = time.perf_counter()
        await asyncio.sleep(QUIET_S)
        await _until(lambda: all(one.at[-1] > ended for one in publishers))
        await asyncio.sleep(QUIET_S)
        theirs = [one for one, url in zip(publishers, where, strict=True) if url == where[0]]
        return [one.gap(since) for one in (theirs if event in OF_BROKERS else publishers)]
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
        for client in clients:
            client.close()


async def _until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not condition():  # noqa: ASYNC110 - it looks at lists that others fill
            await asyncio.sleep(0.05)


def measure(names: Sequence[str], rounds: int, session_ms: int) -> dict[str, float]:
    """Medians of the rounds, in milliseconds."""
    figures: dict[str, float] = {"lease s": session_ms / 1e3}
    directory = temporary_directory()
    settings = {"metadataStoreSessionTimeoutMillis": str(session_ms)}
    try:
        with WholeCluster.serving(directory, broker_settings=settings, etcd_fsync=True) as cluster:
            for name in names:
                found = []
                for _ in range(rounds):
                    cluster.mend()
                    found.append(sorted(uvloop.run(gaps(cluster, EVENTS[name]))))
                figures[f"{name}: longest ms"] = median(each[-1] for each in found) * 1e3
                figures[f"{name}: of half of them ms"] = median(each[len(each) // 2] for each in found) * 1e3
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    return figures


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("events", nargs="*", help=f"some of {', '.join(EVENTS)}; else all")
    parser.add_argument("--rounds", type=int, default=3, help="of each; medians are reported (default 3)")
    parser.add_argument("--session-ms", type=int, default=10_000, help="brokers' lease (default 10,000)")
    options = parser.parse_args(argv)
    if unknown := set(options.events) - set(EVENTS):
        parser.error(f"there is no {', '.join(sorted(unknown))}")
    print(f"what {TOPICS} publishers of a cluster on {os.cpu_count()} cores wait for:")
    report("interruptions", measure(options.events or list(EVENTS), options.rounds, options.session_ms))


if __name__ == "__main__":
    main()
