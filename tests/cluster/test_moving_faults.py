"""Brokers stop, die and lose their session while topics move: publishers go on and miss nothing."""

from __future__ import annotations

import contextlib
import json
import threading
import time
from collections import Counter
from typing import Any

import pulsar
import pytest
from magnetar.common.metadata.keys import Keys

from tests.cluster.conftest import NewCluster
from tests.cluster.moving import Follower
from tests.cluster.processes import CLUSTER_NAME, BrokerProcess, Cluster
from tests.cluster.test_moving import brokers_of, host, publishing, read_all, serving, unload
from tests.cluster.test_two_brokers import owned
from tests.integration.harness import eventually
from tests.integration.raw.transcript import line

LEASE_SECONDS_MAX = 60.0
SHORT_SESSION = {"metadataStoreSessionTimeoutMillis": "4000"}
ONCE = {"brokerDeduplicationEnabled": "true"}
"""What a publisher sends again, because it heard nothing of it, is on the topic once."""


def events(broker: BrokerProcess, event: str) -> list[dict[str, object]]:
    lines = broker.log_path.read_text().splitlines()
    return [one for one in map(json.loads, filter(_is_json, lines)) if one.get("event") == event]


def _is_json(text: str) -> bool:
    return text.startswith("{")


def goes_on(follower: Follower, seconds_max: float = LEASE_SECONDS_MAX) -> None:
    at = len(follower.confirmed)
    eventually(lambda: len(follower.confirmed) > at + 20, "the publisher goes on", seconds_max)


def has_all(brokers: list[BrokerProcess], follower: Follower) -> None:
    with line(serving(brokers, follower.topic).endpoint) as c:
        assert read_all(c, follower.topic, len(follower.confirmed)) == follower.confirmed


def try_to_unload(asked: BrokerProcess, topic: str, to: BrokerProcess) -> None:
    """Whatever becomes of it: somebody dies meanwhile."""
    with contextlib.suppress(OSError):
        unload(asked, topic, to)


@pytest.fixture
def cluster(new_cluster: NewCluster) -> Cluster:
    return new_cluster()


@pytest.mark.full
def test_a_broker_that_stops_gives_its_topics_to_the_others_first(cluster: Cluster, topic: str) -> None:
    brokers = brokers_of(cluster, 3, **ONCE)
    followers = [Follower(broker.endpoint, f"{topic}-{n}") for n, broker in enumerate(brokers * 3)]
    for follower in followers:
        follower.send(b"0")
    first = serving(brokers, followers[0].topic)
    assert first is not None
    rest = [broker for broker in brokers if broker is not first]
    watched, *others = [each for each in followers if serving(brokers, each.topic) is first]
    with publishing(watched):
        goes_on(watched)
        first.stop()
        goes_on(watched)
    assert watched.looked_up == 1, "it was told where to go, and needed no lookup"
    assert not watched.refused
    assert all(each in {other.endpoint.service_url for other in rest} for each in watched.assigned)
    (said,) = events(first, "drain complete")
    assert said["given"] == said["of"] != 0
    for follower in others:
        assert serving(rest, follower.topic) in rest
    has_all(rest, watched)
    for follower in followers:
        follower.close()


@pytest.mark.full
def test_a_broker_that_stops_under_load_costs_no_client_an_error(cluster: Cluster, topic: str) -> None:
    brokers = brokers_of(cluster, 3, **ONCE)
    topics = [f"{topic}-{number}" for number in range(20)]
    first = serving(brokers, topics[0])
    rest = [broker for broker in brokers if broker is not first]
    sent, errors, over = Counter[str](), list[object](), threading.Event()
    got: dict[str, list[int]] = {each: [] for each in topics}

    def answered(result: object, _: object) -> None:
        if result != pulsar.Result.Ok:
            errors.append(result)

    def take(consumer: Any, message: Any) -> None:
        try:
            got[consumer.topic()].append(int(message.data()))
            consumer.acknowledge(message)
        except Exception as error:
            errors.append(error)

    def publish(producers: dict[str, Any]) -> None:
        while not over.is_set():
            for name, producer in producers.items():
                producer.send_async(b"%d" % sent[name], answered)
                sent[name] += 1
            time.sleep(0.01)

    logger = pulsar.ConsoleLogger(pulsar.LoggerLevel.Error)
    with contextlib.closing(pulsar.Client(rest[0].endpoint.service_url, logger=logger)) as client:
        shared = pulsar.ConsumerType.Shared
        for each in topics:
            client.subscribe(each, "s", consumer_type=shared, message_listener=take)
        producers = {
            each: client.create_producer(each, batching_enabled=False, block_if_queue_full=True)
            for each in topics
        }
        loading = threading.Thread(target=publish, args=(producers,))
        loading.start()
        try:
            eventually(lambda: min(map(len, got.values())) > 20, "all get messages")
            first.stop()
            before = {each: len(got[each]) for each in topics}
            eventually(lambda: all(len(got[each]) > before[each] + 20 for each in topics), "all go on")
        finally:
            over.set()
            loading.join()
        for producer in producers.values():
            producer.flush()
        eventually(lambda: all(len(set(got[each])) == sent[each] for each in topics), "all has come")
    assert not errors, errors
    (said,) = events(first, "drain complete")
    assert said["given"] == said["of"] != 0


@pytest.mark.full
def test_the_last_broker_just_stops_and_a_lone_one_reloads_what_is_unloaded(
    cluster: Cluster, topic: str
) -> None:
    (alone,) = brokers_of(cluster, 1, **ONCE)
    follower = Follower(alone.endpoint, topic)
    with publishing(follower):
        goes_on(follower)
        assert unload(alone, topic).status == 204
        goes_on(follower)
    assert follower.assigned == []
    assert follower.looked_up == 2
    assert alone.serves(topic)
    began = time.monotonic()
    alone.stop()
    assert time.monotonic() - began < 20
    assert not events(alone, "draining bundles")


@pytest.mark.full
@pytest.mark.parametrize("dies", ["giver", "taker"])
def test_a_broker_that_dies_while_a_topic_moves_costs_nothing_confirmed(
    cluster: Cluster, topic: str, dies: str
) -> None:
    brokers = brokers_of(cluster, 3, **ONCE, **SHORT_SESSION)
    asked = brokers[0]
    follower = Follower(asked.endpoint, topic)
    follower.send(b"0")
    owner = serving(brokers, topic)
    taker = next(broker for broker in brokers if broker not in (owner, asked))
    if owner is asked:
        asked = next(broker for broker in brokers if broker not in (owner, taker))
        follower.endpoint = asked.endpoint
    dying = owner if dies == "giver" else taker
    with publishing(follower):
        goes_on(follower)
        unloading = threading.Thread(target=try_to_unload, args=(asked, topic, taker))
        unloading.start()
        time.sleep(0.01)
        dying.kill()
        goes_on(follower, 60.0)
        unloading.join()
    living = [broker for broker in brokers if broker is not dying]
    has_all(living, follower)


@pytest.mark.full
def test_a_broker_whose_lease_is_revoked_drops_everything_and_begins_anew(
    cluster: Cluster, topic: str
) -> None:
    brokers = brokers_of(cluster, 2, **ONCE, **SHORT_SESSION)
    follower = Follower(brokers[1].endpoint, topic)
    follower.send(b"0")
    owner = serving(brokers, topic)
    other = next(broker for broker in brokers if broker is not owner)
    follower.endpoint = other.endpoint
    with publishing(follower):
        goes_on(follower)
        key = Keys(CLUSTER_NAME).broker(host(owner))
        found = json.loads(cluster.etcd.etcdctl("get", key, "--write-out=json"))
        cluster.etcd.etcdctl("lease", "revoke", f"{found['kvs'][0]['lease']:x}")
        eventually(lambda: events(owner, "serving again") != [], "it begins anew", LEASE_SECONDS_MAX)
        goes_on(follower)
    assert not owned(owner) & owned(other)
    has_all(brokers, follower)
