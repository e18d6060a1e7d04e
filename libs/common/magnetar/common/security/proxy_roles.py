"""Which combinations of a caller's role and the role that it acts for are possible."""

from __future__ import annotations

from collections.abc import Container


def role_problem(
    role: str,
    original: str | None,
    proxy_roles: Container[str],
    *,
    may_repeat: bool,
    is_proxy: bool = False,
) -> str | None:
    """Return why a caller of this role may not act for `original`; None when it may.

    Proxies always act for a client, and for no proxy. `may_repeat` admits others that name their own role;
    `is_proxy` says that the caller presents itself as a proxy.
    """
    if role in proxy_roles:
        if original is None or not original.strip():
            return "a proxy role without an original principal"
        if original in proxy_roles:
            return "an original principal that is a proxy role"
        return None
    if original is not None and original.strip() and not (may_repeat and original == role):
        return "an original principal from a role that is no proxy role"
    if is_proxy:
        return "a proxy whose role is not in proxyRoles"
    return None
