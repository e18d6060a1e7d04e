"""Why a process does not start, in one message: all problems at once."""

from __future__ import annotations

from magnetar.common.errors import MagnetarError


class CannotStart(MagnetarError):
    """The process cannot serve; the message lists every reason that was found, one a line."""


def reason(error: Exception) -> str:
    """Text of an error, without the errno and arguments of an OSError."""
    return error.strerror if isinstance(error, OSError) and error.strerror else str(error)


def listed(what: str, problems: list[str]) -> str:
    """A heading and the problems, one a line."""
    return f"{what}:\n" + "\n".join(f"  - {problem}" for problem in problems)
