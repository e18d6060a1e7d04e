"""The coordinators that this broker runs: those whose topic is in one of its bundles, loaded on first use."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Final

from magnetar.broker.ownership.ownership import Ownership
from magnetar.broker.transactions.coordinator import Coordinator, open_coordinator
from magnetar.broker.transactions.coordinator_topic import coordinator_partition
from magnetar.broker.transactions.participants import Participants
from magnetar.common.errors import (
    BrokerError,
    MagnetarError,
    MetadataError,
    ServiceNotReady,
    StorageError,
    TransactionCoordinatorNotFound,
)
from magnetar.common.naming.bundle_range import BundleRange
from magnetar.common.naming.namespace_name import NamespaceName
from magnetar.common.obs.logs import get_logger
from magnetar.common.runtime.task_owner import TaskOwner
from magnetar.ledger.managed_ledger.context import ManagedLedgerContext

log = get_logger(__name__)

LOAD_S: Final = 30.0
"""Seconds that a client waits for a coordinator to be loaded; the load goes on after that."""

CLOSE_S: Final = 5.0
"""Seconds that a coordinator may take to finish its changes in flight before it moves."""


class Coordinators:
    """Loads and closes coordinators; used on one event loop.

    `count` returns the number of the cluster's coordinators. `active_max` limits the open transactions of
    each; 0: any.
    """

    def __init__(
        self,
        ledgers: ManagedLedgerContext,
        ownership: Ownership,
        participants: Participants,
        count: Callable[[], Awaitable[int]],
        *,
        cluster: str,
        active_max: int,
    ) -> None:
        self._ledgers = ledgers
        self._ownership = ownership
        self._participants = participants
        self._count = count
        self._cluster = cluster
        self._active_max = active_max
        self._loaded: dict[int, Coordinator] = {}
        self._loads: dict[int, asyncio.Task[Coordinator | MagnetarError]] = {}
        self._tasks = TaskOwner("transaction coordinators")
        self._closed = False

    @property
    def loaded(self) -> Mapping[int, Coordinator]:
        """The loaded coordinators by id."""
        return self._loaded

    @property
    def loading(self) -> list[int]:
        """Ids of the coordinators that are being loaded."""
        return list(self._loads)

    async def connect(self, tc_id: int) -> None:
        """Loads a coordinator of this broker; concurrent calls share one load.

        Raises ServiceNotReady if this broker does not own it or it cannot be loaded now,
        TransactionCoordinatorNotFound for an id that no coordinator has, DataCorruption.
        """
        await self._serving(tc_id)

    async def of(self, tc_id: int) -> Coordinator:
        """Returns a coordinator of this broker, which is loaded if it is not.

        Raises TransactionCoordinatorNotFound if it is elsewhere or cannot be loaded now, which makes clients
        look it up and connect again; DataCorruption.
        """
        try:
            return await self._serving(tc_id)
        except ServiceNotReady as error:
            raise TransactionCoordinatorNotFound(str(error)) from error

    async def _serving(self, tc_id: int) -> Coordinator:
        name = coordinator_partition(tc_id)
        found = self._loaded.get(tc_id)
        if found is None:
            await self._ownership.settled(name)
        self._ownership.check(name)
        if found is not None:
            return found
        if self._closed:
            raise ServiceNotReady("the broker is shutting down: connect to the coordinator's next broker")
        load = self._loads.get(tc_id)
        if load is None:
            load = self._loads[tc_id] = self._tasks.spawn(self._try_load(tc_id), f"load coordinator {tc_id}")
            load.add_done_callback(lambda _: self._loads.pop(tc_id, None))
        return await self._loading(tc_id, load)

    async def _loading(self, tc_id: int, load: asyncio.Task[Coordinator | MagnetarError]) -> Coordinator:
        """Waits for a load, which goes on when this caller is cancelled."""
        done, _ = await asyncio.wait((load,), timeout=LOAD_S)
        if not done:
            raise ServiceNotReady(f"coordinator {tc_id} is still being loaded after {LOAD_S:g} s; try again")
        if load.cancelled():
            raise ServiceNotReady(f"coordinator {tc_id} is moving; look it up again")
        outcome = load.result()
        if isinstance(outcome, Coordinator):
            return outcome
        if isinstance(outcome, BrokerError) or not outcome.retriable:
            raise type(outcome)(*outcome.args) from outcome
        raise ServiceNotReady(f"coordinator {tc_id} cannot be loaded now: {outcome}") from outcome

    async def _try_load(self, tc_id: int) -> Coordinator | MagnetarError:
        try:
            return await self._load(tc_id)
        except MagnetarError as error:
            log.warning("coordinator not loaded", coordinator=tc_id, error=str(error))
            return error

    async def _load(self, tc_id: int) -> Coordinator:
        count = await self._count()
        if not 0 <= tc_id < count:
            raise TransactionCoordinatorNotFound(f"there is no coordinator {tc_id}: the cluster has {count}")
        coordinator = await open_coordinator(
            self._ledgers, tc_id, self._participants, cluster=self._cluster, active_max=self._active_max
        )
        try:
            self._ownership.check(coordinator_partition(tc_id))  # it may have moved meanwhile
        except BaseException:
            coordinator.abandon(f"coordinator {tc_id} moved while it was loaded")
            await coordinator.stopped()
            raise
        coordinator.on_lost = lambda: self._drop(tc_id, coordinator)
        self._loaded[tc_id] = coordinator
        log.info(
            "coordinator loaded",
            coordinator=tc_id,
            transactions=coordinator.active,
            ms=coordinator.recovered_ms - coordinator.recovery_began_ms,
        )
        return coordinator

    def _drop(self, tc_id: int, coordinator: Coordinator) -> None:
        if self._loaded.get(tc_id) is coordinator:
            del self._loaded[tc_id]
        self._stop(coordinator)

    def _stop(self, coordinator: Coordinator) -> None:
        self._tasks.spawn(coordinator.stopped(), f"stop coordinator {coordinator.coordinator_id}")

    # Moves

    async def close_bundle(self, namespace: NamespaceName, bundle: BundleRange) -> None:
        """Closes the coordinators of a bundle before another broker takes it. Decided transactions go on
        there.
        """
        await self._close(self._of_bundle(namespace, bundle))

    def bundle_lost(self, namespace: NamespaceName, bundle: BundleRange) -> None:
        """Drops the coordinators of a bundle that another broker owns, without writing."""
        self._abandon(
            self._of_bundle(namespace, bundle), f"bundle {bundle} of {namespace} is no longer owned here"
        )

    def abandon(self, reason: str) -> None:
        """Drops all coordinators without writing."""
        self._closed = True
        self._abandon([*self._loads, *self._loaded], reason)

    async def close(self) -> None:
        """Closes all coordinators, within a bounded time. Idempotent."""
        self._closed = True
        await self._close([*self._loads, *self._loaded])
        await self._tasks.close()

    def _of_bundle(self, namespace: NamespaceName, bundle: BundleRange) -> list[int]:
        found = []
        for tc_id in [*self._loads, *self._loaded]:
            name = coordinator_partition(tc_id)
            if name.namespace == namespace and name.hash in bundle:
                found.append(tc_id)
        return found

    def _abandon(self, coordinators: list[int], reason: str) -> None:
        for tc_id in coordinators:
            load = self._loads.get(tc_id)
            if load is not None:
                load.cancel()
            coordinator = self._loaded.pop(tc_id, None)
            if coordinator is not None:
                coordinator.abandon(f"coordinator {tc_id} is not served here any more: {reason}")
                self._stop(coordinator)

    async def _close(self, coordinators: list[int]) -> None:
        loads = [self._loads[each] for each in coordinators if each in self._loads]
        for load in loads:
            load.cancel()
        if loads:
            await asyncio.wait(loads)
        leaving = [self._loaded.pop(each) for each in coordinators if each in self._loaded]
        for coordinator in leaving:
            coordinator.on_lost = None
        await asyncio.gather(*(_close(each) for each in leaving))


async def _close(coordinator: Coordinator) -> None:
    try:
        async with asyncio.timeout(CLOSE_S):
            await coordinator.close()
    except (TimeoutError, MetadataError, StorageError) as error:
        log.warning(
            "coordinator not closed in time; its next broker recovers the log",
            coordinator=coordinator.coordinator_id,
            error=str(error),
        )
