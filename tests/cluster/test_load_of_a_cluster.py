"""The load of real brokers: a bundle that has too much is split and shared, and brokers even out theirs."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from itertools import count

import pytest
from magnetar.common.naming.bundle_range import split_ring
from magnetar.common.naming.topic_name import TopicName

from tests.cluster.conftest import NewCluster
from tests.cluster.moving import Follower
from tests.cluster.processes import BrokerProcess, Cluster
from tests.cluster.test_moving import LONG_SESSION, read_all
from tests.cluster.test_two_brokers import TAKEOVER_SECONDS_MAX, client_of, knows, owned
from tests.integration.clients import publish, receive
from tests.integration.counters import counter
from tests.integration.harness import eventually
from tests.integration.raw.transcript import line, numbered
from tests.integration.rest import Rest

NAMESPACE = "public/one-bundle"
TOPICS = 30
QUICK = {
    **LONG_SESSION,
    "loadBalancerReportUpdateMinIntervalMillis": "500",
    "loadBalancerSplitIntervalMinutes": "0.01",
    "loadBalancerNamespaceBundleSplitConditionHitCountThreshold": "2",
    "loadBalancerNamespaceBundleMaxTopics": "10",
}

SHARED = "public/shared"
BUNDLES = 8
BYTES = 2_000
PAUSE_S = 0.2
"""Of each publisher: a tenth of what 100 percent are."""
EVENING_OUT = {
    **LONG_SESSION,
    "loadBalancerReportUpdateMinIntervalMillis": "500",
    "statsUpdateFrequencyInSecs": "1",
    # Published bytes are all that counts, and 100 kB/s are 100 percent: CPU differs from machine to machine.
    "loadBalancerOverrideBrokerNicSpeedGbps": "0.0008",
    "loadBalancerCPUResourceWeight": "0",
    "loadBalancerBandwidthOutResourceWeight": "0",
    "loadBalancerAutoBundleSplitEnabled": "false",
    "loadBalancerSheddingIntervalMinutes": "0.01",
    "loadBalancerHistoryResourcePercentage": "0",
    "loadBalanceSheddingDelayInSeconds": "4",
    "loadBalancerSheddingGracePeriodMinutes": "10",
}


def started(cluster: Cluster, count: int, settings: dict[str, str]) -> list[BrokerProcess]:
    brokers = [cluster.broker(settings) for _ in range(count)]
    for broker in brokers:
        broker.launch()
    for broker in brokers:
        broker.wait_until_healthy()
        eventually(partial(knows, Rest(broker.endpoint), count), "all are known")
    return brokers


def topic_in_each_bundle() -> list[str]:
    names = (TopicName.parse(f"persistent://{SHARED}/t-{number}") for number in count())
    found: dict[int, str] = {}
    while len(found) < BUNDLES:
        name = next(names)
        found.setdefault(name.hash // (2**32 // BUNDLES), name.full)
    return [found[bundle] for bundle in range(BUNDLES)]


@contextmanager
def under_load(followers: list[Follower]) -> Iterator[None]:
    """Each publishes as much as the others."""
    over = threading.Event()
    failures: list[BaseException] = []

    def run(follower: Follower) -> None:
        try:
            while not over.is_set():
                send(follower)
                time.sleep(PAUSE_S)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=run, args=(each,)) for each in followers]
    for each in threads:
        each.start()
    try:
        yield
    finally:
        over.set()
        for each in threads:
            each.join()
    assert not failures, failures


def send(follower: Follower) -> None:
    follower.send(b"%0*d" % (BYTES, len(follower.confirmed)))


def stays(brokers: list[BrokerProcess], seconds: float) -> float:
    """How many bundles were moved because of load, once that is the same for so long."""
    moved, since = -1.0, time.monotonic()
    deadline = since + TAKEOVER_SECONDS_MAX
    while time.monotonic() - since < seconds:
        now = sum(counter(broker.endpoint, "pulsar_lb_unload_bundle_total") for broker in brokers)
        if now != moved:
            moved, since = now, time.monotonic()
        assert time.monotonic() < deadline, "bundles go around in circles"
        time.sleep(0.2)
    return moved


@pytest.mark.full
def test_a_broker_with_all_the_load_gives_half_of_it_away_once_and_what_is_merged_stays_together(
    new_cluster: NewCluster,
) -> None:
    brokers = started(new_cluster(), 2, EVENING_OUT)
    loaded, other = brokers
    rest = Rest(other.endpoint)
    rest.do("PUT", f"/namespaces/{SHARED}", {"bundles": {"numBundles": BUNDLES}})
    host = loaded.endpoint.http_url.removeprefix("http://")
    for bundle in split_ring(BUNDLES):
        rest.do("PUT", f"/namespaces/{SHARED}/{bundle}/unload?destinationBroker={host}")

    def bundles(broker: BrokerProcess) -> list[str]:
        return sorted(bundle for bundle in owned(broker) if bundle.startswith(SHARED))

    assert len(bundles(loaded)) == BUNDLES
    with ExitStack() as stack:
        followers = [Follower(loaded.endpoint, topic) for topic in topic_in_each_bundle()]
        for each in followers:
            stack.callback(each.close)
        with under_load(followers):
            eventually(lambda: len(bundles(other)) >= 2, "some are moved", TAKEOVER_SECONDS_MAX)
            moved = stays(brokers, seconds=8.0)
        assert 2 <= len(bundles(other)) <= 6
        assert moved == len(bundles(other)), "none went back"
        assert [len(each.assigned) for each in followers].count(1) == moved, "clients were told where to"

        told = sum(len(each.assigned) for each in followers)
        fewer = min(len(bundles(broker)) for broker in brokers)
        rest.do("PUT", f"/namespaces/{SHARED}/0x00000000_0xffffffff/merge")
        with under_load(followers):
            at = [len(each.confirmed) for each in followers]
            eventually(
                lambda: all(len(each.confirmed) > n + 5 for each, n in zip(followers, at, strict=True)),
                "all go on",
                TAKEOVER_SECONDS_MAX,
            )
            assert stays(brokers, seconds=3.0) == moved, "a bundle that is all the load stays where it is"
        assert sorted(map(bundles, brokers)) == [[], [f"{SHARED}/0x00000000_0xffffffff"]]
        assert sum(len(each.assigned) for each in followers) == told + fewer, (
            "only those that moved were closed"
        )
        (owner,) = (broker for broker in brokers if bundles(broker))
        for each in followers:
            with line(owner.endpoint) as c:
                assert read_all(c, each.topic, len(each.confirmed)) == each.confirmed


@pytest.mark.full
def test_a_bundle_with_too_many_topics_is_split_and_shared_and_every_topic_is_served_on(
    new_cluster: NewCluster,
) -> None:
    brokers = started(new_cluster(), 3, QUICK)
    Rest(brokers[0].endpoint).do("PUT", f"/namespaces/{NAMESPACE}", {"bundles": {"numBundles": 1}})
    topics = [f"persistent://{NAMESPACE}/t-{number}" for number in range(TOPICS)]

    def bundles() -> dict[str, BrokerProcess]:
        return {
            bundle: broker for broker in brokers for bundle in owned(broker) if bundle.startswith(NAMESPACE)
        }

    with client_of(brokers[0]) as client:
        consumers = {topic: client.subscribe(topic, "s") for topic in topics}
        eventually(
            lambda: len(bundles()) >= 4, "it was split until each part has few topics", TAKEOVER_SECONDS_MAX
        )
        eventually(
            lambda: len(set(bundles().values())) == 3, "all brokers have a part of it", TAKEOVER_SECONDS_MAX
        )
        serving = Counter(brokers[0].where(topic) for topic in topics)
        assert len(serving) == 3
        for topic, consumer in consumers.items():
            publish(client, topic, numbered(3))
            assert [receive(consumer).data() for _ in range(3)] == numbered(3)
    assert sum(counter(broker.endpoint, "magnetar_load_leader") for broker in brokers) == 1
    assert sum(counter(broker.endpoint, "pulsar_lb_bundles_split_total") for broker in brokers) >= 3
