"""Facts that follow from a history: the outcome of each transaction, the positions of each message."""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import dataclass, field
from enum import Enum

from tests.transactions.history import (
    OTHER_OUTCOME,
    Ack,
    Answer,
    End,
    History,
    Left,
    New,
    Position,
    Send,
    Txn,
)


class Fate(Enum):
    """The outcome of a transaction, as far as the history tells."""

    COMMITTED = "committed"
    ABORTED = "aborted"
    UNKNOWN = "unknown"
    """No party said, and nothing that it did had a visible effect."""


@dataclass(frozen=True, slots=True)
class Claim:
    """A statement about an outcome."""

    by: str
    commit: bool


@dataclass(slots=True, eq=False)
class Transaction:
    """Everything about one transaction."""

    txn: Txn
    new: New | None = None
    sends: list[Send] = field(default_factory=list)
    acks: list[Ack] = field(default_factory=list)
    ends: list[End] = field(default_factory=list)
    claims: list[Claim] = field(default_factory=list)
    fate: Fate = Fate.UNKNOWN

    @property
    def commit_asked_at(self) -> float:
        """The begin of the first commit; infinite without one."""
        return min((end.begin for end in self.ends if end.commit), default=math.inf)

    def open_until(self, clock_error_s: float) -> float:
        """The time before which neither a client nor a timeout can have ended it."""
        asked = min((end.begin for end in self.ends), default=math.inf)
        expired = math.inf if self.new is None else self.new.begin + self.new.ttl_s - clock_error_s
        return min(asked, expired)


class Facts:
    """Indexes over a history that is complete."""

    def __init__(self, history: History) -> None:
        self.history = history
        self.transactions: dict[Txn, Transaction] = {}
        self.send_of: dict[str, Send] = {send.message: send for send in history.sends}
        self.places: dict[str, list[tuple[str, Position]]] = defaultdict(list)
        """By message: (topic, position) in the content read at the end."""
        self.left: dict[tuple[str, str], Left] = {
            (each.topic, each.subscription): each for each in history.left
        }
        for topic, entries in history.content.items():
            for position, message in entries:
                self.places[message].append((topic, position))
        self._collect()
        for each in self.transactions.values():
            each.claims += self._claims(each)
            each.fate = self._fate(each)

    def of(self, txn: Txn) -> Transaction:
        """Returns the facts of a transaction, which may be known by its parts alone."""
        found = self.transactions.get(txn)
        if found is None:
            found = self.transactions[txn] = Transaction(txn)
        return found

    def fate_of(self, txn: Txn | None) -> Fate:
        """Returns the fate of what belongs to `txn`; without a transaction it is in force at once."""
        return Fate.COMMITTED if txn is None else self.transactions[txn].fate

    def with_fate(self, fate: Fate) -> list[Transaction]:
        return [each for each in self.transactions.values() if each.fate is fate]

    def _collect(self) -> None:
        history = self.history
        for new in history.news:
            if new.ok and new.txn is not None:
                self.of(new.txn).new = new
        for send in history.sends:
            if send.txn is not None:
                self.of(send.txn).sends.append(send)
        for ack in history.acks:
            if ack.txn is not None:
                self.of(ack.txn).acks.append(ack)
        for end in history.ends:
            self.of(end.txn).ends.append(end)
        for outcome in history.outcomes:
            self.of(outcome.txn).claims.append(Claim(outcome.by, outcome.commit))

    def _claims(self, transaction: Transaction) -> list[Claim]:
        claims = []
        for end in transaction.ends:
            asked = "commit" if end.commit else "abort"
            if end.ok:
                claims.append(Claim(f"the answer to a {asked} by {end.worker}", end.commit))
            elif end.error == OTHER_OUTCOME:
                claims.append(Claim(f"{OTHER_OUTCOME} for a {asked} by {end.worker}", not end.commit))
        for send in transaction.sends:
            if places := self.places.get(send.message):
                topic, position = places[0]
                claims.append(Claim(f"{send.message!r} at {position} of {topic}", True))
        return claims

    def _fate(self, transaction: Transaction) -> Fate:
        if any(claim.commit for claim in transaction.claims):
            return Fate.COMMITTED
        if transaction.claims or transaction.commit_asked_at == math.inf:
            return Fate.ABORTED
        stored = [
            send
            for send in transaction.sends
            if send.answer is Answer.OK and send.topic in self.history.content
        ]
        # Every confirmed message of a committed transaction is in the content.
        return Fate.ABORTED if stored else self._fate_by_acks(transaction)

    def _fate_by_acks(self, transaction: Transaction) -> Fate:
        for ack in transaction.acks:
            left = self.left.get((ack.topic, ack.subscription))
            if ack.ok and left is not None and set(ack.messages) & set(left.messages):
                return Fate.ABORTED
        return Fate.UNKNOWN
