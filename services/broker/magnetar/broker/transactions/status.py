"""The state of transactions as their coordinators tell it to topics."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import Enum, auto
from typing import NamedTuple, Protocol

from magnetar.common.naming.txn_id import TxnId


class TxnState(Enum):
    """How far a transaction is."""

    OPEN = auto()
    COMMITTING = auto()
    """Its commit is decided and not yet recorded by every topic."""
    ABORTING = auto()
    COMMITTED = auto()
    ABORTED = auto()
    UNKNOWN = auto()
    """Never begun, or over and forgotten."""


class TransactionStatus(NamedTuple):
    """The state of one transaction."""

    state: TxnState
    until_ms: int = 0
    """Deadline of an open one, in milliseconds since 1970 UTC."""


class TransactionStatuses(NamedTuple):
    """The answer of one coordinator."""

    of: Mapping[TxnId, TransactionStatus]
    low_watermark: int


class Statuses(Protocol):
    """Coordinators that can be asked about their transactions."""

    async def status(self, coordinator_id: int, transactions: Sequence[TxnId]) -> TransactionStatuses:
        """Returns the state of transactions of one coordinator, which is loaded if it is not.

        Raises ServiceNotReady and other errors when it cannot be asked: that says nothing about a
        transaction.
        """
        ...
