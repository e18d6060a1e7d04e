"""Configuration of authorization. Keys and defaults are Pulsar's."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from magnetar.common.config.settings import setting

PROVIDER: Final = "org.apache.pulsar.broker.authorization.PulsarAuthorizationProvider"
"""The one provider: grants of namespaces, topics and subscriptions, kept with their policies."""

SUPER_USERS_KEY: Final = "superUserRoles"
"""The key of the setting that can change while brokers run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AuthorizationConfig:
    """Configures whether rights are checked, and roles that have rights without a grant."""

    enabled: bool = setting(
        False,
        "Check what each role may do. Needs authenticationEnabled.",
        key="authorizationEnabled",
    )
    provider: str = setting(
        PROVIDER,
        "What decides; no other value is supported.",
        key="authorizationProvider",
        choices=(PROVIDER,),
    )
    super_user_roles: tuple[str, ...] = setting(
        (), "Roles that may do everything. Names have no wildcards.", key=SUPER_USERS_KEY
    )
    proxy_roles: tuple[str, ...] = setting(
        (),
        "Roles of proxies: they act on behalf of another role, and both need the right.",
        key="proxyRoles",
    )
    wildcards: bool = setting(
        False,
        "A granted role that begins or ends with * stands for every role with the rest as its end or "
        "beginning.",
        key="authorizationAllowWildcardsMatching",
    )


def authorization_problems(authentication_enabled: bool, config: AuthorizationConfig) -> list[str]:
    """Return why a service must not start with this configuration; empty when it may."""
    problems = []
    if config.enabled and not authentication_enabled:
        problems.append(
            "authorizationEnabled = true needs authenticationEnabled = true: without authentication no "
            "client has a role, so each would be refused"
        )
    if config.enabled:
        problems += [
            f"{key} has the role {role!r}: wildcards are for grants, here roles are named one by one"
            for key, roles in (
                (SUPER_USERS_KEY, config.super_user_roles),
                ("proxyRoles", config.proxy_roles),
            )
            for role in roles
            if role == "*"
        ]
    return problems
