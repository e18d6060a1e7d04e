"""The condition of a search, and the messages that it is asked of, offloaded or not."""

from __future__ import annotations

import base64
from dataclasses import dataclass, field
from typing import Final, NamedTuple, Protocol


class MessagePosition(NamedTuple):
    """Position of a message in a topic or partition; ordered as its messages are."""

    ledger_id: int
    entry_id: int
    batch_index: int = -1
    """-1: outside a batch, or before the first message of one."""


BEGINNING: Final = MessagePosition(-1, -1)


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchedMessage:
    """A message as a search shows it."""

    topic: str
    """Full name, of the partition."""
    partition: int
    """Number of the partition; -1 outside a partitioned topic."""
    position: MessagePosition
    key: str | None
    key_bytes: bytes | None
    properties: dict[str, str]
    publish_time_ms: int
    """The producer's clock, ms since 1970 UTC; 0 if it is not known."""
    event_time_ms: int
    """0: none."""
    producer_name: str
    sequence_id: int
    payload: bytes
    """Content as the application sent it; empty if it is unreadable."""
    is_null: bool = False
    unreadable: str = ""
    """Reason why the content is not known, such as "encrypted"; empty if it is."""
    is_cold: bool = False
    """Whether it was read from objects."""


class _Asked(Protocol):
    """The parts of a message that `Condition.matches` uses."""

    @property
    def position(self) -> MessagePosition: ...
    @property
    def key_bytes(self) -> bytes | None: ...
    @property
    def properties(self) -> dict[str, str]: ...
    @property
    def publish_time_ms(self) -> int: ...
    @property
    def event_time_ms(self) -> int: ...
    @property
    def payload(self) -> bytes: ...
    @property
    def unreadable(self) -> str: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Condition:
    """Properties of the messages that are searched; all given ones must hold."""

    key: str | None = None
    """The whole key; for a producer whose keys are bytes, the bytes of this text in UTF-8."""
    properties: tuple[tuple[str, str | None], ...] = field(default=())
    """(name, value) pairs; a value of None matches any value."""
    text: bytes = b""
    """Bytes anywhere in the content, as the application sent it; empty: any content."""
    since_ms: int | None = None
    """Earliest time, ms since 1970 UTC; None: no bound."""
    until_ms: int | None = None
    """First time after the searched ones."""
    by_event_time: bool = False
    """The times are the application's event times, not the producers' publish times."""
    ledger_id: int | None = None
    entry_id: int | None = None
    batch_index: int | None = None
    """None: every message of the entry."""
    start: MessagePosition = BEGINNING
    """The first position to search."""

    @property
    def has_times(self) -> bool:
        """Whether a time is bounded."""
        return self.since_ms is not None or self.until_ms is not None

    @property
    def has_position(self) -> bool:
        """Whether positions are bounded."""
        return self.entry_id is not None or self.start > BEGINNING

    @property
    def stored_keys(self) -> tuple[str, str]:
        """The column `key` of messages with this key: text, or the base64 of bytes."""
        key = self.key or ""
        return key, base64.b64encode(key.encode()).decode()

    def may_be_in(self, ledger_id: int) -> bool:
        """Returns whether a ledger can have such messages, by its id."""
        if self.ledger_id is not None:
            return ledger_id == self.ledger_id
        return ledger_id >= self.start.ledger_id

    def entries_in(self, ledger_id: int, last_entry_id: int) -> tuple[int, int]:
        """Returns the first and the last entry of a ledger that positions allow; the last one is lower if
        there is none.
        """
        if not self.may_be_in(ledger_id):
            return 0, -1
        first = self.start.entry_id if ledger_id == self.start.ledger_id else 0
        if self.entry_id is not None:
            return max(first, self.entry_id), min(self.entry_id, last_entry_id)
        return max(first, 0), last_entry_id

    def matches(self, message: _Asked) -> bool:
        """Returns whether a message fulfills the condition. Content that is not known matches no text."""
        position = message.position
        if position < self.start or not self._is_at(position):
            return False
        if self.key is not None and message.key_bytes != self.key.encode():
            return False
        if self.has_times and not self._is_in_time(message):
            return False
        for name, value in self.properties:
            found = message.properties.get(name)
            if found is None or (value is not None and found != value):
                return False
        return not self.text or (not message.unreadable and self.text in message.payload)

    def _is_at(self, position: MessagePosition) -> bool:
        return (
            self.ledger_id in (None, position.ledger_id)
            and self.entry_id in (None, position.entry_id)
            and self.batch_index in (None, position.batch_index)
        )

    def _is_in_time(self, message: _Asked) -> bool:
        at = message.event_time_ms if self.by_event_time else message.publish_time_ms
        if not at:
            return False
        return (self.since_ms is None or at >= self.since_ms) and (
            self.until_ms is None or at < self.until_ms
        )
