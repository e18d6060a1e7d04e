"""Where a topic is served, how many partitions it has, which topics a namespace holds."""

from __future__ import annotations

from magnetar.broker.authorization import authorize
from magnetar.broker.handlers.client import Client
from magnetar.common.errors import TooManyRequests, TopicNotFound
from magnetar.common.naming.namespace_name import NamespaceName
from magnetar.common.naming.topic_name import TopicName
from magnetar.common.wire import commands
from magnetar.common.wire.pulsar_pb2 import (
    CommandGetTopicsOfNamespace,
    CommandLookupTopic,
    CommandPartitionedTopicMetadata,
)


async def handle_lookup(client: Client, command: CommandLookupTopic) -> None:
    """One broker serves everything: the answer is always 'connect here', if the namespace exists."""
    services = client.services
    name = TopicName.parse(command.topic)
    authorize(client.principal, "lookup", name.full)
    if services.lookups_in_process >= services.config.topics.lookups_max:
        raise TooManyRequests("too many lookups at once (maxConcurrentLookupRequest)")
    services.lookups_in_process += 1
    try:
        await services.topics.check_namespace(name.namespace)
    finally:
        services.lookups_in_process -= 1
    client.peer.write(commands.lookup_connect(command.request_id, services.urls.broker_url))


async def handle_partitioned_metadata(client: Client, command: CommandPartitionedTopicMetadata) -> None:
    """The number of partitions, 0 for a topic without; nothing is created by asking."""
    services = client.services
    name = TopicName.parse(command.topic)
    authorize(client.principal, "lookup", name.full)
    await services.topics.check_namespace(name.namespace)
    partitions = await services.topics.partitions(name)
    if (
        partitions == 0
        and not services.config.topics.auto_creation
        and not await services.topics.exists(name)
    ):
        raise TopicNotFound(f"topic {name} does not exist and allowAutoTopicCreation is off")
    client.peer.write(commands.partition_metadata(command.request_id, partitions))


async def handle_get_topics(client: Client, command: CommandGetTopicsOfNamespace) -> None:
    """The namespace's topics, unfiltered: matching a pattern is left to the client."""
    services = client.services
    namespace = NamespaceName.parse(command.namespace)
    authorize(client.principal, "lookup", str(namespace))
    await services.topics.check_namespace(namespace)
    mode = CommandGetTopicsOfNamespace.Mode
    topics: list[str] = []
    if command.mode in (mode.PERSISTENT, mode.ALL):
        topics += await services.topics.list(namespace, persistent=True)
    if command.mode in (mode.NON_PERSISTENT, mode.ALL):
        topics += await services.topics.list(namespace, persistent=False)
    client.peer.write(commands.topics_of_namespace(command.request_id, topics))
