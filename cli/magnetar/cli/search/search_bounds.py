"""The bounds of a search, and what it has read until now."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from magnetar.cli.quantity_text import duration_text, size_text

LIMIT = "limit"
MAX_BYTES = "max-bytes"
TIMEOUT = "timeout"
INTERRUPTED = "interrupted"


@dataclass(slots=True)
class ReadFromBrokers:
    """Counts of what brokers sent."""

    messages: int = 0
    bytes_read: int = 0
    """Bytes of contents."""
    unsearchable: int = 0
    """Messages without known content in which no text was searched."""


@dataclass(slots=True, kw_only=True)
class SearchBounds:
    """Says when a search ends before it is done."""

    limit: int
    """Matches; 0: no bound."""
    max_bytes: int
    """Bytes of objects and contents; 0: no bound."""
    timeout_s: float
    """Seconds; 0: no bound."""
    now: Callable[[], float]
    """Monotonic seconds."""
    bytes_read: Callable[[], int]
    is_interrupted: Callable[[], bool]
    found: int = 0
    began: float = field(init=False)

    def __post_init__(self) -> None:
        self.began = self.now()

    @property
    def seconds(self) -> float:
        """Seconds since the search began."""
        return self.now() - self.began

    def reached(self) -> str:
        """Returns the bound that is reached now, by its option; empty: none."""
        if self.limit and self.found >= self.limit:
            return LIMIT
        if self.is_interrupted():
            return INTERRUPTED
        if self.max_bytes and self.bytes_read() >= self.max_bytes:
            return MAX_BYTES
        if self.timeout_s and self.seconds >= self.timeout_s:
            return TIMEOUT
        return ""

    def sentence(self, stopped: str) -> str:
        """Returns what a reached bound means."""
        if stopped == LIMIT:
            return f"stopped at {self.found} matches (--limit)"
        if stopped == MAX_BYTES:
            return f"not everything was searched: stopped after {size_text(self.bytes_read())} (--max-bytes)"
        if stopped == TIMEOUT:
            return f"not everything was searched: stopped after {duration_text(self.seconds)} (--timeout)"
        return "not everything was searched: interrupted"
