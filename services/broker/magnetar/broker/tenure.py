"""Until when it is certain that what this broker serves is its own.

A process that stands still for longer than its session goes on where it was, before it hears anything: it
would deliver what the next owner has delivered meanwhile, and had acknowledged. So a subscription looks at
the clock before it gives anything out. No broker takes a topic from one whose session lives, and it does
for its time after a sign of life was sent that metadata has answered. While metadata is silent for longer,
the topic's cursor ledger is asked: whoever takes the topic over fences it before it delivers anything.

Confirmations need none of this: a fenced ledger takes nothing.
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
"""A topic delivers for so long after its cursor ledger was asked, once that has answered."""

STILL_S: Final = 1.5
"""Without a look for so long this process stood still: what was answered before says nothing any more."""

LOOKS_MAX: Final = 10
"""Looks, a second apart, that find the cursor ledger without an answer; then the topic is given up."""

UNASKED_LOOKS: Final = 2
"""Looks after which a topic that has no cursor ledger to ask delivers all the same: had its broker stood
still, metadata would have said by now that its session has ended."""

Wake = Callable[[], None]


class Lease:
    """How long the session of this broker lives, for all of its topics."""

    __slots__ = ("_awake_since_s", "_clock", "_held", "_looked_s", "_session")

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._session: Session | None = None
        self._held: set[Tenure] = set()
        self._looked_s = self._awake_since_s = -math.inf

    def begin(self, session: Session) -> None:
        """It is this session."""
        self._session = session

    @property
    def until_s(self) -> float:
        """Until when it certainly lives, on the clock of `now_s`."""
        return -math.inf if self._session is None else self._session.alive_until_s

    def now_s(self) -> float:
        return self._clock.monotonic()

    def look(self) -> float:
        """Once a second; returns for how many seconds the session certainly lives."""
        now_s = self.now_s()
        if now_s - self._looked_s >= STILL_S:
            self._awake_since_s = now_s
        self._looked_s = now_s
        return self.until_s - now_s

    def counts(self, asked_s: float, now_s: float) -> bool:
        """Whether the answer to what was asked then still says anything."""
        return (
            self._awake_since_s <= asked_s and now_s - asked_s < PROVEN_S and now_s - self._looked_s < STILL_S
        )

    def hold(self, tenure: Tenure) -> None:
        """Registers a waiter for the proof of ownership of the topic."""
        self._held.add(tenure)

    def release(self) -> None:
        """Let those who wait ask again; once a second."""
        held, self._held = self._held, set()
        for tenure in held:
            tenure.release()


class Tenure:
    """Whether one topic is certainly ours."""

    __slots__ = ("_asked_s", "_held", "_lease", "_looked_s", "_looks", "_proven_s")

    def __init__(self, lease: Lease) -> None:
        self._lease = lease
        self._proven_s = -math.inf
        self._asked_s: float | None = None
        self._looked_s = -math.inf
        self._looks = 0
        self._held: dict[Wake, None] | None = None

    def certain(self, wake: Wake) -> bool:
        """Whether it is at this moment, which costs a look at the clock. If not, `wake` is called when to ask
        again."""
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

    def release(self) -> None:
        """Let those who wait ask again."""
        held, self._held = self._held, None
        for wake in held or ():
            wake()

    def prove(self, ledger: ManagedLedger, give_up: Callable[[OwnershipLost], None]) -> None:
        """Ask the topic's cursor ledger by an append, unless it has not answered yet; `give_up` when it never
        does, or refuses. Once a second while metadata is silent."""
        now_s = self._lease.now_s()
        if self._asked_s is not None:
            # Not by the clock: answers may lie unread behind a process that stood still.
            self._looks += 1
            if self._looks == LOOKS_MAX:
                reason = "neither metadata nor a quorum of bookies has confirmed for long that it is ours"
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
            lease = self._lease  # While the session lives, that storage does not confirm is no reason.
            if isinstance(error, LedgerFenced | OwnershipLost) or lease.now_s() >= lease.until_s:
                give_up(OwnershipLost(f"it cannot be proven to be ours: {error}"))
        elif asked_s is not None:
            self._proven(asked_s)

    def _proven(self, at_s: float) -> None:
        self._proven_s = at_s
        self.release()
