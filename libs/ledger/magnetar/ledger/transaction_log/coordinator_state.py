"""The state of a transaction coordinator: its unfinished transactions, and outcomes that it remembers.

Pure. Transactions are immutable values, replaced by each change, so that a snapshot of many costs one copy of
references and can be written while changes go on.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Iterator
from enum import Enum
from sys import intern
from typing import Final, NamedTuple

from magnetar.common.errors import DataCorruption
from magnetar.common.naming.txn_id import Action

OUTCOMES_MAX: Final = 100_000
"""Outcomes that a coordinator remembers."""

OUTCOME_MS: Final = 10 * 60 * 1000
"""Milliseconds for which a coordinator remembers an outcome."""

Subscription = tuple[str, str]
"""(topic, subscription)."""


class Reason(Enum):
    """The cause of a decision."""

    REQUESTED = "requested"
    TIMED_OUT = "timed out"


class Transaction(NamedTuple):
    """An unfinished transaction. Times are milliseconds since 1970 UTC."""

    number: int
    owner: str
    """Principal that made it; empty without authentication."""
    deadline_ms: int
    ttl_ms: int
    topics: tuple[str, ...] = ()
    subscriptions: tuple[Subscription, ...] = ()
    action: Action | None = None
    """The decision; None while it is open."""
    reason: Reason = Reason.REQUESTED
    ended_ms: int = 0
    """Time of its end, which is recorded and not yet confirmed; 0: not ended."""

    @property
    def began_ms(self) -> int:
        return self.deadline_ms - self.ttl_ms

    @property
    def participants(self) -> Iterator[str]:
        """The topics that have to learn the outcome, each once."""
        return iter(dict.fromkeys((*self.topics, *(topic for topic, _ in self.subscriptions))))


class Outcome(NamedTuple):
    """How a finished transaction ended."""

    action: Action
    ended_ms: int
    owner: str


class CoordinatorState:
    """Changes are applied in the order of the log. Raises DataCorruption for one that cannot follow.

    `transactions` are in the order of their numbers, `outcomes` in the order of their ends. Numbers below
    `next_number` were given, or never will be.
    """

    __slots__ = ("_ending", "next_number", "outcomes", "transactions")

    def __init__(self) -> None:
        # Ordered dictionaries, because the lowest key of a dictionary whose first keys go is expensive.
        self.transactions: OrderedDict[int, Transaction] = OrderedDict()
        self.outcomes: OrderedDict[int, Outcome] = OrderedDict()
        self.next_number = 0
        self._ending = 0

    @property
    def active(self) -> int:
        """Number of transactions that have not ended."""
        return len(self.transactions) - self._ending

    @property
    def low_watermark(self) -> int:
        """The number up to which every transaction has ended, durably; -1 before the first one."""
        lowest = next(iter(self.transactions), self.next_number)
        return lowest - 1

    def begin(self, number: int, owner: str, deadline_ms: int, ttl_ms: int) -> Transaction:
        """Adds an open transaction with a number above all earlier ones."""
        if number < self.next_number:
            raise DataCorruption(f"transaction {number} begins though the next number is {self.next_number}")
        self.next_number = number + 1
        made = self.transactions[number] = Transaction(number, intern(owner), deadline_ms, ttl_ms)
        return made

    def add_topics(self, number: int, topics: Iterable[str]) -> Transaction:
        """Adds topics that an open transaction publishes to; those it has are skipped."""
        found = self._open(number)
        known = found.topics
        added = dict.fromkeys(intern(topic) for topic in topics if topic not in known)
        return self._replace(found._replace(topics=(*known, *added)))

    def add_subscriptions(self, number: int, subscriptions: Iterable[Subscription]) -> Transaction:
        """Adds subscriptions in which an open transaction acknowledges; those it has are skipped."""
        found = self._open(number)
        known = found.subscriptions
        added = dict.fromkeys(
            (intern(topic), intern(name)) for topic, name in subscriptions if (topic, name) not in known
        )
        return self._replace(found._replace(subscriptions=(*known, *added)))

    def decide(self, number: int, action: Action, reason: Reason) -> Transaction:
        """Decides how an open transaction ends."""
        return self._replace(self._open(number)._replace(action=action, reason=reason))

    def end(self, number: int, ended_ms: int) -> None:
        """Notes that every participant confirmed: the outcome is remembered. The transaction holds the low
        watermark until `forget`, once its end is durable.
        """
        found = self.transactions.get(number)
        if found is None or found.action is None or found.ended_ms:
            raise DataCorruption(f"transaction {number} ends, which is {_describe(found)}")
        self._replace(found._replace(ended_ms=max(ended_ms, 1)))
        self._ending += 1
        self.remember(number, Outcome(found.action, ended_ms, found.owner))

    def forget(self, number: int) -> None:
        """Drops an ended transaction; its outcome stays."""
        assert self.transactions[number].ended_ms, "it has ended"
        del self.transactions[number]
        self._ending -= 1

    def remember(self, number: int, outcome: Outcome) -> None:
        """Remembers an outcome and forgets those that are too old or too many."""
        outcomes = self.outcomes
        outcomes[number] = outcome
        oldest = next(iter(outcomes.values()))
        while len(outcomes) > OUTCOMES_MAX or outcome.ended_ms - oldest.ended_ms > OUTCOME_MS:
            outcomes.popitem(last=False)
            oldest = next(iter(outcomes.values()))

    def unfinished(self) -> list[Transaction]:
        """Returns the transactions that have not ended, as they are now."""
        return [each for each in self.transactions.values() if not each.ended_ms]

    def _open(self, number: int) -> Transaction:
        found = self.transactions.get(number)
        if found is None or found.action is not None:
            raise DataCorruption(f"transaction {number} changes, which is {_describe(found)}")
        return found

    def _replace(self, transaction: Transaction) -> Transaction:
        self.transactions[transaction.number] = transaction
        return transaction


def _describe(transaction: Transaction | None) -> str:
    if transaction is None:
        return "unknown"
    if transaction.action is None:
        return "open"
    return f"{'ended' if transaction.ended_ms else 'decided'} ({transaction.action.value})"
