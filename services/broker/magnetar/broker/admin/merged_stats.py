"""Figures of all partitions as those of one topic: numbers add up, clients are put together by order."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from magnetar.broker.admin.topic_stats import average_size


def merged_stats(parts: list[dict[str, Any]]) -> dict[str, Any]:
    """The partitions of a topic as one."""
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
    for each in (total, *total["publishers"]):
        each["averageMsgSize"] = average_size(each.get("msgThroughputIn", 0.0), each.get("msgRateIn", 0.0))
    return total


_NOT_ADDED: Final = ("backlogQuotaLimitSize", "backlogQuotaLimitTime")
_EARLIEST: Final = frozenset({"earliestMsgPublishTimeInBacklog", "earliestMsgPublishTimeInBacklogs"})
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


def _add(total: dict[str, Any], part: Mapping[str, Any]) -> None:
    for key, value in part.items():
        have = total.get(key)
        if key in _OF_ONE_PART:
            continue
        if key in _LATEST:
            total[key] = value if have is None else max(have, value)
        elif key in _EARLIEST:
            total[key] = min(filter(None, (have, value)), default=0)
        elif isinstance(value, dict):
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
