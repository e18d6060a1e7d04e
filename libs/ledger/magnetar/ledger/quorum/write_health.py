"""Whether the ledgers of this process can be written at all, as their writers see it.

One ledger that has lost its quorum, or one that cannot be made, says little: others go on. Only where no
ledger had an entry confirmed for a while, and one tried, is it said that nothing can be stored; the next
confirmation of any ledger takes it back.
"""

from __future__ import annotations

import math

from magnetar.common.obs.logs import get_logger

log = get_logger(__name__)


class Storing:
    """One for all writers of a store. Times are the event loop's seconds."""

    __slots__ = ("_quiet_s", "confirmed_s", "failure")

    def __init__(self, quiet_s: float) -> None:
        """`quiet_s`: for how long nothing must have been confirmed before a failure counts."""
        self._quiet_s = quiet_s
        self.confirmed_s = -math.inf
        """When a ledger last had an entry confirmed. Set by writers, for each turn's confirmations."""
        self.failure: str | None = None
        """Why nothing can be stored; None while something can be, as far as is known."""

    def quiet(self, now_s: float) -> bool:
        """Whether no ledger had an entry confirmed for a while."""
        return now_s - self.confirmed_s >= self._quiet_s

    def failed(self, now_s: float, reason: str) -> None:
        """A ledger could not be made, or confirms nothing."""
        if not self.quiet(now_s):
            return
        if self.failure is None:
            log.warning("nothing can be stored", reason=reason)
        self.failure = reason

    def succeeded(self) -> None:
        """A ledger confirmed an entry after `failure`."""
        self.failure = None
        log.info("entries are confirmed again")
