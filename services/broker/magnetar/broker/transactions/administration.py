"""The transaction coordinators of this broker, for the admin API."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from magnetar.broker.transactions.coordinator import Coordinator
from magnetar.broker.transactions.coordinator_topic import coordinator_count, grow_coordinators
from magnetar.broker.transactions.coordinator_views import (
    CoordinatorFigures,
    CoordinatorView,
    LogFigures,
    TransactionFigures,
)
from magnetar.broker.transactions.coordinators import Coordinators
from magnetar.broker.transactions.status import TxnState
from magnetar.common.metadata.keys import Keys
from magnetar.common.metadata.store import MetadataStore
from magnetar.common.naming.position import Position
from magnetar.common.naming.txn_id import Action, TxnId
from magnetar.ledger.transaction_log.coordinator_state import Transaction

_OVER: Final = (TxnState.COMMITTED, TxnState.ABORTED)


class Administration:
    """Implements `CoordinatorViews`."""

    def __init__(self, coordinators: Coordinators, metadata: MetadataStore, keys: Keys) -> None:
        self._coordinators = coordinators
        self._metadata = metadata
        self._keys = keys

    async def count(self) -> int:
        return await coordinator_count(self._metadata, self._keys)

    async def grow(self, count: int) -> bool:
        return await grow_coordinators(self._metadata, self._keys, count)

    async def coordinator(self, coordinator_id: int) -> CoordinatorView:
        return LoadedCoordinator(await self._coordinators.of(coordinator_id))


class LoadedCoordinator:
    """Implements `CoordinatorView` over a loaded coordinator."""

    def __init__(self, coordinator: Coordinator) -> None:
        self._coordinator = coordinator

    def figures(self) -> CoordinatorFigures:
        of = self._coordinator
        return CoordinatorFigures(
            state="Ready",
            last_number=of.last_number,
            low_watermark=of.low_watermark,
            open=of.active,
            recovery_began_ms=of.recovery_began_ms,
            recovery_ended_ms=of.recovered_ms,
        )

    def log(self) -> LogFigures:
        log = self._coordinator.log
        last = None if log.ref is None else Position(log.ref.id, log.entries - 1)
        return LogFigures(f"transactions/{self._coordinator.coordinator_id}", last, log.byte_length)

    def transaction(self, txn: TxnId) -> TransactionFigures:
        state = self._coordinator.status(txn).state
        if state in _OVER:
            return TransactionFigures(txn, state.name)
        return self._figures_of(self._coordinator.transaction(txn))

    def transactions(self) -> Iterable[TransactionFigures]:
        return map(self._figures_of, self._coordinator.transactions())

    async def abort(self, txn: TxnId) -> None:
        await self._coordinator.end(txn, Action.ABORT, None)

    def _figures_of(self, transaction: Transaction) -> TransactionFigures:
        return TransactionFigures(
            id=TxnId(self._coordinator.coordinator_id, transaction.number),
            status=_status(transaction.action),
            opened_ms=transaction.began_ms,
            timeout_ms=transaction.ttl_ms,
            owner=transaction.owner,
            topics=transaction.topics,
            subscriptions=transaction.subscriptions,
        )


def _status(decided: Action | None) -> str:
    if decided is None:
        return TxnState.OPEN.name
    return (TxnState.COMMITTING if decided is Action.COMMIT else TxnState.ABORTING).name
