"""Quarantine: bookies that fail often or answer too slowly get no new fragments for a while.

One lost connection fails every ledger of the process at once: failures within `SAME_FAILURE_S` count as one.
Entries on a quarantined bookie are still read, and ledgers on it continue while it answers.
"""

from __future__ import annotations

from collections import deque
from typing import Final

from magnetar.common.obs.logs import get_logger
from magnetar.common.obs.metrics import REGISTRY
from magnetar.common.runtime.clock import Clock
from magnetar.ledger.quorum.config import QuorumConfig
from prometheus_client import Counter

log = get_logger(__name__)

SAME_FAILURE_S: Final = 1.0

BOOKIES_MAX: Final = 10_000
"""Maximum bookies remembered; the one whose failure is oldest is forgotten first."""

QUARANTINED = Counter(
    "magnetar_bookie_quarantines",
    "Bookies that were given no new fragments for a while, because they failed too often or were too slow.",
    ["bookie"],
    registry=REGISTRY,
)


class Quarantine:
    """Counts failures by bookie. Times come from the clock."""

    __slots__ = ("_clock", "_config", "_failures", "_until")

    def __init__(self, clock: Clock, config: QuorumConfig) -> None:
        self._clock = clock
        self._config = config
        self._failures: dict[str, deque[float]] = {}
        self._until: dict[str, tuple[float, str]] = {}

    def failed(self, bookie_id: str, reason: str) -> None:
        """Records a failed append. Too many within the interval quarantine the bookie."""
        config, now = self._config, self._clock.monotonic()
        failures = self._failures.pop(bookie_id, None)
        if failures is None:
            failures = deque(maxlen=config.quarantine_errors)
            if len(self._failures) >= BOOKIES_MAX:
                del self._failures[next(iter(self._failures))]
        self._failures[bookie_id] = failures  # the newest go last
        if failures and now - failures[-1] < SAME_FAILURE_S:
            return
        failures.append(now)
        if len(failures) == config.quarantine_errors and (now - failures[0] <= config.quarantine_interval_s):
            self._quarantine(bookie_id, now, f"failed {len(failures)} times, at last: {reason}")

    def too_slow(self, bookie_id: str, reason: str) -> None:
        """Quarantines a bookie at once, because it fell so far behind the others that it was replaced."""
        self._quarantine(bookie_id, self._clock.monotonic(), reason)

    def lift(self, bookie_id: str) -> None:
        """Lifts the quarantine after the bookie restarted; its earlier failures are forgotten."""
        self._failures.pop(bookie_id, None)
        self._until.pop(bookie_id, None)

    def __contains__(self, bookie_id: str) -> bool:
        return self.left(bookie_id) is not None

    def left(self, bookie_id: str) -> tuple[float, str] | None:
        """Returns for how many more seconds the bookie is quarantined, and why; None when it is not."""
        found = self._until.get(bookie_id)
        if found is None:
            return None
        until, reason = found
        left_s = until - self._clock.monotonic()
        if left_s > 0:
            return left_s, reason
        del self._until[bookie_id]
        return None

    def _quarantine(self, bookie_id: str, now: float, reason: str) -> None:
        if bookie_id not in self:
            QUARANTINED.labels(bookie_id).inc()
            log.warning(
                "bookie quarantined", bookie=bookie_id, reason=reason, for_s=self._config.quarantine_s
            )
        self._failures.pop(bookie_id, None)
        if len(self._until) >= BOOKIES_MAX:
            del self._until[next(iter(self._until))]
        self._until[bookie_id] = now + self._config.quarantine_s, reason
