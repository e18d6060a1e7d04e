"""Proof that this broker still owns the topics it serves.

A process that was suspended for longer than its metadata session resumes before it learns that the session
has expired. It would then deliver messages that the next owner has already delivered and had acknowledged. So
a subscription checks the session's remaining time before every delivery. No broker takes over a topic while
the owner's session lives, and the session lives for its timeout after the last keepalive that metadata has
answered. While metadata does not answer for longer, the broker appends to the topic's cursor ledger: a new
owner fences that ledger before it delivers anything.

Confirmations of publishes need no such proof: a fenced ledger accepts no append.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Final

from magnetar.common.errors import LedgerFenced, OwnershipLost, StorageError
from magnetar.common.metadata.store import Session
from magnetar.common.runtime.clock import Clock
from magnetar.ledger.managed_ledger.managed_ledger import ManagedLedger

PROVEN_S: Final = 3.0
"""Seconds that a topic delivers after a successful proof by its cursor ledger."""

STILL_S: Final = 1.5
"""Seconds without a check after which the process counts as suspended: earlier answers prove nothing any
more.
"""

LOOKS_MAX: Final = 10
"""Checks, a second apart, in which the cursor ledger does not answer; after the last one, the topic is given
up.
"""

UNASKED_LOOKS: Final = 2
"""Checks after which a topic without a cursor ledger delivers anyway: if its broker had been suspended,
metadata would have reported the expired session by now.
"""

Wake = Callable[[], None]


class Lease:
    """Remaining lifetime of this broker's metadata session, shared by all of its topics."""

    __slots__ = ("_awake_since_s", "_clock", "_held", "_looked_s", "_session")

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._session: Session | None = None
        self._held: set[Tenure] = set()
        self._looked_s = self._awake_since_s = -math.inf

    def begin(self, session: Session) -> None:
        """Sets the current session."""
        self._session = session

    @property
    def until_s(self) -> float:
        """Time until which the session certainly lives, on the clock of `now_s`."""
        return -math.inf if self._session is None else self._session.alive_until_s

    def now_s(self) -> float:
        return self._clock.monotonic()

    def look(self) -> float:
        """Runs once a second; returns the seconds for which the session certainly lives."""
        now_s = self.now_s()
        if now_s - self._looked_s >= STILL_S:
            self._awake_since_s = now_s
        self._looked_s = now_s
        return self.until_s - now_s

    def counts(self, asked_s: float, now_s: float) -> bool:
        """Whether an answer to a question asked at `asked_s` still proves anything at `now_s`."""
        return (
            self._awake_since_s <= asked_s and now_s - asked_s < PROVEN_S and now_s - self._looked_s < STILL_S
        )

    def hold(self, tenure: Tenure) -> None:
        """Registers a topic that waits for the proof of its ownership."""
        self._held.add(tenure)

    def release(self) -> None:
        """Wakes all waiting topics, to check again; called once a second."""
        held, self._held = self._held, set()
        for tenure in held:
            tenure.release()


class Tenure:
    """Proof of ownership of one topic."""

    __slots__ = ("_asked_s", "_held", "_lease", "_looked_s", "_looks", "_proven_s")

    def __init__(self, lease: Lease) -> None:
        self._lease = lease
        self._proven_s = -math.inf
        self._asked_s: float | None = None
        self._looked_s = -math.inf
        self._looks = 0
        self._held: dict[Wake, None] | None = None

    def certain(self, wake: Wake) -> bool:
        """Whether ownership is certain now, which costs one reading of the clock. If not, `wake` is called
        when to check again.
        """
        lease = self._lease
        now_s = lease.now_s()
        if now_s < lease.until_s or lease.counts(self._proven_s, now_s):
            return True
        if self._held is None:
            self._held = {}
            lease.hold(self)
        self._held[wake] = None
        return False

    @property
    def waited_for(self) -> bool:
        """Whether a request waits for the proof of its ownership."""
        return self._held is not None

    @property
    def uncertain_s(self) -> float:
        """Seconds since the metadata session was last certain; 0 when it is, or never was."""
        lease = self._lease
        return max(0.0, lease.now_s() - lease.until_s) if math.isfinite(lease.until_s) else 0.0

    def release(self) -> None:
        """Wakes the waiting deliveries, to check again."""
        held, self._held = self._held, None
        for wake in held or ():
            wake()

    def prove(self, ledger: ManagedLedger, give_up: Callable[[OwnershipLost], None]) -> None:
        """Proves ownership by an append to the topic's cursor ledger, unless an append is still pending;
        calls `give_up` when the ledger refuses or never answers. Called once a second while metadata does not
        answer.
        """
        now_s = self._lease.now_s()
        if self._asked_s is not None:
            # Counts checks instead of reading the clock: after a suspension, answers may lie unread in the
            # socket.
            self._looks += 1
            if self._looks == LOOKS_MAX:
                reason = "neither metadata nor a quorum of bookies has confirmed ownership for too long"
                give_up(OwnershipLost(reason))
        elif ledger.prove_ownership(partial(self._answered, give_up)):
            self._asked_s, self._looks = now_s, 0
        else:
            self._looks = self._looks + 1 if now_s - self._looked_s < PROVEN_S else 1
            self._looked_s = now_s
            if self._looks >= UNASKED_LOOKS:
                self._proven(now_s)

    def _answered(self, give_up: Callable[[OwnershipLost], None], error: StorageError | None) -> None:
        asked_s, self._asked_s = self._asked_s, None
        self._looks = 0
        if error is not None:
            lease = self._lease  # While the session lives, a missing confirmation by storage is no reason.
            if isinstance(error, LedgerFenced | OwnershipLost) or lease.now_s() >= lease.until_s:
                give_up(OwnershipLost(f"ownership cannot be proven: {error}"))
        elif asked_s is not None:
            self._proven(asked_s)

    def _proven(self, at_s: float) -> None:
        self._proven_s = at_s
        self.release()
