"""Whether this process can write ledgers at all.

A single ledger that lost its quorum, or cannot be created, says little: others continue. Storage counts as
failed only if no ledger had an entry confirmed for a while and one tried; the next confirmation of any ledger
clears it.
"""

from __future__ import annotations

import math

from magnetar.common.obs.logs import get_logger

log = get_logger(__name__)


class Storing:
    """The write health of a store, shared by its writers. Times are the event loop's seconds."""

    __slots__ = ("_quiet_s", "confirmed_s", "failure")

    def __init__(self, quiet_s: float) -> None:
        """Creates the state. `quiet_s`: time without any confirmation before a failure counts."""
        self._quiet_s = quiet_s
        self.confirmed_s = -math.inf
        """The time of the last confirmation in any ledger. Set by writers, once per turn with confirmations.
        """
        self.failure: str | None = None
        """The reason why nothing can be stored; None while writes work as far as is known."""

    def quiet(self, now_s: float) -> bool:
        """Returns whether no ledger had an entry confirmed for `quiet_s`."""
        return now_s - self.confirmed_s >= self._quiet_s

    def failed(self, now_s: float, reason: str) -> None:
        """Records that a ledger could not be created, or confirms nothing."""
        if not self.quiet(now_s):
            return
        if self.failure is None:
            log.warning("nothing can be stored", reason=reason)
        self.failure = reason

    def succeeded(self) -> None:
        """Records that a ledger confirmed an entry after `failure`."""
        self.failure = None
        log.info("entries are confirmed again")
