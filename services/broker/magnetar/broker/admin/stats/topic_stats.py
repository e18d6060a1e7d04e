"""Statistics of a topic and its producers in the form of Pulsar's admin API.

Figures that this broker does not keep are 0: replication.
"""

from __future__ import annotations

from typing import Any

from magnetar.broker.admin.stats.subscription_stats import (
    NO_HOLES,
    Wanted,
    peer_address,
    subscription_stats,
    time_text,
)
from magnetar.broker.message_drops import NonPersistentTopicStats
from magnetar.broker.topics.persistent_topic import PersistentTopic
from magnetar.broker.topics.publish.producer import Producer
from magnetar.broker.topics.topic import Topic
from magnetar.common.wire.pulsar_pb2 import ProducerAccessMode
from magnetar.ledger.managed_ledger.offload_figures import OffloadFigures, figures_of


def topic_stats(topic: Topic, wanted: Wanted, owner: str) -> dict[str, Any]:
    """Returns the statistics of a topic. `owner` is the id of this broker."""
    stats, policies, transactions = topic.stats, topic.policies, topic.transactions
    offload = figures_of(topic.ledger.spans.spans) if isinstance(topic, PersistentTopic) else OffloadFigures()
    subscriptions = {
        name: subscription_stats(topic, each, wanted) for name, each in topic.subscriptions.items()
    }
    if isinstance(topic, PersistentTopic) and (compaction := topic.compaction_subscription()) is not None:
        subscriptions[compaction.name] = subscription_stats(topic, compaction, wanted)
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
        "averageMsgSize": average_size(stats.byte_rate_in, stats.message_rate_in),
        "msgChunkPublished": stats.chunked,
        "storageSize": topic.storage_bytes,
        "backlogSize": topic.backlog_bytes,
        "backlogQuotaLimitSize": policies.size_quota.limit,
        "backlogQuotaLimitTime": policies.time_quota.limit,
        "oldestBacklogMessageAgeSeconds": topic.oldest_backlog_age_s,
        "publishRateLimitedTimes": topic.times_rate_limited,
        "earliestMsgPublishTimeInBacklogs": min(wanted.earliest_ms.values(), default=0),
        "offloadedStorageSize": offload.byte_length,
        "lastOffloadLedgerId": offload.last_ledger_id,
        "lastOffloadSuccessTimeStamp": offload.last_completed_ms,
        "lastOffloadFailureTimeStamp": wanted.offload_failed_ms,
        "topicCreationTimeStamp": 0,
        "lastPublishTimeStamp": 0,
        "ongoingTxnCount": transactions.open,
        "abortedTxnCount": transactions.aborted,
        "committedTxnCount": transactions.committed,
        "publishers": [publisher_stats(each) for each in topic.producers.values()]
        if wanted.publishers
        else [],
        "waitingPublishers": topic.producers.waiting,
        "subscriptions": subscriptions,
        "replication": {},
    }
    if isinstance(topic, PersistentTopic):
        shown["topicCreationTimeStamp"] = topic.ledger.created_ms
        shown["lastPublishTimeStamp"] = wanted.last_publish_ms or topic.backlog.known_last_publish_ms()
        shown["deduplicationStatus"] = "Enabled" if policies.deduplication else "Disabled"
        slowest = topic.backlog.slowest()
        if slowest is not None and topic.oldest_backlog_age_s >= 0:
            shown["oldestBacklogMessageSubscriptionName"] = slowest.name
    if isinstance(stats, NonPersistentTopicStats):
        shown["msgDropRate"] = stats.drops.rate
        for publisher in shown["publishers"]:
            drops = stats.drops_by_producer.get(publisher["producerName"])
            publisher["msgDropRate"] = 0.0 if drops is None else drops.rate
    if topic.producers.topic_epoch > 0:
        shown["topicEpoch"] = topic.producers.topic_epoch - 1
    return {
        **shown,
        **{key: sum(each[key] for each in subscriptions.values()) for key in NO_HOLES},
        "delayedMessageIndexSizeInBytes": topic.delayed_index_bytes,
        "compaction": {
            "lastCompactionRemovedEventCount": topic.compaction.removed,
            "lastCompactionSucceedTimestamp": topic.compaction.succeeded_ms,
            "lastCompactionFailedTimestamp": topic.compaction.failed_ms,
            "lastCompactionDurationTimeInMills": topic.compaction.duration_ms,
        },
        "ownerBroker": owner,
    }


def publisher_stats(producer: Producer) -> dict[str, Any]:
    """Returns the statistics of a producer."""
    stats = producer.stats
    return {
        "accessMode": ProducerAccessMode.Name(producer.access_mode),
        "msgRateIn": stats.message_rate_in,
        "msgThroughputIn": stats.byte_rate_in,
        "averageMsgSize": average_size(stats.byte_rate_in, stats.message_rate_in),
        "chunkedMessageRate": stats.chunk_rate,
        "producerId": producer.producer_id,
        "supportsPartialProducer": False,
        "producerName": producer.name,
        "address": peer_address(producer.peer.address),
        "connectedSince": time_text(producer.connected_since_ms),
        "clientVersion": producer.client_version,
        "metadata": dict(producer.properties),
    }


def average_size(byte_rate: float, message_rate: float) -> float:
    """Returns the average size of recent messages in bytes; 0 without any."""
    return byte_rate / message_rate if message_rate else 0.0
