"""Routes of partitioned topics."""

from __future__ import annotations

from functools import partial
from typing import Final

from aiohttp import web
from magnetar.broker.admin.edge.call import Call, answer, bounded, done, text_map
from magnetar.broker.admin.edge.coercion import coerce
from magnetar.broker.admin.edge.errors import Refused
from magnetar.broker.admin.edge.routing import Route
from magnetar.broker.admin.objects.topics import partitions_of, require_namespace, require_topic, topic_routes
from magnetar.broker.admin.routes.topics.partition_owners import delete_elsewhere, subscribe_alike
from magnetar.common.errors import TopicExists, TopicNotFound
from magnetar.common.metadata.values import PartitionedTopic
from magnetar.common.naming.topic_name import DOMAINS, is_system_topic
from magnetar.common.security.authorization.operations import Operation


async def _list(call: Call) -> web.Response:
    namespace, ledgers = call.namespace, call.broker.ledgers
    await require_namespace(call.broker, namespace, "Namespace does not exist")
    listing = await ledgers.metadata.children(ledgers.keys.partitioned_topics_prefix(call.domain, namespace))
    names = [ledgers.keys.topic_of_partitioned(item.key) for item in listing.items]
    system_too = call.flag("includeSystemTopic")
    return answer(sorted(name.full for name in names if system_too or not is_system_topic(name)))


async def _get(call: Call) -> web.Response:
    """Returns partitioned metadata. Never creates the topic, regardless of the query."""
    topic, broker = call.topic, call.broker
    await require_namespace(broker, topic.namespace, "Namespace not found")
    may_be_created = (
        call.flag("checkAllowAutoCreation")
        and (await broker.policies.of_namespace(topic.namespace)).auto_topic_creation
    )
    await require_topic(broker, topic, may_be_created=may_be_created)
    found = await broker.partitioned.get(topic)
    return answer(metadata_json(found))


def metadata_json(found: PartitionedTopic | None) -> dict[str, object]:
    """Returns the metadata of a partitioned topic; 0 partitions for a topic that is not partitioned."""
    if found is None:
        return {"partitions": 0, "deleted": False}
    properties = {"properties": dict(found.properties)} if found.properties else {}
    return {"partitions": found.partitions, "deleted": False, **properties}


async def _create(call: Call) -> web.Response:
    topic, broker = call.topic, call.broker
    await require_namespace(broker, topic.namespace, "Namespace not found")
    count, properties = await _count_of(call)
    if count <= 0:
        raise Refused(406, "Number of partitions should be more than 0")
    try:
        await broker.partitioned.create_partitioned(topic, count, properties)
    except TopicExists as error:
        raise Refused(409, "This topic already exists") from error
    return done()


async def _grow(call: Call) -> web.Response:
    topic, broker = call.topic, call.broker
    now = await partitions_of(call)
    count, _ = await _count_of(call)
    if not now:
        raise Refused(409, f"Topic {topic} is not the partitioned topic.")
    if count <= 0:
        raise Refused(406, "Number of partitions should be more than 0")
    if count < now:
        raise Refused(422, f"Desired partitions {count} can't be less than the current partitions {now}.")
    if count > now:
        subscribe = None if broker.cluster is None else partial(subscribe_alike, call)
        await broker.partitioned.grow(topic, count, subscribe)
    return done()


async def _delete(call: Call) -> web.Response:
    topic = call.topic
    await require_namespace(call.broker, topic.namespace, "Namespace not found")
    if call.broker.cluster is not None:
        await delete_elsewhere(call)
    try:
        await call.broker.partitioned.delete_partitioned(topic, force=call.flag("force"))
    except TopicNotFound as error:
        raise TopicNotFound(f"Topic {topic} not found.") from error
    return done()


async def _create_missing(call: Call) -> web.Response:
    topic = call.topic
    await require_namespace(call.broker, topic.namespace, "Namespace not found")
    try:
        await call.broker.partitioned.create_missing(topic)
    except TopicNotFound as error:
        raise Refused(409, f"Topic {topic} is not the partitioned topic.") from error
    return done()


async def _count_of(call: Call) -> tuple[int, dict[str, str]]:
    """Parses a number, or an object with `partitions` and `properties`."""
    value = await call.json()
    properties: dict[str, str] = {}
    if isinstance(value, dict):
        properties = bounded("topic", text_map(value.get("properties") or {}))
        value = value.get("partitions")
    return coerce("int", value, "the number of partitions"), properties


_TOO_MANY: Final = {406: "Number of partitions should be more than 0, and within the limit"}

ROUTES: Final = [
    *(
        Route(
            object=domain,
            method="GET",
            path=f"/admin/v2/{domain}/{{tenant}}/{{namespace}}/partitioned",
            handler=_list,
            summary="List the partitioned topics of a namespace.",
            query=("includeSystemTopic:boolean=false",),
            answer="List<String>",
            errors={404: "Namespace does not exist", 412: "invalid name"},
            operation=Operation.NAMESPACE_USE,
        )
        for domain in DOMAINS
    ),
    *topic_routes(
        "GET",
        "partitions",
        _get,
        "Get the number of partitions of a topic; 0 for a non-partitioned topic.",
        query=("checkAllowAutoCreation:boolean=false",),
        answer="PartitionedTopicMetadata",
        operation=Operation.TOPIC_LOOKUP,
    ),
    *topic_routes(
        "PUT",
        "partitions",
        _create,
        "Create a partitioned topic.",
        body="PartitionedTopicMetadata",
        status=204,
        errors={**_TOO_MANY, 405: "the name is reserved", 409: "This topic already exists"},
        operation=Operation.NAMESPACE_ADMIN,
    ),
    *topic_routes(
        "POST",
        "partitions",
        _grow,
        "Increase the number of partitions of a topic.",
        body="int",
        status=204,
        errors={**_TOO_MANY, 409: "the topic is not partitioned", 422: "fewer partitions than the topic has"},
        operation=Operation.POLICY,
    ),
    *topic_routes(
        "DELETE",
        "partitions",
        _delete,
        "Delete a partitioned topic with all its partitions.",
        query=("force:boolean=false",),
        status=204,
        errors={409: "concurrent modification", 412: "producers or consumers are connected"},
        operation=Operation.NAMESPACE_ADMIN,
    ),
    *topic_routes(
        "POST",
        "createMissedPartitions",
        _create_missing,
        "Create the missing partitions of a topic.",
        status=204,
        errors={409: "the topic is not partitioned"},
        operation=Operation.NAMESPACE_ADMIN,
    ),
]
