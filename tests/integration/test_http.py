"""The HTTP side: health, metrics, lookup and the lists of the admin API."""

from __future__ import annotations

import json
import urllib.error
import urllib.parse
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import Any

import pulsar
import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.integration.clients import publish
from tests.integration.harness import Endpoint

TOPIC_METRICS = {
    "pulsar_subscriptions_count",
    "pulsar_producers_count",
    "pulsar_consumers_count",
    "pulsar_rate_in",
    "pulsar_rate_out",
    "pulsar_throughput_in",
    "pulsar_throughput_out",
    "pulsar_storage_size",
    "pulsar_storage_logical_size",
    "pulsar_msg_backlog",
    "pulsar_in_messages_total",
    "pulsar_in_bytes_total",
    "pulsar_storage_write_latency_count",
    "pulsar_storage_write_latency_sum",
    "pulsar_storage_write_latency_le_1",
    "pulsar_storage_write_latency_le_1000",
}
SUBSCRIPTION_METRICS = {
    "pulsar_subscription_back_log",
    "pulsar_subscription_unacked_messages",
    "pulsar_subscription_consumers_count",
    "pulsar_subscription_msg_rate_out",
    "pulsar_subscription_msg_throughput_out",
    "pulsar_subscription_msg_rate_redeliver",
    "pulsar_out_messages_total",
    "pulsar_out_bytes_total",
}


def get(endpoint: Endpoint, path: str) -> tuple[int, str, bytes]:
    """Status, content type and body of GET `path`."""
    try:
        with urllib.request.urlopen(f"{endpoint.http_url}{path}", timeout=10) as response:
            return response.status, response.headers.get("Content-Type", ""), response.read()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.headers.get("Content-Type", ""), error.read()


def get_json(endpoint: Endpoint, path: str) -> Any:
    status, content_type, body = get(endpoint, path)
    assert status == 200, body
    assert content_type.startswith("application/json")
    return json.loads(body)


def samples(endpoint: Endpoint) -> dict[str, list[tuple[dict[str, str], float]]]:
    """Every sample of the metrics page, by name."""
    status, content_type, body = get(endpoint, "/metrics/")
    assert status == 200
    assert content_type.startswith("text/plain")
    found: dict[str, list[tuple[dict[str, str], float]]] = {}
    for family in text_string_to_metric_families(body.decode()):
        for sample in family.samples:
            found.setdefault(sample.name, []).append((sample.labels, sample.value))
    return found


@pytest.mark.usefixtures("our_contract")
def test_health_answers_when_clients_are_served(endpoint: Endpoint) -> None:
    assert get(endpoint, "/health")[0] == 200


@pytest.mark.parametrize("query", ["", "?topicVersion=V1", "?topicVersion=V2"])
def test_a_health_check_answers_ok(endpoint: Endpoint, query: str) -> None:
    status, _, body = get(endpoint, f"/admin/v2/brokers/health{query}")
    assert (status, body) == (200, b"ok")


def test_a_health_check_of_a_broker_that_is_not_there_is_refused(endpoint: Endpoint) -> None:
    status, _, body = get(endpoint, "/admin/v2/brokers/health?brokerId=nowhere.example:1")
    assert status == 404
    assert b"nowhere.example:1" in body


def test_many_health_checks_at_once_are_answered(endpoint: Endpoint) -> None:
    with ThreadPoolExecutor(16) as pool:
        answers = list(pool.map(lambda _: get(endpoint, "/admin/v2/brokers/health"), range(64)))
    assert {(status, body) for status, _, body in answers} == {(200, b"ok")}


def test_the_topic_of_health_checks_is_not_among_those_of_users(endpoint: Endpoint) -> None:
    assert get(endpoint, "/admin/v2/brokers/health")[0] == 200
    for namespace in get_json(endpoint, "/admin/v2/namespaces/pulsar"):
        for domain in ("persistent", "non-persistent"):
            assert "healthcheck" not in str(get_json(endpoint, f"/admin/v2/{domain}/{namespace}"))


@pytest.mark.usefixtures("our_contract")
def test_the_topic_of_health_checks_is_in_no_figures_and_no_client_can_have_it(endpoint: Endpoint) -> None:
    assert get(endpoint, "/admin/v2/brokers/health")[0] == 200
    name = f"pulsar/{endpoint.http_url.removeprefix('http://')}/healthcheck"
    assert "healthcheck" not in get(endpoint, "/metrics/")[2].decode()
    assert "healthcheck" not in str(get_json(endpoint, "/admin/v2/broker-stats/topics"))
    assert get(endpoint, f"/admin/v2/persistent/{name}/stats")[0] == 404
    with (
        closing(pulsar.Client(endpoint.service_url, operation_timeout_seconds=5)) as client,
        pytest.raises(pulsar.PulsarException),
    ):
        client.create_producer(f"persistent://{name}")


def test_metrics_with_and_without_the_slash(endpoint: Endpoint) -> None:
    for path in ("/metrics", "/metrics/"):
        status, _, body = get(endpoint, path)
        assert status == 200
        assert b"pulsar_" in body


def test_metrics_show_a_topic_and_its_subscription(
    client: pulsar.Client, endpoint: Endpoint, topic: str
) -> None:
    consumer = client.subscribe(topic, "metered", receiver_queue_size=10)
    producer = client.create_producer(topic)
    publish(client, topic, [b"x" * 100 for _ in range(50)])
    consumer.acknowledge(consumer.receive(10_000))
    found = samples(endpoint)
    of_topic = {
        name: [value for labels, value in values if labels.get("topic") == topic]
        for name, values in found.items()
    }
    missing = {name for name in TOPIC_METRICS | SUBSCRIPTION_METRICS if not of_topic.get(name)}
    assert not missing
    for name in SUBSCRIPTION_METRICS:
        labels = next(labels for labels, _ in found[name] if labels.get("topic") == topic)
        assert labels["subscription"] == "metered"
        assert labels["namespace"] == "public/default"
        assert labels["cluster"]
    assert of_topic["pulsar_subscriptions_count"] == [1]
    assert of_topic["pulsar_producers_count"] == [1]
    assert of_topic["pulsar_consumers_count"] == [1]
    assert of_topic["pulsar_in_messages_total"] == [50]
    assert of_topic["pulsar_storage_size"][0] > 5_000
    assert producer.is_connected()


def test_metrics_count_topics_of_a_namespace(client: pulsar.Client, endpoint: Endpoint, topic: str) -> None:
    client.create_producer(topic)
    counts = [
        value
        for labels, value in samples(endpoint)["pulsar_topics_count"]
        if labels.get("namespace") == "public/default"
    ]
    assert counts
    assert counts[0] >= 1


@pytest.mark.parametrize("domain", ["persistent", "non-persistent"])
def test_lookup_over_http(endpoint: Endpoint, domain: str) -> None:
    answer = get_json(endpoint, f"/lookup/v2/topic/{domain}/public/default/anything")
    assert set(answer) == {"brokerUrl", "httpUrl", "nativeUrl", "brokerUrlSsl"}
    assert answer["brokerUrl"] == answer["nativeUrl"]
    assert urllib.parse.urlsplit(answer["brokerUrl"]).port == endpoint.port
    assert answer["httpUrl"].startswith("http://")


def test_the_bundle_of_a_topic(endpoint: Endpoint) -> None:
    status, _, body = get(endpoint, "/lookup/v2/topic/persistent/public/default/my-topic/bundle")
    assert status == 200
    lower, _, upper = body.decode().strip('"').partition("_")
    # 0x2bad45f7 is the CRC32 of persistent://public/default/my-topic.
    assert int(lower, 16) <= 0x2BAD45F7 < int(upper, 16)


@pytest.mark.parametrize("namespace", ["public/missing", "missing/default"])
def test_lookup_in_a_missing_namespace_is_not_found(endpoint: Endpoint, namespace: str) -> None:
    status, content_type, body = get(endpoint, f"/lookup/v2/topic/persistent/{namespace}/t")
    assert status == 404
    assert content_type.startswith("application/json")
    assert json.loads(body)["reason"] == "Namespace not found"


def test_clusters_tenants_and_namespaces_are_listed(endpoint: Endpoint) -> None:
    assert endpoint.cluster in get_json(endpoint, "/admin/v2/clusters")
    assert "public" in get_json(endpoint, "/admin/v2/tenants")
    assert "public/default" in get_json(endpoint, "/admin/v2/namespaces/public")


def test_namespaces_of_a_missing_tenant_are_not_found(endpoint: Endpoint) -> None:
    status, _, body = get(endpoint, "/admin/v2/namespaces/missing")
    assert (status, json.loads(body)["reason"]) == (404, "Tenant not found")


def test_topics_are_listed_by_domain(
    client: pulsar.Client, endpoint: Endpoint, topic: str, volatile_topic: str
) -> None:
    client.create_producer(topic)
    client.create_producer(volatile_topic)
    persistent = get_json(endpoint, "/admin/v2/persistent/public/default")
    volatile = get_json(endpoint, "/admin/v2/non-persistent/public/default")
    assert topic in persistent
    assert volatile_topic not in persistent
    assert volatile_topic in volatile
    assert topic not in volatile


def test_topics_of_a_missing_namespace_are_not_found(endpoint: Endpoint) -> None:
    status, _, body = get(endpoint, "/admin/v2/persistent/public/missing")
    assert (status, json.loads(body)["reason"]) == (404, "Namespace does not exist")


def test_an_unknown_path_is_not_found(endpoint: Endpoint) -> None:
    assert get(endpoint, "/no/such/path")[0] == 404
