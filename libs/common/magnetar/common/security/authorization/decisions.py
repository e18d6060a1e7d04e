"""Decisions on what a principal may do: pure functions of its roles, of the configuration and of grants.

Nothing here waits or reads metadata. Both roles of a proxied principal need a right; a caller without a role
has none.
"""

from __future__ import annotations

from dataclasses import dataclass

from magnetar.common.security.authorization.actions import CONSUME, PRODUCE
from magnetar.common.security.authorization.config import AuthorizationConfig
from magnetar.common.security.authorization.grants import NO_GRANTS, Grants
from magnetar.common.security.principal import Principal


@dataclass(frozen=True, slots=True)
class Rights:
    """Everything that is granted concerning one topic, or one namespace, or one tenant."""

    admins: frozenset[str]
    """The roles that administer the tenant."""
    namespace: Grants = NO_GRANTS
    topic: Grants = NO_GRANTS
    """Those of a partition are those of its partitioned topic."""


class Decisions:
    """Decides with one configuration, whose super users may change while the process runs."""

    __slots__ = ("_config", "_configured", "_super_users")

    def __init__(self, config: AuthorizationConfig) -> None:
        self._config = config
        self._configured = config.super_user_roles
        self._super_users = frozenset(config.super_user_roles)

    # One role

    def is_super_user(self, role: str | None) -> bool:
        """Return whether the role may do everything."""
        if self._config.super_user_roles is not self._configured:
            self._configured = self._config.super_user_roles
            self._super_users = frozenset(self._configured)
        return role in self._super_users

    def is_tenant_admin(self, role: str | None, rights: Rights) -> bool:
        """Return whether the role administers the tenant: one of its admins, or a super user."""
        return role is not None and (role in rights.admins or self.is_super_user(role))

    def _allowed(self, role: str | None, rights: Rights, actions: int) -> bool:
        if role is None:
            return False
        return (
            rights.namespace.allow(role, actions)
            or rights.topic.allow(role, actions)
            or role in rights.admins
            or self.is_super_user(role)
        )

    def _consumes(self, role: str | None, rights: Rights, subscription: str) -> bool:
        if self.is_tenant_admin(role, rights):
            return True
        if role is None or (subscription and not rights.namespace.open_subscription(role, subscription)):
            return False
        return rights.namespace.allow(role, CONSUME) or rights.topic.allow(role, CONSUME)

    def _uses(self, role: str | None, rights: Rights, actions: int) -> bool:
        return self.is_tenant_admin(role, rights) or (
            role is not None and rights.namespace.allow(role, actions)
        )

    # Both roles of a principal

    def all_super_users(self, principal: Principal) -> bool:
        """Return whether the principal may do everything."""
        return self.is_super_user(principal.role) and (
            principal.original is None or self.is_super_user(principal.original)
        )

    def administers(self, principal: Principal, rights: Rights) -> bool:
        """Return whether the principal administers the tenant."""
        return self.is_tenant_admin(principal.role, rights) and (
            principal.original is None or self.is_tenant_admin(principal.original, rights)
        )

    def may_produce(self, principal: Principal, rights: Rights) -> bool:
        """Return whether the principal may produce to the topic."""
        return self._allowed(principal.role, rights, PRODUCE) and (
            principal.original is None or self._allowed(principal.original, rights, PRODUCE)
        )

    def may_consume(self, principal: Principal, rights: Rights, subscription: str = "") -> bool:
        """Return whether the principal may consume from the topic, by the subscription if one is given."""
        return self._consumes(principal.role, rights, subscription) and (
            principal.original is None or self._consumes(principal.original, rights, subscription)
        )

    def may_look_up(self, principal: Principal, rights: Rights) -> bool:
        """Return whether the principal may know of the topic: it may produce or consume."""
        return self._allowed(principal.role, rights, PRODUCE | CONSUME) and (
            principal.original is None or self._allowed(principal.original, rights, PRODUCE | CONSUME)
        )

    def may_use_namespace(self, principal: Principal, rights: Rights, actions: int) -> bool:
        """Return whether any of the actions is granted on the namespace as a whole; grants of topics do not
        count.
        """
        return self._uses(principal.role, rights, actions) and (
            principal.original is None or self._uses(principal.original, rights, actions)
        )
