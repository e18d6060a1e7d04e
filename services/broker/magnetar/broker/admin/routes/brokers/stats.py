"""Routes of one broker's statistics: its topics, load and memory."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Final

from aiohttp import web
from magnetar.broker.admin.edge.call import Call, answer
from magnetar.broker.admin.edge.errors import Refused
from magnetar.broker.admin.edge.json_stream import stream_json
from magnetar.broker.admin.edge.routing import Route
from magnetar.broker.admin.objects.namespaces import NAMESPACE_ERRORS
from magnetar.broker.admin.objects.topics import require_namespace
from magnetar.broker.admin.routes.brokers.load_report import Load, Loads, load_report, loads_of, metrics
from magnetar.broker.admin.routes.brokers.topic_bundles import Bundles, topics_by_bundle
from magnetar.broker.admin.stats.subscription_stats import Wanted
from magnetar.broker.admin.stats.topic_stats import topic_stats
from magnetar.broker.load.process_usage import resident_bytes
from magnetar.broker.topics.topic import Topic
from magnetar.common.security.authorization.operations import Operation

_ALLOCATORS: Final = ("default", "ml-cache")
_EVERYTHING: Final = Wanted()

_TOPIC: Final = (
    "publishers",
    "replication",
    "averageMsgSize",
    "msgRateIn",
    "msgRateOut",
    "msgThroughputIn",
    "msgThroughputOut",
)
_COUNTERS: Final = {
    "msgInCount": "msgInCounter",
    "bytesInCount": "bytesInCounter",
    "msgOutCount": "msgOutCounter",
    "bytesOutCount": "bytesOutCounter",
}
_PUBLISHER: Final = (
    "msgRateIn",
    "msgThroughputIn",
    "averageMsgSize",
    "address",
    "producerId",
    "producerName",
    "connectedSince",
    "clientVersion",
    "metadata",
)
_SUBSCRIPTION: Final = (
    "msgBacklog",
    "msgRateExpired",
    "msgRateOut",
    "messageAckRate",
    "msgThroughputOut",
    "msgRateRedeliver",
    "type",
    "filterProcessedMsgCount",
    "filterAcceptedMsgCount",
    "filterRejectedMsgCount",
    "filterRescheduledMsgCount",
    "blockedSubscriptionOnUnackedMsgs",
    "unackedMessages",
    "activeConsumerName",
    "msgDropRate",
)
_CONSUMER: Final = (
    "address",
    "consumerName",
    "availablePermits",
    "connectedSince",
    "msgRateOut",
    "msgThroughputOut",
    "msgRateRedeliver",
    "avgMessagesPerEntry",
    "messageAckRate",
    "unackedMessages",
    "blockedConsumerOnUnackedMsgs",
    "clientVersion",
    "metadata",
)


async def _topics(call: Call) -> web.StreamResponse:
    """Streams the statistics topic by topic: ten thousand topics are ten megabytes, and messages have
    priority.
    """
    return await stream_json(call.request, _pieces(await topics_by_bundle(call.broker)))


def _pieces(bundles: Bundles) -> Iterator[str]:
    """Yields JSON nested by namespace, bundle, domain and topic."""
    yield "{"
    for at, (namespace, parts) in enumerate(bundles.items()):
        yield f"{', ' if at else ''}{json.dumps(str(namespace))}: {{"
        for part_at, (bundle, topics) in enumerate(parts.items()):
            yield f"{', ' if part_at else ''}{json.dumps(bundle)}: {{"
            domains: dict[str, list[Any]] = {}
            for topic in topics:
                domains.setdefault(topic.name.domain, []).append(topic)
            for domain_at, (domain, those) in enumerate(sorted(domains.items(), reverse=True)):
                yield f"{', ' if domain_at else ''}{json.dumps(domain)}: {{"
                for topic_at, topic in enumerate(those):
                    comma = ", " if topic_at else ""
                    yield f"{comma}{json.dumps(topic.name.full)}: {json.dumps(short_stats(topic))}"
                yield "}"
            yield "}"
        yield "}"
    yield "}"


def short_stats(topic: Topic) -> dict[str, Any]:
    """Returns statistics of one topic in the shorter format of this route."""
    full = topic_stats(topic, _EVERYTHING, "")
    shown = {
        **{name: full[name] for name in _TOPIC},
        **{name: full[counter] for name, counter in _COUNTERS.items()},
        "publishers": [_some(each, _PUBLISHER) for each in full["publishers"]],
        "subscriptions": {name: _subscription(each) for name, each in full["subscriptions"].items()},
        "producerCount": len(full["publishers"]),
        "filteredEntriesCount": 0,
    }
    if topic.name.persistent:
        shown |= {
            "storageSize": full["storageSize"],
            "backlogSize": full["backlogSize"],
            "pendingAddEntriesCount": 0,
        }
    return shown


def _subscription(full: dict[str, Any]) -> dict[str, Any]:
    return {
        "consumers": [_some(each, _CONSUMER) for each in full["consumers"]],
        **_some(full, _SUBSCRIPTION),
        "numberOfEntriesSinceFirstNotAckedMessage": full["msgBacklog"] + 1,
        "totalNonContiguousDeletedMessagesRange": full["nonContiguousDeletedMessagesRanges"],
    }


def _some(full: dict[str, Any], names: tuple[str, ...]) -> dict[str, Any]:
    return {name: full[name] for name in names if name in full}


async def _loads(call: Call) -> Loads:
    """Returns the traffic of the bundles that this broker owns; in a standalone, of bundles with topics."""
    loads = await loads_of(await topics_by_bundle(call.broker))
    if call.broker.cluster is not None:
        for own in call.broker.cluster.ownership.table:
            loads.setdefault(own.namespace, {}).setdefault(str(own.range), Load())
    return loads


async def _load_report(call: Call) -> web.Response:
    return answer(load_report(call.broker, await _loads(call)))


async def _metrics(call: Call) -> web.Response:
    return answer(metrics(call.broker, await _loads(call)))


async def _mbeans(_call: Call) -> web.Response:
    """Returns an empty list: there is no Java virtual machine."""
    return answer([])


async def _allocator(call: Call) -> web.Response:
    name = call.names["allocator"]
    if name not in _ALLOCATORS:
        raise Refused(406, f"unknown allocator {name!r}: use one of {', '.join(_ALLOCATORS)}")
    cache = call.broker.ledgers.cache.bytes
    return answer(
        {
            "numDirectArenas": 0,
            "numHeapArenas": 0,
            "numThreadLocalCaches": 0,
            "normalCacheSize": 0,
            "smallCacheSize": 0,
            "usedDirectMemory": cache if name == "ml-cache" else 0,
            "usedHeapMemory": 0 if name == "ml-cache" else resident_bytes(),
            "directArenas": [],
            "heapArenas": [],
        }
    )


async def _bookie_operations(_call: Call) -> web.Response:
    """Returns an empty object: pending operations are counted per broker, in its metrics, not per topic."""
    return answer({})


async def _availability(call: Call) -> web.Response:
    await require_namespace(call.broker, call.namespace, "Namespace does not exist")
    raise Refused(
        409,
        "the broker keeps no list of available brokers: the leader chooses among those that isolation "
        "policies allow; GET /admin/v2/broker-stats/load-report of each broker returns its load",
    )


def _route(path: str, handler: Any, summary: str, type_name: str, **more: Any) -> Route:
    return Route(
        object="broker-stats",
        method="GET",
        path=f"/admin/v2/broker-stats/{path}",
        handler=handler,
        summary=summary,
        answer=type_name,
        **more,
        operation=Operation.SUPER_USER,
    )


ROUTES: Final = [
    _route(
        "topics",
        _topics,
        "Get statistics of all loaded topics, by namespace and bundle.",
        "Map<String, Map<String, Map<String, Map<String, TopicStats>>>>",
    ),
    _route("load-report", _load_report, "Get the broker's load report.", "LoadReport"),
    _route("metrics", _metrics, "Get metrics of the broker and of each namespace.", "List<Metrics>"),
    _route(
        "mbeans",
        _mbeans,
        "Get MBeans: always empty, because the broker does not run on a Java virtual machine.",
        "List<Metrics>",
    ),
    _route(
        "allocator-stats/{allocator}",
        _allocator,
        "Get memory statistics of the process or of the entry cache.",
        "AllocatorStats",
        errors={406: "the allocator is neither default nor ml-cache"},
    ),
    _route(
        "bookieops",
        _bookie_operations,
        "Get pending bookie operations: always empty, because they are not counted by topic.",
        "Map<String, PendingBookieOpsStats>",
    ),
    _route(
        "broker-resource-availability/{tenant}/{namespace}",
        _availability,
        "List the brokers that can serve a namespace: always refused, because the broker keeps no such list.",
        "Map<String, ResourceUnit>",
        errors={**NAMESPACE_ERRORS, 409: "the list of available brokers is not supported"},
    ),
]
