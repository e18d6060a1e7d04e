"""Topic lookup and partition metadata."""

from __future__ import annotations

from magnetar.broker.handlers.client import Client
from magnetar.broker.lookups import counted_lookup
from magnetar.common.naming.topic_name import TopicName
from magnetar.common.wire import commands
from magnetar.common.wire.pulsar_pb2 import CommandLookupTopic, CommandPartitionedTopicMetadata


async def handle_lookup(client: Client, command: CommandLookupTopic) -> None:
    """Responds with the broker that owns the topic's bundle, assigning the bundle if it has no owner.

    Every broker can find the owner, so no lookup is redirected, and the client's `authoritative`, which
    requests an answer instead of a redirect, has no effect (messaging contract, lookup).
    """
    services = client.services
    name = TopicName.parse(command.topic)
    await services.authorizer.check_lookup(client.principal, name)
    client.peer.listener = command.advertised_listener_name
    with counted_lookup(services.config.cluster_name), services.lookup():
        urls = await services.ownership.where(name, command.advertised_listener_name)
    client.peer.write(
        commands.lookup_connect(
            command.request_id, urls.broker_url, broker_url_tls=urls.broker_url_tls or None
        )
    )


async def handle_partitioned_metadata(client: Client, command: CommandPartitionedTopicMetadata) -> None:
    """Responds with the number of partitions, 0 for an unpartitioned topic.

    Creates a partitioned topic if policies allow it. Raises TopicNotFound for a missing topic that may not be
    created, or that the client does not want created.
    """
    services = client.services
    name = TopicName.parse(command.topic)
    await services.authorizer.check_partitions(client.principal, name)
    with services.lookup():
        partitions = await services.partitioned.ask(name, create=command.metadata_auto_creation_enabled)
    client.peer.write(commands.partition_metadata(command.request_id, partitions))
