"""Statistics of a subscription and its consumers in the form of Pulsar's admin API.

Figures that this broker does not keep are 0. Times are ms since 1970 UTC. Statistics are assembled on
request; the message path only counts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final

from magnetar.broker.dispatch.key_shared.draining import DrainingSlot
from magnetar.broker.message_drops import NonPersistentSubscriptionStats
from magnetar.broker.stats import SubscriptionStats
from magnetar.broker.subscriptions.consumers.consumer import Consumer
from magnetar.broker.subscriptions.limits.dispatch_rate import (
    BYTES,
    MESSAGES,
    OF_BROKER,
    OF_SUBSCRIPTION,
    OF_TOPIC,
)
from magnetar.broker.subscriptions.subscription import Subscription
from magnetar.broker.topics.persistent_topic import PersistentTopic
from magnetar.broker.topics.subscribe.any_subscription import AnySubscription
from magnetar.broker.topics.topic import Topic
from magnetar.common.wire.pulsar_pb2 import CommandSubscribe

_THROTTLED: Final = [
    (f"dispatchThrottled{unit}EventsBy{level}Limit", scope, kind)
    for level, scope in (("Subscription", OF_SUBSCRIPTION), ("Topic", OF_TOPIC), ("Broker", OF_BROKER))
    for unit, kind in (("Msg", MESSAGES), ("Bytes", BYTES))
]
_DRAINING: Final = {
    "drainingHashesCount": 0,
    "drainingHashesClearedTotal": 0,
    "drainingHashesUnackedMessages": 0,
}
NO_HOLES: Final = {
    "nonContiguousDeletedMessagesRanges": 0,
    "nonContiguousDeletedMessagesRangesSerializedSize": 0,
    "delayedMessageIndexSizeInBytes": 0,
}


@dataclass(frozen=True, slots=True)
class Wanted:
    """Options of a request for statistics."""

    publishers: bool = True
    consumers: bool = True
    reason: bool = False
    """Include why a subscription is not dispatching: `whyNotDispatching`, an addition to Pulsar's API."""
    earliest_ms: Mapping[str, int] = field(default_factory=dict)
    """Publish time of the oldest message in each subscription's backlog; empty if not requested."""
    last_publish_ms: int = 0
    """Publish time of the topic's last message if it had to be read; otherwise 0."""
    offload_failed_ms: int = 0
    """Time of the last failure to offload a ledger of the topic; 0 for none, or if not requested."""


def subscription_stats(topic: Topic, subscription: AnySubscription, wanted: Wanted) -> dict[str, Any]:
    """Returns the statistics of a subscription."""
    kind, backlog, stats = subscription.type, subscription.backlog(), subscription.stats
    consumers = list(subscription.consumers)
    shown: dict[str, Any] = {
        **_rates(stats),
        "chunkedMessageRate": sum(each.stats.chunk_rate for each in consumers),
        "msgBacklog": backlog,
        "backlogSize": 0,
        "earliestMsgPublishTimeInBacklog": wanted.earliest_ms.get(subscription.name, 0),
        "msgBacklogNoDelayed": backlog - subscription.delayed,
        "blockedSubscriptionOnUnackedMsgs": subscription.blocked_on_unacked,
        "msgDelayed": subscription.delayed,
        "msgInReplay": subscription.in_replay,
        "unackedMessages": subscription.unacked_messages,
        "type": "None" if kind is None else CommandSubscribe.SubType.Name(kind),
        "msgRateExpired": stats.expired_rate,
        "totalMsgExpired": stats.messages_expired,
        "lastExpireTimestamp": stats.expired_at_ms,
        "lastConsumedFlowTimestamp": max((each.flow_at_ms for each in consumers), default=0),
        "lastConsumedTimestamp": max((each.sent_at_ms for each in consumers), default=0),
        "lastAckedTimestamp": max((each.acked_at_ms for each in consumers), default=0),
        "lastMarkDeleteAdvancedTimestamp": 0,
        "consumers": _consumers(subscription) if wanted.consumers else [],
        "isDurable": False,
        "isReplicated": False,
        "allowOutOfOrderDelivery": False,
        "consumersAfterMarkDeletePosition": {},
        **_DRAINING,
        **NO_HOLES,
        "subscriptionProperties": dict(subscription.properties),
        "filterProcessedMsgCount": 0,
        "filterAcceptedMsgCount": 0,
        "filterRejectedMsgCount": 0,
        "filterRescheduledMsgCount": 0,
        **{key: stats.times_throttled(scope, unit) for key, scope, unit in _THROTTLED},
        "durable": False,
        "replicated": False,
    }
    if isinstance(subscription, Subscription) and isinstance(topic, PersistentTopic):
        shown |= _of_cursor(topic, subscription)
    if subscription.active_consumer is not None:
        shown["activeConsumerName"] = subscription.active_consumer.name
    if kind == CommandSubscribe.Key_Shared and consumers:
        shown["keySharedMode"] = "STICKY" if consumers[0].sticky else "AUTO_SPLIT"
        shown["allowOutOfOrderDelivery"] = consumers[0].allow_out_of_order
    if subscription.key_shared is not None:
        draining = subscription.key_shared.draining
        shown |= _draining(list(draining.slots.values()), draining.cleared)
    if isinstance(stats, NonPersistentSubscriptionStats):
        shown["msgDropRate"] = stats.drops.rate
    if wanted.reason:
        shown["whyNotDispatching"] = subscription.why_not_dispatching()
    return shown


def _of_cursor(topic: PersistentTopic, subscription: Subscription) -> dict[str, Any]:
    """Returns the figures that a durable position in a persistent topic adds."""
    cursor = subscription.cursor
    return {
        "backlogSize": topic.ledger.spans.bytes_after(cursor.mark_delete),
        "lastMarkDeleteAdvancedTimestamp": cursor.advanced_ms,
        "isDurable": cursor.durable,
        "durable": cursor.durable,
        "nonContiguousDeletedMessagesRanges": cursor.acked_range_count,
        "nonContiguousDeletedMessagesRangesSerializedSize": cursor.acked_bytes,
    }


def _consumers(subscription: AnySubscription) -> list[dict[str, Any]]:
    """Returns the statistics of all consumers. A Key_Shared subscription may have a thousand, with a hundred
    ranges each.
    """
    shown = [consumer_stats(each) for each in subscription.consumers]
    if subscription.key_shared is not None:
        draining = subscription.key_shared.draining
        ranges, holders = subscription.key_shared.selector.ranges(), draining.by_holder()
        for each, consumer in zip(shown, subscription.consumers, strict=True):
            each["keyHashRangeArrays"] = ranges.get(consumer, [])
            held = holders.get(consumer, {})
            each |= _draining(list(held.values()), draining.cleared_by(consumer))
            each["drainingHashes"] = [
                {"hash": slot, "unackMsgs": its.unacked, "blockedAttempts": its.blocked_attempts}
                for slot, its in sorted(held.items())
            ]
    return shown


def consumer_stats(consumer: Consumer) -> dict[str, Any]:
    """Returns the statistics of a consumer, without its hash ranges in a Key_Shared subscription."""
    entries = consumer.entries_out
    return {
        **_rates(consumer.stats),
        "chunkedMessageRate": consumer.stats.chunk_rate,
        "consumerName": consumer.name,
        "availablePermits": consumer.permits,
        "unackedMessages": consumer.pending.messages,
        "avgMessagesPerEntry": round(consumer.stats.messages_out / entries) if entries else 0,
        "blockedConsumerOnUnackedMsgs": consumer.blocked_on_unacked,
        **_DRAINING,
        "address": peer_address(consumer.peer.address),
        "connectedSince": time_text(consumer.connected_since_ms),
        "clientVersion": consumer.client_version,
        "lastAckedTimestamp": consumer.acked_at_ms,
        "lastConsumedTimestamp": consumer.sent_at_ms,
        "lastConsumedFlowTimestamp": consumer.flow_at_ms,
        "metadata": dict(consumer.properties),
        "lastAckedTime": time_text(consumer.acked_at_ms),
        "lastConsumedTime": time_text(consumer.sent_at_ms),
    }


def _draining(slots: Sequence[DrainingSlot[Consumer]], cleared: int) -> dict[str, int]:
    return {
        "drainingHashesCount": len(slots),
        "drainingHashesClearedTotal": cleared,
        "drainingHashesUnackedMessages": sum(each.unacked for each in slots),
    }


def _rates(stats: SubscriptionStats) -> dict[str, Any]:
    return {
        "msgRateOut": stats.message_rate_out,
        "msgThroughputOut": stats.byte_rate_out,
        "bytesOutCounter": stats.bytes_out,
        "msgOutCounter": stats.messages_out,
        "msgRateRedeliver": stats.redelivery_rate,
        "messageAckRate": stats.ack_rate,
    }


def peer_address(address: str) -> str:
    """Returns a client's address as Pulsar writes it."""
    return f"/{address}"


def time_text(time_ms: int) -> str:
    """Formats ms since 1970 UTC in ISO 8601; whole seconds without a fraction, as Java does."""
    at = datetime.fromtimestamp(time_ms / 1000, UTC)
    return at.isoformat(timespec="milliseconds" if time_ms % 1000 else "seconds").partition("+")[0] + "Z"
