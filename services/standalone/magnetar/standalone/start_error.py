"""Error that lists all reasons why a process cannot start."""

from __future__ import annotations

from magnetar.common.errors import MagnetarError


class CannotStart(MagnetarError):
    """The process cannot start; the message lists every reason, one per line."""


def reason(error: Exception) -> str:
    """Return the text of an error, without the errno and arguments of an OSError."""
    return error.strerror if isinstance(error, OSError) and error.strerror else str(error)


def listed(what: str, problems: list[str]) -> str:
    """Return a heading and the problems, one per line."""
    return f"{what}:\n" + "\n".join(f"  - {problem}" for problem in problems)
