"""Schema commands: schemas by version, and new ones by the rules of their topic."""

from __future__ import annotations

from magnetar.broker.handlers.client import Client
from magnetar.common.errors import TopicNotFound
from magnetar.common.naming.topic_name import TopicName
from magnetar.common.wire import commands
from magnetar.common.wire.pulsar_pb2 import CommandGetOrCreateSchema, CommandGetSchema


async def handle_get_schema(client: Client, command: CommandGetSchema) -> None:
    name = TopicName.parse(command.topic)
    await client.services.authorizer.check_lookup(client.principal, name)
    found = await client.services.schemas.get(name, command.schema_version)
    if found is None:
        raise TopicNotFound(f"topic {name} has no schema of that version")
    schema, version = found
    client.peer.write(commands.get_schema(command.request_id, schema, version))


async def handle_get_or_create_schema(client: Client, command: CommandGetOrCreateSchema) -> None:
    name = TopicName.parse(command.topic)
    await client.services.authorizer.check_produce(client.principal, name)
    topic = await client.services.topics.get(name, create=False)
    version = await client.services.schemas.put(name, command.schema, topic.policies.schemas)
    client.peer.write(commands.get_or_create_schema(command.request_id, version))
