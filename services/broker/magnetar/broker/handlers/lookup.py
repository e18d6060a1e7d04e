"""Where a topic is served, and how many partitions it has."""

from __future__ import annotations

from magnetar.broker.authorization import authorize
from magnetar.broker.handlers.client import Client
from magnetar.common.naming.topic_name import TopicName
from magnetar.common.wire import commands
from magnetar.common.wire.pulsar_pb2 import CommandLookupTopic, CommandPartitionedTopicMetadata


async def handle_lookup(client: Client, command: CommandLookupTopic) -> None:
    """One broker serves everything: the answer is always 'connect here', if the namespace exists."""
    services = client.services
    name = TopicName.parse(command.topic)
    authorize(client.principal, "lookup", name.full)
    with services.lookup():
        await services.topics.check_namespace(name.namespace)
    client.peer.write(commands.lookup_connect(command.request_id, services.urls.broker_url))


async def handle_partitioned_metadata(client: Client, command: CommandPartitionedTopicMetadata) -> None:
    """The number of partitions, 0 for a topic without.

    Asking makes a partitioned topic only where policies say that topics are created so; a topic that is
    missing and may not be created, or that the client does not want created, is not found.
    """
    services = client.services
    name = TopicName.parse(command.topic)
    authorize(client.principal, "lookup", name.full)
    with services.lookup():
        partitions = await services.partitioned.ask(name, create=command.metadata_auto_creation_enabled)
    client.peer.write(commands.partition_metadata(command.request_id, partitions))
