"""Metrics of single consumers and producers, published if the configuration enables them.

Disabled by default, as in Pulsar: clients connect and disconnect, and each leaves its time series in
Prometheus. Of clients with the same labels, one is published.
"""

from __future__ import annotations

from typing import Final

from magnetar.broker.metrics.topic_metrics import Metric, Number
from magnetar.broker.subscriptions.consumers.consumer import Consumer
from magnetar.broker.topics.publish.producer import Producer


def _average_size(producer: Producer) -> Number:
    rate = producer.stats.message_rate_in
    return producer.stats.byte_rate_in / rate if rate else 0


CONSUMER_METRICS: Final[list[Metric[Consumer]]] = [
    Metric(
        "pulsar_consumer_msg_rate_redeliver",
        "gauge",
        "Redelivered messages per second.",
        lambda c: c.stats.redelivery_rate,
    ),
    Metric(
        "pulsar_consumer_unacked_messages",
        "gauge",
        "Messages sent and not acknowledged; Shared and Key_Shared only.",
        lambda c: c.pending.messages,
    ),
    Metric(
        "pulsar_consumer_blocked_on_unacked_messages",
        "gauge",
        "1 while delivery is blocked by too many unacknowledged messages.",
        lambda c: int(c.blocked_on_unacked),
    ),
    Metric(
        "pulsar_consumer_msg_rate_out",
        "gauge",
        "Messages delivered per second.",
        lambda c: c.stats.message_rate_out,
    ),
    Metric(
        "pulsar_consumer_msg_ack_rate",
        "gauge",
        "Messages acknowledged per second.",
        lambda c: c.stats.ack_rate,
    ),
    Metric(
        "pulsar_consumer_msg_throughput_out",
        "gauge",
        "Bytes delivered per second.",
        lambda c: c.stats.byte_rate_out,
    ),
    Metric(
        "pulsar_consumer_available_permits",
        "gauge",
        "Unused permits, in messages.",
        lambda c: c.permits,
    ),
]

PRODUCER_METRICS: Final[list[Metric[Producer]]] = [
    Metric(
        "pulsar_producer_msg_rate_in",
        "gauge",
        "Messages published per second.",
        lambda p: p.stats.message_rate_in,
    ),
    Metric(
        "pulsar_producer_msg_throughput_in",
        "gauge",
        "Bytes published per second.",
        lambda p: p.stats.byte_rate_in,
    ),
    Metric(
        "pulsar_producer_msg_average_Size",
        "gauge",
        "Average bytes of a published message.",
        _average_size,
    ),
]
