"""The roles on whose behalf a request acts."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Principal:
    """The role of a caller, and the role that a proxy says it acts for. Decisions need the rights of both."""

    role: str | None
    """None without authentication."""
    original: str | None = None
    method: str = "none"
    """How the caller was authenticated: 'token', 'tls', 'basic' or 'none'; for the audit log."""
    address: str = ""
    """The caller's `host:port`, for the audit log; empty when it is not known."""

    def __str__(self) -> str:
        role = "a caller without a role" if self.role is None else f"role {self.role!r}"
        return role if self.original is None else f"{role} on behalf of {self.original!r}"
