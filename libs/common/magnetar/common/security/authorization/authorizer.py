"""The one place where permissions are checked: loads what is granted, then decides.

Every command of the wire and every route of the admin API asks here before it acts. With authorization off
everything is allowed and nothing is read.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

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

REFUSALS = Counter(
    "magnetar_authorization_refusals_total",
    "Operations that were refused because the caller lacks a right, by the action that it lacks.",
    ["action"],
    registry=REGISTRY,
)

_NO_ROLE = Principal(None)


@dataclass(frozen=True, slots=True)
class Target:
    """What an operation of the admin API is about, as far as its path says."""

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
        if not self._config.enabled or self.decisions.all_super_users(principal or _NO_ROLE):
            return
        try:
            rights = await self._of_topic(topic)
        except NamespaceNotFound as error:
            raise TopicNotFound(f"topic {topic} does not exist: there is no tenant {topic.tenant}") from error
        if not self.decisions.may_look_up(principal or _NO_ROLE, rights):
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
        return await self._may(self.decisions.may_look_up, principal, topic)

    async def may_produce(self, principal: Principal | None, topic: TopicName) -> bool:
        """Return whether the principal may produce to the topic. Raises MetadataError."""
        return await self._may(self.decisions.may_produce, principal, topic)

    async def may_consume(
        self, principal: Principal | None, topic: TopicName, subscription: str = ""
    ) -> bool:
        """Return whether the principal may consume from the topic. Raises MetadataError."""
        return await self._may(
            lambda known, rights: self.decisions.may_consume(known, rights, subscription), principal, topic
        )

    async def may_list(self, principal: Principal | None, namespace: NamespaceName) -> bool:
        """Return whether topics of the namespace may be listed. Raises MetadataError."""
        known = principal or _NO_ROLE
        if self.decisions.all_super_users(known):
            return True
        try:
            rights = await self._rights.of_namespace(namespace)
        except NamespaceNotFound:
            return False
        return self.decisions.may_use_namespace(known, rights, PRODUCE | CONSUME)

    async def _may(
        self,
        decide: Callable[[Principal, Rights], bool],
        principal: Principal | None,
        topic: TopicName,
    ) -> bool:
        known = principal or _NO_ROLE
        rights = self._rights.known(topic)
        if rights is None:
            if self.decisions.all_super_users(known):
                return True  # before anything is read: an operator is let in while metadata is away
            try:
                rights = await self._rights.of_topic(topic)
            except NamespaceNotFound:
                return False
        return decide(known, rights)

    async def _of_topic(self, topic: TopicName) -> Rights:
        return self._rights.known(topic) or await self._rights.of_topic(topic)

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
        if operation is Operation.SUPER_USER:
            return False
        decisions, topic = self.decisions, target.topic
        if operation in _OF_TOPICS:
            assert topic is not None, f"{operation} is for routes with a topic"
            rights = await self._of_topic(topic)
            if operation is Operation.TOPIC_PRODUCE:
                return decisions.may_produce(principal, rights)
            if operation is Operation.TOPIC_CONSUME:
                return decisions.may_consume(principal, rights, target.subscription)
            return decisions.may_look_up(principal, rights)
        namespace = topic.namespace if topic is not None else target.namespace
        if operation in _OF_NAMESPACES:
            assert namespace is not None, f"{operation} is for routes with a namespace"
            actions = CONSUME if operation is Operation.NAMESPACE_CONSUME else PRODUCE | CONSUME
            return decisions.may_use_namespace(principal, await self._rights.of_namespace(namespace), actions)
        tenant = namespace.tenant if namespace is not None else target.tenant
        if not tenant:
            return False  # the request names no tenant, so there is none that the caller administers
        return decisions.administers(principal, await self._rights.of_tenant(tenant))


_OF_TOPICS = frozenset({Operation.TOPIC_PRODUCE, Operation.TOPIC_CONSUME, Operation.TOPIC_LOOKUP})
_OF_NAMESPACES = frozenset({Operation.NAMESPACE_USE, Operation.NAMESPACE_CONSUME})


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
