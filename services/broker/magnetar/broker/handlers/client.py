"""The state of one client connection, and the services that its handlers use."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Final

from magnetar.broker.byte_budget import ByteBudget
from magnetar.broker.client_endings import ClientEnd, ClientEndings, ClientKind, EndCode
from magnetar.broker.config import BrokerConfig
from magnetar.broker.ownership.ownership import Ownership
from magnetar.broker.peer import Peer
from magnetar.broker.schemas.schema_store import SchemaStore
from magnetar.broker.subscriptions.consumers.consumer import Consumer
from magnetar.broker.task_spawner import Spawn
from magnetar.broker.topics.publish.producer import Producer
from magnetar.broker.topics.publish.producer_names import ProducerNames
from magnetar.broker.topics.registry.partitioned_topics import PartitionedTopics
from magnetar.broker.topics.registry.topic_registry import TopicRegistry
from magnetar.broker.topics.subscribe.any_subscription import AnySubscription
from magnetar.broker.topics.topic import Topic
from magnetar.broker.topics.watch.topic_list_watcher import TopicListWatcher
from magnetar.broker.topics.watch.topic_lists import TopicLists
from magnetar.broker.transactions.transactions import Transactions
from magnetar.common.errors import InvalidName, TooManyRequests
from magnetar.common.naming.namespace_name import NamespaceName
from magnetar.common.naming.topic_name import TopicName
from magnetar.common.obs.log_limit import LogLimit
from magnetar.common.runtime.clock import Clock
from magnetar.common.security.authentication.authenticator import Authenticator
from magnetar.common.security.authorization.authorizer import Authorizer
from magnetar.common.security.identity import Identity
from magnetar.common.security.principal import Principal
from magnetar.common.wire.pulsar_pb2 import BaseCommand

CLOSED_PRODUCERS_REMEMBERED: Final = 1_000
"""Maximum number of closed producer ids whose messages in flight are ignored instead of refused."""


@dataclass(slots=True)
class Services:
    """The parts of the broker that handlers use."""

    config: BrokerConfig
    topics: TopicRegistry
    partitioned: PartitionedTopics
    topic_lists: TopicLists
    schemas: SchemaStore
    producer_names: ProducerNames
    clock: Clock
    ownership: Ownership
    spawn: Spawn
    budget: ByteBudget
    authorizer: Authorizer
    transactions: Transactions
    authenticator: Authenticator | None = None
    """Checks who clients are; None with authentication off."""
    proxy_roles: frozenset[str] | None = None
    """Roles of proxies; None with authorization off, where combinations of roles are not checked."""
    endings: ClientEndings = field(default_factory=ClientEndings)
    """Clients that were refused or closed lately."""
    lookups_in_process: int = 0
    closings: LogLimit = field(default_factory=LogLimit)
    """Limits log lines of connections that the broker ends, which a broken client could cause at will."""
    invalid_roles: LogLimit = field(default_factory=LogLimit)
    """Limits log lines of proxies with roles that they may not have."""

    @contextmanager
    def lookup(self) -> Iterator[None]:
        """Counts a lookup in process. Raises TooManyRequests at maxConcurrentLookupRequest."""
        if self.lookups_in_process >= self.config.topics.lookups_max:
            raise TooManyRequests("too many lookups at once (maxConcurrentLookupRequest)")
        self.lookups_in_process += 1
        try:
            yield
        finally:
            self.lookups_in_process -= 1


@dataclass(slots=True, eq=False)
class Opening:
    """A producer or consumer that is being created."""

    cancelled: bool = False
    """True when the client closed it meanwhile: it is removed once created, without a response."""
    on_cancelled: Callable[[], None] | None = None
    """Ends a creation that waits for other producers."""

    def cancel(self) -> None:
        """Cancels the creation: the client closed it or disconnected."""
        self.cancelled = True
        if self.on_cancelled is not None:
            self.on_cancelled()


@dataclass(slots=True, eq=False)
class OpenProducer:
    """A producer of this connection."""

    topic: Topic
    producer: Producer


@dataclass(slots=True, eq=False)
class OpenConsumer:
    """A consumer of this connection."""

    topic: Topic
    subscription: AnySubscription
    consumer: Consumer


@dataclass(slots=True, eq=False)
class OpenWatcher:
    """A watcher of topics of this connection."""

    namespace: NamespaceName
    watcher: TopicListWatcher


class ConnectState(Enum):
    """How far a connection is."""

    START = auto()
    CONNECTING = auto()
    """Connect has arrived, and its credentials are being checked."""
    CONNECTED = auto()


@dataclass(slots=True, eq=False)
class Credentials:
    """The accepted credentials of a connection, and how far their renewal is."""

    identity: Identity
    original: Identity | None
    """Identity of the client behind a proxy that forwarded its credentials."""
    is_original_believed: bool
    """Whether the proxy named a role without credentials for it."""
    can_refresh: bool
    """Whether the client answers AuthChallenge."""
    challenge_is_out: bool = False
    is_being_checked: bool = False
    """Whether an answer to a challenge is being checked."""

    @property
    def renewed(self) -> Identity:
        """The identity whose expiry counts: that of the client itself."""
        return self.identity if self.original is None else self.original


@dataclass(frozen=True, slots=True)
class _Opened:
    """Names of what a client opened, or wanted to open."""

    topic: str
    name: str = ""
    subscription: str = ""


@dataclass(slots=True, eq=False)
class Client:
    """State of one connection: its identity, and its producers and consumers by the ids that the client
    chose.
    """

    services: Services
    peer: Peer
    connection_id: int = 0
    """Number of the connection since the start of the broker."""
    connected_since_ms: int = 0
    """When the connection was accepted, ms since 1970 UTC."""
    state: ConnectState = ConnectState.START
    connected: bool = False
    """True once Connected was sent; nothing but Connect is accepted before."""
    credentials: Credentials | None = None
    """None with authentication off."""
    on_connected: Callable[[], None] | None = None
    """Lifts the transport's limits of clients that have not authenticated."""
    principal: Principal | None = None
    """Its roles; None without authentication."""
    client_version: str = ""
    understands_entry_metadata: bool = False
    producers: dict[int, OpenProducer | Opening] = field(default_factory=dict)
    consumers: dict[int, OpenConsumer | Opening] = field(default_factory=dict)
    closed_producers: OrderedDict[int, Producer | None] = field(default_factory=OrderedDict)
    """Closed producers by id; None for one that was not open yet."""
    watchers: dict[int, OpenWatcher | Opening] = field(default_factory=dict)
    log_limits: dict[str, LogLimit] = field(default_factory=dict)
    """Log limits by event, for events that this client can cause without end."""

    def times_to_log(self, event: str) -> int:
        """Returns the occurrences of `event` since its last log line if a line is due; otherwise 0."""
        limit = self.log_limits.get(event)
        if limit is None:
            limit = self.log_limits[event] = LogLimit()
        return limit.note(self.services.clock.monotonic())

    def open_consumer(self, consumer_id: int) -> OpenConsumer | None:
        """Returns the consumer with this id, if it is open."""
        entry = self.consumers.get(consumer_id)
        return entry if isinstance(entry, OpenConsumer) else None

    def forget_producer(self, producer_id: int) -> None:
        """Removes a closed producer; messages in flight to it are ignored."""
        closed = self.producers.pop(producer_id, None)
        self.closed_producers[producer_id] = closed.producer if isinstance(closed, OpenProducer) else None
        if len(self.closed_producers) > CLOSED_PRODUCERS_REMEMBERED:
            self.closed_producers.popitem(last=False)

    def producer_ended(self, opened: OpenProducer, code: EndCode, message: str = "") -> None:
        """Records that a producer was closed."""
        of = _Opened(opened.topic.name.full, opened.producer.name)
        self._note_end(ClientKind.PRODUCER, code, message, of)

    def consumer_ended(self, opened: OpenConsumer, code: EndCode, message: str = "") -> None:
        """Records that a consumer was closed."""
        of = _Opened(opened.topic.name.full, opened.consumer.name, opened.subscription.name)
        self._note_end(ClientKind.CONSUMER, code, message, of)

    def refused(self, command: BaseCommand, error: str, message: str) -> None:
        """Records a refused lookup, producer or consumer, with the error that the client is sent."""
        described = _REFUSABLE.get(command.type)
        if described is None:
            return
        kind, named = described(command)
        self._note_end(kind, EndCode.REFUSED, message, named, error)

    def _note_end(
        self, kind: ClientKind, code: EndCode, message: str, of: _Opened | None = None, error: str = ""
    ) -> None:
        end = ClientEnd(
            kind=kind,
            code=code,
            at_ms=self.services.clock.wall_ms(),
            address=self.peer.address,
            connection_id=self.connection_id,
            role="" if self.principal is None else self.principal.original or self.principal.role or "",
            client_version=self.client_version,
            topic="" if of is None else of.topic,
            name="" if of is None else of.name,
            subscription="" if of is None else of.subscription,
            error=error,
            message=message,
        )
        self.services.endings.note(end)

    def disconnected(self, code: EndCode, message: str) -> None:
        """Removes the producers, consumers and watchers of a closed connection, and records their ends with
        its own.
        """
        self._note_end(ClientKind.CONNECTION, code, message)
        for producer_entry in list(self.producers.values()):
            if isinstance(producer_entry, Opening):
                producer_entry.cancel()
            else:
                producer_entry.topic.producers.remove(producer_entry.producer)
                self.producer_ended(producer_entry, code, message)
        for consumer_entry in list(self.consumers.values()):
            if isinstance(consumer_entry, Opening):
                consumer_entry.cancelled = True
            else:
                consumer_entry.topic.remove_consumer(consumer_entry.subscription, consumer_entry.consumer)
                self.consumer_ended(consumer_entry, code, message)
        for watcher_entry in list(self.watchers.values()):
            if isinstance(watcher_entry, Opening):
                watcher_entry.cancelled = True
            else:
                self.services.topic_lists.unwatch(watcher_entry.namespace, watcher_entry.watcher)
        self.producers.clear()
        self.consumers.clear()
        self.watchers.clear()

    def writable_again(self) -> None:
        """Wakes the watchers and the subscriptions of this connection's consumers: the socket is writable
        again.
        """
        for entry in self.consumers.values():
            if isinstance(entry, OpenConsumer):
                entry.subscription.wake()
        for watcher_entry in self.watchers.values():
            if isinstance(watcher_entry, OpenWatcher):
                watcher_entry.watcher.wake()


def _topic(text: str) -> str:
    """Returns the full name of a topic that a client named; its own words if they are no name."""
    try:
        return TopicName.parse(text).full
    except InvalidName:
        return text


_Described = tuple[ClientKind, _Opened]


def _lookup(command: BaseCommand) -> _Described:
    return ClientKind.LOOKUP, _Opened(_topic(command.lookupTopic.topic))


def _partitions(command: BaseCommand) -> _Described:
    return ClientKind.LOOKUP, _Opened(_topic(command.partitionMetadata.topic))


def _producer(command: BaseCommand) -> _Described:
    producer = command.producer
    return ClientKind.PRODUCER, _Opened(_topic(producer.topic), producer.producer_name)


def _consumer(command: BaseCommand) -> _Described:
    asked = command.subscribe
    return ClientKind.CONSUMER, _Opened(_topic(asked.topic), asked.consumer_name, asked.subscription)


_REFUSABLE: Final[dict[int, Callable[[BaseCommand], _Described]]] = {
    BaseCommand.LOOKUP: _lookup,
    BaseCommand.PARTITIONED_METADATA: _partitions,
    BaseCommand.PRODUCER: _producer,
    BaseCommand.SUBSCRIBE: _consumer,
}
"""Commands whose refusal is recorded, with what they ask for."""
