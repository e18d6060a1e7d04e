"""The client shared by producers and consumers: connections by broker, and topic lookup."""

from __future__ import annotations

import asyncio
import itertools
import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final, TypeVar

from magnetar.client.connection import Connection, connect
from magnetar.client.errors import ClientError, ConnectionLost, NoCredentials, OwnerUnreachable, Refused
from magnetar.client.service_url import ServiceUrl
from magnetar.common.errors import ConfigError
from magnetar.common.naming.topic_name import TopicName
from magnetar.common.security.tls.client_context import ClientFiles, ClientTls
from magnetar.common.wire.pulsar_pb2 import (
    BaseCommand,
    CommandGetTopicsOfNamespace,
    CommandLookupTopic,
    CommandLookupTopicResponse,
    CommandPartitionedTopicMetadata,
)

REDIRECTS_MAX: Final = 20
PAUSE_S: Final = 0.1
PAUSE_S_MAX: Final = 5.0

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientOptions:
    """How to reach a cluster. Times are in seconds."""

    service_url: str
    auth_method: str = ""
    auth_data: bytes | Callable[[], bytes] = b""
    """The secret, or what gives it for each connection and challenge. It is called in a thread, since it may
    wait for an issuer, and may raise OSError.
    """
    trust_certs_file: str = ""
    allow_insecure: bool = False
    """Accept any server certificate, whatever its name."""
    verify_hostname: bool = True
    """Check that the server's certificate names its host."""
    certificate_file: str = ""
    """A certificate to show, with its chain; PEM, as all files."""
    key_file: str = ""

    listener_name: str = ""
    operation_timeout_s: float = 30.0


class Client:
    """Owns connections; `close` ends them. Use it on one event loop."""

    def __init__(self, options: ClientOptions) -> None:
        """Creates a client. Raises ClientError for an invalid service URL or unusable certificates."""
        self.options = options
        self._url = ServiceUrl.parse(options.service_url)
        self._tls = _client_tls(options) if self._url.tls else None
        self._connections: dict[tuple[str, int, str], asyncio.Task[Connection]] = {}
        self.ids = itertools.count(1)
        """Ids of producers and consumers, unique within a client."""

    async def close(self) -> None:
        for task in self._connections.values():
            if task.done() and not task.cancelled() and task.exception() is None:
                task.result().close()
            else:
                task.cancel()
        await asyncio.gather(*self._connections.values(), return_exceptions=True)
        self._connections.clear()

    async def partitions(self, topic: TopicName) -> list[str]:
        """Returns the names to open for a topic: its partitions, or the topic itself. Creates the topic if
        the cluster does so.
        """
        if topic.partition_index >= 0:
            return [topic.full]

        async def ask() -> int:
            request = CommandPartitionedTopicMetadata(
                topic=topic.full, request_id=0, metadata_auto_creation_enabled=True
            )
            command = BaseCommand(type=BaseCommand.PARTITIONED_METADATA, partitionMetadata=request)
            connection = await self._any()
            answer = await connection.request(command, topic.full, self.options.operation_timeout_s)
            return answer.partitionMetadataResponse.partitions

        count = await self.patiently(ask)
        return [topic.partition(index).full for index in range(count)] if count else [topic.full]

    async def topics_matching(self, pattern: str) -> list[str]:
        """Returns the topics of a namespace that match a regular expression, with partitions listed one by
        one.

        `pattern` is tenant/namespace/expression, with or without persistent://; a bare expression applies to
        public/default.
        """
        domain, separator, rest = pattern.partition("://")
        if not separator:
            domain, rest = "persistent", pattern
        parts = rest.split("/", 2)
        if len(parts) == 1:
            parts = ["public", "default", rest]
        if len(parts) != 3:
            raise ClientError(
                f"{pattern!r} is not a pattern of topics; it has the form tenant/namespace/expression"
            )
        try:
            expression = re.compile(parts[2])
        except re.error as error:
            raise ClientError(f"{parts[2]!r} is not a regular expression: {error}") from error
        modes = CommandGetTopicsOfNamespace
        request = CommandGetTopicsOfNamespace(
            request_id=0,
            namespace=f"{parts[0]}/{parts[1]}",
            mode=modes.NON_PERSISTENT if domain == "non-persistent" else modes.PERSISTENT,
        )

        async def ask() -> list[str]:
            command = BaseCommand(type=BaseCommand.GET_TOPICS_OF_NAMESPACE, getTopicsOfNamespace=request)
            connection = await self._any()
            answer = await connection.request(command, request.namespace, self.options.operation_timeout_s)
            return list(answer.getTopicsOfNamespaceResponse.topics)

        found = []
        for text in await self.patiently(ask):
            name = TopicName.parse(text)
            if name.domain == domain and expression.fullmatch(name.base_local_name):
                found.append(name.full)
        return sorted(found)

    async def connection_of(self, topic: str) -> Connection:
        """Returns a connection to the broker that serves a topic. Raises Refused, ConnectionLost."""
        connection, authoritative = await self._any(), False
        for _ in range(REDIRECTS_MAX):
            request = CommandLookupTopic(topic=topic, request_id=0, authoritative=authoritative)
            if self.options.listener_name:
                request.advertised_listener_name = self.options.listener_name
            command = BaseCommand(type=BaseCommand.LOOKUP, lookupTopic=request)
            answer = await connection.request(command, topic, self.options.operation_timeout_s)
            found = answer.lookupTopicResponse
            url = found.brokerServiceUrlTls if self._url.tls else found.brokerServiceUrl
            if found.response == CommandLookupTopicResponse.Connect:
                if found.proxy_through_service_url:
                    return await self._any(proxy_to=url)
                return await self._at(url)
            authoritative = found.authoritative
            connection = await self._at(url)
        raise ClientError(f"{topic}: brokers sent the lookup from one to the other {REDIRECTS_MAX} times")

    async def patiently(self, act: Callable[[], Awaitable[T]]) -> T:
        """Returns the result of `act`, retrying transient errors until the operation timeout."""
        loop = asyncio.get_running_loop()
        deadline, pause = loop.time() + self.options.operation_timeout_s, PAUSE_S
        while True:
            try:
                return await act()
            except ClientError as error:
                # An unreachable service fails at once: a caller that waits for the service to start retries
                # itself.
                may_pass = isinstance(error, OwnerUnreachable) or (
                    isinstance(error, Refused) and error.may_pass
                )
                if not may_pass or loop.time() + pause > deadline:
                    raise
            await asyncio.sleep(pause)
            pause = min(pause * 2, PAUSE_S_MAX)

    async def _any(self, proxy_to: str = "") -> Connection:
        """Returns a connection to one of the service URL's hosts."""
        problems: list[str] = []
        for host, port in self._url.addresses:
            try:
                return await self._connect(host, port, proxy_to)
            except NoCredentials:
                raise
            except ConnectionLost as error:
                problems.append(str(error))
        raise ConnectionLost("; ".join(problems) + "; start a broker, or name one with --url")

    async def _at(self, url: str) -> Connection:
        """Returns a connection to the broker named by a lookup, which may have died since. Raises
        OwnerUnreachable, Refused.
        """
        parsed = ServiceUrl.parse(url)
        try:
            return await self._connect(*parsed.addresses[0], "")
        except ConnectionLost as error:
            raise OwnerUnreachable(str(error)) from error

    async def _connect(self, host: str, port: int, proxy_to: str) -> Connection:
        key = (host, port, proxy_to)
        task = self._connections.get(key)
        if task is not None and task.done() and (task.cancelled() or task.exception() or task.result().lost):
            task = None
        if task is None:
            task = asyncio.ensure_future(
                connect(
                    host,
                    port,
                    auth_method=self.options.auth_method,
                    auth_data=self.options.auth_data,
                    proxy_to=proxy_to.partition("://")[2],
                    tls=None if self._tls is None else self._tls.context(),
                )
            )
            self._connections[key] = task
        return await asyncio.shield(task)


def _client_tls(options: ClientOptions) -> ClientTls:
    try:
        return ClientTls(
            ClientFiles(
                trust_certs=options.trust_certs_file,
                certificate=options.certificate_file,
                key=options.key_file,
                allow_insecure=options.allow_insecure,
                verify_hostname=options.verify_hostname,
            )
        )
    except ConfigError as error:
        raise ClientError(str(error)) from error
