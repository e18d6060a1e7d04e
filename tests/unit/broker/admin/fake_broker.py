"""A broker for the HTTP edge: plain values behind the protocol `BrokerView`."""

from __future__ import annotations

import json
import socket
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import aiohttp
from magnetar.broker.admin.edge.server import HttpEdge
from magnetar.broker.admin.table import routes
from magnetar.broker.bookie_racks import BookieRacks
from magnetar.broker.client_endings import ClientEndings
from magnetar.broker.clusters import Clusters
from magnetar.broker.config import BrokerConfig
from magnetar.broker.dynamic_config import DynamicConfig
from magnetar.broker.handlers.client import Client
from magnetar.broker.namespaces import Namespaces
from magnetar.broker.policies.effective_policies import EffectivePolicies, NamespacePolicies
from magnetar.broker.policies.policy_store import PolicyStore
from magnetar.broker.policies.policy_writer import PolicyWriter
from magnetar.broker.resource_quotas import ResourceQuotas
from magnetar.broker.schemas.schema_store import SchemaStore
from magnetar.broker.service_urls import ServiceUrls
from magnetar.broker.stats import SubscriptionStats, TopicStats
from magnetar.broker.tenancy import Tenancy
from magnetar.broker.topics.compaction_state import NEVER_COMPACTED, CompactionState
from magnetar.broker.topics.transaction_figures import NO_TRANSACTIONS, TransactionFigures
from magnetar.common.metadata.keys import Keys
from magnetar.common.metadata.sqlite_store import SqliteMetadataStore
from magnetar.common.metadata.values import Namespace, PartitionedTopic, Tenant, encode
from magnetar.common.naming.namespace_name import NamespaceName
from magnetar.common.naming.topic_name import TopicName
from magnetar.common.runtime.clock import SystemClock
from magnetar.common.security.authentication.authenticator import Authenticator
from magnetar.common.security.authorization.authorizer import Authorizer
from magnetar.common.security.authorization.config import AuthorizationConfig
from magnetar.ledger.managed_ledger.config import ManagedLedgerConfig
from magnetar.ledger.managed_ledger.entry_cache import EntryCache
from yarl import URL

KEYS = Keys("standalone")
BROKER_URL = "pulsar://localhost:6650"
HTTP_URL = "http://localhost:8080"


@dataclass
class FakeSubscription:
    stats: SubscriptionStats = field(default_factory=SubscriptionStats)
    consumer_count: int = 0
    unacked_messages: int = 0
    entries_behind: int = 0
    blocked_on_unacked: bool = False
    delayed: int = 0
    acks_at_risk: int = 0
    mark_deleted_ms: int = 0
    in_replay: int = 0
    consumers: list[Any] = field(default_factory=list)

    def backlog(self) -> int:
        return self.entries_behind


@dataclass
class FakeTopic:
    name: TopicName
    stats: TopicStats = field(default_factory=TopicStats)
    producer_count: int = 0
    times_rate_limited: int = 0
    storage_bytes: int = 0
    copies: int = 1
    storage_entries: int = 0
    offloaded_bytes: int = 0
    compaction: CompactionState = NEVER_COMPACTED
    transactions: TransactionFigures = NO_TRANSACTIONS
    blocked_by_transaction_s: float = 0.0
    compacted_entries: int = 0
    compacted_bytes: int = 0
    backlog_bytes: int = 0
    oldest_backlog_age_s: int = -1
    delayed_index_bytes: int = 0
    producers: dict[str, Any] = field(default_factory=dict)
    subscriptions: dict[str, FakeSubscription] = field(default_factory=dict)
    compacting: FakeSubscription | None = None

    def compaction_subscription(self) -> FakeSubscription | None:
        return self.compacting


def authorizer() -> Authorizer:
    """Allows everything: authorization is off, and nothing is read."""
    return Authorizer(AuthorizationConfig(), cast(Any, None), Keys("standalone"))


@dataclass
class FakeBroker:
    namespaces: Namespaces
    config: BrokerConfig = field(default_factory=BrokerConfig)
    authenticator: Authenticator | None = None
    proxy_roles: frozenset[str] | None = None
    topics: dict[str, FakeTopic] = field(default_factory=dict)
    unloaded: list[str] = field(default_factory=list)
    partition_counts: dict[str, int] = field(default_factory=dict)
    connections: int = 0
    connections_accepted: int = 0
    not_ready: str | None = None
    leaving: str | None = None
    cannot_store: str | None = None
    ill: Exception | None = None
    """The result of a health check."""
    authorizer: Any = field(default_factory=lambda: authorizer())
    registry: Any = None
    partitioned: Any = None
    policies: Any = None
    compactions: Any = None
    client_endings: ClientEndings = field(default_factory=ClientEndings)
    policy_writer: Any = None
    tenancy: Any = None
    deletions: Any = None
    orphans: Any = None
    sweep: Any = None
    ledgers: Any = None
    schemas: Any = None
    clusters: Any = None
    bookie_racks: Any = None
    resource_quotas: Any = None
    dynamic_config: Any = None
    cluster: Any = None
    bundle_moves: Any = None
    load_leader: Any = None
    coordinators: Any = None
    topics_elsewhere: Any = None
    metadata_url: str = "sqlite:data/metadata.sqlite"
    started_ms: int = 1_600_000_000_000
    quota_checks: int = 0
    stops: int | None = 0
    urls: ServiceUrls = field(default_factory=lambda: ServiceUrls(BROKER_URL, HTTP_URL))

    def clients(self) -> Iterator[Client]:
        return iter(())

    def load(self, name: str) -> FakeTopic:
        topic = self.topics[TopicName.parse(name).full] = FakeTopic(TopicName.parse(name))
        return topic

    async def check_health(self) -> None:
        if self.ill is not None:
            raise self.ill

    async def check_backlog_quotas(self) -> None:
        self.quota_checks += 1

    def shut_down(self) -> bool:
        if self.stops is None:
            return False
        self.stops += 1
        return True

    async def list_topics(self, namespace: NamespaceName, persistent: bool) -> list[str]:
        names = [TopicName.parse(name) for name in [*self.topics, *self.unloaded]]
        return [name.full for name in names if name.namespace == namespace and name.persistent == persistent]

    async def partitions(self, topic: TopicName) -> int:
        return self.partition_counts.get(topic.full, 0)

    async def lookup(self, topic: TopicName, listener: str = "") -> ServiceUrls:
        return self.urls.of_listener(listener)


@dataclass
class Policies:
    """Follows the configuration that the fake broker has at the moment."""

    broker: FakeBroker
    store: SqliteMetadataStore

    def wrote(self, namespace: NamespaceName | None, topic: TopicName | None) -> None:
        """Nothing is kept that could be stale."""

    async def of_namespace(self, namespace: NamespaceName) -> NamespacePolicies:
        return await PolicyStore(self.broker.config, self.store, KEYS).of_namespace(namespace)

    async def of_topic(self, topic: TopicName) -> EffectivePolicies:
        return await PolicyStore(self.broker.config, self.store, KEYS).of_topic(topic)


@dataclass
class Partitions:
    """Partitioned topics in metadata."""

    broker: FakeBroker

    async def get(self, topic: TopicName) -> PartitionedTopic | None:
        count = await self.broker.partitions(topic)
        return PartitionedTopic(partitions=count) if count else None


class Registry:
    """No loaded topic has policies that could be stale."""

    async def policies_applied(self, seconds_max: float) -> None:
        pass


@dataclass(frozen=True)
class Ledgers:
    """The storage, as far as metadata."""

    metadata: SqliteMetadataStore
    keys: Keys = KEYS
    cache: EntryCache = field(default_factory=lambda: EntryCache(0))
    clock: SystemClock = field(default_factory=SystemClock)
    config: ManagedLedgerConfig = field(default_factory=ManagedLedgerConfig)


@dataclass
class Http:
    """Asks a served `FakeBroker`; paths go out as they are written, percent signs and all."""

    broker: FakeBroker
    store: SqliteMetadataStore
    client: aiohttp.ClientSession
    base: str
    root: str = "/admin/v2"
    """The beginning of the paths of `send`, `ask` and `reason`."""

    async def get(self, path: str, method: str = "GET") -> tuple[int, str]:
        async with self.client.request(method, URL(f"{self.base}{path}", encoded=True)) as response:
            return response.status, await response.text()

    async def send(self, method: str, path: str, body: object = None) -> tuple[int, str]:
        """Status and text of a call with a JSON body; bytes go out as they are."""
        data = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
        url = URL(f"{self.base}{self.root}{path}", encoded=True)
        headers = {"Content-Type": "application/json"}
        request = self.client.request(method, url, data=data, headers=headers, allow_redirects=False)
        async with request as response:
            return response.status, await response.text()

    async def ask(self, path: str) -> Any:
        """The JSON of an answer with status 200."""
        status, text = await self.send("GET", path)
        assert status == 200, (path, status, text)
        return json.loads(text)

    async def reason(self, status: int, method: str, path: str, body: object = None) -> str:
        """Why a call was refused, with this status."""
        found, text = await self.send(method, path, body)
        assert found == status, (method, path, found, text)
        return str(json.loads(text)["reason"])

    async def json(self, path: str, method: str = "GET", body: object = None) -> Any:
        url = URL(f"{self.base}{path}", encoded=True)
        async with self.client.request(method, url, json=body) as response:
            if response.status == 204:
                return 204, None
            assert response.content_type == "application/json"
            return response.status, await response.json()

    async def add_namespace(self, text: str) -> None:
        name = NamespaceName.parse(text)
        await self.store.put(KEYS.tenant(name.tenant), encode(Tenant()))
        await self.store.put(KEYS.namespace(name), encode(Namespace(bundle_count=4)))


async def serve(tmp_path: Path, body: Callable[[Http], Awaitable[None]]) -> None:
    """Run `body` against a served broker that has had its first start and also has acme/demo."""
    store = await SqliteMetadataStore.open(tmp_path / "metadata.sqlite")
    namespaces = Namespaces(store, KEYS)
    await namespaces.ensure_defaults("standalone")
    broker = FakeBroker(namespaces)
    broker.policies = Policies(broker, store)
    broker.partitioned = Partitions(broker)
    broker.policy_writer = PolicyWriter(store, KEYS)
    broker.tenancy = Tenancy(store, KEYS, SystemClock())
    broker.schemas = SchemaStore(store, KEYS)
    broker.clusters = Clusters(store, KEYS, "standalone", SystemClock())
    broker.bookie_racks = BookieRacks(store, KEYS)
    broker.resource_quotas = ResourceQuotas(store, KEYS)
    broker.dynamic_config = DynamicConfig(broker.config, store, KEYS)
    broker.registry = Registry()
    broker.ledgers = Ledgers(store)
    edge = HttpEdge(broker, routes(broker))
    listening = socket.create_server(("127.0.0.1", 0))
    await edge.start(listening)
    port = listening.getsockname()[1]
    try:
        async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=30)) as client:
            http = Http(broker, store, client, f"http://127.0.0.1:{port}")
            await http.add_namespace("acme/demo")
            await body(http)
    finally:
        await edge.close()
        listening.close()
        await store.close()
