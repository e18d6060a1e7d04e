"""Figures of single consumers and producers, of managed ledgers, and how partitions are labeled."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from magnetar.broker.config import MetricsConfig
from magnetar.broker.stats import ProducerStats, SubscriptionStats

from tests.unit.broker.admin.fake_broker import FakeBroker, FakeSubscription
from tests.unit.broker.metrics.test_page import TOPIC, broker, page, samples, value


def a_consumer(name: str = "c", consumer_id: int = 4) -> Any:
    stats = SubscriptionStats(message_rate_out=3.0, byte_rate_out=30.0, redelivery_rate=0.5, ack_rate=2.0)
    pending = SimpleNamespace(messages=17)
    return SimpleNamespace(
        name=name,
        consumer_id=consumer_id,
        stats=stats,
        pending=pending,
        blocked_on_unacked=True,
        permits=9,
        sent_at_ms=0,
        flow_at_ms=0,
        acked_at_ms=0,
    )


def with_clients(config: MetricsConfig) -> FakeBroker:
    made = broker()
    made.config = replace(made.config, metrics=config)
    topic = made.load("t")
    stats = ProducerStats(message_rate_in=5.0, byte_rate_in=100.0)
    topic.producers = {'p"1': SimpleNamespace(producer_id=2, stats=stats)}
    topic.subscriptions["s"] = FakeSubscription(consumers=[a_consumer(), a_consumer(consumer_id=5)])
    return made


def test_client_metrics_are_off_by_default() -> None:
    for config in (
        MetricsConfig(),
        MetricsConfig(topic_level=False, consumer_level=True, producer_level=True),
    ):
        text = page(with_clients(config))
        assert "pulsar_consumer_" not in text
        assert "pulsar_producer_" not in text


def test_each_consumer_shows_its_figures() -> None:
    text = page(with_clients(MetricsConfig(consumer_level=True)))
    labels = {**TOPIC, "subscription": "s", "consumer_name": "c", "consumer_id": "4"}
    expected = {
        "pulsar_consumer_msg_rate_out": 3,
        "pulsar_consumer_msg_throughput_out": 30,
        "pulsar_consumer_msg_rate_redeliver": 0.5,
        "pulsar_consumer_msg_ack_rate": 2,
        "pulsar_consumer_unacked_messages": 17,
        "pulsar_consumer_blocked_on_unacked_messages": 1,
        "pulsar_consumer_available_permits": 9,
    }
    assert {name: value(text, name, labels) for name in expected} == expected
    assert value(text, "pulsar_consumer_available_permits", {**labels, "consumer_id": "5"}) == 9
    assert "pulsar_producer_" not in text


def test_each_producer_shows_its_figures() -> None:
    text = page(with_clients(MetricsConfig(producer_level=True)))
    labels = {**TOPIC, "producer_name": 'p"1', "producer_id": "2"}
    assert value(text, "pulsar_producer_msg_rate_in", labels) == 5
    assert value(text, "pulsar_producer_msg_throughput_in", labels) == 100
    assert value(text, "pulsar_producer_msg_average_Size", labels) == 20
    assert "pulsar_consumer_" not in text


def test_consumers_that_are_called_alike_are_on_the_page_once() -> None:
    made = with_clients(MetricsConfig(consumer_level=True))
    made.topics[TOPIC["topic"]].subscriptions["s"].consumers.append(a_consumer())
    samples(page(made))  # which fails when a sample is there twice


def test_managed_ledgers_show_their_figures_by_namespace() -> None:
    made = broker()
    for number, name in enumerate(("t", "u", "non-persistent://public/default/v")):
        topic = made.load(name)
        topic.storage_bytes = 100
        topic.stats.entries_in = 60 * (1 + number)
        topic.stats.write_latency.observe(0.7, 30)
        topic.stats.write_latency.observe(4_000.0, 6)
        topic.stats.sample(30.0)
        topic.subscriptions["s"] = FakeSubscription(entries_behind=4)
    namespace = {"cluster": "standalone", "namespace": "public/default"}
    text = page(made)
    expected = {
        "pulsar_ml_AddEntryMessagesRate": 6,
        "pulsar_ml_AddEntrySucceed": 72,
        "pulsar_ml_NumberOfMessagesInBacklog": 8,
        "pulsar_ml_StoredMessagesSize": 200,
        "pulsar_ml_AddEntryLatencyBuckets_OVERFLOW": 0.4,
    }  # what is not persistent has no ledger
    assert {name: value(text, name, namespace) for name in expected} == pytest.approx(expected)
    name = "pulsar_ml_AddEntryLatencyBuckets"
    assert value(text, name, {**namespace, "quantile": "0.5_1.0"}) == pytest.approx(2.0)
    assert value(text, name, {**namespace, "quantile": "200.0_1000.0"}) == 0
    assert value(text, "pulsar_ml_count", {"cluster": "standalone"}) == 2
    made.config = replace(made.config, metrics=MetricsConfig(managed_ledgers=False))
    assert "pulsar_ml_AddEntry" not in page(made)


def test_a_partition_may_be_a_label_of_its_own() -> None:
    made = broker()
    made.config = replace(made.config, metrics=MetricsConfig(split_partition=True))
    made.load("t").storage_bytes = 1
    made.load("t-partition-11").storage_bytes = 2
    made.topics["persistent://public/default/t-partition-11"].subscriptions["s"] = FakeSubscription(
        entries_behind=3
    )
    text = page(made)
    assert value(text, "pulsar_storage_size", {**TOPIC, "partition": "-1"}) == 1
    assert value(text, "pulsar_storage_size", {**TOPIC, "partition": "11"}) == 2
    labels = {**TOPIC, "partition": "11", "subscription": "s"}
    assert value(text, "pulsar_subscription_back_log", labels) == 3


def test_acknowledgements_at_risk_are_shown_and_summed() -> None:
    made = broker()
    for name, entries in (("t", 3), ("u", 4)):
        made.load(name).subscriptions["s"] = FakeSubscription(acks_at_risk=entries, mark_deleted_ms=entries)
    text = page(made)
    labels = {**TOPIC, "subscription": "s"}
    assert value(text, "magnetar_subscription_acks_at_risk", labels) == 3
    assert value(text, "pulsar_subscription_last_mark_delete_advanced_timestamp", labels) == 3
    assert value(text, "magnetar_acks_at_risk", {"cluster": "standalone"}) == 7


def test_health_says_whether_clients_may_come() -> None:
    made = broker()
    labels = {"cluster": "standalone", "broker": "127.0.0.1", "metric": "broker_health"}
    assert value(page(made), "pulsar_health", labels) == 1
    made.leaving = "it stops"
    assert value(page(made), "pulsar_health", labels) == 0
