"""The metadata of topics, counted in the etcd of a real cluster: keys, bytes, and transactions that write."""

from __future__ import annotations

import shutil
import time
from collections import Counter
from dataclasses import dataclass
from typing import Any, Final

import uvloop
from magnetar.common.metadata.etcd_store import EtcdMetadataStore
from magnetar.common.metadata.store import Listing

from bench.cluster import AT_ONCE, SETTLE_S, make_namespace, topic
from bench.cluster_client import ClusterClient, for_all, until_done
from bench.frames import SendTemplate
from tests.cluster.whole_cluster import WholeCluster
from tests.integration.harness import temporary_directory

STEPS: Final = 2
PATIENCE_S: Final = 600.0
SHARED: Final = ("bundle-owners", "counters")
"""Keys that come with the first topics and that no topic has of its own."""

SESSION_MS: Final = "60000"
"""So long that a busy machine ends no session, which would be counted."""


@dataclass(frozen=True, slots=True)
class TopicMetadata:
    """The metadata of one topic with a subscription and a message."""

    topics: int
    keys: float
    """Keys of a topic."""
    octets: float
    """Bytes of its keys and their values."""
    by_family: dict[str, list[float]]
    """Keys, and bytes, of a topic by family of keys."""
    writes_made: float
    """Transactions that write, of a topic that is made, subscribed to and published to."""


def measure(count: int, told: Any) -> TopicMetadata:
    """Makes the topics in a cluster that is started for them."""
    directory = temporary_directory()
    try:
        told("topics: a cluster starts")
        settings = {"metadataStoreSessionTimeoutMillis": SESSION_MS, "brokerShutdownTimeoutMs": SESSION_MS}
        with WholeCluster.serving(directory, discoveries=1, broker_settings=settings) as cluster:
            make_namespace(cluster)
            before = _listing(cluster)
            told(f"topics: {count:,} are made")
            uvloop.run(_use_all(cluster, count))
            time.sleep(SETTLE_S)
            made = _listing(cluster)
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    earlier = {item.key for item in before.items}
    keys: Counter[str] = Counter()
    octets: Counter[str] = Counter()
    for item in made.items:
        family = item.key.split("/")[4]
        if item.key not in earlier and family not in SHARED:
            family = "topics/.../ledgers" if family == "topics" else family
            keys[family] += 1
            octets[family] += len(item.key) + len(item.value)
    return TopicMetadata(
        count,
        keys.total() / count,
        octets.total() / count,
        {each: [keys[each] / count, octets[each] / count] for each in sorted(keys)},
        (made.revision - before.revision) / count,
    )


async def _use_all(cluster: WholeCluster, count: int) -> None:
    """Subscribes to each topic, and publishes one message to it."""
    client, template = ClusterClient(cluster.discoveries[0].endpoint.service_url), SendTemplate(100)
    deadline = time.perf_counter() + PATIENCE_S

    async def one(name: str) -> None:
        await until_done(lambda: client.subscribe_once(name), deadline)
        await until_done(lambda: client.publish_once(name, template), deadline)

    try:
        await for_all(map(topic, range(count)), one, AT_ONCE)
    finally:
        client.close()


def _listing(cluster: WholeCluster) -> Listing:
    async def read() -> Listing:
        store = await EtcdMetadataStore.open([cluster.etcd.endpoint])
        try:
            return await store.children("/magnetar/")
        finally:
            await store.close()

    return uvloop.run(read())
