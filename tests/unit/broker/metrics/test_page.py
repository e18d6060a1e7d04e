"""The metrics page, read back by prometheus_client's own parser."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, cast

import pytest
from magnetar.broker.config import MetricsConfig
from magnetar.broker.metrics.page import MetricsPage
from magnetar.broker.namespaces import Namespaces
from magnetar.broker.subscriptions.limits.dispatch_rate import MESSAGES, OF_BROKER, OF_TOPIC
from magnetar.broker.topics.compaction_state import CompactionState
from magnetar.broker.topics.transaction_figures import TransactionFigures
from magnetar.common.runtime.work_slices import SLICE_S
from magnetar.ledger.compacted.figures import WriteTimes
from prometheus_client.parser import text_string_to_metric_families

from tests.unit.broker.admin.fake_broker import FakeBroker, FakeSubscription
from tests.unit.common.runtime.ticking_clock import TickingClock

if TYPE_CHECKING:
    pass

Labels = dict[str, str]
NO_NAMESPACES = cast(Namespaces, None)
TOPIC = {"cluster": "standalone", "namespace": "public/default", "topic": "persistent://public/default/t"}


def broker() -> FakeBroker:
    return FakeBroker(NO_NAMESPACES)


def samples(text: str) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    """Every sample by name and sorted labels; fails when one is there twice or a metric has no type."""
    found: dict[tuple[str, tuple[tuple[str, str], ...]], float] = {}
    families: list[str] = []
    for family in text_string_to_metric_families(text):
        assert family.type != "unknown", family.name
        families.append(family.name)
        for sample in family.samples:
            key = (sample.name, tuple(sorted(sample.labels.items())))
            assert key not in found, key
            found[key] = sample.value
    assert len(families) == len(set(families)), "the lines of one metric belong together"
    return found


def value(text: str, name: str, labels: Labels) -> float:
    return samples(text)[name, tuple(sorted(labels.items()))]


def page(of: FakeBroker) -> str:
    return "".join(MetricsPage(of).render())


def test_a_compacted_topic_shows_how_long_its_pages_took_to_write() -> None:
    made = broker()
    made.load("t").compaction = CompactionState(writes=WriteTimes([3, 0, 1, 0, 0, 0, 0, 0, 0, 2], 4_321.5))
    made.load("never")
    shown = {
        name.removeprefix("pulsar_compaction_latency_"): count
        for (name, labels), count in samples(page(made)).items()
        if name.startswith("pulsar_compaction_latency_") and dict(labels) == TOPIC
    }
    assert shown == {"le_0_5": 3, "le_5": 1, "overflow": 2, "count": 6, "sum": 4_321.5}


def test_what_is_not_compacted_yet_is_the_backlog_of_a_subscription() -> None:
    made = broker()
    made.load("t").compacting = FakeSubscription(entries_behind=7)
    made.load("other")
    name = "pulsar_subscription_back_log"
    found = {labels: count for (metric, labels), count in samples(page(made)).items() if metric == name}
    assert found == {tuple(sorted({**TOPIC, "subscription": "__compaction"}.items())): 7}


def test_a_topic_shows_its_figures_under_pulsars_names() -> None:
    made = broker()
    topic = made.load("t")
    topic.producer_count, topic.storage_bytes, topic.storage_entries = 2, 4096, 64
    topic.copies = 3
    topic.backlog_bytes, topic.oldest_backlog_age_s = 1280, 77
    stats = topic.stats
    stats.messages_in, stats.entries_in, stats.bytes_in = 600, 60, 6000
    stats.messages_out, stats.bytes_out = 1200, 12000
    stats.write_latency.observe(0.3, 55)
    stats.write_latency.observe(4.0, 4)
    stats.write_latency.observe(5000.0)
    stats.entry_sizes.observe_lengths([bytes(100)] * 60)
    first, second = FakeSubscription(), FakeSubscription()
    topic.subscriptions = {"first": first, "second": second}
    first.consumer_count, first.unacked_messages, first.entries_behind = 3, 17, 20
    second.entries_behind = 1
    first.blocked_on_unacked = True
    first.stats.messages_out, first.stats.bytes_out, first.stats.acks = 120, 1200, 60
    first.stats.messages_redelivered = 6
    first.stats.messages_expired = 30
    stats.sample(60)
    first.stats.sample(60)

    text = page(made)
    expected = {
        "pulsar_subscriptions_count": 2,
        "pulsar_producers_count": 2,
        "pulsar_consumers_count": 3,
        "pulsar_rate_in": 10,
        "pulsar_rate_out": 20,
        "pulsar_throughput_in": 100,
        "pulsar_throughput_out": 200,
        "pulsar_average_msg_size": 10,
        "pulsar_in_messages_total": 600,
        "pulsar_in_bytes_total": 6000,
        "pulsar_storage_size": 3 * 4096,
        "pulsar_storage_logical_size": 4096,
        "pulsar_storage_backlog_size": 1280,
        "pulsar_storage_backlog_age_seconds": 77,
        "pulsar_storage_write_rate": 1,
        "pulsar_msg_backlog": 21,
        "pulsar_storage_write_latency_le_0_5": 55,
        "pulsar_storage_write_latency_le_1": 0,
        "pulsar_storage_write_latency_le_5": 4,
        "pulsar_storage_write_latency_overflow": 1,
        "pulsar_storage_write_latency_count": 60,
        "pulsar_storage_write_latency_sum": 55 * 0.3 + 16 + 5000,
        "pulsar_entry_size_le_128": 60,
        "pulsar_entry_size_le_512": 0,
        "pulsar_entry_size_le_overflow": 0,
        "pulsar_entry_size_count": 60,
        "pulsar_entry_size_sum": 6000,
        "magnetar_in_entries_total": 60,
    }
    assert {name: value(text, name, TOPIC) for name in expected} == pytest.approx(expected)
    of_first = {
        "pulsar_subscription_back_log": 20,
        "pulsar_subscription_unacked_messages": 17,
        "pulsar_subscription_consumers_count": 3,
        "pulsar_subscription_blocked_on_unacked_messages": 1,
        "pulsar_subscription_msg_rate_out": 2,
        "pulsar_subscription_msg_throughput_out": 20,
        "pulsar_subscription_msg_rate_redeliver": 0.1,
        "pulsar_subscription_msg_ack_rate": 1,
        "pulsar_subscription_msg_rate_expired": 0.5,
        "pulsar_subscription_total_msg_expired": 30,
        "pulsar_out_messages_total": 120,
        "pulsar_out_bytes_total": 1200,
        "magnetar_subscription_redelivered_messages_total": 6,
    }
    labels = {**TOPIC, "subscription": "first"}
    assert {name: value(text, name, labels) for name in of_first} == pytest.approx(of_first)
    assert value(text, "pulsar_subscription_back_log", {**TOPIC, "subscription": "second"}) == 1


def test_the_broker_shows_the_sums_of_its_topics() -> None:
    made = broker()
    made.connections, made.connections_accepted = 5, 12
    for number in range(3):
        topic = made.load(f"persistent://public/n{number % 2}/t{number}")
        topic.producer_count = 1
        topic.stats.bytes_in = 10
        topic.subscriptions["s"] = FakeSubscription(consumer_count=2, entries_behind=7)
    text = page(made)
    cluster = {"cluster": "standalone"}
    assert value(text, "pulsar_broker_topics_count", cluster) == 3
    assert value(text, "pulsar_broker_producers_count", cluster) == 3
    assert value(text, "pulsar_broker_consumers_count", cluster) == 6
    assert value(text, "pulsar_broker_msg_backlog", cluster) == 21
    assert value(text, "pulsar_broker_in_bytes_total", {**cluster, "system_topic": "false"}) == 30
    assert value(text, "pulsar_topics_count", {**cluster, "namespace": "public/n0"}) == 2
    assert value(text, "pulsar_topics_count", {**cluster, "namespace": "public/n1"}) == 1
    connections = {**cluster, "broker": "127.0.0.1", "metric": "broker_connection"}
    assert value(text, "pulsar_active_connections", connections) == 5
    assert value(text, "pulsar_connection_created_total_count", connections) == 12
    assert value(text, "pulsar_connection_closed_total_count", connections) == 7


def test_a_broker_without_topics_has_a_page() -> None:
    found = samples(page(broker()))
    assert found["pulsar_broker_topics_count", (("cluster", "standalone"),)] == 0


def test_names_with_quotes_backslashes_and_line_breaks_read_back_as_they_are() -> None:
    made = broker()
    topic = made.load('persistent://public/default/a"b\\c\nd')
    topic.subscriptions['s"\\'] = FakeSubscription(entries_behind=4)
    labels = {**TOPIC, "topic": 'persistent://public/default/a"b\\c\nd', "subscription": 's"\\'}
    assert value(page(made), "pulsar_subscription_back_log", labels) == 4


def test_figures_change_from_one_scrape_to_the_next_and_gone_topics_go() -> None:
    made = broker()
    rendered = MetricsPage(made)
    made.load("t").stats.messages_in = 1
    made.load("gone")
    assert value("".join(rendered.render()), "pulsar_in_messages_total", TOPIC) == 1
    made.topics["persistent://public/default/t"].stats.messages_in = 2
    del made.topics["persistent://public/default/gone"]
    text = "".join(rendered.render())
    assert value(text, "pulsar_in_messages_total", TOPIC) == 2
    assert "gone" not in text
    assert list(rendered._labels) == ["persistent://public/default/t"]


def test_the_page_comes_in_slices_and_they_make_the_same_page() -> None:
    made = broker()
    for number in range(300):
        made.load(f"t{number}").subscriptions["s"] = FakeSubscription()
    whole = list(MetricsPage(made, TickingClock(0.0)).render())
    sliced = list(MetricsPage(made, TickingClock(SLICE_S)).render())
    assert len(whole) == 1
    assert len(sliced) > 100
    assert max(piece.count("\n") for piece in sliced) < 200
    assert "".join(sliced) == whole[0]


def test_many_namespaces_do_not_make_one_long_slice() -> None:
    made = broker()
    for number in range(1000):
        made.load(f"persistent://public/n{number}/t")
    pieces = list(MetricsPage(made, TickingClock(SLICE_S)).render())
    assert max(piece.count("\n") for piece in pieces) < 200
    assert "".join(pieces).count("pulsar_topics_count{") == 1000


def test_topics_without_subscriptions_do_not_make_one_long_slice() -> None:
    made = broker()
    for number in range(1000):
        made.load(f"t{number}")
    clock = TickingClock(SLICE_S)
    pieces = list(MetricsPage(made, clock).render())
    assert len(pieces) > 1000 * (30 + 12) / 64 * 0.9


def test_subscriptions_that_come_and_go_between_slices_do_no_harm() -> None:
    made = broker()
    topic = made.load("t")
    topic.subscriptions = {f"s{number}": FakeSubscription() for number in range(200)}
    pieces = []
    for number, piece in enumerate(MetricsPage(made, TickingClock(SLICE_S)).render()):
        topic.subscriptions.pop(f"s{number}", None)
        topic.subscriptions[f"new{number}"] = FakeSubscription()
        made.load(f"t{number}")
        pieces.append(piece)
    samples("".join(pieces))


def test_rare_metrics_appear_only_after_their_event() -> None:
    made = broker()
    topic = made.load("t")
    quiet, throttled = FakeSubscription(), FakeSubscription()
    topic.subscriptions = {"quiet": quiet, "throttled": throttled}
    assert "throttled_msg_events{" not in page(made)
    throttled.stats.count_throttled(OF_TOPIC, MESSAGES)
    throttled.stats.count_throttled(OF_BROKER, MESSAGES)
    throttled.stats.count_throttled(OF_BROKER, MESSAGES)
    throttled.stats.expired_at_ms = 1_000
    topic.times_rate_limited = 3
    assert "txn_tb_active_total{" not in page(made)
    topic.transactions = TransactionFigures(open=2, committed=7)
    topic.blocked_by_transaction_s = 1.5
    text = page(made)
    assert value(text, "pulsar_txn_tb_active_total", TOPIC) == 2
    assert value(text, "pulsar_txn_tb_committed_total", TOPIC) == 7
    assert value(text, "magnetar_transaction_blocked_seconds", TOPIC) == 1.5
    assert "txn_tb_aborted_total{" not in text
    of_subscription = TOPIC | {"subscription": "throttled"}
    name = "pulsar_subscription_dispatch_throttled_msg_events"
    assert value(text, name, of_subscription | {"reason": "topic"}) == 1
    assert value(text, name, of_subscription | {"reason": "broker"}) == 2
    assert value(text, "pulsar_subscription_last_expire_timestamp", of_subscription) == 1_000
    assert value(text, "pulsar_publish_rate_limit_times", TOPIC) == 3
    shown = [labels for sample, labels in samples(text) if sample == name]
    assert len(shown) == 2


def test_without_topic_level_figures_there_are_those_of_namespaces() -> None:
    made = broker()
    made.config = replace(made.config, metrics=MetricsConfig(topic_level=False))
    for number, name in enumerate(("t", "u", "persistent://acme/demo/t")):
        topic = made.load(name)
        topic.stats.messages_in, topic.storage_bytes, topic.oldest_backlog_age_s = 10 + number, 100, 5
        topic.subscriptions["s"] = FakeSubscription()
        topic.subscriptions["s"].consumer_count = 2
    text = page(made)
    namespace = {"cluster": "standalone", "namespace": "public/default"}
    assert value(text, "pulsar_in_messages_total", namespace) == 21
    assert value(text, "pulsar_in_messages_total", {**namespace, "namespace": "acme/demo"}) == 12
    assert value(text, "pulsar_storage_size", namespace) == 200
    assert value(text, "pulsar_subscription_consumers_count", namespace) == 4
    assert value(text, "pulsar_topics_count", namespace) == 2
    assert value(text, "pulsar_broker_storage_size", {"cluster": "standalone"}) == 300
    assert ",topic=" not in text
    assert ",subscription=" not in text
    assert "pulsar_storage_backlog_age_seconds" not in text, "ages do not add up"


def test_pages_of_namespaces_come_in_slices_too() -> None:
    made = broker()
    made.config = replace(made.config, metrics=MetricsConfig(topic_level=False))
    for number in range(300):
        made.load(f"t{number}")
    assert len(list(MetricsPage(made, TickingClock(SLICE_S)).render())) > 100
