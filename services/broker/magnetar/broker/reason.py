"""A reason: the answer to why something does not happen, for people and for programs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any


@dataclass(frozen=True, slots=True)
class Reason:
    """Why something is as it is. Made on request only, by the code that decides."""

    code: str
    """For programs; docs/explain.md lists all codes."""
    text: str
    """The reason with its figures, in words."""
    next: str
    """The next step, or what ends it by itself."""
    since_ms: int = 0
    """When it began, ms since 1970 UTC; 0: not known."""
    stops: bool = True
    """True when nothing moves because of it; False when it holds up only a part."""
    data: Mapping[str, Any] = field(default_factory=dict)
    """The figures of `text` by name, as JSON values."""

    def to_json(self) -> dict[str, Any]:
        """Returns the reason as the admin API shows it."""
        return {
            "code": str(self.code),
            "text": self.text,
            "next": self.next,
            "stops": self.stops,
            "since": iso_time(self.since_ms),
            "data": dict(self.data),
        }


def iso_time(time_ms: int) -> str | None:
    """Formats ms since 1970 UTC in ISO 8601; None for 0."""
    if not time_ms:
        return None
    return datetime.fromtimestamp(time_ms / 1000, UTC).isoformat(timespec="milliseconds")[:-6] + "Z"


def in_words(reasons: list[Reason]) -> str | None:
    """Returns the reasons that stop everything, in one line; None when none does."""
    return "; ".join(dict.fromkeys(each.text for each in reasons if each.stops)) or None
