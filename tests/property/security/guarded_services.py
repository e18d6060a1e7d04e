"""Services behind a connection that hold nothing, and note what reaches them without the right to it."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, cast

from magnetar.broker.config import BrokerConfig
from magnetar.broker.handlers.client import Services
from magnetar.broker.schemas.rules import SchemaRules
from magnetar.broker.transaction_config import TransactionConfig
from magnetar.broker.transactions.participants import EndOutcome, EndResult
from magnetar.common.metadata.store import Versioned
from magnetar.common.naming.namespace_name import NamespaceName
from magnetar.common.naming.topic_name import TopicName
from magnetar.common.naming.txn_id import TxnId
from magnetar.common.schemas.rules import Strategy
from magnetar.common.security.authentication.authenticator import Authenticator
from magnetar.common.security.authentication.config import AuthenticationConfig
from magnetar.common.security.authentication.provider import Refusal
from magnetar.common.security.authentication.tls import TlsProvider
from magnetar.common.security.authorization.authorizer import Authorizer
from magnetar.common.security.identity import Credential, Identity
from magnetar.common.wire import pulsar_pb2 as pb

from tests.property.security.rights import ANYONE, CONFIG, KEYS, PROXIES, TOKENS, Lists, Roles, may, metadata
from tests.unit.broker.handlers.bare_services import bare_services


@dataclass
class Guard:
    """Judges what reaches the services of one connection."""

    roles: Roles | None = None
    """The roles of its client by the model; None as long as none may reach anything."""
    reached: Counter[str] = field(default_factory=Counter)
    breaches: list[str] = field(default_factory=list)

    def reach(self, need: str, namespace: NamespaceName, subscription: str = "") -> None:
        self.reached[need] += 1
        roles = [] if self.roles is None else [role for role in self.roles if role is not None]
        if not roles or not all(may(role, need, str(namespace), subscription) for role in roles):
            self.breaches.append(f"{self.roles} reached {need} of {namespace} {subscription}")


class Tokens:
    """Accepts the tokens of the model, after a turn of the event loop."""

    name, method = "AuthenticationProviderToken", "token"

    def __init__(self, lists: Lists) -> None:
        self._lists = lists

    async def authenticate(self, credential: Credential, address: str) -> Identity:
        await asyncio.sleep(0)
        role = self._lists.role(credential.data)
        if role is None:
            raise Refusal("signature", "not one of the accepted tokens")
        return Identity(role, "token", TOKENS[credential.data][1], credential.data.decode(), self.name)

    def is_valid(self, identity: Identity) -> bool:
        return identity.key.encode() not in self._lists.revoked

    async def reload(self) -> bool:
        return False

    async def close(self) -> None:
        """Nothing is held."""


def authenticator_of(lists: Lists, *, anonymous: bool) -> Authenticator:
    return Authenticator(
        (Tokens(lists), TlsProvider()),
        anonymous_role=ANYONE if anonymous else "",
        monotonic=lambda: lists.now,
        failure_delay_s=0,
    )


class Grants:
    """Metadata with the grants of the model; each read takes a turn of the event loop."""

    def __init__(self) -> None:
        self._values = metadata()

    async def get(self, key: str) -> Versioned | None:
        await asyncio.sleep(0)
        value = self._values.get(key)
        return None if value is None else Versioned(key, value, 1)


def authorizer() -> Authorizer:
    return Authorizer(CONFIG, cast(Any, Grants()), KEYS)


class Subscription:
    """A subscription that holds nothing."""

    individual = False
    type = pb.CommandSubscribe.Shared

    def __init__(self, guard: Guard, topic: TopicName, name: str) -> None:
        self._guard, self._topic, self.name = guard, topic, name
        self.stats = SimpleNamespace(expired_rate=0.0)

    def reach(self, *_: object) -> int:
        self._guard.reach("consume", self._topic.namespace, self.name)
        return 0

    ack_many = ack_cumulative = ack_batch = ack_in_transaction = add_permits = redeliver = backlog = reach

    def when_persisted(self, told: Any) -> None:
        self.reach()
        told(None)

    def wake(self) -> None:
        """The connection can be written to again."""


class Consumer:
    """A consumer without messages."""

    def __init__(self, consumer_id: int) -> None:
        self.consumer_id, self.name, self.permits, self.connected_since_ms = consumer_id, "c", 0, 0
        self.blocked_on_unacked = False
        self.pending = SimpleNamespace(messages=0)
        self.on_detached: Any = None
        rates = ("message_rate_out", "byte_rate_out", "redelivery_rate", "ack_rate")
        self.stats = SimpleNamespace(**dict.fromkeys(rates, 0.0))

    def noted_flow(self) -> None: ...

    noted_ack = noted_flow


class Subscriptions:
    """The subscriptions of a topic."""

    def __init__(self, guard: Guard, topic: TopicName) -> None:
        self._guard, self._topic = guard, topic

    async def subscribe(self, request: Any) -> tuple[Subscription, Consumer]:
        self._guard.reach("consume", self._topic.namespace, request.subscription)
        await asyncio.sleep(0)
        found = Subscription(self._guard, self._topic, request.subscription)
        return found, Consumer(request.options.consumer_id)

    async def create(self, name: str) -> None:
        self._guard.reach("consume", self._topic.namespace, name)

    async def unsubscribe(self, subscription: Subscription, *_: object, force: bool) -> None:
        subscription.reach()

    async def seek(self, subscription: Subscription, *_: object) -> None:
        subscription.reach()

    seek_time = seek

    def mark_delete_position(self, subscription: Subscription) -> None:
        subscription.reach()


class Topic:
    """A topic that holds nothing."""

    def __init__(self, guard: Guard, name: TopicName) -> None:
        self._guard, self.name = guard, name
        self.subscriptions = Subscriptions(guard, name)
        self.publishing = SimpleNamespace(
            deduplicates=False, last_sequence_id=lambda _: -1, publish=self._produce
        )
        self.refusals = SimpleNamespace(refuse=self._produce)
        self.producers = SimpleNamespace(remove=lambda _: None, topic_epoch=0, present=False)
        self.policies = SimpleNamespace(schemas=SchemaRules())
        self.storage_bytes = 1

    def _produce(self, *_: object) -> None:
        self._guard.reach("produce", self.name.namespace)

    async def add_producer(self, *_: object) -> None:
        self._produce()
        await asyncio.sleep(0)

    async def last_message_id(self) -> tuple[tuple[int, int], int]:
        self._guard.reach("look up", self.name.namespace)
        return (0, 0), -1

    async def messages_of(self, _: object) -> int:
        self._guard.reach("look up", self.name.namespace)
        return 10

    def remove_consumer(self, *_: object) -> None:
        """The consumer is gone."""


class Topics:
    """Every part of the broker by which a command may reach a topic."""

    def __init__(self, guard: Guard) -> None:
        self._guard = guard

    async def get(self, name: TopicName, *_: object, create: bool = False) -> Any:
        await self._look_up(name)
        return Topic(self._guard, name)

    async def list(self, namespace: NamespaceName, *, persistent: bool = True) -> list[str]:
        self._guard.reach("list", namespace)
        await asyncio.sleep(0)
        return []

    non_persistent = list

    async def watch(self, namespace: NamespaceName, *_: object) -> Any:
        await self.list(namespace)
        return SimpleNamespace(begin=lambda: ([], "hash"), wake=lambda: None)

    def unwatch(self, *_: object) -> None:
        """The watcher is gone."""

    async def ask(self, name: TopicName, *, create: bool) -> int:
        await self._look_up(name)
        return 0

    async def where(self, name: TopicName, listener: str) -> Any:
        await self._look_up(name)
        return SimpleNamespace(broker_url="pulsar://b:1", broker_url_tls="")

    async def _look_up(self, name: TopicName) -> None:
        self._guard.reach("look up", name.namespace)
        await asyncio.sleep(0)


class Schemas:
    """Schemas of topics."""

    def __init__(self, guard: Guard) -> None:
        self._guard = guard

    async def get(self, name: TopicName, version: bytes) -> None:
        self._guard.reach("look up", name.namespace)

    async def put(self, name: TopicName, schema: object, rules: SchemaRules) -> bytes:
        self._guard.reach("look up", name.namespace)
        return b"1"

    async def check_reader(self, name: TopicName, schema: object, strategy: Strategy) -> None:
        self._guard.reach("look up", name.namespace)


class Coordinators:
    """Coordinators and topics that end any transaction, of any role."""

    def __init__(self, guard: Guard) -> None:
        self._guard = guard

    async def connect(self, tc_id: int) -> None:
        await asyncio.sleep(0)

    async def of(self, tc_id: int) -> Coordinators:
        await asyncio.sleep(0)
        return self

    async def begin(self, ttl_ms: int, owner: str) -> TxnId:
        return TxnId(0, 0)

    async def add_partitions(self, txn: TxnId, topics: Sequence[str], caller: str | None) -> None:
        for topic in topics:
            self._guard.reach("produce", TopicName.parse(topic).namespace)

    async def add_subscriptions(
        self, txn: TxnId, subscriptions: Sequence[tuple[str, str]], caller: str | None
    ) -> None:
        for topic, name in subscriptions:
            self._guard.reach("consume", TopicName.parse(topic).namespace, name)

    async def end(self, *request: Any) -> list[EndResult]:
        if len(request) == 1:  # in topics, for super users: they may do whatever their commands need
            for each in request[0]:
                self._guard.reach("produce", TopicName.parse(each.topic).namespace)
                self._guard.reach("consume", TopicName.parse(each.topic).namespace)
        return [EndResult(EndOutcome.DONE)]


def guarded_services(
    guard: Guard, lists: Lists, spawn: Any, *, anonymous: bool, original_auth_data: bool
) -> Services:
    """Return the services of a broker with authentication and authorization."""
    clock = SimpleNamespace(monotonic=lambda: lists.now, wall_ms=lambda: int(lists.now * 1000))
    budget = SimpleNamespace(forget=lambda _: None, add_output=lambda _: None, spent=False)
    services = bare_services(clock, spawn=spawn, budget=budget)
    services.config = BrokerConfig(
        authentication=AuthenticationConfig(enabled=True, original_auth_data=original_auth_data),
        transactions=TransactionConfig(enabled=True),
    )
    coordinators = Coordinators(guard)
    services.transactions = cast(Any, SimpleNamespace(coordinators=coordinators, topics=coordinators))
    topics: Any = Topics(guard)
    services.topics = services.partitioned = services.topic_lists = services.ownership = topics
    services.schemas = cast(Any, Schemas(guard))
    services.producer_names = cast(Any, SimpleNamespace(next=lambda: "p"))
    services.authorizer = authorizer()
    services.authenticator = authenticator_of(lists, anonymous=anonymous)
    services.proxy_roles = PROXIES
    return services
