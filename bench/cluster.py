"""`python -m bench.cluster`: how many topics a cluster of brokers makes, holds and takes over.

etcd that syncs, three bookies, three brokers and a discovery are started for it, on this machine, which all
of them and the clients share: on machines of their own they are faster.

`topics`: topics, each with a subscription, made through the discovery; what the brokers' memory is then; and
how long it takes to load them all again after the brokers were stopped and started. `takeover`: topics of one
broker that is killed, each with a producer that keeps trying; when each has its first acknowledgement.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import itertools
import json
import os
import shutil
import time
import urllib.request
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Final

import uvloop

from bench.cluster_client import ClusterClient, for_all, until_done
from bench.figures import percentile
from bench.frames import SendTemplate
from bench.target import Target, report
from tests.cluster.processes import CLUSTER_NAME
from tests.cluster.whole_cluster import WholeCluster
from tests.integration.harness import temporary_directory

NAMESPACE: Final = "public/bench"
BUNDLES: Final = 128
"""So many that none of a hundred thousand topics' is split meanwhile."""

AT_ONCE: Final = 200
PATIENCE_S: Final = 600.0
PATIENCE_PER_TOPIC_S: Final = 0.1
SETTLE_S: Final = 3.0


@dataclass(frozen=True, slots=True)
class Scale:
    """Sizes of the benchmark."""

    topics: int
    takeover_topics: int
    session_ms: int

    @property
    def patience_s(self) -> float:
        """From then on it is said to have failed."""
        return PATIENCE_S + PATIENCE_PER_TOPIC_S * max(self.topics, self.takeover_topics)


@contextlib.contextmanager
def running(scale: Scale) -> Iterator[WholeCluster]:
    directory = temporary_directory()
    settings = {
        "metadataStoreSessionTimeoutMillis": str(scale.session_ms),
        "brokerShutdownTimeoutMs": str(int(scale.patience_s * 1000)),
    }
    try:
        with WholeCluster.serving(
            directory,
            discoveries=1,
            broker_settings=settings,
            bookie_settings={"magnetarSegmentSizeBytes": str(64 << 20)},
            etcd_fsync=True,
        ) as cluster:
            make_namespace(cluster)
            yield cluster
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def make_namespace(cluster: WholeCluster) -> None:
    body = json.dumps({"bundles": {"numBundles": BUNDLES}, "replication_clusters": [CLUSTER_NAME]}).encode()
    request = urllib.request.Request(
        f"{cluster.brokers[0].endpoint.http_url}/admin/v2/namespaces/{NAMESPACE}",
        data=body,
        method="PUT",
        headers={"Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=60) as response:
        response.read()


def topic(number: int) -> str:
    return f"persistent://{NAMESPACE}/topic-{number}"


def of_brokers(cluster: WholeCluster) -> list[Target]:
    return [
        Target(broker.endpoint.service_url, broker.endpoint.http_url, broker.pid)
        for broker in cluster.brokers
        if broker.running
    ]


def resident(cluster: WholeCluster) -> float:
    """Bytes of all brokers."""
    return float(sum(target.rss_bytes() for target in of_brokers(cluster)))


async def subscribe_all(cluster: WholeCluster, scale: Scale) -> float:
    """Seconds until each topic is there and loaded."""
    client = ClusterClient(cluster.discoveries[0].endpoint.service_url)
    began = time.perf_counter()

    async def one(name: str) -> None:
        await until_done(lambda: client.subscribe_once(name), began + scale.patience_s)

    try:
        await for_all(map(topic, range(scale.topics)), one, AT_ONCE)
    finally:
        client.close()
    return time.perf_counter() - began


def measure_topics(scale: Scale) -> dict[str, float]:
    """Made, held, and loaded again."""
    count = scale.topics
    with running(scale) as cluster:
        before = resident(cluster)
        made_s = uvloop.run(subscribe_all(cluster, scale))
        time.sleep(SETTLE_S)
        made = resident(cluster)
        stopped_at = time.perf_counter()
        with ThreadPoolExecutor(len(cluster.brokers)) as pool:  # all at once: none can give its topics away
            list(pool.map(lambda broker: broker.stop(scale.patience_s), cluster.brokers))
        stop_s = time.perf_counter() - stopped_at
        cluster.mend()
        empty = resident(cluster)
        loaded_s = uvloop.run(subscribe_all(cluster, scale))
        time.sleep(SETTLE_S)
        loaded = resident(cluster)
    return {
        "topics": float(count),
        "made/s": count / made_s,
        "RSS MB of three brokers before": before / 1e6,
        "RSS MB of three brokers with them": made / 1e6,
        "bytes per topic, made": (made - before) / count,
        "brokers stopped s": stop_s,
        "loaded again s": loaded_s,
        "loaded/s": count / loaded_s,
        "bytes per topic, loaded": (loaded - empty) / count,
    }


async def topics_of_one(client: ClusterClient, scale: Scale) -> tuple[str, list[str]]:
    """A broker by its service URL, the first that is found to serve so many topics, and these topics."""
    count = scale.takeover_topics
    found: dict[str, list[str]] = {}
    deadline = time.perf_counter() + scale.patience_s
    for first in itertools.count(0, AT_ONCE):
        names = [topic(first + offset) for offset in range(AT_ONCE)]
        where = await asyncio.gather(
            *(until_done(lambda name=name: client.where(name), deadline) for name in names)  # type: ignore[misc]
        )
        for name, url in zip(names, where, strict=True):
            found.setdefault(url, []).append(name)
        enough = [url for url, of_it in found.items() if len(of_it) >= count]
        if enough:
            break
    return enough[0], found[enough[0]][:count]


async def take_over(cluster: WholeCluster, scale: Scale) -> list[float]:
    """Seconds from the kill to the first acknowledgement of each topic, in order."""
    client = ClusterClient(cluster.discoveries[0].endpoint.service_url)
    template = SendTemplate(100)
    try:
        url, names = await topics_of_one(client, scale)
        victim = next(each for each in cluster.brokers if each.endpoint.service_url == url)
        deadline = time.perf_counter() + scale.patience_s

        async def publish(name: str) -> None:
            await until_done(lambda: client.publish_once(name, template), deadline)

        await for_all(names, publish, AT_ONCE)
        victim.kill()
        killed = time.perf_counter()
        times: list[float] = []

        async def publish_again(name: str) -> None:
            await publish(name)
            times.append(time.perf_counter() - killed)

        await asyncio.gather(*map(publish_again, names))
        return times
    finally:
        client.close()


def measure_takeover(scale: Scale) -> dict[str, float]:
    """A broker is killed, and the others have its topics."""
    with running(scale) as cluster:
        times = uvloop.run(take_over(cluster, scale))
    return {
        "topics of the killed broker": float(scale.takeover_topics),
        "lease s": scale.session_ms / 1e3,
        "first topic s": min(times),
        "p50 s": percentile(times, 0.5),
        "p99 s": percentile(times, 0.99),
        "last topic s": max(times),
    }


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", nargs="*", default=["topics", "takeover"], help="topics, takeover or both")
    parser.add_argument("--topics", type=int, default=100_000, help="made and loaded (default 100,000)")
    parser.add_argument("--takeover-topics", type=int, default=1_000, help="of one broker (default 1,000)")
    parser.add_argument("--session-ms", type=int, default=3_000, help="brokers' lease (default 3,000)")
    options = parser.parse_args(argv)
    if unknown := set(options.what) - {"topics", "takeover"}:
        parser.error(f"there is no {', '.join(sorted(unknown))}: choose topics, takeover or both")
    scale = Scale(options.topics, options.takeover_topics, options.session_ms)
    print(f"etcd, three bookies, three brokers, a discovery and the clients on {os.cpu_count()} cores:")
    if "topics" in options.what:
        report("cluster-topics", measure_topics(scale))
    if "takeover" in options.what:
        report("cluster-takeover", measure_takeover(scale))


if __name__ == "__main__":
    main()
