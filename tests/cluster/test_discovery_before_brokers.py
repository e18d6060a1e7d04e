"""Brokers behind a discovery that clients are told to come through."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pulsar
import pytest

from tests.cluster.discovery_process import DiscoveryProcess
from tests.cluster.whole_cluster import WholeCluster
from tests.integration.clients import publish, receive
from tests.integration.harness import eventually
from tests.integration.raw.transcript import numbered

TOPICS = 12
TAKEOVER_SECONDS_MAX = 60.0


@contextmanager
def through_discovery(cluster: WholeCluster, directory: Path) -> Iterator[DiscoveryProcess]:
    """One more discovery, whose clients reach brokers through it."""
    settings = {"magnetarProxyThroughServiceUrl": "true"}
    process = DiscoveryProcess(directory, "discovery", cluster.etcd.url, settings)
    try:
        process.start()
        yield process
        process.stop()
    finally:
        process.kill()


def client_of(discovery: DiscoveryProcess) -> closing[pulsar.Client]:
    options = {"operation_timeout_seconds": 60, "logger": pulsar.ConsoleLogger(pulsar.LoggerLevel.Error)}
    return closing(pulsar.Client(discovery.endpoint.service_url, **options))


def carried(discovery: DiscoveryProcess) -> float:
    """Connections to brokers."""
    with urllib.request.urlopen(f"{discovery.endpoint.http_url}/metrics", timeout=30) as answer:
        page = answer.read().decode()
    sample = 'magnetar_discovery_connections{kind="to_brokers"} '
    return sum(float(line.removeprefix(sample)) for line in page.splitlines() if line.startswith(sample))


@pytest.mark.full
def test_a_client_that_comes_through_discovery_uses_topics_of_every_broker(
    whole_cluster: WholeCluster, tmp_path: Path
) -> None:
    topics = [f"persistent://public/default/through-{number}" for number in range(TOPICS)]
    with through_discovery(whole_cluster, tmp_path) as discovery, client_of(discovery) as client:
        for topic in topics:
            consumer = client.subscribe(topic, "s")
            publish(client, topic, numbered(5))
            assert [receive(consumer).data() for _ in range(5)] == numbered(5)
        assert carried(discovery) > 1
        for topic in topics:
            path = topic.replace("://", "/")
            url = f"{discovery.endpoint.http_url}/admin/v2/{path}/stats"
            with urllib.request.urlopen(url, timeout=30) as answer:
                assert answer.url == url, "a client that comes through discovery is sent nowhere else"
                assert "s" in json.load(answer)["subscriptions"]


@pytest.mark.full
def test_a_client_that_comes_through_discovery_follows_its_topic_to_another_broker(
    whole_cluster: WholeCluster, tmp_path: Path
) -> None:
    topic = "persistent://public/default/followed"
    with through_discovery(whole_cluster, tmp_path) as discovery, client_of(discovery) as client:
        producer = client.create_producer(topic, send_timeout_millis=120_000)
        producer.send(b"before")
        first = whole_cluster.owner_of(topic)
        first.kill()
        others = [broker for broker in whole_cluster.brokers if broker is not first]
        urls = {broker.endpoint.service_url for broker in others}
        eventually(lambda: others[0].where(topic) in urls, "another has it", TAKEOVER_SECONDS_MAX)
        producer.send(b"after")
        consumer = client.subscribe(topic, "s", initial_position=pulsar.InitialPosition.Earliest)
        assert [receive(consumer).data() for _ in range(2)] == [b"before", b"after"]
