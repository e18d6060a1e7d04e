"""Coordinators as the admin API sees them."""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from magnetar.broker.transactions.administration import Administration, LoadedCoordinator
from magnetar.broker.transactions.coordinator_topic import ensure_coordinators
from magnetar.broker.transactions.coordinator_views import (
    CoordinatorFigures,
    LogFigures,
    TransactionFigures,
)
from magnetar.broker.transactions.status import TransactionStatus, TxnState
from magnetar.common.errors import TransactionNotFound
from magnetar.common.metadata.keys import Keys
from magnetar.common.metadata.sqlite_store import SqliteMetadataStore
from magnetar.common.naming.position import Position
from magnetar.common.naming.txn_id import Action, TxnId
from magnetar.ledger.transaction_log.coordinator_state import Transaction

KEYS = Keys("standalone")
TOPIC = "persistent://public/default/t"


class Coordinator:
    """A coordinator with two unfinished transactions, and one that ended."""

    coordinator_id = 3
    last_number = 9
    low_watermark = 6
    active = 2
    recovery_began_ms = 100
    recovered_ms = 120
    log = SimpleNamespace(ref=SimpleNamespace(id=64), entries=3, byte_length=125)

    def __init__(self) -> None:
        self.found = {
            7: Transaction(7, "bob", 61_000, 60_000, (TOPIC,), ((TOPIC, "sub"),)),
            8: Transaction(8, "", 300_500, 300_000, action=Action.COMMIT),
        }
        self.ended: list[tuple[TxnId, Action, str | None]] = []

    def status(self, txn: TxnId) -> TransactionStatus:
        if txn.least == 5:
            return TransactionStatus(TxnState.ABORTED)
        return TransactionStatus(TxnState.OPEN if txn.least in self.found else TxnState.UNKNOWN)

    def transaction(self, txn: TxnId) -> Transaction:
        if txn.least not in self.found:
            raise TransactionNotFound(f"transaction {txn} is not known")
        return self.found[txn.least]

    def transactions(self) -> list[Transaction]:
        return list(self.found.values())

    async def end(self, txn: TxnId, action: Action, caller: str | None) -> None:
        self.ended.append((txn, action, caller))


def loaded() -> tuple[LoadedCoordinator, Coordinator]:
    coordinator = Coordinator()
    return LoadedCoordinator(cast(Any, coordinator)), coordinator


def test_figures_and_log_are_the_coordinators() -> None:
    view, coordinator = loaded()
    assert view.figures() == CoordinatorFigures("Ready", 9, 6, 2, 100, 120)
    assert view.log() == LogFigures("transactions/3", Position(64, 2), 125)
    cast(Any, coordinator).log = SimpleNamespace(ref=None, entries=0, byte_length=0)
    assert view.log() == LogFigures("transactions/3", None)


def test_a_transaction_has_its_state_times_and_participants() -> None:
    view, _ = loaded()
    open_one = TransactionFigures(TxnId(3, 7), "OPEN", 1_000, 60_000, "bob", (TOPIC,), ((TOPIC, "sub"),))
    assert view.transaction(TxnId(3, 7)) == open_one
    assert list(view.transactions()) == [
        open_one,
        TransactionFigures(TxnId(3, 8), "COMMITTING", 500, 300_000),
    ]


def test_a_transaction_that_ended_is_known_by_its_outcome_while_it_is_remembered() -> None:
    view, _ = loaded()
    assert view.transaction(TxnId(3, 5)) == TransactionFigures(TxnId(3, 5), "ABORTED")
    with pytest.raises(TransactionNotFound):
        view.transaction(TxnId(3, 4))


def test_an_operator_aborts_for_every_role() -> None:
    view, coordinator = loaded()
    asyncio.run(view.abort(TxnId(3, 7)))
    assert coordinator.ended == [(TxnId(3, 7), Action.ABORT, None)]


def test_the_number_of_coordinators_is_in_metadata_and_grows(tmp_path: Path) -> None:
    async def run() -> None:
        store = await SqliteMetadataStore.open(tmp_path / "metadata.sqlite")
        try:
            administration = Administration(cast(Any, None), store, KEYS)
            assert await administration.count() == 0
            await ensure_coordinators(store, KEYS, 4, 1)
            assert await administration.count() == 4
            assert not await administration.grow(4)
            assert await administration.grow(5)
            assert await administration.count() == 5
        finally:
            await store.close()

    asyncio.run(run())
