"""Routes of topic statistics."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any, Final

from aiohttp import web
from magnetar.broker.admin.edge.call import Call, answer
from magnetar.broker.admin.edge.json_stream import stream_json, with_members
from magnetar.broker.admin.objects.partitions import Ask, on_topic
from magnetar.broker.admin.objects.topics import load, loaded, owned_topic_routes, partitions_of
from magnetar.broker.admin.routes.topics.offload import last_failure_ms, offload_ledgers
from magnetar.broker.admin.routes.topics.partitioned import metadata_json
from magnetar.broker.admin.stats.internal_stats import internal_stats
from magnetar.broker.admin.stats.partitioned_stats import add_part, nothing_yet, summed
from magnetar.broker.admin.stats.subscription_stats import Wanted
from magnetar.broker.admin.stats.topic_stats import topic_stats
from magnetar.broker.topics.persistent_topic import PersistentTopic
from magnetar.broker.topics.topic import Topic
from magnetar.common.errors import TopicNotFound
from magnetar.common.naming.topic_name import TopicName
from magnetar.common.security.authorization.operations import Operation
from magnetar.ledger.managed_ledger.offload_figures import figures_of


async def _figures(call: Call, topic: Topic) -> dict[str, Any]:
    """Returns the requested statistics of one topic. Raises StorageError."""
    earliest_ms = {}
    if call.flag("getEarliestTimeInBacklog") and isinstance(topic, PersistentTopic):
        earliest_ms = await topic.backlog.earliest_by_subscription()
    wanted = replace(
        plain_wanted(call),
        earliest_ms=earliest_ms,
        last_publish_ms=await topic.backlog.last_publish_ms() if isinstance(topic, PersistentTopic) else 0,
        offload_failed_ms=await _offload_failed_ms(call, topic),
    )
    return topic_stats(topic, wanted, owner_of(call))


async def _offload_failed_ms(call: Call, topic: Topic) -> int:
    """Returns the time of the last offload failure. Only topics with ledgers in offload read metadata."""
    if not isinstance(topic, PersistentTopic) or not figures_of(topic.ledger.spans.spans).under_way:
        return 0
    return last_failure_ms((await offload_ledgers(call).of_topic(topic.name)).ledgers)


def plain_wanted(call: Call) -> Wanted:
    """Returns the requested statistics that need no reads from storage."""
    return Wanted(
        publishers=not call.flag("excludePublishers"),
        consumers=not call.flag("excludeConsumers"),
        reason=call.flag("whyNotDispatching"),
    )


def owner_of(call: Call) -> str:
    """Returns the id of this broker for statistics."""
    url = call.broker.urls.any_http_url
    return url.partition("://")[2] or call.request.host


async def _stats(call: Call) -> web.Response:
    return answer(await _figures(call, await loaded(call)))


async def _partitioned_stats(call: Call) -> web.StreamResponse:
    metadata = await _metadata(call)

    async def figures(name: TopicName) -> dict[str, Any]:
        return await _figures(call, await load(call.broker, name))

    found = (await on_topic(call, figures, Ask("GET", "stats"))).done
    parts: dict[str, dict[str, Any]] = {}
    total = nothing_yet()
    for name, part in found.items():
        parts[name.full] = part
        add_part(total, part)
        await asyncio.sleep(0)
    total = {**summed(total, list(parts.values())), "metadata": metadata}
    shown = parts if call.flag("perPartition", True) else {}
    return await stream_json(call.request, with_members(total, "partitions", shown.items()))


async def _internal_stats(call: Call) -> web.Response:
    return answer(internal_stats(await loaded(call)))


async def _partitioned_internal_stats(call: Call) -> web.StreamResponse:
    metadata = await _metadata(call)

    async def here(name: TopicName) -> Topic:
        return await load(call.broker, name)

    found = (await on_topic(call, here, Ask("GET", "internalStats"))).done
    shown = (
        (name.full, internal_stats(each) if isinstance(each, Topic) else each) for name, each in found.items()
    )
    return await stream_json(call.request, with_members({"metadata": metadata}, "partitions", shown))


async def _metadata(call: Call) -> dict[str, object]:
    """Returns partitioned metadata. Raises TopicNotFound unless the call's topic is partitioned."""
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
    *owned_topic_routes(
        "GET",
        "stats",
        _stats,
        "Get statistics of a topic and its clients.",
        query=_QUERY,
        answer="TopicStats",
        operation=Operation.TOPIC_LOOKUP,
    ),
    *owned_topic_routes(
        "GET",
        "partitioned-stats",
        _partitioned_stats,
        "Get statistics of a partitioned topic, in total and by partition.",
        query=("perPartition:boolean=true", *_QUERY),
        answer="PartitionedTopicStats",
        operation=Operation.TOPIC_LOOKUP,
    ),
    *owned_topic_routes(
        "GET",
        "internalStats",
        _internal_stats,
        "Get the ledgers and cursors of a topic.",
        answer="PersistentTopicInternalStats",
        operation=Operation.TOPIC_LOOKUP,
    ),
    *owned_topic_routes(
        "GET",
        "partitioned-internalStats",
        _partitioned_internal_stats,
        "Get the ledgers and cursors of each partition.",
        answer="PartitionedTopicInternalStats",
        operation=Operation.TOPIC_LOOKUP,
    ),
]
