"""Two brokers over one etcd and three bookies share a namespace's bundles, and clients need not know."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from functools import partial

import pulsar
import pytest
from magnetar.common.naming.topic_name import TopicName

from tests.cluster.conftest import NewCluster
from tests.cluster.processes import CLUSTER_NAME, BrokerProcess, Cluster
from tests.integration.clients import publish, receive
from tests.integration.harness import eventually
from tests.integration.raw.transcript import line, numbered
from tests.integration.rest import Rest

SHORT_SESSION_MS = 3_000
LONG_SESSION_MS = 30_000
"""So that a busy machine costs no session where nothing is killed."""
TAKEOVER_SECONDS_MAX = 60.0
NAMESPACE = "public/default"
BUNDLES = 4


@contextmanager
def client_of(broker: BrokerProcess) -> Iterator[pulsar.Client]:
    options = {"operation_timeout_seconds": 60, "logger": pulsar.ConsoleLogger(pulsar.LoggerLevel.Error)}
    with closing(pulsar.Client(broker.endpoint.service_url, **options)) as client:
        yield client


def topics_by_bundle() -> list[str]:
    """A topic in each bundle, in the order of the ring."""
    found: dict[int, str] = {}
    number = 0
    while len(found) < BUNDLES:
        name = TopicName.parse(f"persistent://{NAMESPACE}/t-{number}")
        found.setdefault(name.hash * BUNDLES >> 32, name.full)
        number += 1
    return [found[bundle] for bundle in range(BUNDLES)]


def owned(broker: BrokerProcess) -> set[str]:
    """The bundles that a broker says it owns."""
    host = broker.endpoint.http_url.removeprefix("http://")
    return set(Rest(broker.endpoint).get(f"/brokers/{CLUSTER_NAME}/{host}/ownedNamespaces"))


def two_brokers(
    cluster: Cluster, *, first_session_ms: int = LONG_SESSION_MS
) -> tuple[BrokerProcess, BrokerProcess]:
    """Both serve and know of each other; a test that kills the first wants it to be missed soon."""
    first, second = (
        cluster.broker({"metadataStoreSessionTimeoutMillis": str(session_ms)})
        for session_ms in (first_session_ms, LONG_SESSION_MS)
    )
    for broker in (first, second):
        broker.launch()
    for broker in (first, second):
        broker.wait_until_healthy()
    for rest in map(Rest, (first.endpoint, second.endpoint)):
        eventually(partial(knows, rest, 2), "both are known")
    return first, second


def knows(rest: Rest, brokers: int) -> bool:
    """Whether a broker knows that so many are up."""
    return len(rest.get("/brokers")) == brokers


def split_evenly(first: BrokerProcess, second: BrokerProcess, topics: list[str]) -> dict[str, BrokerProcess]:
    """Each broker looks half of the topics up first; returns who serves which."""
    serving = {topic: (first, second)[number % 2] for number, topic in enumerate(topics)}
    for topic, broker in serving.items():
        assert broker.where(topic) in (first.endpoint.service_url, second.endpoint.service_url)
    by_url = {broker.endpoint.service_url: broker for broker in (first, second)}
    return {topic: by_url[first.where(topic)] for topic in topics}


@pytest.mark.full
def test_two_brokers_share_the_bundles_and_a_client_of_either_uses_topics_of_both(
    new_cluster: NewCluster,
) -> None:
    first, second = two_brokers(new_cluster())
    topics = topics_by_bundle()
    serving = split_evenly(first, second, topics)
    for topic in topics:
        assert first.where(topic) == second.where(topic) == serving[topic].endpoint.service_url
    assert owned(first) | owned(second) == {
        f"{NAMESPACE}/0x{low:08x}_0x{min(low + (1 << 30), 0xFFFF_FFFF):08x}"
        for low in range(0, 1 << 32, 1 << 30)
    }
    assert not owned(first) & owned(second)
    assert set(serving.values()) == {first, second}
    for number, broker in enumerate((first, second)):
        with client_of(broker) as client:
            for topic in topics:
                consumer = client.subscribe(topic, f"s-{number}")
                publish(client, topic, numbered(20))
                assert [receive(consumer).data() for _ in range(20)] == numbered(20)


@pytest.mark.full
def test_a_broker_that_is_asked_for_a_topic_of_the_other_sends_clients_to_look_it_up(
    new_cluster: NewCluster,
) -> None:
    first, second = two_brokers(new_cluster())
    topic = topics_by_bundle()[0]
    assert first.where(topic) == second.where(topic)
    other = second if first.where(topic) == first.endpoint.service_url else first
    with line(other.endpoint) as c:
        subscribing = c.request(
            "subscribe", topic=topic, subscription="s", consumer_id=1, subType="Exclusive"
        )
        assert "look it up again" in c.expect_error(subscribing, "ServiceNotReady")
        opening = c.request("producer", topic=topic, producer_id=1)
        assert "look it up again" in c.expect_error(opening, "ServiceNotReady")


@pytest.mark.full
def test_the_topics_of_a_killed_broker_are_served_by_the_other_one(new_cluster: NewCluster) -> None:
    first, second = two_brokers(new_cluster(), first_session_ms=SHORT_SESSION_MS)
    topics = topics_by_bundle()
    serving = split_evenly(first, second, topics)
    with client_of(second) as client:
        producers = {topic: client.create_producer(topic) for topic in topics}
        for topic, producer in producers.items():
            producer.send(topic.encode())
        first.kill()
        eventually(partial(knows, Rest(second.endpoint), 1), "its session ends", TAKEOVER_SECONDS_MAX)
        for topic, producer in producers.items():
            producer.send(b"and on")
            assert second.where(topic) == second.endpoint.service_url
            consumer = client.subscribe(topic, "s", initial_position=pulsar.InitialPosition.Earliest)
            assert [receive(consumer).data() for _ in range(2)] == [topic.encode(), b"and on"]
    assert first in serving.values()
    first.start()
    assert set(topics) == {topic for topic in topics if first.where(topic) == second.endpoint.service_url}
