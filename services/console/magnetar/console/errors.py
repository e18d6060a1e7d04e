"""Errors of the console: what a page shows instead of its content."""

from __future__ import annotations

from magnetar.common.errors import MagnetarError


class AdminRefused(MagnetarError):
    """The admin API answered with an error."""

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(reason)
        self.status = status
        self.reason = reason


class AdminUnreachable(MagnetarError):
    """The admin API did not answer, or not as an admin API does."""


class LoginRequired(MagnetarError):
    """The admin API asks for credentials, or refused those that were given."""


class LoginFailed(MagnetarError):
    """A login at an OpenID Connect issuer failed; the text says what to do."""


class BadRequest(MagnetarError):
    """A parameter of a page is missing or invalid."""


class ForgedRequest(MagnetarError):
    """A change without the token of a page of this console."""
