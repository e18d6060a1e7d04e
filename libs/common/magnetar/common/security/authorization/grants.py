"""The grants of one namespace or topic, compiled from its policies so that a decision looks up and compares.

Grants are immutable: changed policies are compiled anew.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from magnetar.common.metadata.values import Policies
from magnetar.common.security.authorization.actions import actions_mask

PREFIX_MODE: Final = "Prefix"
"""The `subscription_auth_mode` in which a subscription's name begins with the role of its consumers."""


@dataclass(frozen=True, slots=True)
class Grants:
    """Actions by role. Equal grants allow the same."""

    by_role: Mapping[str, int] = field(default_factory=dict)
    """Actions as bits (`actions`), by the exact name of a role."""
    prefixes: tuple[tuple[str, int], ...] = ()
    """Actions of all roles that begin with a text."""
    suffixes: tuple[tuple[str, int], ...] = ()
    """Actions of all roles that end with a text."""
    subscription_roles: Mapping[str, frozenset[str]] = field(default_factory=dict)
    """The roles that may use a subscription; a subscription that is not here is open to every consumer."""
    prefix_mode: bool = False
    """Whether a subscription's name must begin with its consumer's role."""

    def allow(self, role: str, actions: int) -> bool:
        """Return whether the role is granted any of these actions."""
        if self.by_role.get(role, 0) & actions:
            return True
        if self.prefixes or self.suffixes:
            return self._wildcards_allow(role, actions)
        return False

    def _wildcards_allow(self, role: str, actions: int) -> bool:
        return any(granted & actions and role.startswith(text) for text, granted in self.prefixes) or any(
            granted & actions and role.endswith(text) for text, granted in self.suffixes
        )

    def open_subscription(self, role: str, subscription: str) -> bool:
        """Return whether the subscription's own rules let this role use it, if it may consume at all."""
        roles = self.subscription_roles.get(subscription)
        if roles is not None and role not in roles:
            return False
        return not self.prefix_mode or subscription.startswith(role)


NO_GRANTS: Final = Grants()


def compile_grants(policies: Policies, *, wildcards: bool) -> Grants:
    """Compile the grants of a namespace or of a topic."""
    by_role = {role: actions_mask(actions.names) for role, actions in policies.permissions.items()}
    roles = {name: frozenset(each.names) for name, each in policies.subscription_roles.items() if each.names}
    prefix_mode = policies.subscription_auth_mode == PREFIX_MODE
    if not by_role and not roles and not prefix_mode:
        return NO_GRANTS
    prefixes: tuple[tuple[str, int], ...] = ()
    suffixes: tuple[tuple[str, int], ...] = ()
    if wildcards:
        prefixes = tuple((role[:-1], mask) for role, mask in sorted(by_role.items()) if role.endswith("*"))
        suffixes = tuple((role[1:], mask) for role, mask in sorted(by_role.items()) if role.startswith("*"))
    return Grants(by_role, prefixes, suffixes, roles, prefix_mode)
