"""The cluster and its brokers over HTTP: what is changed there is what the running broker does."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pulsar
import pytest

from tests.integration.clients import publish
from tests.integration.harness import StandaloneServer, eventually
from tests.integration.rest import Rest

CONFIGURATION = "/brokers/configuration"


@pytest.fixture
def change(rest: Rest) -> Iterator[Callable[[str, str], None]]:
    """Changes a setting while the broker runs; all are taken back behind the test."""
    changed = []

    def act(key: str, value: str) -> None:
        changed.append(key)
        assert rest.call("POST", f"{CONFIGURATION}/{key}/{value}").status == 200

    yield act
    for key in changed:
        assert rest.call("DELETE", f"{CONFIGURATION}/{key}").status == 200


def test_a_setting_changes_what_loaded_topics_allow(
    rest: Rest, client: pulsar.Client, topic: str, change: Callable[[str, str], None]
) -> None:
    first = client.subscribe(topic, "a", consumer_type=pulsar.ConsumerType.Shared)
    change("subscriptionTypesEnabled", "Exclusive")
    with pytest.raises(pulsar.PulsarException, match="NotAllowed"):
        client.subscribe(topic, "b", consumer_type=pulsar.ConsumerType.Shared)
    client.subscribe(topic, "c", consumer_type=pulsar.ConsumerType.Exclusive).close()
    assert rest.get(f"{CONFIGURATION}/values") == {"subscriptionTypesEnabled": "Exclusive"}
    assert rest.get(f"{CONFIGURATION}/runtime")["subscriptionTypesEnabled"] == "Exclusive"
    assert rest.call("DELETE", f"{CONFIGURATION}/subscriptionTypesEnabled").status == 200
    client.subscribe(topic, "b", consumer_type=pulsar.ConsumerType.Shared).close()
    first.close()


def test_a_setting_changes_what_may_be_made(
    rest: Rest, client: pulsar.Client, namespace: str, change: Callable[[str, str], None]
) -> None:
    change("maxNumPartitionsPerPartitionedTopic", "2")
    rest.refused(406, "PUT", f"/persistent/{namespace}/p/partitions", 3)
    rest.do("PUT", f"/persistent/{namespace}/p/partitions", 2)
    change("allowAutoTopicCreation", "false")
    with pytest.raises(pulsar.PulsarException, match="TopicNotFound"):
        client.create_producer(f"persistent://{namespace}/new")
    assert rest.call("DELETE", f"{CONFIGURATION}/allowAutoTopicCreation").status == 200
    client.create_producer(f"persistent://{namespace}/new").close()


def test_the_brokers_own_rate_can_be_switched_on_and_off_while_it_runs(
    rest: Rest, client: pulsar.Client, topic: str, change: Callable[[str, str], None]
) -> None:
    consumer = client.subscribe(topic, "s", receiver_queue_size=100)
    publish(client, topic, [b"%d" % n for n in range(30)])
    assert [consumer.receive(20_000).data() for _ in range(30)]
    change("dispatchThrottlingRateInMsg", "1")
    publish(client, topic, [b"%d" % n for n in range(30)])
    reason = f"{topic.replace('://', '/')}/stats?whyNotDispatching=true"

    def limited() -> bool:
        why = rest.get(f"/{reason}")["subscriptions"]["s"]["whyNotDispatching"]
        return "rate of the broker" in str(why)

    eventually(limited, "the broker's rate holds messages back")
    assert rest.call("DELETE", f"{CONFIGURATION}/dispatchThrottlingRateInMsg").status == 200
    assert len([consumer.receive(20_000) for _ in range(30)]) == 30


def test_a_changed_setting_outlives_the_broker(server: StandaloneServer, rest: Rest) -> None:
    key = "maxConcurrentTopicLoadRequest"
    assert rest.call("POST", f"{CONFIGURATION}/{key}/77").status == 200
    server.restart()
    assert rest.get(f"{CONFIGURATION}/runtime")[key] == "77"
    assert rest.call("DELETE", f"{CONFIGURATION}/{key}").status == 200
    assert rest.get(f"{CONFIGURATION}/runtime")[key] == "5000"


def test_this_broker_is_the_active_one(rest: Rest, client: pulsar.Client, topic: str) -> None:
    host = rest.endpoint.http_url.removeprefix("http://")
    assert rest.get("/brokers") == [host]
    assert rest.get("/brokers/leaderBroker") == {"serviceUrl": rest.endpoint.http_url, "brokerId": host}
    publish(client, topic, [b"x"])
    owned = rest.get(f"/brokers/{rest.endpoint.cluster}/{host}/ownedNamespaces")
    namespace = "/".join(topic.split("/")[2:4])
    assert any(bundle.startswith(f"{namespace}/0x") for bundle in owned)
    assert rest.get("/brokers/internal-configuration")["metadataStoreUrl"].startswith("sqlite:")
    cluster = rest.get(f"/clusters/{rest.endpoint.cluster}")
    assert (cluster["serviceUrl"], cluster["brokerServiceUrl"]) == (
        rest.endpoint.http_url,
        rest.endpoint.service_url,
    )


def test_backlog_quota_check_runs_on_request(rest: Rest, client: pulsar.Client, namespace: str) -> None:
    topic = f"persistent://{namespace}/t"
    rest.do("PUT", f"/persistent/{namespace}/t/subscription/s", "earliest")
    publish(client, topic, [b"x" * 1_000 for _ in range(20)])
    quota = {"limitSize": 5_000, "policy": "consumer_backlog_eviction"}
    rest.do("POST", f"/namespaces/{namespace}/backlogQuota", quota)
    assert rest.get(f"/persistent/{namespace}/t/stats")["subscriptions"]["s"]["msgBacklog"] == 20
    rest.do("GET", "/brokers/backlog-quota-check")
    assert rest.get(f"/persistent/{namespace}/t/stats")["subscriptions"]["s"]["msgBacklog"] < 20


RECORDED_TOPIC = {
    "publishers",
    "replication",
    "subscriptions",
    "producerCount",
    "averageMsgSize",
    "msgRateIn",
    "msgRateOut",
    "msgInCount",
    "bytesInCount",
    "msgOutCount",
    "bytesOutCount",
    "msgThroughputIn",
    "msgThroughputOut",
    "filteredEntriesCount",
}
RECORDED_STORAGE = {"storageSize", "backlogSize", "pendingAddEntriesCount"}


def test_the_figures_of_all_topics_have_the_recorded_shape(
    rest: Rest, client: pulsar.Client, namespace: str
) -> None:
    stored, volatile = f"persistent://{namespace}/t", f"non-persistent://{namespace}/t"
    consumers = [client.subscribe(topic, "s") for topic in (stored, volatile)]
    producer = client.create_producer(stored)
    producer.send(b"x")
    bundles = rest.get("/broker-stats/topics")[namespace]
    found = {
        (domain, topic): figures
        for by_domain in bundles.values()
        for domain, topics in by_domain.items()
        for topic, figures in topics.items()
    }
    assert set(found) == {("persistent", stored), ("non-persistent", volatile)}
    of_stored, of_volatile = found["persistent", stored], found["non-persistent", volatile]
    assert set(of_stored) == RECORDED_TOPIC | RECORDED_STORAGE
    assert set(of_volatile) == RECORDED_TOPIC
    assert (of_stored["msgInCount"], of_stored["producerCount"]) == (1, 1)
    subscription = of_stored["subscriptions"]["s"]
    assert (subscription["msgBacklog"], subscription["type"]) == (1, "Exclusive")
    assert len(subscription["consumers"]) == 1
    producer.close()
    for consumer in consumers:
        consumer.close()


def test_the_process_stops_in_good_order_when_it_is_asked_over_http(
    server: StandaloneServer, rest: Rest, client: pulsar.Client, topic: str
) -> None:
    consumer = client.subscribe(topic, "s")
    publish(client, topic, [b"x"])
    rest.do("POST", "/brokers/shutdown")
    eventually(lambda: not server.running, "the process has ended")
    assert "stopped" in server.log_tail()
    server.start()
    assert consumer.receive(30_000).data() == b"x"
