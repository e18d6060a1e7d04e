"""Explanations in JSON: what stands still, the reasons, and the figures to judge them by."""

from __future__ import annotations

from typing import Any, Final

from magnetar.broker.reason import iso_time
from magnetar.broker.subscriptions.consumers.consumer import Consumer
from magnetar.broker.topics.subscribe.any_subscription import AnySubscription
from magnetar.broker.topics.topic import Topic
from magnetar.common.wire.pulsar_pb2 import CommandSubscribe

CONSUMERS_MAX: Final = 100
"""Maximum consumers of a subscription that are listed."""


def subscription_explanation(topic: Topic, subscription: AnySubscription) -> dict[str, Any]:
    """Returns why a subscription does not dispatch now, or that it does."""
    reasons, kind = subscription.reasons(), subscription.type
    consumers = list(subscription.consumers)
    return {
        "topic": topic.name.full,
        "subscription": subscription.name,
        "type": "None" if kind is None else CommandSubscribe.SubType.Name(kind),
        "moves": not any(each.stops for each in reasons),
        "reasons": [each.to_json() for each in reasons],
        "backlog": subscription.backlog(),
        "unackedMessages": subscription.unacked_messages,
        "consumerCount": len(consumers),
        "consumers": [_consumer(each) for each in consumers[:CONSUMERS_MAX]],
        "partitions": {},
    }


def _consumer(consumer: Consumer) -> dict[str, Any]:
    held = consumer.held_back_by
    return {
        "consumerName": consumer.name,
        "address": consumer.peer.address,
        "availablePermits": consumer.permits,
        "unackedMessages": consumer.pending.messages,
        "heldBackBy": None if held is None else str(held.code),
        "connectedSince": iso_time(consumer.connected_since_ms),
        "lastSent": iso_time(consumer.sent_at_ms),
        "lastAcked": iso_time(consumer.acked_at_ms),
    }
