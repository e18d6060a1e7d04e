"""A bounded record of clients that were refused or closed lately, for explanations.

Written only when a connection, producer or consumer ends or is refused, by the code that decides it. Per
message nothing happens.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

KEPT_S: Final = 600
"""Seconds for which an end is remembered."""

ENDS_MAX: Final = 2_000
"""Maximum ends of a broker that are remembered; the oldest are dropped first."""

ENDS_OF_TOPIC_MAX: Final = 50
"""Maximum ends of one topic that are remembered, so that no topic displaces those of all others."""

CONNECTION_ENDS_MAX: Final = 500
"""Maximum ends of connections that are remembered; they belong to no topic."""

TEXT_CHARS_MAX: Final = 300
"""Maximum characters kept of a text that a client chose, or of a message."""


class EndCode(StrEnum):
    """Why a client was refused or closed; docs/explain.md has each with its test."""

    REFUSED = "refused"
    CLOSED_BY_CLIENT = "closed_by_client"
    REPLACED = "replaced"
    UNLOADED = "unloaded"
    MOVED = "moved"
    TOPIC_DELETED = "topic_deleted"
    TOPIC_TERMINATED = "topic_terminated"
    OWNERSHIP_LOST = "ownership_lost"
    STORAGE_LOST = "storage_lost"
    BROKER_STOPPING = "broker_stopping"
    FENCED = "fenced"
    RIGHT_REVOKED = "right_revoked"
    ENCRYPTION_REQUIRED = "encryption_required"
    BACKLOG_QUOTA = "backlog_quota"
    MESSAGE_REFUSED = "message_refused"
    UNSUBSCRIBED = "unsubscribed"
    CURSOR_RESET = "cursor_reset"
    CONNECTION_ENDED = "connection_ended"
    CONNECTION_LOST = "connection_lost"
    KEEP_ALIVE_TIMEOUT = "keep_alive_timeout"
    NO_CONNECT = "no_connect"
    HANDSHAKE_FAILED = "handshake_failed"
    PROTOCOL_ERROR = "protocol_error"
    CONNECTION_LIMIT = "connection_limit"
    AUTHENTICATION_FAILED = "authentication_failed"
    CREDENTIALS_ENDED = "credentials_ended"
    OLD_PROTOCOL = "old_protocol"
    COORDINATOR_GONE = "coordinator_gone"


class ClientKind(StrEnum):
    """Kinds of clients in the record."""

    CONNECTION = "connection"
    LOOKUP = "lookup"
    PRODUCER = "producer"
    CONSUMER = "consumer"


@dataclass(slots=True, kw_only=True)
class ClientEnd:
    """One end or refusal; equal ones in a row are counted. Times are ms since 1970 UTC."""

    kind: ClientKind
    code: EndCode
    at_ms: int
    """The last time."""
    address: str
    connection_id: int = 0
    role: str = ""
    client_version: str = ""
    topic: str = ""
    name: str = ""
    """Name of the producer or consumer."""
    subscription: str = ""
    error: str = ""
    """Name of the error code that the client was sent; empty without one."""
    message: str = ""
    """The broker's words, as the client or the log has them."""
    since_ms: int = 0
    """The first of `times`."""
    times: int = 1

    def __post_init__(self) -> None:
        self.since_ms = self.at_ms
        for text in ("role", "client_version", "topic", "name", "subscription", "message"):
            setattr(self, text, getattr(self, text)[:TEXT_CHARS_MAX])

    def repeats(self, other: ClientEnd) -> bool:
        """Whether the same client met the same end, on this or another connection of its host."""
        return (self.kind, self.code, self.error, self.name, self.subscription, self.role, _host(self)) == (
            other.kind,
            other.code,
            other.error,
            other.name,
            other.subscription,
            other.role,
            _host(other),
        )


def _host(end: ClientEnd) -> str:
    return end.address.rpartition(":")[0]


class ClientEndings:
    """The latest ends of clients of one broker, by topic; those of connections have the topic ''."""

    __slots__ = ("_by_topic", "_ends", "_next")

    def __init__(self) -> None:
        self._ends: OrderedDict[int, ClientEnd] = OrderedDict()
        self._by_topic: dict[str, deque[int]] = {}
        self._next = 0

    def __len__(self) -> int:
        return len(self._ends)

    def note(self, end: ClientEnd) -> None:
        """Records an end; drops what is too old or too much."""
        numbers = self._by_topic.get(end.topic)
        if numbers is not None:
            last = self._ends[numbers[-1]]
            if end.repeats(last):
                end.since_ms, end.times = last.since_ms, last.times + 1
                self._drop(numbers.pop(), numbers)
        numbers = self._by_topic.setdefault(end.topic, deque())
        number = self._next = self._next + 1
        numbers.append(number)
        self._ends[number] = end
        if len(numbers) > (ENDS_OF_TOPIC_MAX if end.topic else CONNECTION_ENDS_MAX):
            self._drop(numbers.popleft(), numbers)
        if len(self._ends) > ENDS_MAX:
            self._drop_oldest()
        self._forget(end.at_ms)

    def of_topic(self, topic: str, now_ms: int) -> list[ClientEnd]:
        """Returns the ends of a topic's clients, the latest first."""
        self._forget(now_ms)
        return [self._ends[number] for number in reversed(self._by_topic.get(topic, ()))]

    def all(self, now_ms: int) -> list[ClientEnd]:
        """Returns all ends, the latest first."""
        self._forget(now_ms)
        return list(reversed(self._ends.values()))

    def _forget(self, now_ms: int) -> None:
        earliest_ms = now_ms - KEPT_S * 1000
        while self._ends and next(iter(self._ends.values())).at_ms < earliest_ms:
            self._drop_oldest()

    def _drop_oldest(self) -> None:
        number, end = next(iter(self._ends.items()))
        numbers = self._by_topic[end.topic]
        numbers.popleft()
        self._drop(number, numbers)

    def _drop(self, number: int, numbers: deque[int]) -> None:
        topic = self._ends.pop(number).topic
        if not numbers:
            del self._by_topic[topic]
