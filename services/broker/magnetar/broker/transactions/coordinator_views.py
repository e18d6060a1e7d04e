"""Transaction coordinators as the admin API sees them: figures, and protocols that tests imitate."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from magnetar.common.naming.position import Position
from magnetar.common.naming.txn_id import TxnId


@dataclass(frozen=True, slots=True)
class CoordinatorFigures:
    """The figures of one coordinator. Times are ms since 1970 UTC; 0: not known."""

    state: str
    """Pulsar's name of the state: None, Initializing, Ready, Closing or Close."""
    last_number: int
    """The last number given to a transaction; -1 for none."""
    low_watermark: int
    """Every transaction up to this number has ended."""
    open: int
    """Transactions that have not ended."""
    recovery_began_ms: int = 0
    recovery_ended_ms: int = 0


@dataclass(frozen=True, slots=True)
class LogFigures:
    """The figures of the ledger that a log of records is written to."""

    name: str
    last: Position | None
    """The last durable record; None without a ledger."""
    byte_length: int = 0
    opened_ms: int = 0
    """Creation of the ledger, ms since 1970 UTC; 0: not known."""


@dataclass(frozen=True, slots=True)
class TransactionFigures:
    """One transaction, as its coordinator knows it."""

    id: TxnId
    status: str
    """OPEN, COMMITTING, COMMITTED, ABORTING or ABORTED."""
    opened_ms: int = 0
    """Begin of the transaction, ms since 1970 UTC."""
    timeout_ms: int = 0
    """Time that the transaction may be open, in ms."""
    owner: str = ""
    """Role that began the transaction; empty without authentication."""
    topics: Sequence[str] = ()
    """Full names of the topics, or partitions, that it publishes to."""
    subscriptions: Sequence[tuple[str, str]] = ()
    """Topics and subscriptions in which it acknowledges."""


class CoordinatorView(Protocol):
    """One transaction coordinator that this broker has loaded."""

    def figures(self) -> CoordinatorFigures: ...

    def log(self) -> LogFigures: ...

    def transaction(self, txn: TxnId) -> TransactionFigures:
        """Returns a transaction, also one that ended a while ago. Raises TransactionNotFound."""
        ...

    def transactions(self) -> Iterable[TransactionFigures]:
        """Returns the transactions that have not ended, the oldest first."""
        ...

    async def abort(self, txn: TxnId) -> None:
        """Aborts a transaction, and returns when every participant confirmed; idempotent.

        Raises TransactionNotFound; InvalidTxnStatus when it is committing or committed.
        """
        ...


class CoordinatorViews(Protocol):
    """The transaction coordinators of the cluster."""

    async def count(self) -> int:
        """Returns the number of coordinators."""
        ...

    async def grow(self, count: int) -> bool:
        """Raises the number of coordinators to `count`; returns False, changing nothing, if it is not larger
        than now. Raises MetadataError.
        """
        ...

    async def coordinator(self, coordinator_id: int) -> CoordinatorView:
        """Returns a coordinator that this broker owns, and loads it if needed.

        Raises ServiceNotReady when another broker owns it, or its log cannot be read now.
        """
        ...
