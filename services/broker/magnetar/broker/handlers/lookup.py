"""Where a topic is served, and how many partitions it has."""

from __future__ import annotations

from magnetar.broker.authorization import authorize
from magnetar.broker.handlers.client import Client
from magnetar.broker.lookups import counted_lookup
from magnetar.common.naming.topic_name import TopicName
from magnetar.common.wire import commands
from magnetar.common.wire.pulsar_pb2 import CommandLookupTopic, CommandPartitionedTopicMetadata


async def handle_lookup(client: Client, command: CommandLookupTopic) -> None:
    """The broker that owns the topic's bundle, which is assigned now when nobody does: 'connect there'.

    Every broker knows that, so no lookup is sent on, and the client's `authoritative` changes nothing: it
    asks for an answer instead of a redirect, and gets one in any case (messaging contract, lookup).
    """
    services = client.services
    name = TopicName.parse(command.topic)
    authorize(client.principal, "lookup", name.full)
    client.peer.listener = command.advertised_listener_name
    with counted_lookup(services.config.cluster_name), services.lookup():
        urls = await services.ownership.where(name, command.advertised_listener_name)
    client.peer.write(
        commands.lookup_connect(
            command.request_id, urls.broker_url, broker_url_tls=urls.broker_url_tls or None
        )
    )


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
