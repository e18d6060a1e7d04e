"""Statistics of topics over HTTP."""

from __future__ import annotations

import asyncio
from typing import Any, Final

from aiohttp import web
from magnetar.broker.admin.call import Call, answer
from magnetar.broker.admin.internal_stats import internal_stats
from magnetar.broker.admin.merged_stats import merged_stats
from magnetar.broker.admin.partitioned import metadata_json
from magnetar.broker.admin.subscription_stats import Wanted
from magnetar.broker.admin.topic_calls import all_parts, loaded, partitions_of
from magnetar.broker.admin.topic_stats import topic_stats
from magnetar.broker.admin.topics import topic_routes
from magnetar.broker.topics import topic_backlog
from magnetar.broker.topics.persistent_topic import PersistentTopic
from magnetar.broker.topics.topic import Topic
from magnetar.common.errors import TopicNotFound


async def _figures(call: Call, topic: Topic) -> dict[str, Any]:
    """What the call asks for of one topic. Raises StorageError."""
    earliest_ms = {}
    if call.flag("getEarliestTimeInBacklog") and isinstance(topic, PersistentTopic):
        earliest_ms = await topic_backlog.earliest_by_subscription(topic)
    wanted = Wanted(
        publishers=not call.flag("excludePublishers"),
        consumers=not call.flag("excludeConsumers"),
        reason=call.flag("whyNotDispatching"),
        earliest_ms=earliest_ms,
    )
    return topic_stats(topic, wanted, _owner(call))


def _owner(call: Call) -> str:
    url = call.broker.urls.http_url
    return url.partition("://")[2] or call.request.host


async def _stats(call: Call) -> web.Response:
    return answer(await _figures(call, await loaded(call)))


async def _partitioned_stats(call: Call) -> web.Response:
    metadata = await _metadata(call)
    per_partition: dict[str, Any] = {}
    for topic in await all_parts(call):
        per_partition[topic.name.full] = await _figures(call, topic)
        await asyncio.sleep(0)
    return answer(
        {
            **merged_stats(list(per_partition.values())),
            "metadata": metadata,
            "partitions": per_partition if call.flag("perPartition", True) else {},
        }
    )


async def _internal_stats(call: Call) -> web.Response:
    return answer(internal_stats(await loaded(call)))


async def _partitioned_internal_stats(call: Call) -> web.Response:
    metadata = await _metadata(call)
    parts = await all_parts(call)
    return answer(
        {"metadata": metadata, "partitions": {topic.name.full: internal_stats(topic) for topic in parts}}
    )


async def _metadata(call: Call) -> dict[str, object]:
    """Raises TopicNotFound unless the call's topic is partitioned."""
    if not await partitions_of(call):
        raise TopicNotFound(f"Partitioned Topic {call.topic} not found")
    return metadata_json(await call.broker.partitioned.get(call.topic))


_QUERY: Final = (
    "getPreciseBacklog:boolean=false",
    "subscriptionBacklogSize:boolean=true",
    "getEarliestTimeInBacklog:boolean=false",
    "excludePublishers:boolean=false",
    "excludeConsumers:boolean=false",
    "whyNotDispatching:boolean=false",
)

ROUTES: Final = [
    *topic_routes(
        "GET", "stats", _stats, "Figures of a topic, its clients too.", query=_QUERY, answer="TopicStats"
    ),
    *topic_routes(
        "GET",
        "partitioned-stats",
        _partitioned_stats,
        "Figures of a partitioned topic as a whole and of each partition.",
        query=("perPartition:boolean=true", *_QUERY),
        answer="PartitionedTopicStats",
    ),
    *topic_routes(
        "GET",
        "internalStats",
        _internal_stats,
        "The ledgers and cursors of a topic.",
        answer="PersistentTopicInternalStats",
    ),
    *topic_routes(
        "GET",
        "partitioned-internalStats",
        _partitioned_internal_stats,
        "The ledgers and cursors of each partition.",
        answer="PartitionedTopicInternalStats",
    ),
]
