"""Statistics of topics in the shape of Pulsar's admin API. Figures that this broker does not keep are 0."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

from magnetar.broker.dispatch.key_shared.draining import DrainingSlot
from magnetar.broker.drops import NonPersistentSubscriptionStats, NonPersistentTopicStats
from magnetar.broker.stats import SubscriptionStats
from magnetar.broker.subscriptions.consumer import Consumer
from magnetar.broker.subscriptions.subscription import Subscription
from magnetar.broker.topics.persistent_topic import PersistentTopic
from magnetar.broker.topics.producer import Producer
from magnetar.broker.topics.topic import AnySubscription, Topic
from magnetar.common.wire.pulsar_pb2 import CommandSubscribe, ProducerAccessMode

_EPOCH: Final = "1970-01-01T00:00:00Z"
_THROTTLED: Final = {
    f"dispatchThrottled{unit}EventsBy{level}Limit": 0
    for level in ("Subscription", "Topic", "Broker")
    for unit in ("Msg", "Bytes")
}
_DRAINING: Final = {
    "drainingHashesCount": 0,
    "drainingHashesClearedTotal": 0,
    "drainingHashesUnackedMessages": 0,
}
_HOLES: Final = {
    "nonContiguousDeletedMessagesRanges": 0,
    "nonContiguousDeletedMessagesRangesSerializedSize": 0,
    "delayedMessageIndexSizeInBytes": 0,
}


@dataclass(frozen=True, slots=True)
class Wanted:
    """What the caller does not want to see, and what he asks for besides."""

    publishers: bool = True
    consumers: bool = True
    reason: bool = False
    """Why a subscription is not dispatching: `whyNotDispatching`, which Pulsar does not have."""


def topic_stats(topic: Topic, wanted: Wanted, owner: str) -> dict[str, Any]:
    """One topic. `owner` is the id of this broker."""
    stats, policies = topic.stats, topic.policies
    subscriptions = {
        name: subscription_stats(topic, each, wanted) for name, each in topic.subscriptions.items()
    }
    rate_in = stats.message_rate_in
    shown: dict[str, Any] = {
        "msgRateIn": stats.message_rate_in,
        "msgThroughputIn": stats.byte_rate_in,
        "msgRateOut": stats.message_rate_out,
        "msgThroughputOut": stats.byte_rate_out,
        "bytesInCounter": stats.bytes_in,
        "msgInCounter": stats.messages_in,
        "systemTopicBytesInCounter": 0,
        "bytesOutCounter": stats.bytes_out,
        "msgOutCounter": stats.messages_out,
        "bytesOutInternalCounter": 0,
        "averageMsgSize": stats.byte_rate_in / rate_in if rate_in else 0.0,
        "msgChunkPublished": False,
        "storageSize": topic.storage_bytes,
        "backlogSize": topic.backlog_bytes,
        "backlogQuotaLimitSize": policies.size_quota.limit,
        "backlogQuotaLimitTime": policies.time_quota.limit,
        "oldestBacklogMessageAgeSeconds": topic.oldest_backlog_age_s,
        "publishRateLimitedTimes": 0,
        "earliestMsgPublishTimeInBacklogs": 0,
        "offloadedStorageSize": 0,
        "lastOffloadLedgerId": 0,
        "lastOffloadSuccessTimeStamp": 0,
        "lastOffloadFailureTimeStamp": 0,
        "ongoingTxnCount": 0,
        "abortedTxnCount": 0,
        "committedTxnCount": 0,
        "publishers": [publisher_stats(each) for each in topic.producers.values()]
        if wanted.publishers
        else [],
        "waitingPublishers": topic.waiting_publishers,
        "subscriptions": subscriptions,
        "replication": {},
    }
    if isinstance(topic, PersistentTopic):
        shown["deduplicationStatus"] = "Enabled" if policies.deduplication else "Disabled"
    if isinstance(stats, NonPersistentTopicStats):
        shown["msgDropRate"] = stats.drops.rate
        for publisher in shown["publishers"]:
            drops = stats.drops_by_producer.get(publisher["producerName"])
            publisher["msgDropRate"] = 0.0 if drops is None else drops.rate
    if topic.topic_epoch > 0:
        shown["topicEpoch"] = topic.topic_epoch - 1
    return {
        **shown,
        **_HOLES,
        "delayedMessageIndexSizeInBytes": topic.delayed_index_bytes,
        "compaction": {
            "lastCompactionRemovedEventCount": 0,
            "lastCompactionSucceedTimestamp": 0,
            "lastCompactionFailedTimestamp": 0,
            "lastCompactionDurationTimeInMills": 0,
        },
        "ownerBroker": owner,
    }


def subscription_stats(topic: Topic, subscription: AnySubscription, wanted: Wanted) -> dict[str, Any]:
    """One subscription."""
    kind, backlog = subscription.type, subscription.backlog()
    durable, properties = False, {}
    if isinstance(subscription, Subscription):
        durable, properties = subscription.cursor.durable, dict(subscription.properties)
    entries = topic.storage_entries
    shown: dict[str, Any] = {
        **_rates(subscription.stats),
        "msgBacklog": backlog,
        "backlogSize": topic.storage_bytes * backlog // entries if entries else 0,
        "earliestMsgPublishTimeInBacklog": 0,
        "msgBacklogNoDelayed": backlog - subscription.delayed,
        "blockedSubscriptionOnUnackedMsgs": subscription.blocked_on_unacked,
        "msgDelayed": subscription.delayed,
        "msgInReplay": 0,
        "unackedMessages": subscription.unacked_messages,
        "type": "None" if kind is None else CommandSubscribe.SubType.Name(kind),
        "msgRateExpired": subscription.stats.expired_rate,
        "totalMsgExpired": subscription.stats.messages_expired,
        "lastExpireTimestamp": 0,
        "lastConsumedFlowTimestamp": 0,
        "lastConsumedTimestamp": 0,
        "lastAckedTimestamp": 0,
        "lastMarkDeleteAdvancedTimestamp": 0,
        "consumers": _consumers(subscription) if wanted.consumers else [],
        "isDurable": durable,
        "isReplicated": False,
        "allowOutOfOrderDelivery": False,
        "consumersAfterMarkDeletePosition": {},
        **_DRAINING,
        **_HOLES,
        "subscriptionProperties": properties,
        "filterProcessedMsgCount": 0,
        "filterAcceptedMsgCount": 0,
        "filterRejectedMsgCount": 0,
        "filterRescheduledMsgCount": 0,
        **_THROTTLED,
        "durable": durable,
        "replicated": False,
    }
    consumers = subscription.consumers
    if subscription.active_consumer is not None:
        shown["activeConsumerName"] = subscription.active_consumer.name
    if kind == CommandSubscribe.Key_Shared and consumers:
        shown["keySharedMode"] = "STICKY" if consumers[0].sticky else "AUTO_SPLIT"
        shown["allowOutOfOrderDelivery"] = consumers[0].allow_out_of_order
    if subscription.key_shared is not None:
        draining = subscription.key_shared.draining
        shown |= _draining(list(draining.slots.values()), draining.cleared)
    if isinstance(subscription.stats, NonPersistentSubscriptionStats):
        shown["msgDropRate"] = subscription.stats.drops.rate
    if wanted.reason:
        shown["whyNotDispatching"] = subscription.why_not_dispatching()
    return shown


def _consumers(subscription: AnySubscription) -> list[dict[str, Any]]:
    """All of a subscription. Of Key_Shared there may be a thousand, with a hundred ranges each."""
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
    """One consumer, but for what it owns and holds of a Key_Shared subscription."""
    return {
        **_rates(consumer.stats),
        "consumerName": consumer.name,
        "availablePermits": consumer.permits,
        "unackedMessages": consumer.pending.messages,
        "avgMessagesPerEntry": 0,
        "blockedConsumerOnUnackedMsgs": consumer.blocked_on_unacked,
        **_DRAINING,
        "address": _address(consumer.peer.address),
        "connectedSince": _time(consumer.connected_since_ms),
        "lastAckedTimestamp": 0,
        "lastConsumedTimestamp": 0,
        "lastConsumedFlowTimestamp": 0,
        "metadata": dict(consumer.properties),
        "lastAckedTime": _EPOCH,
        "lastConsumedTime": _EPOCH,
    }


def _draining(slots: Sequence[DrainingSlot[Consumer]], cleared: int) -> dict[str, int]:
    return {
        "drainingHashesCount": len(slots),
        "drainingHashesClearedTotal": cleared,
        "drainingHashesUnackedMessages": sum(each.unacked for each in slots),
    }


def publisher_stats(producer: Producer) -> dict[str, Any]:
    """One producer."""
    return {
        "accessMode": ProducerAccessMode.Name(producer.access_mode),
        "msgRateIn": 0.0,
        "msgThroughputIn": 0.0,
        "averageMsgSize": 0.0,
        "chunkedMessageRate": 0.0,
        "producerId": producer.producer_id,
        "supportsPartialProducer": False,
        "producerName": producer.name,
        "address": _address(producer.peer.address),
        "connectedSince": _time(producer.connected_since_ms),
        "metadata": dict(producer.properties),
    }


def merged_stats(parts: list[dict[str, Any]]) -> dict[str, Any]:
    """The partitions of a topic as one: numbers add up, clients are put together by their order."""
    total: dict[str, Any] = {"publishers": [], "subscriptions": {}, "replication": {}}
    for part in parts:
        _add(total, part)
    for key in _NOT_ADDED:
        total[key] = parts[0][key] if parts else -1
    total["oldestBacklogMessageAgeSeconds"] = max(
        (part["oldestBacklogMessageAgeSeconds"] for part in parts), default=-1
    )
    for publisher in total["publishers"]:
        publisher["producerId"] = 0
    return total


_NOT_ADDED: Final = ("backlogQuotaLimitSize", "backlogQuotaLimitTime")
_OF_ONE_PART: Final = frozenset(
    {
        "ownerBroker",
        "deduplicationStatus",
        "topicEpoch",
        "oldestBacklogMessageSubscriptionName",
        "address",
        "connectedSince",
        "accessMode",
        "producerName",
        "activeConsumerName",
        "metadata",
        "keyHashRangeArrays",
        "drainingHashes",
        "whyNotDispatching",
    }
)


def _add(total: dict[str, Any], part: Mapping[str, Any]) -> None:
    for key, value in part.items():
        have = total.get(key)
        if key in _OF_ONE_PART:
            continue
        if isinstance(value, dict):
            _add(total.setdefault(key, {}), value)
        elif isinstance(value, list):
            merged = total.setdefault(key, [])
            for index, item in enumerate(value):
                if index == len(merged):
                    merged.append({})
                _add(merged[index], item)
        elif isinstance(value, bool):
            total[key] = bool(have) or value
        elif isinstance(value, int | float):
            total[key] = (have or 0) + value
        elif have is None or have == "None":
            total[key] = value


def _rates(stats: SubscriptionStats) -> dict[str, Any]:
    return {
        "msgRateOut": stats.message_rate_out,
        "msgThroughputOut": stats.byte_rate_out,
        "bytesOutCounter": stats.bytes_out,
        "msgOutCounter": stats.messages_out,
        "msgRateRedeliver": stats.redelivery_rate,
        "messageAckRate": stats.ack_rate,
        "chunkedMessageRate": 0.0,
    }


def _address(address: str) -> str:
    return f"/{address}"


def _time(time_ms: int) -> str:
    return datetime.fromtimestamp(time_ms / 1000, UTC).isoformat(timespec="milliseconds")[:23] + "Z"
