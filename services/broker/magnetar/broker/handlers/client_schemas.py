"""Schemas that producers and consumers bring: stored, checked or refused by the rules of their topic."""

from __future__ import annotations

from typing import Final

from magnetar.broker.schemas.schema_store import NO_VERSION, SchemaStore
from magnetar.broker.topics.topic import Topic
from magnetar.common.errors import IncompatibleSchema
from magnetar.common.wire.pulsar_pb2 import CommandProducer, CommandSubscribe, Schema

_NONE: Final = Schema.Type.Value("None")


async def producer_version(schemas: SchemaStore, topic: Topic, command: CommandProducer) -> bytes:
    """Returns the version of a producer's schema, storing it when it is new; NO_VERSION for plain bytes.

    Raises IncompatibleSchema, also for a producer without a schema where schemas are enforced, and the other
    errors of SchemaStore.put.
    """
    rules = topic.policies.schemas
    if command.HasField("schema") and command.schema.type != _NONE:
        return await schemas.put(topic.name, command.schema, rules)
    if rules.enforced and await schemas.has_schema(topic.name):
        raise IncompatibleSchema(
            f"Producers cannot connect or send message without a schema to topics with a schema: topic "
            f"{topic.name} has one, and schemaValidationEnforced is set; open the producer with a schema"
        )
    return NO_VERSION


async def check_consumer(schemas: SchemaStore, topic: Topic, command: CommandSubscribe) -> None:
    """Checks that a consumer's schema reads the topic; the first consumer of an unused topic brings the
    topic's schema, as a producer would.

    A consumer without a schema, or with AUTO_CONSUME, asks for the schema of each message, and is not
    checked. Raises IncompatibleSchema, and the other errors of SchemaStore.put.
    """
    if not command.HasField("schema") or command.schema.type in (_NONE, Schema.AutoConsume):
        return
    rules = topic.policies.schemas
    if _is_unused(topic) and not await schemas.has_schema(topic.name):
        await schemas.put(topic.name, command.schema, rules)
    else:
        await schemas.check_reader(topic.name, command.schema, rules.strategy)


def is_auto_consume(command: CommandSubscribe) -> bool:
    """Whether a consumer takes the schema of each message, and says so."""
    return command.HasField("schema") and command.schema.type == Schema.AutoConsume


def _is_unused(topic: Topic) -> bool:
    """Whether the topic has no data, no producers, and no consumers except those of AUTO_CONSUME."""
    if (
        topic.producers.present
        or topic.storage_bytes
        or (not topic.name.persistent and topic.stats.entries_in)
    ):
        return False
    return all(
        consumer.is_auto_consume
        for subscription in topic.subscriptions.values()
        for consumer in subscription.consumers
    )
