"""Recently refused producers, and the delay before each may reopen.

A client that cannot drop a refused message reopens its producer and resends the message without end. Repeated
refusals therefore delay the reopening longer and longer. Finally one attempt is answered with
ProducerBlockedQuotaExceededException: then the C++, Java and Go clients fail their unanswered messages,
whatever their send timeouts are, and continue.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from typing import Final

from magnetar.common.errors import ProducerRefused
from magnetar.common.obs.metrics import REGISTRY
from magnetar.common.runtime.clock import Clock
from prometheus_client import Counter

REFUSED_PRODUCERS: Final = Counter(
    "magnetar_refused_producers_total",
    "Producers closed by the broker because one of their messages was refused, by cause.",
    ["cause"],
    registry=REGISTRY,
)

HELD_PRODUCERS: Final = Counter(
    "magnetar_held_producers_total",
    "Producers whose reopening was delayed or refused after refused messages, by outcome.",
    ["outcome"],
    registry=REGISTRY,
)

FIRST_DELAY_S: Final = 0.5
DELAY_S_MAX: Final = 8.0
FAILS_AT: Final = 5
"""Number of refusals in a row after which the next attempt to open the producer fails."""

FORGET_S: Final = 20.0
"""Seconds without a refusal after which a producer's count restarts."""

PRODUCERS_MAX: Final = 10_000
"""Maximum producers remembered; the ones with the oldest last refusal are removed first."""


@dataclass(slots=True)
class _Refused:
    at: float
    """Time of the last refusal, monotonic seconds."""
    times: int
    """Refusals in a row; a message that was not refused before starts a new row."""
    sequence_id: int
    """Highest sequence id refused because of its content; -1: none."""
    reason: str
    fails_next: bool


class RefusedProducers:
    """Recently refused producers of one broker, by topic and name; clients keep the name when they
    reconnect.
    """

    __slots__ = ("_clock", "_refused")

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._refused: OrderedDict[tuple[str, str], _Refused] = OrderedDict()

    def note_messages(
        self, topic: str, producer: str, first: int, last: int, reason: str, *, fails_next: bool
    ) -> None:
        """Records messages refused because of their content, with sequence ids from `first` to `last`.

        `fails_next`: the client got no SendError, so its next attempt to open the producer fails, once.
        """
        known = self._known(topic, producer)
        times = 1
        if known is not None and first <= known.sequence_id:
            # A client that had dropped the message would have sent a later one.
            times, last = known.times + 1, max(last, known.sequence_id)
        self._note(topic, producer, times, last, reason, fails_next=fails_next)
        REFUSED_PRODUCERS.labels("message").inc()

    def note_storage(self, topic: str, producer: str, reason: str) -> None:
        """Records that storage refuses the producer's messages."""
        known = self._known(topic, producer)
        times = 1 if known is None else known.times + 1
        self._note(topic, producer, times, -1, reason, fails_next=False)
        REFUSED_PRODUCERS.labels("storage").inc()

    def hold_s(self, topic: str, producer: str) -> float:
        """Returns the seconds that a producer has to wait before it is opened, usually 0. Raises
        ProducerRefused.
        """
        refused = self._known(topic, producer) if self._refused else None
        if refused is None:
            return 0.0
        if refused.fails_next:
            refused.fails_next = False
            HELD_PRODUCERS.labels("failed").inc()
            times = f", {refused.times} times in a row" if refused.times > 1 else ""
            raise ProducerRefused(f"messages of producer {producer!r} were refused{times}: {refused.reason}")
        delay = refused.at + _delay_s(refused.times) - self._clock.monotonic()
        if delay <= 0:
            return 0.0
        HELD_PRODUCERS.labels("delayed").inc()
        return delay

    def __len__(self) -> int:
        return len(self._refused)

    def _known(self, topic: str, producer: str) -> _Refused | None:
        refused, long_ago = self._refused, self._clock.monotonic() - FORGET_S
        while refused and next(iter(refused.values())).at < long_ago:
            refused.popitem(last=False)
        return refused.get((topic, producer))

    def _note(
        self, topic: str, producer: str, times: int, sequence_id: int, reason: str, *, fails_next: bool
    ) -> None:
        key = (topic, producer)
        self._refused[key] = _Refused(
            self._clock.monotonic(), times, sequence_id, reason, fails_next or times >= FAILS_AT
        )
        self._refused.move_to_end(key)
        if len(self._refused) > PRODUCERS_MAX:
            self._refused.popitem(last=False)


def _delay_s(times: int) -> float:
    """No delay after the first refusal: most clients drop the message."""
    return 0.0 if times < 2 else min(FIRST_DELAY_S * 2.0 ** min(times - 2, 10), DELAY_S_MAX)
