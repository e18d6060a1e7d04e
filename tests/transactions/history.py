"""A history of transactions: calls with their answers, deliveries, and the state found at the end.

Every event is a mapping that JSON can hold, so that a program in another language records the same. A call is
two events: one of its kind at the begin, with a number of its own, and an `answer` with that number later.
A call without an answer has an unknown outcome. Times are seconds of one monotonic clock.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final

Txn = tuple[int, int]
"""The coordinator, and the number it gave."""

Position = tuple[int, int, int]
"""Ledger, entry, and the index in a batch; -1 for an entry that is one message."""

OTHER_OUTCOME: Final = "InvalidTxnStatus"
"""The error of an END that asks for another outcome than the decided one."""

NOT_FOUND: Final = "TransactionNotFound"
"""The error of an END whose transaction is not known."""


class Answer(StrEnum):
    """The end of a call, as its caller knows it."""

    OK = "ok"
    REFUSED = "refused"
    """Certainly without effect."""
    UNKNOWN = "unknown"


@dataclass(slots=True, eq=False)
class Call:
    """A call and its answer."""

    worker: str
    begin: float
    end: float = math.inf
    answer: Answer = Answer.UNKNOWN
    error: str = ""
    """Name of the error, as the caller got it."""

    @property
    def ok(self) -> bool:
        return self.answer is Answer.OK


@dataclass(slots=True, eq=False)
class New(Call):
    """A new transaction."""

    ttl_s: float = math.inf
    txn: Txn | None = None


@dataclass(slots=True, eq=False)
class Send(Call):
    """A publish of one message, whose name is unique in the history."""

    topic: str = ""
    message: str = ""
    txn: Txn | None = None
    producer: str = ""
    sequence: int = -1
    """Sequence id for deduplication; -1: none."""
    inputs: tuple[str, ...] = ()
    """Messages from which this one was made, all acknowledged in its transaction."""
    slot: int = 0
    """Number of this output among those of its inputs."""
    value: int | None = None
    """Amount that the message holds, of a quantity that transactions only move."""
    position: Position | None = None


@dataclass(slots=True, eq=False)
class Ack(Call):
    """An acknowledgement of one subscription; a cumulative one names every message it covers."""

    topic: str = ""
    subscription: str = ""
    messages: tuple[str, ...] = ()
    txn: Txn | None = None


@dataclass(slots=True, eq=False)
class End(Call):
    """A commit or an abort."""

    txn: Txn = (-1, -1)
    commit: bool = False


@dataclass(frozen=True, slots=True)
class Delivery:
    """A message that a consumer or reader got."""

    at: float
    reader: str
    """One consumer's attachment to one broker: deliveries to it are in one order."""
    topic: str
    message: str
    position: Position
    path: str = "dispatch"
    """How it came: dispatch, redelivery, reader, compacted, peek, parquet."""
    subscription: str = ""


@dataclass(frozen=True, slots=True)
class Outcome:
    """An outcome as one party reports it: a topic, a coordinator after its takeover."""

    at: float
    by: str
    txn: Txn
    commit: bool


@dataclass(frozen=True, slots=True)
class Watermark:
    """A coordinator's claim that every transaction up to a number is finished."""

    at: float
    coordinator: int
    number: int


@dataclass(frozen=True, slots=True)
class Limit:
    """How far a topic may be read, and where its last confirmed entry is."""

    at: float
    topic: str
    limit: tuple[int, int]
    last: tuple[int, int]
    began: float = math.inf
    """Begin of the request that told it; infinite when it was not asked for."""


@dataclass(frozen=True, slots=True)
class Left:
    """A subscription at the end: the messages that it has not acknowledged, and its figures."""

    topic: str
    subscription: str
    messages: tuple[str, ...]
    backlog: int = -1
    """Messages that the subscription counts as its backlog; -1: not asked."""
    unacked: int = 0
    pending: int = 0
    """Acknowledgements of open transactions."""


@dataclass(slots=True)
class History:
    """All events so far, by kind."""

    news: list[New] = field(default_factory=list)
    sends: list[Send] = field(default_factory=list)
    acks: list[Ack] = field(default_factory=list)
    ends: list[End] = field(default_factory=list)
    deliveries: list[Delivery] = field(default_factory=list)
    outcomes: list[Outcome] = field(default_factory=list)
    watermarks: list[Watermark] = field(default_factory=list)
    limits: list[Limit] = field(default_factory=list)
    content: dict[str, list[tuple[Position, str]]] = field(default_factory=dict)
    """Committed messages by topic, from the first to the last, as read at the end."""
    left: list[Left] = field(default_factory=list)
    unfinished: list[tuple[str, Txn]] = field(default_factory=list)
    """(party, transaction) that the party still had as open or ending at the end."""
    quiet_at: float = math.inf
    """When the last fault was over."""
    clock_error_s: float = 0.0
    """How far a coordinator's clock may have been off: a timeout may come so much earlier."""
    _calls: dict[int, Call] = field(default_factory=dict)

    def take(self, event: Mapping[str, Any]) -> None:
        """Adds one event. Raises ValueError for an unknown kind or a second answer."""
        kind = event["kind"]
        if kind == "answer":
            self._answer(event)
        elif kind in _CALLS:
            self._begin(kind, event)
        else:
            take = _POINTS.get(kind)
            if take is None:
                raise ValueError(f"unknown kind of event {kind!r}")
            take(self, event)

    def _begin(self, kind: str, event: Mapping[str, Any]) -> None:
        made, name = _CALLS[kind]
        call = made(
            **{key: _plain(value) for key, value in event.items() if key not in ("kind", "call", "at")},
            begin=event["at"],
        )
        if event["call"] in self._calls:
            raise ValueError(f"call {event['call']} begins twice")
        self._calls[event["call"]] = call
        getattr(self, name).append(call)

    def _answer(self, event: Mapping[str, Any]) -> None:
        call = self._calls[event["call"]]
        if call.end != math.inf:
            raise ValueError(f"call {event['call']} has two answers")
        call.end, call.answer = event["at"], Answer(event["answer"])
        for key, value in event.items():
            if key not in ("kind", "call", "at", "answer"):
                setattr(call, key, _plain(value))

    def _content(self, event: Mapping[str, Any]) -> None:
        found = self.content.setdefault(event["topic"], [])
        found += [(_position(position), name) for position, name in event["messages"]]

    def _quiet(self, event: Mapping[str, Any]) -> None:
        self.quiet_at = event["at"]

    def _clock_error(self, event: Mapping[str, Any]) -> None:
        self.clock_error_s = event["seconds"]


_CALLS: Final[dict[str, tuple[Callable[..., Call], str]]] = {
    "new": (New, "news"),
    "send": (Send, "sends"),
    "ack": (Ack, "acks"),
    "end": (End, "ends"),
}

_POINTS: Final[dict[str, Callable[[History, Mapping[str, Any]], None]]] = {
    "delivery": lambda history, event: history.deliveries.append(Delivery(**_fields(event))),
    "outcome": lambda history, event: history.outcomes.append(Outcome(**_fields(event))),
    "watermark": lambda history, event: history.watermarks.append(Watermark(**_fields(event))),
    "limit": lambda history, event: history.limits.append(Limit(**_fields(event))),
    "left": lambda history, event: history.left.append(Left(**_fields(event, without="at"))),
    "unfinished": lambda history, event: history.unfinished.append((event["party"], _plain(event["txn"]))),
    "content": History._content,
    "quiet": History._quiet,
    "clock error": History._clock_error,
}


def _fields(event: Mapping[str, Any], without: str = "") -> dict[str, Any]:
    return {key: _plain(value) for key, value in event.items() if key not in ("kind", without)}


def _plain(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


def _position(value: Iterable[int]) -> Position:
    ledger_id, entry_id, index = value
    return ledger_id, entry_id, index


def read_history(lines: Iterable[str]) -> History:
    """Returns the history of JSON lines; a last line that was cut off is left out."""
    history = History()
    for line in lines:
        if line.endswith("\n"):
            history.take(json.loads(line))
    return history


class Recorder:
    """Records events into a history, with the time of `clock`, and hands each to `write` as a JSON line."""

    def __init__(
        self,
        clock: Callable[[], float],
        write: Callable[[str], object] | None = None,
        history: History | None = None,
    ) -> None:
        self.history = history or History()
        self._clock = clock
        self._write = write
        self._calls = 0

    def now(self) -> float:
        """Returns the present time, in seconds."""
        return self._clock()

    def begin(self, kind: str, worker: str, **fields: Any) -> int:
        """Records the begin of a call; returns its number for `answer`."""
        self._calls += 1
        self.note(kind, call=self._calls, worker=worker, **fields)
        return self._calls

    def answer(self, call: int, answer: Answer, **fields: Any) -> None:
        """Records the end of a call."""
        self.note("answer", call=call, answer=answer, **fields)

    def note(self, kind: str, **fields: Any) -> None:
        """Records an event that is no call."""
        event = {"kind": kind, "at": self._clock(), **fields}
        self.history.take(event)
        if self._write is not None:
            self._write(json.dumps(event) + "\n")
