"""Participants of transactions: the topics in which a coordinator ends its transactions."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum, auto
from typing import NamedTuple, Protocol

from magnetar.common.naming.txn_id import Action, TxnId


class TransactionEnd(NamedTuple):
    """The end of a transaction in one topic: its messages, and its acknowledgements in all subscriptions."""

    txn: TxnId
    topic: str
    """Full name."""
    action: Action
    low_watermark: int
    """Every lower or equal number of the transaction's coordinator is over; -1: none."""


class EndOutcome(Enum):
    """How far the end of a transaction in a topic is."""

    DONE = auto()
    """The topic has recorded it durably."""
    RETRY = auto()
    """Not recorded, for a reason that may pass."""
    NOT_MINE = auto()
    """The broker does not own the topic."""
    GONE = auto()
    """The topic does not exist, so nothing is left to be done."""
    REFUSED = auto()
    """The topic has recorded the other action: a broken invariant, to be reported."""


class EndResult(NamedTuple):
    """The result of one end."""

    outcome: EndOutcome
    owner: str = ""
    """Broker id of the topic's owner, if it is another broker and known."""
    reason: str = ""
    """For logs; empty when the end is over."""

    @property
    def over(self) -> bool:
        """Whether the topic need not be asked again."""
        return self.outcome in (EndOutcome.DONE, EndOutcome.GONE)


class Participants(Protocol):
    """Ends transactions in topics, on whichever brokers own them."""

    async def end(self, ends: Sequence[TransactionEnd]) -> list[EndResult]:
        """Ends each transaction in its topic; idempotent. Returns a result for each end, in order, within a
        bounded time; a failure is a result, too.
        """
        ...
