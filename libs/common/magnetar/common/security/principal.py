"""The roles on whose behalf a request acts."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Principal:
    """The role of a caller and the role that a proxy acts for. A decision needs the rights of both."""

    role: str | None
    """None without authentication."""
    original: str | None = None
