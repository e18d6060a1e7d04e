"""Requests about topics: their partitions, owners and schemas, and the topics of a namespace."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, Final, TypeVar

from magnetar.client.back_off import BackOff
from magnetar.client.connection.connection import Connection
from magnetar.client.connection.pool import ConnectionPool
from magnetar.client.errors import ClientError, ConnectionLost, OperationTimeout, OwnerUnreachable, Refused
from magnetar.client.options import ClientOptions
from magnetar.client.schemas.schema import LATEST, NO_SCHEMA, SchemaInfo, VersionedSchema
from magnetar.common.naming.topic_name import TopicName
from magnetar.common.wire.pulsar_pb2 import (
    BaseCommand,
    CommandGetSchema,
    CommandGetTopicsOfNamespace,
    CommandLookupTopic,
    CommandLookupTopicResponse,
    CommandPartitionedTopicMetadata,
    Schema,
    ServerError,
)

REDIRECTS_MAX: Final = 20
RETRY_S_MAX: Final = 5.0

T = TypeVar("T")

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class TopicPattern:
    """Topics of one namespace whose local names (without the suffix of a partition) match as a whole."""

    namespace: str
    expression: re.Pattern[str]
    domain: str
    """persistent, non-persistent, or empty for both."""

    @staticmethod
    def parse(pattern: str | re.Pattern[str]) -> TopicPattern:
        """Parses tenant/namespace/expression, with or without a domain; a bare expression is for
        public/default. Raises ClientError.
        """
        text = pattern if isinstance(pattern, str) else pattern.pattern
        domain, separator, rest = text.partition("://")
        if not separator:
            domain, rest = "persistent", text
        parts = rest.split("/", 2)
        if len(parts) == 1:
            parts = ["public", "default", rest]
        if len(parts) != 3:
            raise ClientError(
                f"{text!r} is not a pattern of topics; it has the form tenant/namespace/expression"
            )
        try:
            expression = re.compile(parts[2])
        except re.error as error:
            raise ClientError(f"{parts[2]!r} is not a regular expression: {error}") from error
        return TopicPattern(f"{parts[0]}/{parts[1]}", expression, domain)

    @property
    def broker_expression(self) -> str:
        """The expression over whole topic names, as brokers take it."""
        return f"{self.domain}://{self.namespace}/{self.expression.pattern}"

    @property
    def watched_at(self) -> str:
        """The name of a topic, which need not exist, whose broker is asked to tell of new topics: watchers of
        different patterns are spread over brokers.
        """
        return f"persistent://{self.namespace}/{sha256(self.expression.pattern.encode()).hexdigest()[:16]}"

    def matches(self, name: TopicName) -> bool:
        """Returns whether a topic or partition belongs to it."""
        return (
            (not self.domain or name.domain == self.domain)
            and str(name.namespace) == self.namespace
            and self.expression.fullmatch(name.base_local_name) is not None
        )


def partition_names(topic: TopicName, count: int) -> list[str]:
    """Returns the names to open for a topic with so many partitions: those, or without any its own."""
    return [topic.partition(index).full for index in range(count)] or [topic.full]


class Lookup:
    """Questions to any broker of the cluster. Each is repeated until the operation timeout while the cluster
    cannot answer.
    """

    def __init__(self, options: ClientOptions, pool: ConnectionPool) -> None:
        self._options = options
        self._pool = pool

    async def partition_count(self, topic: TopicName, *, creates: bool = True) -> int:
        """Returns the number of partitions; 0 for a topic without. `creates`: the topic may be created.
        Raises Refused, ConnectionLost.
        """
        if topic.partition_index >= 0:
            return 0
        request = CommandPartitionedTopicMetadata(
            topic=topic.full, request_id=0, metadata_auto_creation_enabled=creates
        )
        command = BaseCommand(type=BaseCommand.PARTITIONED_METADATA, partitionMetadata=request)
        answer = await self._ask(command, topic.full)
        return answer.partitionMetadataResponse.partitions

    async def partitions(self, topic: TopicName) -> list[str]:
        """Returns the names to open for a topic: its partitions, or the topic itself."""
        return partition_names(topic, await self.partition_count(topic))

    async def topics_matching(self, pattern: TopicPattern) -> list[str]:
        """Returns the topics that match, with partitions listed one by one, sorted."""
        modes = CommandGetTopicsOfNamespace
        mode = {"persistent": modes.PERSISTENT, "non-persistent": modes.NON_PERSISTENT}
        request = CommandGetTopicsOfNamespace(
            request_id=0, namespace=pattern.namespace, mode=mode.get(pattern.domain, modes.ALL)
        )
        command = BaseCommand(type=BaseCommand.GET_TOPICS_OF_NAMESPACE, getTopicsOfNamespace=request)
        answer = await self._ask(command, request.namespace)
        found = (TopicName.parse(text) for text in answer.getTopicsOfNamespaceResponse.topics)
        return sorted(name.full for name in found if pattern.matches(name))

    async def schema(self, topic: str, version: bytes | None = None) -> tuple[Schema, bytes] | None:
        """Returns a schema of a topic and its version; without `version` the newest. None: there is none.

        Raises Refused, ConnectionLost.
        """
        request = CommandGetSchema(request_id=0, topic=topic)
        if version is not None:
            request.schema_version = version
        try:
            answer = await self._ask(BaseCommand(type=BaseCommand.GET_SCHEMA, getSchema=request), topic)
        except Refused as error:
            if error.code == ServerError.TopicNotFound:
                return None
            raise
        found = answer.getSchemaResponse
        return (found.schema, found.schema_version) if found.HasField("schema") else None

    async def add_schema_version(self, schema: VersionedSchema, topic: TopicName, version: bytes) -> None:
        """Gives a schema the definition of a version of the topic (LATEST: the newest) that it needs. Raises
        Refused, ConnectionLost, SchemaError.
        """
        if not schema.needs(version):
            return
        asked = None if version == LATEST else version or None
        found = await self.schema(topic.base.full, asked)
        schema.add_version(version, SchemaInfo.from_wire(found[0]) if found is not None else NO_SCHEMA)

    async def connection_of(self, topic: str) -> Connection:
        """Returns a connection to the broker that serves a topic. Raises Refused, ConnectionLost."""
        connection, authoritative = await self._pool.to_service(), False
        for _ in range(REDIRECTS_MAX):
            request = CommandLookupTopic(topic=topic, request_id=0, authoritative=authoritative)
            if self._options.listener_name:
                request.advertised_listener_name = self._options.listener_name
            command = BaseCommand(type=BaseCommand.LOOKUP, lookupTopic=request)
            found = (await self._request(connection, command, topic)).lookupTopicResponse
            url = found.brokerServiceUrlTls if self._pool.tls else found.brokerServiceUrl
            if found.response == CommandLookupTopicResponse.Connect:
                if found.proxy_through_service_url:
                    return await self._pool.to_service(behind=url)
                return await self._pool.to_broker(url)
            authoritative = found.authoritative
            connection = await self._pool.to_broker(url)
        raise ClientError(f"{topic}: brokers sent the lookup from one to the other {REDIRECTS_MAX} times")

    async def patiently(self, act: Callable[[], Awaitable[T]], timeout_s: float | None = None) -> T:
        """Returns the result of `act`, repeated while its error may pass, until the operation timeout.

        An unreachable service fails at once, unless the client waits for its service.
        """
        loop = asyncio.get_running_loop()
        limit_s = self._options.operation_timeout_s if timeout_s is None else timeout_s
        deadline, pauses = loop.time() + limit_s, BackOff(most_s=RETRY_S_MAX)
        while True:
            try:
                return await act()
            except ClientError as error:
                pause_s = pauses.next_s()
                if not self._may_pass(error) or loop.time() + pause_s > deadline:
                    raise
                _log.debug("%s; trying again", error)
            await asyncio.sleep(pause_s)

    def _may_pass(self, error: ClientError) -> bool:
        if isinstance(error, Refused):
            return error.may_pass
        if isinstance(error, OwnerUnreachable):
            return True
        return self._options.waits_for_service and isinstance(error, ConnectionLost | OperationTimeout)

    async def _ask(self, command: Any, subject: str) -> BaseCommand:
        async def act() -> BaseCommand:
            return await self._request(await self._pool.to_service(), command, subject)

        return await self.patiently(act)

    async def _request(self, connection: Connection, command: BaseCommand, subject: str) -> BaseCommand:
        """Returns the answer of a broker that could be reached. Raises OwnerUnreachable if it is lost now, so
        that the next one is asked, Refused, OperationTimeout.
        """
        try:
            return await connection.request(command, subject, self._options.operation_timeout_s)
        except ConnectionLost as error:
            raise OwnerUnreachable(str(error)) from error
