"""A transaction coordinator: begins transactions, decides how they end, and sees to it that they do.

The decision is a record in the coordinator's log. From its confirmation on it is carried out for ever, by
this broker or by the next one that owns the coordinator; before it, a transaction is open, and its deadline
aborts it. What is requested again gets the same answer, as long as the outcome is remembered.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Final

from magnetar.broker.transactions.deadlines import Deadlines
from magnetar.broker.transactions.figures import CoordinatorFigures
from magnetar.broker.transactions.outcome_delivery import OutcomeDelivery
from magnetar.broker.transactions.participants import Participants
from magnetar.broker.transactions.status import TransactionStatus, TxnState
from magnetar.common.errors import (
    Backpressure,
    InvalidTxnStatus,
    OwnershipLost,
    StorageError,
    TooManyTransactions,
    TransactionCoordinatorNotFound,
    TransactionNotAllowed,
    TransactionNotFound,
)
from magnetar.common.naming.txn_id import Action, TxnId
from magnetar.common.obs.logs import get_logger
from magnetar.common.runtime.clock import Clock
from magnetar.ledger.managed_ledger.context import ManagedLedgerContext
from magnetar.ledger.transaction_log.coordinator_state import (
    CoordinatorState,
    Reason,
    Subscription,
    Transaction,
)
from magnetar.ledger.transaction_log.takeover import DEFAULT_LIMITS, take_over_log
from magnetar.ledger.transaction_log.transaction_log import Done, LogLimits, TransactionLog

log = get_logger(__name__)

GRACE_S: Final = 10.0
"""Seconds after a takeover in which no transaction times out, so that clients can find the coordinator."""

TTL_MS_MAX: Final = 100 * 365 * 24 * 60 * 60 * 1000
"""Longest time that a transaction may be open, in milliseconds; longer ones are cut."""

PARTICIPANTS_MAX: Final = 10_000
"""Topics, and subscriptions, that may take part in one transaction."""


class Coordinator:
    """Serves from `load` until `close`, or until it is lost; then requests get
    TransactionCoordinatorNotFound, and clients look the coordinator up again.

    `caller` is the role that acts; None acts on the transactions of every role.
    """

    def __init__(
        self,
        coordinator_id: int,
        transaction_log: TransactionLog,
        participants: Participants,
        clock: Clock,
        figures: CoordinatorFigures,
        *,
        active_max: int,
        recovery_began_ms: int,
    ) -> None:
        """Serves over a log that was just taken over. `active_max` limits the open transactions; 0: any."""
        self.coordinator_id = coordinator_id
        self.recovery_began_ms = recovery_began_ms
        """Time of the takeover's begin, ms since 1970 UTC."""
        self.recovered_ms = clock.wall_ms()
        """Time of the takeover's end, ms since 1970 UTC."""
        self.log = transaction_log
        self.on_lost: Callable[[], None] | None = None
        """Called once when another broker has taken the coordinator over."""
        self._clock = clock
        self._figures = figures
        self._active_max = active_max
        self._gone: str | None = None
        self._attached: dict[int, list[asyncio.Future[None]]] = {}
        """Callers that wait for the end of a transaction."""
        self._deadlines = Deadlines(clock, self._is_open, self._timed_out)
        self._delivery = OutcomeDelivery(
            coordinator_id, participants, lambda: self.low_watermark, self._confirmed, clock, figures
        )
        self._resume()

    def _resume(self) -> None:
        """Continues what the former owner began."""
        now, wall_ms = self._clock.monotonic(), self._clock.wall_ms()
        deadlines = []
        for each in self._state.unfinished():
            if each.action is None:
                # This clock may be behind the former owner's: no transaction gets more than its whole time.
                left_s = max(min(each.deadline_ms - wall_ms, each.ttl_ms) / 1000, GRACE_S)
                deadlines.append((now + left_s, each.number))
            else:
                self._delivery.deliver(each)
        self._deadlines.add_all(deadlines)
        self._figures.active.set_function(lambda: self.active)
        self._figures.oldest.set_function(lambda: self.oldest_s)

    # Requests of clients

    async def begin(self, ttl_ms: int, owner: str) -> TxnId:
        """Begins a transaction that is aborted after `ttl_ms`; it is durable on return.

        Raises TooManyTransactions at the limit and while the log is behind, TransactionCoordinatorNotFound.
        """
        self._check_here()
        if self._active_max and self.active >= self._active_max:
            raise TooManyTransactions(
                f"coordinator {self.coordinator_id} has {self.active} open transactions, and "
                f"maxActiveTransactionsPerCoordinator is {self._active_max}; retry later"
            )
        ttl_ms = min(max(ttl_ms, 0), TTL_MS_MAX)
        written = _Written(self)
        try:
            number = self.log.begin(owner, ttl_ms, written.done)
        except StorageError as error:
            raise self._refusal(error) from error
        self._deadlines.add(number, self._clock.monotonic() + ttl_ms / 1000)
        await written.wait()
        self._figures.created.inc()
        self._figures.log_has(self.log.figures.changes)
        return TxnId(self.coordinator_id, number)

    async def add_partitions(self, txn: TxnId, topics: Sequence[str], caller: str | None) -> None:
        """Registers topics to which an open transaction publishes, by full name; durable on return.

        Raises InvalidTxnStatus if it is decided, TransactionNotFound if it is over or another role's,
        TransactionNotAllowed with too many topics, TooManyTransactions, TransactionCoordinatorNotFound.
        """
        found = self._open(txn, caller)
        _check_room(txn, len(found.topics) + len(topics), "topics")
        await self._write(partial(self.log.add_topics, txn.least, topics))

    async def add_subscriptions(
        self, txn: TxnId, subscriptions: Sequence[Subscription], caller: str | None
    ) -> None:
        """Registers subscriptions, as (topic, subscription), in which an open transaction acknowledges;
        durable on return. Raises as `add_partitions`.
        """
        found = self._open(txn, caller)
        _check_room(txn, len(found.subscriptions) + len(subscriptions), "subscriptions")
        await self._write(partial(self.log.add_subscriptions, txn.least, subscriptions))

    async def end(self, txn: TxnId, action: Action, caller: str | None) -> None:
        """Ends a transaction; returns once every topic that takes part has recorded it. A repetition joins
        the first request, or returns at once while the outcome is remembered.

        Raises InvalidTxnStatus if the transaction ends, or has ended, with the other action;
        TransactionNotFound if it is not known (any more) or another role's; TransactionCoordinatorNotFound
        if the coordinator moves meanwhile: then a repetition tells the outcome.
        """
        self._check_here()
        outcome = self._state.outcomes.get(txn.least)
        if outcome is not None:
            self._check_owner(txn, outcome.owner, caller)
            self._check_same(txn, outcome.action, action, "ended")
            return
        found = self._known(txn, caller)
        if found.action is None:
            self._decide(found.number, action, Reason.REQUESTED)
        else:
            self._check_same(txn, found.action, action, "is ending")
        ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        waiting = self._attached.setdefault(found.number, [])
        waiting.append(ended)
        try:
            await ended
        finally:
            if not ended.done() or ended.cancelled():
                waiting.remove(ended)

    # Questions

    @property
    def low_watermark(self) -> int:
        """Every lower or equal number of this coordinator is over, durably; -1: none."""
        return self._state.low_watermark

    @property
    def last_number(self) -> int:
        """The highest number given so far, or passed over by a takeover; -1 before the first one."""
        return self._state.next_number - 1

    @property
    def active(self) -> int:
        """Number of unfinished transactions."""
        return self._state.active

    @property
    def oldest_s(self) -> float:
        """Age of the oldest unfinished transaction, in seconds; 0 without any."""
        oldest = next((each for each in self._state.transactions.values() if not each.ended_ms), None)
        return 0.0 if oldest is None else max(0.0, (self._clock.wall_ms() - oldest.began_ms) / 1000)

    @property
    def unconfirmed_ends(self) -> int:
        """Number of topics that have not confirmed the end of a decided transaction."""
        return self._delivery.unconfirmed

    def status(self, txn: TxnId) -> TransactionStatus:
        """Returns how far a transaction is."""
        outcome = self._state.outcomes.get(txn.least)
        if outcome is not None:
            return TransactionStatus(
                TxnState.COMMITTED if outcome.action is Action.COMMIT else TxnState.ABORTED
            )
        found = self._state.transactions.get(txn.least)
        if found is None:
            return TransactionStatus(TxnState.UNKNOWN)
        if found.action is None:
            return TransactionStatus(TxnState.OPEN, found.deadline_ms)
        return TransactionStatus(TxnState.COMMITTING if found.action is Action.COMMIT else TxnState.ABORTING)

    def transaction(self, txn: TxnId) -> Transaction:
        """Returns an unfinished transaction. Raises TransactionNotFound, TransactionCoordinatorNotFound."""
        return self._known(txn, None)

    def transactions(self) -> Iterable[Transaction]:
        """Returns all unfinished transactions, in the order of their numbers."""
        return self._state.unfinished()

    # Carrying out

    @property
    def _state(self) -> CoordinatorState:
        return self.log.state

    def _is_open(self, number: int) -> bool:
        found = self._state.transactions.get(number)
        return found is not None and found.action is None

    def _timed_out(self, number: int) -> None:
        if self._gone is None:
            self._figures.timed_out.inc()
            log.info("transaction timed out", txn=str(TxnId(self.coordinator_id, number)))
            try:
                self._decide(number, Action.ABORT, Reason.TIMED_OUT)
            except TransactionCoordinatorNotFound:
                pass  # the next owner aborts it

    def _decide(self, number: int, action: Action, reason: Reason) -> None:
        try:
            self.log.decide(number, action, reason, partial(self._decided, number))
        except StorageError as error:
            raise self._refusal(error) from error
        self._deadlines.drop_one()

    def _decided(self, number: int, error: StorageError | None) -> None:
        """Carries out a durable decision. With an error it is for the next owner to find out."""
        if error is None and self._gone is None:
            self._delivery.deliver(self._state.transactions[number])

    def _confirmed(self, number: int) -> None:
        """Ends a transaction of which every topic has recorded the outcome."""
        ended = self._state.transactions[number]
        assert ended.action is not None, "it was decided"
        self.log.end(number)
        self._figures.ended(ended.action, self._clock.wall_ms() - ended.began_ms)
        self._figures.log_has(self.log.figures.changes)
        for waiting in self._attached.pop(number, ()):
            if not waiting.done():
                waiting.set_result(None)

    # The end

    def lost(self, error: StorageError) -> None:
        """Stops: another broker owns the coordinator now. Nothing more is decided or answered here."""
        if self._gone is None:
            self._leave(f"coordinator {self.coordinator_id} was taken over by another broker: {error}")
            if self.on_lost is not None:
                self.on_lost()

    def abandon(self, reason: str) -> None:
        """Stops at once, without writing. `stopped` ends the calls in flight."""
        self._leave(reason)
        self.log.lose(OwnershipLost(reason))

    async def stopped(self) -> None:
        """Cancels the calls to topics that are in flight, after `abandon` or a loss."""
        await self._delivery.close()

    async def close(self) -> None:
        """Waits for the changes in flight and closes the log; idempotent. A caller with a deadline cancels
        it: then the next owner recovers the log.
        """
        self._leave(f"coordinator {self.coordinator_id} is moving to another broker")
        await self._delivery.close()
        await self.log.close()

    def _leave(self, reason: str) -> None:
        if self._gone is not None:
            return
        self._gone = reason
        self._deadlines.stop()
        self._delivery.stop()
        self._figures.log_has(self.log.figures.changes)
        self._figures.close()
        attached, self._attached = self._attached, {}
        for waiting in attached.values():
            for each in waiting:
                if not each.done():
                    each.set_exception(TransactionCoordinatorNotFound(reason))

    # Checks

    def _check_here(self) -> None:
        if self._gone is not None:
            raise TransactionCoordinatorNotFound(self._gone)

    def _known(self, txn: TxnId, caller: str | None) -> Transaction:
        """Returns an unfinished transaction of the caller."""
        self._check_here()
        found = self._state.transactions.get(txn.least)
        if found is None or found.ended_ms:
            raise _not_found(txn)
        self._check_owner(txn, found.owner, caller)
        return found

    def _open(self, txn: TxnId, caller: str | None) -> Transaction:
        found = self._known(txn, caller)
        if found.action is not None:
            raise InvalidTxnStatus(
                f"transaction {txn} is not open: its {found.action.value} is decided ({found.reason.value})"
            )
        return found

    def _check_owner(self, txn: TxnId, owner: str, caller: str | None) -> None:
        if caller is not None and owner and owner != caller:
            raise _not_found(txn)

    def _check_same(self, txn: TxnId, decided: Action, wanted: Action, verb: str) -> None:
        if decided is not wanted:
            raise InvalidTxnStatus(
                f"transaction {txn} {verb} with {decided.value}; it cannot end with {wanted.value}"
            )

    async def _write(self, change: Callable[[Done], None]) -> None:
        written = _Written(self)
        try:
            change(written.done)
        except StorageError as error:
            raise self._refusal(error) from error
        await written.wait()

    def _refusal(self, error: StorageError) -> TooManyTransactions | TransactionCoordinatorNotFound:
        """Returns the error for a request that was not accepted."""
        if isinstance(error, Backpressure):
            return TooManyTransactions(f"{error}; retry later")
        return TransactionCoordinatorNotFound(
            f"coordinator {self.coordinator_id} is not served here any more: {error}"
        )


class _Written:
    """Waits for one change of the log."""

    __slots__ = ("_coordinator", "_future")

    def __init__(self, coordinator: Coordinator) -> None:
        self._coordinator = coordinator
        self._future: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def done(self, error: StorageError | None) -> None:
        if self._future.done():
            return
        if error is None:
            self._future.set_result(None)
        else:
            self._future.set_exception(self._coordinator._refusal(error))

    async def wait(self) -> None:
        await self._future


async def open_coordinator(
    ctx: ManagedLedgerContext,
    coordinator_id: int,
    participants: Participants,
    *,
    cluster: str,
    active_max: int,
    limits: LogLimits = DEFAULT_LIMITS,
) -> Coordinator:
    """Takes a coordinator over from its former owner. Its caller closes it.

    Raises errors of storage and metadata; a retry is safe.
    """
    began_ms = ctx.clock.wall_ms()
    taken: list[Coordinator] = []
    lost: list[StorageError] = []

    def on_lost(error: StorageError) -> None:
        lost.append(error)
        for each in taken:
            each.lost(error)

    transaction_log = await take_over_log(ctx, coordinator_id, on_lost, limits)
    if lost:
        raise lost[0]
    coordinator = Coordinator(
        coordinator_id,
        transaction_log,
        participants,
        ctx.clock,
        CoordinatorFigures(cluster, coordinator_id),
        active_max=active_max,
        recovery_began_ms=began_ms,
    )
    taken.append(coordinator)
    return coordinator


def _check_room(txn: TxnId, count: int, what: str) -> None:
    if count > PARTICIPANTS_MAX:
        raise TransactionNotAllowed(
            f"{count} {what} would take part in transaction {txn}, at most {PARTICIPANTS_MAX} can; use "
            "smaller transactions"
        )


def _not_found(txn: TxnId) -> TransactionNotFound:
    return TransactionNotFound(f"transaction {txn} is not known: it has ended, or never began")
