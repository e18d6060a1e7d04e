"""Statistics of all partitions merged into those of one topic: numbers are added, clients are matched by
order.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from magnetar.broker.admin.stats.topic_stats import average_size


def nothing_yet() -> dict[str, Any]:
    """Returns an empty total; parts are added one by one, with turns for other work in between."""
    return {
        **dict.fromkeys(_RATES, 0.0),
        **dict.fromkeys(_COUNTS, 0),
        "msgChunkPublished": False,
        "publishers": [],
        "subscriptions": {},
        "replication": {},
        "compaction": dict.fromkeys(_COMPACTION, 0),
    }


def summed(total: dict[str, Any], parts: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Returns the statistics of all parts, which were added to `total`."""
    for key in _NOT_ADDED:
        total[key] = parts[0][key] if parts else -1
    total["oldestBacklogMessageAgeSeconds"] = max(
        (part["oldestBacklogMessageAgeSeconds"] for part in parts), default=-1
    )
    for publisher in total["publishers"]:
        publisher["producerId"] = 0
    for each in (total, *total["publishers"]):
        each["averageMsgSize"] = average_size(each.get("msgThroughputIn", 0.0), each.get("msgRateIn", 0.0))
    return total


_RATES: Final = ("msgRateIn", "msgThroughputIn", "msgRateOut", "msgThroughputOut")
_COUNTS: Final = (
    "bytesInCounter",
    "msgInCounter",
    "systemTopicBytesInCounter",
    "bytesOutCounter",
    "msgOutCounter",
    "bytesOutInternalCounter",
    "storageSize",
    "backlogSize",
    "publishRateLimitedTimes",
    "earliestMsgPublishTimeInBacklogs",
    "offloadedStorageSize",
    "lastOffloadLedgerId",
    "lastOffloadSuccessTimeStamp",
    "lastOffloadFailureTimeStamp",
    "topicCreationTimeStamp",
    "lastPublishTimeStamp",
    "ongoingTxnCount",
    "abortedTxnCount",
    "committedTxnCount",
    "waitingPublishers",
    "nonContiguousDeletedMessagesRanges",
    "nonContiguousDeletedMessagesRangesSerializedSize",
    "delayedMessageIndexSizeInBytes",
)
_COMPACTION: Final = (
    "lastCompactionRemovedEventCount",
    "lastCompactionSucceedTimestamp",
    "lastCompactionFailedTimestamp",
    "lastCompactionDurationTimeInMills",
)
_NOT_ADDED: Final = ("backlogQuotaLimitSize", "backlogQuotaLimitTime")
_EARLIEST: Final = frozenset(
    {"earliestMsgPublishTimeInBacklog", "earliestMsgPublishTimeInBacklogs", "topicCreationTimeStamp"}
)
_LATEST: Final = frozenset(
    {
        "avgMessagesPerEntry",
        "lastExpireTimestamp",
        "lastConsumedFlowTimestamp",
        "lastConsumedTimestamp",
        "lastAckedTimestamp",
        "lastMarkDeleteAdvancedTimestamp",
        "lastAckedTime",
        "lastConsumedTime",
        "lastPublishTimeStamp",
    }
)
_OF_ONE_PART: Final = frozenset(
    {
        "ownerBroker",
        "deduplicationStatus",
        "topicEpoch",
        "oldestBacklogMessageSubscriptionName",
        "address",
        "clientVersion",
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


def add_part(total: dict[str, Any], part: Mapping[str, Any]) -> None:
    """Adds the statistics of one part, or of one of its subscriptions or clients, to the total."""
    for key, value in part.items():
        have = total.get(key)
        if key in _OF_ONE_PART:
            continue
        if key in _LATEST:
            total[key] = value if have is None else max(have, value)
        elif key in _EARLIEST:
            total[key] = min(filter(None, (have, value)), default=0)
        elif isinstance(value, dict):
            add_part(total.setdefault(key, {}), value)
        elif isinstance(value, list):
            merged = total.setdefault(key, [])
            for index, item in enumerate(value):
                if index == len(merged):
                    merged.append({})
                add_part(merged[index], item)
        elif isinstance(value, bool):
            total[key] = bool(have) or value
        elif isinstance(value, int | float):
            total[key] = (have or 0) + value
        elif have is None or have == "None":
            total[key] = value
