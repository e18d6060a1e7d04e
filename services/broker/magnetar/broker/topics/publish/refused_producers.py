"""Producers of which messages were refused a moment ago, and how long each waits before it is open again.

A client that cannot drop a refused message opens its producer anew and sends the message again, as often as
it is let. So what is refused again and again is let in ever later, and in the end its next attempt is
answered with ProducerBlockedQuotaExceededException, at which the clients in C++, Java and Go fail what they
have unanswered, whatever their send timeouts are, and go on trying.
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
    "Producers closed by the broker because a message of theirs was not taken, by cause.",
    ["cause"],
    registry=REGISTRY,
)

HELD_PRODUCERS: Final = Counter(
    "magnetar_held_producers_total",
    "Producers that were opened later, or not, because their messages were refused just before, by outcome.",
    ["outcome"],
    registry=REGISTRY,
)

FIRST_DELAY_S: Final = 0.5
DELAY_S_MAX: Final = 8.0
FAILS_AT: Final = 5
"""So many refusals in a row, and the next attempt to open the producer fails."""

FORGET_S: Final = 20.0
"""After so long without a refusal a producer begins anew."""

PRODUCERS_MAX: Final = 10_000
"""Producers remembered; beyond, those whose last refusal is the longest ago are forgotten."""


@dataclass(slots=True)
class _Refused:
    at: float
    """When it was refused last, monotonic seconds."""
    times: int
    """In a row; a message that was not refused before begins a new one."""
    sequence_id: int
    """The highest that was refused for what it is; -1: none was."""
    reason: str
    fails_next: bool


class RefusedProducers:
    """Those of one broker, by topic and name, which clients keep when they connect again."""

    __slots__ = ("_clock", "_refused")

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._refused: OrderedDict[tuple[str, str], _Refused] = OrderedDict()

    def note_messages(
        self, topic: str, producer: str, first: int, last: int, reason: str, *, fails_next: bool
    ) -> None:
        """Messages were refused for what they are, with sequence ids from `first` to `last`.

        `fails_next`: the client heard no SendError, so its next attempt to open the producer fails, once.
        """
        known = self._known(topic, producer)
        times = 1
        if known is not None and first <= known.sequence_id:
            # A client that had dropped the message would have come to one behind it.
            times, last = known.times + 1, max(last, known.sequence_id)
        self._note(topic, producer, times, last, reason, fails_next=fails_next)
        REFUSED_PRODUCERS.labels("message").inc()

    def note_storage(self, topic: str, producer: str, reason: str) -> None:
        """Storage takes nothing of the producer."""
        known = self._known(topic, producer)
        times = 1 if known is None else known.times + 1
        self._note(topic, producer, times, -1, reason, fails_next=False)
        REFUSED_PRODUCERS.labels("storage").inc()

    def hold_s(self, topic: str, producer: str) -> float:
        """Seconds that a producer has to wait before it is opened, 0 for most. Raises ProducerRefused."""
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
    """None after the first refusal: most clients drop the message."""
    return 0.0 if times < 2 else min(FIRST_DELAY_S * 2.0 ** min(times - 2, 10), DELAY_S_MAX)
