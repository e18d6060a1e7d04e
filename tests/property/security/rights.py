"""Roles, credentials and grants of the state machines, and a plain model of what each role may do.

The model is written apart from the code: nested ifs over literal tables.
"""

from __future__ import annotations

import ssl
from dataclasses import dataclass
from functools import cache
from typing import Final

from magnetar.common.metadata.keys import Keys
from magnetar.common.metadata.values import Namespace, Tenant, encode
from magnetar.common.naming.namespace_name import NamespaceName
from magnetar.common.security.authorization.config import AuthorizationConfig
from magnetar.common.security.certificates import Authority

KEYS: Final = Keys("standalone")

ANYONE: Final = "anyone"
"""The anonymous role, where there is one."""

PROXIES: Final = frozenset({"proxy", "discovery"})
SUPER_USERS: Final = frozenset({"root", *PROXIES})
CONFIG: Final = AuthorizationConfig(
    enabled=True, super_user_roles=tuple(SUPER_USERS), proxy_roles=tuple(PROXIES)
)

ADMINS: Final = {"m": {"admin"}, "a": set(), "other": {"stranger"}}
GRANTS: Final = {
    "m/n": {"consumer": {"consume"}, "producer": {"produce"}, "keeper": {"consume"}},
    "a/n": {ANYONE: {"produce", "consume"}},
    "other/n": {},
}
SUBSCRIPTION: Final = "kept"
"""A subscription of m/n that only the keeper may use."""
KEEPERS: Final = {"keeper"}

TOKENS: Final[dict[bytes, tuple[str, float | None]]] = {
    **{
        role.encode(): (role, None) for role in ("root", "admin", "stranger", "consumer", "producer", "proxy")
    },
    b"keeper": ("keeper", None),
    b"unknown": ("unknown", None),
    b"consumer, for a while": ("consumer", 100.0),
    b"proxy, for a while": ("proxy", 100.0),
}
"""Accepted tokens: their role, and the time of their expiry."""


def may(role: str, need: str, namespace: str, subscription: str = "") -> bool:
    """Return whether a role may `need`: produce, consume, look up, or list."""
    if role in SUPER_USERS or role in ADMINS[namespace.partition("/")[0]]:
        return True
    granted = GRANTS[namespace].get(role, set())
    if need in ("look up", "list"):
        return bool(granted)
    if need == "consume" and namespace == "m/n" and subscription == SUBSCRIPTION and role not in KEEPERS:
        return False
    return need in granted


@dataclass(frozen=True)
class Sent:
    """The credentials in a Connect."""

    method: str | None = None
    data: bytes = b""
    original: str | None = None
    original_method: str | None = None
    original_data: str = ""
    proxy_version: str | None = None


@dataclass
class Lists:
    """The present time, and the revoked tokens."""

    now: float
    revoked: set[bytes]

    def role(self, token: bytes) -> str | None:
        """Return the role of a token; None when it is refused."""
        role, expires_at = TOKENS.get(token, (None, None))
        if token in self.revoked or (expires_at is not None and self.now >= expires_at):
            return None
        return role


Roles = tuple[str, str | None]
"""A role, and the role that it acts for."""


def accepted(
    sent: Sent, lists: Lists, *, certificate: str | None, anonymous: bool, original_auth_data: bool
) -> Roles | None:
    """Return the roles that a Connect gives its client; None when it is refused."""
    named = sent.original or None
    if sent.method == "token":
        role = lists.role(sent.data)
    elif sent.method == "tls":
        role = certificate
    else:
        role, named = (ANYONE if anonymous else None), None
    if role is None:
        return None
    if named is not None and original_auth_data:
        if sent.original_method == "token":
            named = lists.role(sent.original_data.encode())
        elif sent.original_method == "tls" or not anonymous:
            named = None  # the certificate of the connection is the proxy's
        else:
            role, named = ANYONE, ""
        if named is None:
            return None
    if role in PROXIES:
        if not (named or "").strip() or named in PROXIES:
            return None
        return role, named
    if (named or "").strip() or sent.proxy_version is not None:
        return None
    return role, named or None


def metadata() -> dict[str, bytes]:
    """Return the grants as metadata has them, by key."""
    found: dict[str, bytes] = {}
    for tenant, admins in ADMINS.items():
        found[KEYS.tenant(tenant)] = encode(Tenant(admin_roles=sorted(admins)))
    for name, granted in GRANTS.items():
        value = Namespace(bundle_count=4)
        for role, actions in granted.items():
            value.policies.permissions[role].names[:] = sorted(actions)
        if name == "m/n":
            value.policies.subscription_roles[SUBSCRIPTION].names[:] = sorted(KEEPERS)
        found[KEYS.namespace(NamespaceName.parse(name))] = encode(value)
    return found


@cache
def certificate_of(role: str) -> bytes:
    """Return a certificate with this common name, as DER."""
    return ssl.PEM_cert_to_DER_cert(Authority("clients").issue(role).certificate.decode())
