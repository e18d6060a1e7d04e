"""What a monitoring system sees of messages that go through: latencies, risks and single clients."""

from __future__ import annotations

import time
from collections.abc import Callable

import pulsar
import pytest

from tests.integration.clients import drain, publish
from tests.integration.harness import Endpoint, eventually
from tests.integration.raw.transcript import line
from tests.integration.test_http import samples

SERVER_SETTINGS = {
    "exposeConsumerLevelMetricsInPrometheus": "true",
    "exposeProducerLevelMetricsInPrometheus": "true",
    "statsUpdateFrequencyInSecs": "1",
    "managedLedgerCursorPositionFlushSeconds": "5",
}

pytestmark = pytest.mark.usefixtures("our_contract")

MESSAGES = 200
WAITED_S = 1.0
LATENCIES = ("publish", "storage_write", "dispatch", "end_to_end")


def value(endpoint: Endpoint, name: str, **labels: str) -> float:
    """The sum of the samples with these labels."""
    found = samples(endpoint).get(name, [])
    return sum(value for has, value in found if labels.items() <= has.items())


def test_messages_that_go_through_are_in_the_histograms_of_each_part_of_their_way(
    endpoint: Endpoint, client: pulsar.Client, topic: str
) -> None:
    consumer = client.subscribe(topic, "s")
    producer = client.create_producer(topic)
    before = samples(endpoint)
    for number in range(MESSAGES):
        producer.send(b"%d" % number)
    drain(consumer, MESSAGES)
    after = samples(endpoint)
    for part in LATENCIES:
        name = f"magnetar_{part}_latency_seconds"
        count = after[f"{name}_count"][0][1] - before[f"{name}_count"][0][1]
        assert count >= (MESSAGES if part == "publish" else 1), part
        buckets = [seen for _, seen in after[f"{name}_bucket"]]
        assert buckets == sorted(buckets), part
        assert buckets[-1] == after[f"{name}_count"][0][1], part
        assert after[f"{name}_sum"][0][1] > before[f"{name}_sum"][0][1], part
    quantiles = {labels["quantile"]: seen for labels, seen in after["pulsar_broker_publish_latency"]}
    assert 0 < quantiles["0.5"] <= quantiles["0.99"] <= quantiles["1.0"] < 60_000
    assert after["pulsar_broker_publish_latency_count"][0][1] >= MESSAGES


def test_a_standalone_does_not_say_that_it_is_not_registered(endpoint: Endpoint) -> None:
    of_a_cluster = endpoint.cluster != "standalone"
    assert ("magnetar_broker_registered" in samples(endpoint)) == of_a_cluster


def test_stored_bytes_are_counted_with_and_without_replicas(
    endpoint: Endpoint, client: pulsar.Client, topic: str
) -> None:
    publish(client, topic, [b"x" * 1_000] * 5)
    one_copy = value(endpoint, "pulsar_storage_logical_size", topic=topic)
    assert one_copy >= 5_000
    copies = 1 if endpoint.cluster == "standalone" else 3
    assert value(endpoint, "pulsar_storage_size", topic=topic) == copies * one_copy


def test_an_entry_that_waits_for_its_consumer_counts_with_its_wait(endpoint: Endpoint, topic: str) -> None:
    with line(endpoint) as c:
        c.subscribe(topic)
        c.open_producer(topic)
        before = value(endpoint, "magnetar_dispatch_latency_seconds_sum")
        c.publish(b"waits")
        time.sleep(WAITED_S)
        c.flow(10)
        c.expect_messages(1)
    assert value(endpoint, "magnetar_dispatch_latency_seconds_sum") - before >= WAITED_S


def test_acknowledgements_are_at_risk_until_they_are_flushed(
    endpoint: Endpoint, client: pulsar.Client, topic: str
) -> None:
    consumer = client.subscribe(topic, "s")
    publish(client, topic, [b"%d" % number for number in range(50)])
    name = "magnetar_subscription_acks_at_risk"
    assert value(endpoint, name, topic=topic) == 0
    drain(consumer, 50)
    eventually(lambda: value(endpoint, name, topic=topic) > 0, "acknowledged, and not on disk yet")
    eventually(
        lambda: value(endpoint, "pulsar_subscription_back_log", topic=topic) == 0, "all is acknowledged"
    )
    eventually(lambda: value(endpoint, name, topic=topic) == 0, "all is on disk")
    moved = value(endpoint, "pulsar_subscription_last_mark_delete_advanced_timestamp", topic=topic)
    assert abs(moved / 1000 - time.time()) < 600


def test_single_clients_are_shown_where_the_configuration_says_so(
    endpoint: Endpoint, new_client: Callable[..., pulsar.Client], topic: str
) -> None:
    client = new_client()
    consumer = client.subscribe(topic, "s", consumer_name="reads", consumer_type=pulsar.ConsumerType.Shared)
    producer = client.create_producer(topic, producer_name="writes")
    for number in range(10):
        producer.send(b"%d" % number)
    eventually(
        lambda: value(endpoint, "pulsar_consumer_unacked_messages", topic=topic, consumer_name="reads") == 10,
        "the consumer holds all of them",
    )
    eventually(
        lambda: (
            samples(endpoint).get("pulsar_producer_msg_rate_in") is not None
            and value(endpoint, "pulsar_consumer_available_permits", topic=topic) > 0
        ),
        "both are shown",
    )
    labels = [has for has, _ in samples(endpoint)["pulsar_producer_msg_rate_in"] if has["topic"] == topic]
    assert [has["producer_name"] for has in labels] == ["writes"]
    consumer.close()
    eventually(
        lambda: value(endpoint, "pulsar_consumer_available_permits", topic=topic) == 0, "it is not shown"
    )


def test_cache_reads_and_storage_reads_are_counted_apart(
    endpoint: Endpoint, client: pulsar.Client, topic: str
) -> None:
    name = "pulsar_ml_cache_hits_rate"
    consumer = client.subscribe(topic, "s")
    producer = client.create_producer(topic)

    def hits() -> bool:
        for number in range(20):
            producer.send(b"%d" % number)
        drain(consumer, 20)
        return value(endpoint, name) > 0

    eventually(hits, "tail reads are hits")
    assert value(endpoint, "pulsar_ml_cache_entries") > 0
    assert value(endpoint, "pulsar_ml_cache_used_size") > 0


def test_lookups_loads_and_metadata_are_timed(endpoint: Endpoint, client: pulsar.Client, topic: str) -> None:
    def counts() -> list[float]:
        names = ("pulsar_broker_lookup_count", "pulsar_topic_load_times_count")
        metadata = value(endpoint, "pulsar_metadata_store_ops_latency_ms_count", status="success")
        return [*(value(endpoint, name) for name in names), metadata]

    before = counts()
    publish(client, topic, [b"one"])
    assert all(b > a for a, b in zip(before, counts(), strict=True))
