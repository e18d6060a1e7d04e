"""Pauses of reading from a connection: what the broker does not read waits in the client and in sockets."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Final

PAUSES_MAX: Final = 16
"""Maximum ended pauses of a connection that are remembered."""

CREDENTIALS: Final = "credentials"
ACKNOWLEDGEMENTS: Final = "acknowledgements"
CONNECTION_PUBLISHES: Final = "publishes of this connection"
BROKER_PUBLISHES: Final = "publishes of the broker"
PUBLISH_RATE: Final = "publish rate"
UNREAD_OUTPUT: Final = "unread output"


@dataclass(frozen=True, slots=True)
class ReadPause:
    """One pause. Times are monotonic seconds."""

    cause: str
    since_s: float
    until_s: float | None = None
    """None while it lasts."""

    def seconds(self, now: float) -> float:
        """Returns its length up to now."""
        return (now if self.until_s is None else self.until_s) - self.since_s


class ReadPauses:
    """The pauses of one connection: those that last, and the last ended ones. Changed only by a pause."""

    __slots__ = ("_ended", "lasting")

    def __init__(self) -> None:
        self.lasting: dict[str, float] = {}
        """Begin of each pause that lasts, by cause; reading goes on once it is empty."""
        self._ended: deque[ReadPause] | None = None

    def begin(self, cause: str, now: float) -> None:
        """Records a pause; one that lasts already keeps its begin."""
        self.lasting.setdefault(cause, now)

    def end(self, cause: str, now: float) -> None:
        """Records the end of a pause that lasts."""
        if self._ended is None:
            self._ended = deque(maxlen=PAUSES_MAX)
        self._ended.append(ReadPause(cause, self.lasting.pop(cause), now))

    def since(self, earliest_s: float) -> list[ReadPause]:
        """Returns the pauses that lasted at some time after `earliest_s`, those that last now included."""
        ended = [each for each in self._ended or () if each.until_s is None or each.until_s >= earliest_s]
        return [*ended, *(ReadPause(cause, since) for cause, since in self.lasting.items())]
