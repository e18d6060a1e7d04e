"""Topics over HTTP: their lists and their partitions."""

from __future__ import annotations

from functools import partial

from aiohttp import web
from magnetar.broker.admin.routing import (
    BROKER,
    add_get,
    flag,
    namespace_in,
    require_namespace,
    segments,
    topic_in,
)
from magnetar.broker.admin.view import BrokerView
from magnetar.common.errors import TopicNotFound
from magnetar.common.naming.bundle_range import BundleRange
from magnetar.common.naming.namespace_name import NamespaceName
from magnetar.common.naming.topic_name import NON_PERSISTENT, PERSISTENT, TopicName, is_system_topic


def add_routes(app: web.Application) -> None:
    for domain in (PERSISTENT, NON_PERSISTENT):
        prefix = f"/admin/v2/{domain}/{{tenant}}/{{namespace}}"
        add_get(app, prefix, partial(_list, domain), action="admin")
        add_get(app, f"{prefix}/{{topic:.+}}/partitions", partial(_partitions, domain), action="lookup")


async def visible_topics(
    broker: BrokerView, namespace: NamespaceName, persistent: bool, *, system_too: bool
) -> list[str]:
    """Names of the namespace's topics, sorted; those kept for the system only when asked for."""
    names = await broker.list_topics(namespace, persistent)
    return sorted(name for name in names if system_too or not is_system_topic(TopicName.parse(name)))


async def _list(domain: str, request: web.Request) -> web.Response:
    namespace = namespace_in(*segments(request)[3:5])
    broker = request.app[BROKER]
    bundle = request.query.get("bundle")
    within = None if bundle is None else BundleRange.parse(bundle)
    await require_namespace(broker, namespace, "Namespace does not exist")
    names = await visible_topics(
        broker, namespace, domain == PERSISTENT, system_too=flag(request, "includeSystemTopic")
    )
    if within is not None:
        names = [name for name in names if TopicName.parse(name).hash in within]
    return web.json_response(names)


async def _partitions(domain: str, request: web.Request) -> web.Response:
    """Partitioned metadata. Never creates the topic, whatever the query says."""
    topic = topic_in(domain, segments(request)[3:-1])
    broker = request.app[BROKER]
    await require_namespace(broker, topic.namespace, "Namespace not found")
    may_be_created = flag(request, "checkAllowAutoCreation") and broker.config.topics.auto_creation
    partitions = await require_topic(broker, topic, may_be_created=may_be_created)
    return web.json_response({"partitions": partitions, "deleted": False})


async def require_topic(broker: BrokerView, topic: TopicName, *, may_be_created: bool) -> int:
    """How many partitions the topic has, 0 for none. Raises TopicNotFound when it is not there.

    A topic that may be created need not be there; a partition of a partitioned topic never need.
    """
    partitions = await broker.partitions(topic)
    if partitions or may_be_created or topic.full in broker.topics:
        return partitions
    if 0 <= topic.partition_index < await broker.partitions(topic.base):
        return 0
    if topic.full not in await broker.list_topics(topic.namespace, topic.persistent):
        raise TopicNotFound(f"Topic {topic} not found")
    return 0
