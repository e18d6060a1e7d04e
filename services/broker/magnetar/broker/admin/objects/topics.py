"""Topics in paths: their existence, loading, and the routes of both domains.

Handlers that need a loaded topic get it from `loaded`, in a route that the topic's owner handles
(`at_owner`).
"""

from __future__ import annotations

from typing import Any, Final

from magnetar.broker.admin.edge.broker_view import BrokerView
from magnetar.broker.admin.edge.call import Call
from magnetar.broker.admin.edge.errors import Refused
from magnetar.broker.admin.edge.routing import Route
from magnetar.broker.subscriptions.subscription import Subscription
from magnetar.broker.topics.persistent_topic import PersistentTopic
from magnetar.broker.topics.subscribe.any_subscription import AnySubscription
from magnetar.broker.topics.topic import Topic
from magnetar.common.errors import NamespaceNotFound, TopicNotFound
from magnetar.common.naming.namespace_name import NamespaceName
from magnetar.common.naming.topic_name import DOMAINS, TopicName, is_system_topic
from magnetar.common.runtime.cooperative_iteration import iterate_cooperatively

TOPIC_PATH: Final = "/{tenant}/{namespace}/{topic}"
TOPIC_ERRORS: Final = {
    404: "Namespace not found; Topic not found",
    405: "the name is reserved; not supported for this kind of topic; topic policies are disabled",
    412: "invalid name",
}
PATHS: Final = tuple((domain, f"/admin/v2/{domain}{TOPIC_PATH}") for domain in DOMAINS)
"""The domains, each with the path of a topic in it."""

NOT_CREATED: Final = "Topic partitions were not yet created"
"""The error of brokers for a partition that does not exist."""


async def require_namespace(broker: BrokerView, namespace: NamespaceName, reason: str) -> None:
    """Raises NamespaceNotFound with `reason` unless the namespace exists; Pulsar's wording varies by
    route.
    """
    if not await broker.namespaces.exists(namespace):
        raise NamespaceNotFound(reason)


async def visible_topics(
    broker: BrokerView, namespace: NamespaceName, persistent: bool, *, system_too: bool
) -> list[str]:
    """Returns the sorted names of the namespace's topics; system topics only with `system_too`."""
    names = iterate_cooperatively(await broker.list_topics(namespace, persistent))
    return sorted([name async for name in names if system_too or not is_system_topic(TopicName.parse(name))])


async def require_topic(broker: BrokerView, topic: TopicName, *, may_be_created: bool) -> int:
    """Returns the number of partitions, 0 for a non-partitioned topic. Raises TopicNotFound when the topic
    does not exist.

    A topic that may be created need not exist; nor need a partition of a partitioned topic.
    """
    partitions = await broker.partitions(topic)
    if partitions or may_be_created or topic.full in broker.topics:
        return partitions
    if 0 <= topic.partition_index < await broker.partitions(topic.base):
        return 0
    if topic.full not in await broker.list_topics(topic.namespace, topic.persistent):
        raise TopicNotFound(f"Topic {topic} not found")
    return 0


def require_topic_policies(call: Call) -> None:
    """Raises Refused (405) when topic policies are disabled."""
    if not call.broker.config.policies.of_topics:
        raise Refused(405, "Topic level policies is disabled, to enable the topic level policy and retry.")


async def topic_with_policies(call: Call) -> TopicName:
    """Returns the call's topic, which may have policies of its own.

    Raises Refused, NamespaceNotFound, TopicNotFound, InvalidName.
    """
    require_topic_policies(call)
    topic = call.topic
    await require_namespace(call.broker, topic.namespace, "Namespace not found")
    if 0 <= topic.partition_index < await call.broker.partitions(topic.base):
        raise Refused(412, "Not allowed to set/get topic policy for a partition")
    await require_topic(call.broker, topic, may_be_created=False)
    return topic


async def partitions_of(call: Call) -> int:
    """Returns the number of partitions of the call's topic; 0 when it is not partitioned or does not exist.

    Raises NamespaceNotFound, InvalidName.
    """
    topic = call.topic
    await require_namespace(call.broker, topic.namespace, "Namespace not found")
    return await call.broker.partitions(topic)


async def loaded(call: Call) -> Topic:
    """Loads the call's topic. Raises TopicNotFound (also for a partitioned topic), NamespaceNotFound,
    ServiceNotReady.
    """
    topic = call.topic
    await require_namespace(call.broker, topic.namespace, "Namespace not found")
    return await load(call.broker, topic)


async def load(broker: BrokerView, topic: TopicName) -> Topic:
    """Loads an existing topic. Raises TopicNotFound, ServiceNotReady."""
    try:
        return await broker.registry.get(topic, create=False, claim=True)
    except NamespaceNotFound:
        raise
    except TopicNotFound as error:
        if topic.partition_index >= 0:
            raise TopicNotFound(NOT_CREATED) from error
        raise TopicNotFound(f"Topic {topic} not found") from error


async def persistent(call: Call, what: str) -> PersistentTopic:
    """Loads the call's topic, which must be persistent and unpartitioned for `what`. Raises Refused (405)."""
    if await partitions_of(call):
        raise Refused(405, f"{what} on a partitioned topic is not allowed")
    return stored(await loaded(call), what)


def stored(topic: Topic, what: str) -> PersistentTopic:
    """Returns the topic as a persistent one. Raises Refused (405) when it is not persistent."""
    if not isinstance(topic, PersistentTopic):
        raise Refused(405, f"{what} on a non-persistent topic is not allowed")
    return topic


def subscription_of(topic: Topic, name: str) -> AnySubscription:
    """Returns a subscription of the topic. Raises Refused (404)."""
    found = topic.subscriptions.get(name)
    if found is None:
        raise Refused(404, f"Subscription {name} not found for topic {topic.name}")
    return found


def stored_subscription(topic: PersistentTopic, name: str) -> Subscription:
    """Returns a subscription of the topic. Raises Refused (404)."""
    found = subscription_of(topic, name)
    assert isinstance(found, Subscription), "a persistent topic's"
    return found


def topic_routes(method: str, name: str, handler: Any, summary: str, **more: Any) -> list[Route]:
    """Returns the routes of a verb on a topic, one for each domain."""
    errors = {**TOPIC_ERRORS, **more.pop("errors", {})}
    return [
        Route(
            object=domain,
            method=method,
            path=f"{path}/{name}" if name else path,
            handler=handler,
            summary=summary,
            errors=errors,
            **more,
        )
        for domain, path in PATHS
    ]


def owned_topic_routes(method: str, name: str, handler: Any, summary: str, **more: Any) -> list[Route]:
    """Returns routes as `topic_routes` that the topic's owner handles, because they act on a loaded topic."""
    return topic_routes(method, name, handler, summary, at_owner=True, **more)
