"""A consumer of one topic on a connection that is made up, for tests of one of the two alone."""

from __future__ import annotations

from typing import Any

from magnetar.client.connection.frames import Delivery, parse_entry
from magnetar.client.consumer.consumer import Consumer
from magnetar.client.consumer.options import ConsumerOptions
from magnetar.client.consumer.topic_consumer import TopicConsumer
from magnetar.client.options import ClientOptions
from magnetar.client.schemas.schema import Schema
from magnetar.client.session import ClientParts
from magnetar.common.wire.frame import FrameDecoder, encode_entry
from magnetar.common.wire.pulsar_pb2 import BaseCommand, CommandSubscribe, MessageMetadata

TOPIC = "persistent://public/default/t"


class FakeConnection:
    """Takes every request, and keeps the permits that were granted."""

    lost = None

    def __init__(self, protocol_version: int = 21) -> None:
        self.protocol_version = protocol_version
        self.consumers: dict[int, Any] = {}
        self.permits: list[int] = []
        self.subscribed: CommandSubscribe | None = None

    async def request(self, command: BaseCommand, subject: str, timeout_s: float) -> BaseCommand:
        if command.type == BaseCommand.SUBSCRIBE:
            self.subscribed = command.subscribe
        return command

    def write(self, frame: bytes) -> None:
        for found in FrameDecoder().receive_data(frame):
            if found.command.type == BaseCommand.FLOW:
                self.permits.append(found.command.flow.messagePermits)


class Attached:
    """A consumer of one topic that is open on a fake connection."""

    def __init__(self, queue_size: int = 1_000, schema: Schema[Any] | None = None) -> None:
        parts = ClientParts(ClientOptions(service_url="pulsar://127.0.0.1:1"))
        options = ConsumerOptions(subscription="s", queue_size=queue_size)
        self.consumer: Consumer[Any] = Consumer(parts, options, schema)
        self.topic = TopicConsumer(parts, TOPIC, options, schema, queue_size, self.consumer)
        self.consumer._topics[TOPIC] = self.topic
        self._entries = 0

    async def attach(self, protocol_version: int = 21) -> FakeConnection:
        connection = FakeConnection(protocol_version)
        as_connection: Any = connection
        await self.topic.attach(as_connection)
        self.topic._session.connection = as_connection
        return connection

    def deliver(self, payload: bytes, epoch: int = 0, **fields: Any) -> None:
        """Deliver the next entry; `fields` are those of its metadata."""
        metadata = MessageMetadata(producer_name="p", sequence_id=self._entries, publish_time=1, **fields)
        body = encode_entry(metadata.SerializeToString(), payload)
        self.topic.on_message(Delivery(1, 1, self._entries, 0, (), epoch, parse_entry(body)))
        self._entries += 1
