"""Periodic sweeps by the leading broker: objects of deleted ledgers, and orphaned objects.

They need the packages of `magnetar-broker[cold]` and credentials. A broker that cannot reach a location logs
that at each sweep; `magnetar offload sweep` does the same work from another machine.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import cached_property
from typing import TYPE_CHECKING, Final

from magnetar.broker.offload_policy.config import OffloadConfig
from magnetar.common.errors import MagnetarError
from magnetar.common.metadata.keys import Keys
from magnetar.common.metadata.store import MetadataStore
from magnetar.common.naming.namespace_name import NamespaceName
from magnetar.common.obs.logs import get_logger
from magnetar.common.obs.metrics import REGISTRY
from magnetar.ledger.managed_ledger.offload_ledgers import OffloadLedgers
from prometheus_client import Counter, Gauge

if TYPE_CHECKING:
    from magnetar.broker.offload.object_scan import Scan
    from magnetar.broker.offload.object_sweep import ObjectSweep, SweepReport
    from magnetar.broker.offload.store_calls import OpenStore
    from magnetar.ledger.cold.layout import AttemptPath

log = get_logger(__name__)

ORPHANS: Final = Gauge(
    "magnetar_offload_orphans",
    "Attempts with unreferenced objects, older than the grace period, that the last sweep did not delete.",
    registry=REGISTRY,
)
LEFTOVERS: Final = Gauge(
    "magnetar_offload_leftovers",
    "Attempts with unreferenced objects that were younger than the grace period at the last sweep; a "
    "later sweep deletes them.",
    registry=REGISTRY,
)
DELETIONS_LEFT: Final = Gauge(
    "magnetar_offload_deletions_left",
    "Recorded deletions of objects that the last sweep could not execute.",
    registry=REGISTRY,
)
HALTED: Final = Gauge(
    "magnetar_offload_sweep_halted",
    "Locations at which the last sweep deleted no orphans: the marker is missing or another cluster's, "
    "or metadata may lack ledgers; see the log.",
    registry=REGISTRY,
)
LAST: Final = Gauge(
    "magnetar_offload_last_sweep_timestamp_seconds",
    "Time when the last sweep of this broker ended, seconds since 1970 UTC; 0: none, or it is not the "
    "leader.",
    registry=REGISTRY,
)
FAILURES: Final = Counter(
    "magnetar_offload_sweep_failures_total",
    "Locations and attempts at which a sweep failed; the next sweep retries.",
    registry=REGISTRY,
)
DELETED: Final = Counter(
    "brk_ledgeroffloader_delete_offload_ops",
    "Attempts whose objects were deleted, or (status failed) could not be.",
    ["namespace", "status"],
    registry=REGISTRY,
)


class SweepSchedule:
    """Sweeps at each interval until it is cancelled."""

    def __init__(
        self,
        metadata: MetadataStore,
        keys: Keys,
        ledgers: OffloadLedgers,
        config: OffloadConfig,
        cluster: str,
        leads: Callable[[], bool],
        stores: OpenStore | None = None,
    ) -> None:
        """`leads` tells whether this broker is the leader, which sweeps. `stores` opens object stores; None:
        the real ones.
        """
        self._metadata = metadata
        self._keys = keys
        self._ledgers = ledgers
        self._stores = stores
        self._config = config
        self._cluster = cluster
        self._clock = ledgers.clock
        self._leads = leads
        self._at_work = asyncio.Lock()
        self._scanning = asyncio.Lock()

    async def run(self) -> None:
        """Sweeps at each interval until canceled."""
        while True:
            await asyncio.sleep(self._config.sweep_interval_s)
            if not self._leads():
                # The leader exports them.
                for gauge in (ORPHANS, LEFTOVERS, DELETIONS_LEFT, HALTED, LAST):
                    gauge.set(0)
                continue
            try:
                await self.sweep()
            except MagnetarError as error:
                FAILURES.inc()
                log.warning("cannot sweep objects, retrying", error=str(error))
            except Exception:
                FAILURES.inc()
                log.exception("object sweep failed")

    async def sweep(self) -> SweepReport:
        """Sweeps now; a second caller waits for the first. Raises MetadataError."""
        async with self._at_work:
            report = await self._sweeping.sweep()
        ORPHANS.set(report.orphans)
        LEFTOVERS.set(report.leftovers)
        DELETIONS_LEFT.set(report.deletions_left)
        HALTED.set(len(report.doubts))
        LAST.set(self._clock.wall_ms() / 1000)
        FAILURES.inc(report.failures)
        if report.deleted or report.swept:
            log.info("objects swept", ledgers_gone=report.deleted, orphans=report.swept)
        return report

    async def scan(self, namespace: NamespaceName) -> Scan:
        """Compares a namespace's objects with its ledgers, one scan at a time. Raises MetadataError."""
        async with self._scanning:
            return await self._sweeping.scan(namespace)

    @cached_property
    def _sweeping(self) -> ObjectSweep:
        # Imported at the first sweep, so that the start is faster.
        from magnetar.broker.offload.object_sweep import ObjectSweep
        from magnetar.ledger.cold.objects import open_store

        stores = self._stores or open_store
        return ObjectSweep(
            self._metadata, self._keys, self._ledgers, self._config, self._cluster, stores, _count
        )


def _count(attempt: AttemptPath | None, done: bool) -> None:
    namespace = "" if attempt is None else f"{attempt.tenant}/{attempt.namespace}"
    DELETED.labels(namespace=namespace, status="succeed" if done else "failed").inc()
