"""The one place where permissions are checked: loads what is granted, then decides.

Every command of the wire and every route of the admin API asks here before it acts. With authorization off
everything is allowed and nothing is read.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from typing import Final, Protocol

from magnetar.common.errors import NamespaceNotFound, TopicNotFound, Unauthorized
from magnetar.common.metadata.keys import Keys
from magnetar.common.metadata.store import MetadataStore
from magnetar.common.naming.namespace_name import NamespaceName
from magnetar.common.naming.topic_name import TopicName
from magnetar.common.obs.metrics import REGISTRY
from magnetar.common.security.audit import audit
from magnetar.common.security.authorization.actions import CONSUME, PRODUCE
from magnetar.common.security.authorization.config import AuthorizationConfig
from magnetar.common.security.authorization.decisions import Decisions, Rights
from magnetar.common.security.authorization.operations import Operation
from magnetar.common.security.authorization.rights_cache import RightsCache, Scope
from magnetar.common.security.principal import Principal
from prometheus_client import Counter

REFUSALS: Final = Counter(
    "magnetar_authorization_refusals_total",
    "Operations that were refused because the caller lacks a right, by the action that it lacks.",
    ["action"],
    registry=REGISTRY,
)

FRESH_READS_PER_SECOND_MAX: Final = 200
"""Refusals in a second that are decided again on what metadata says at that moment."""

_NO_ROLE: Final = Principal(None)

_Decide = Callable[[Principal, Rights], bool]


class _Read(Protocol):
    def __call__(self, *, fresh: bool) -> Awaitable[Rights]: ...


@dataclass(frozen=True, slots=True)
class Target:
    """The object of an operation of the admin API, as far as its path says."""

    tenant: str | None = None
    namespace: NamespaceName | None = None
    topic: TopicName | None = None
    subscription: str = ""

    def __str__(self) -> str:
        return str(self.topic or self.namespace or self.tenant or "the cluster")


class Authorizer:
    """Checks what principals may do. Use: `start`, then `close`.

    Each check raises Unauthorized, which names the missing right, and MetadataError when the grants are not
    known and cannot be read. `principal` is None without authentication: it has no right then.
    """

    def __init__(self, config: AuthorizationConfig, metadata: MetadataStore, keys: Keys) -> None:
        """`metadata` stays the caller's to close."""
        self._config = config
        self._rights = RightsCache(metadata, keys, wildcards=config.wildcards)
        self._fresh_reads = _FreshReads()
        self.decisions = Decisions(config)

    @property
    def enabled(self) -> bool:
        """Whether anything is checked at all."""
        return self._config.enabled

    @property
    def generation(self) -> int:
        """Goes up with each change of grants: what was allowed before may be refused now."""
        return self._rights.generation

    def start(self, changed: Callable[[Scope], None] = lambda scope: None) -> None:
        """Follow grants until `close`; `changed` is called for each change. Does nothing when not enabled."""
        if self.enabled:
            self._rights.start(changed)

    def settings_changed(self) -> None:
        """Have everything decided again: the super users may be others now."""
        if self.enabled:
            self._rights.everything_changed()

    async def close(self) -> None:
        """Follow no more; idempotent."""
        await self._rights.close()

    # Commands of the wire

    async def check_lookup(self, principal: Principal | None, topic: TopicName) -> None:
        """Check that the topic may be looked up: produce or consume."""
        if self._config.enabled and not await self.may_look_up(principal, topic):
            raise refused(principal, "look up", str(topic), "lookup", Operation.TOPIC_LOOKUP.needs)

    async def check_partitions(self, principal: Principal | None, topic: TopicName) -> None:
        """Check that the number of partitions may be asked for: produce or consume.

        Raises TopicNotFound when there is no such tenant.
        """
        try:
            if not self._config.enabled or await self._may(self.decisions.may_look_up, principal, topic):
                return
        except NamespaceNotFound as error:
            raise TopicNotFound(f"topic {topic} does not exist: there is no tenant {topic.tenant}") from error
        raise refused(principal, "look up", str(topic), "lookup", Operation.TOPIC_LOOKUP.needs)

    async def check_produce(self, principal: Principal | None, topic: TopicName) -> None:
        """Check that the principal may produce to the topic."""
        if self._config.enabled and not await self.may_produce(principal, topic):
            raise refused(principal, "produce to", str(topic), "produce", Operation.TOPIC_PRODUCE.needs)

    async def check_consume(
        self, principal: Principal | None, topic: TopicName, subscription: str = ""
    ) -> None:
        """Check that the principal may consume from the topic, by the subscription if one is given."""
        if self._config.enabled and not await self.may_consume(principal, topic, subscription):
            raise refused(
                principal, "consume from", str(topic), "consume", Operation.TOPIC_CONSUME.needs, subscription
            )

    async def check_list(self, principal: Principal | None, namespace: NamespaceName) -> None:
        """Check that the topics of the namespace may be listed: produce or consume on the namespace."""
        if self._config.enabled and not await self.may_list(principal, namespace):
            raise refused(
                principal, "list topics of", str(namespace), "lookup", Operation.NAMESPACE_USE.needs
            )

    # The same as questions

    async def may_look_up(self, principal: Principal | None, topic: TopicName) -> bool:
        """Return whether the topic may be looked up. Raises MetadataError."""
        return await self._may_in_a_tenant(self.decisions.may_look_up, principal, topic)

    async def may_produce(self, principal: Principal | None, topic: TopicName) -> bool:
        """Return whether the principal may produce to the topic. Raises MetadataError."""
        return await self._may_in_a_tenant(self.decisions.may_produce, principal, topic)

    async def may_consume(
        self, principal: Principal | None, topic: TopicName, subscription: str = ""
    ) -> bool:
        """Return whether the principal may consume from the topic. Raises MetadataError."""
        return await self._may_in_a_tenant(
            lambda known, rights: self.decisions.may_consume(known, rights, subscription), principal, topic
        )

    async def may_list(self, principal: Principal | None, namespace: NamespaceName) -> bool:
        """Return whether topics of the namespace may be listed. Raises MetadataError."""
        known = principal or _NO_ROLE
        try:
            return self.decisions.all_super_users(known) or await self._decided(
                lambda rights: self.decisions.may_use_namespace(known, rights, PRODUCE | CONSUME),
                partial(self._rights.of_namespace, namespace),
            )
        except NamespaceNotFound:
            return False

    async def _may_in_a_tenant(self, decide: _Decide, principal: Principal | None, topic: TopicName) -> bool:
        try:
            return await self._may(decide, principal, topic)
        except NamespaceNotFound:
            return False

    async def _may(self, decide: _Decide, principal: Principal | None, topic: TopicName) -> bool:
        known = principal or _NO_ROLE
        rights = self._rights.known(topic)
        if rights is not None and decide(known, rights):
            return True
        if self.decisions.all_super_users(known):
            return True  # before anything is read: operators are let in while metadata is away
        return await self._decided(
            lambda rights: decide(known, rights), partial(self._rights.of_topic, topic)
        )

    async def _decided(self, decide: Callable[[Rights], bool], read: _Read) -> bool:
        """Decide on what is known; a refusal is decided again on what is read now.

        Watches bring a grant a moment after it was made, and it holds from the next request on.
        """
        if decide(await read(fresh=False)):
            return True
        return self._fresh_reads.take() and decide(await read(fresh=True))

    # The admin API

    async def check_operation(
        self, principal: Principal | None, operation: Operation, target: Target
    ) -> None:
        """Check an operation of the admin API. Raises NamespaceNotFound when there is no such tenant."""
        if not self._config.enabled or operation is Operation.OPEN:
            return
        if not await self._passes(principal, operation, target):
            raise refused(
                principal,
                f"do this ({operation.name.lower()}) on",
                str(target),
                operation.name.lower(),
                operation.needs,
                target.subscription,
            )

    async def _passes(self, principal: Principal | None, operation: Operation, target: Target) -> bool:
        if principal is None or principal.role is None:
            return False
        if operation is Operation.ANY or self.decisions.all_super_users(principal):
            return True
        named = target.topic or target.namespace or target.tenant
        if operation is Operation.SUPER_USER or not named:
            return False  # also where the request names no tenant: there is none that the caller administers
        return await self._decided(*self._question(principal, operation, target))

    def _question(
        self, principal: Principal, operation: Operation, target: Target
    ) -> tuple[Callable[[Rights], bool], _Read]:
        """Return the decision of an operation and what it is made on."""
        decisions, topic = self.decisions, target.topic
        if operation in _OF_TOPICS:
            assert topic is not None, f"{operation} is for routes with a topic"
            read: _Read = partial(self._rights.of_topic, topic)
            if operation is Operation.TOPIC_PRODUCE:
                return partial(decisions.may_produce, principal), read
            if operation is Operation.TOPIC_CONSUME:
                by = target.subscription
                return (lambda rights: decisions.may_consume(principal, rights, by)), read
            return partial(decisions.may_look_up, principal), read
        namespace = topic.namespace if topic is not None else target.namespace
        if operation in _OF_NAMESPACES:
            assert namespace is not None, f"{operation} is for routes with a namespace"
            actions = CONSUME if operation is Operation.NAMESPACE_CONSUME else PRODUCE | CONSUME
            return (lambda rights: decisions.may_use_namespace(principal, rights, actions)), partial(
                self._rights.of_namespace, namespace
            )
        tenant = namespace.tenant if namespace is not None else target.tenant
        assert tenant, f"{operation} is for routes with a tenant"
        return partial(decisions.administers, principal), partial(self._rights.of_tenant, tenant)


class _FreshReads:
    """Bounds how often refusals are decided again: who is refused could cause reads at will."""

    __slots__ = ("_left", "_second")

    def __init__(self) -> None:
        self._second = -1
        self._left = 0

    def take(self) -> bool:
        """Return whether one more is allowed in this second."""
        second = int(time.monotonic())
        if second != self._second:
            self._second, self._left = second, FRESH_READS_PER_SECOND_MAX
        self._left -= 1
        return self._left >= 0


_OF_TOPICS: Final = frozenset({Operation.TOPIC_PRODUCE, Operation.TOPIC_CONSUME, Operation.TOPIC_LOOKUP})
_OF_NAMESPACES: Final = frozenset({Operation.NAMESPACE_USE, Operation.NAMESPACE_CONSUME})


def refused(
    principal: Principal | None, what: str, resource: str, action: str, needs: str, subscription: str = ""
) -> Unauthorized:
    """Count and audit a refusal; return the error, which names the missing right."""
    REFUSALS.labels(action).inc()
    known = principal or _NO_ROLE
    audit(
        "authorization refused",
        principal=known,
        resource=resource,
        action=action,
        outcome="refused",
        needs=needs,
        subscription=subscription or None,
    )
    by = f" by subscription {subscription!r}" if subscription else ""
    return Unauthorized(f"{known} may not {what} {resource}{by}: this needs {needs}")
