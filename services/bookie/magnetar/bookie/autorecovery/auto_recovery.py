"""A bookie's auto-recovery: election, replication worker, limbo repair, scrub, decommission."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable, Collection, Sequence

from magnetar.bookie.autorecovery.auditor import Auditor
from magnetar.bookie.autorecovery.cluster_view import ClusterView
from magnetar.bookie.autorecovery.config import AutoRecoveryConfig
from magnetar.bookie.autorecovery.decommission import DecommissionFollower
from magnetar.bookie.autorecovery.entry_copier import EntryCopier
from magnetar.bookie.autorecovery.ledger_locks import LedgerLocks
from magnetar.bookie.autorecovery.limbo_repair import LimboRepair
from magnetar.bookie.autorecovery.local_copies import OwnCopies
from magnetar.bookie.autorecovery.metrics import IS_AUDITOR
from magnetar.bookie.autorecovery.open_tail import OpenTails
from magnetar.bookie.autorecovery.replication_worker import ReplicationWorker
from magnetar.bookie.autorecovery.scrub import Scrub
from magnetar.bookie.autorecovery.session_holder import SessionHolder
from magnetar.bookie.autorecovery.throttle import Throttle
from magnetar.bookie.data_check import DataCheck
from magnetar.common.errors import MetadataError
from magnetar.common.metadata.election import Candidate, Leadership
from magnetar.common.metadata.keys import Keys
from magnetar.common.metadata.store import MetadataStore
from magnetar.common.metadata.values import Leader
from magnetar.common.runtime.clock import Clock
from magnetar.common.runtime.task_owner import TaskOwner
from magnetar.ledger.bookie_protocol.bookie_client import BookieClients
from magnetar.ledger.bookie_protocol.registry import BookieRegistry
from magnetar.ledger.ledger_catalog import LedgerCatalog
from magnetar.ledger.quorum.config import QuorumConfig
from magnetar.ledger.quorum.placement import Placement
from magnetar.ledger.quorum.quarantine import Quarantine
from magnetar.ledger.quorum.reader import ReadContext, ReadOptions
from magnetar.ledger.quorum.recovery import LedgerRecovery
from magnetar.ledger.quorum.replica_order import ReplicaOrder
from magnetar.ledger.quorum.striping import Striping


class AutoRecovery:
    """All parts of one bookie's auto-recovery. The caller owns metadata, registry and clients.

    `clients.client(bookie_id)` must reach this bookie too. `set_read_only(True)` is called when an operator
    decommissions the bookie, `set_read_only(False)` when the request is withdrawn; both are plain calls.
    `data_check` records whether all data must be scrubbed after possible loss.
    """

    def __init__(
        self,
        bookie_id: str,
        metadata: MetadataStore,
        keys: Keys,
        registry: BookieRegistry,
        clients: BookieClients,
        clock: Clock,
        rng: random.Random,
        config: AutoRecoveryConfig,
        *,
        set_read_only: Callable[[bool], None],
        data_check: DataCheck,
        quorum: QuorumConfig | None = None,
    ) -> None:
        self._metadata = metadata
        self._keys = keys
        self._clock = clock
        self._config = config
        quorum = QuorumConfig() if quorum is None else quorum
        placement = Placement(registry, Quarantine(clock, quorum), rng, quorum)

        def replacement(
            ensemble: Sequence[str], position: int, striping: Striping, *, excluded: Collection[str] = ()
        ) -> str | None:
            return placement.replacement(
                ensemble, position, striping, excluded={*excluded, *self.view.decommissions}
            )

        recovery = LedgerRecovery(
            LedgerCatalog(metadata, keys, clock, rng),
            metadata,
            keys,
            ReadContext(clients, ReplicaOrder(clock), ReadOptions()),
            replacement,
            clock,
        )
        self._tasks = TaskOwner("auto-recovery")
        self.view = ClusterView(metadata, keys, registry)
        self._sessions = SessionHolder(metadata, config.session_timeout_ms)
        self._candidate = Candidate(
            metadata, keys.auditor, self._sessions.get, clock, Leader(id=bookie_id), self._audit
        )
        copier = EntryCopier(clients, rng, Throttle(config.copy_bytes_per_s), self.view.is_up)
        tails = OpenTails(self.view, clients, config.open_ledger_grace_ms / 1000)
        self._worker = ReplicationWorker(
            metadata,
            keys,
            self.view,
            LedgerLocks(metadata, keys, self._sessions, clock, bookie_id),
            copier,
            tails,
            rng,
            config,
            replacement,
            recovery.recover,
        )
        copies = OwnCopies(bookie_id, clients, copier, Throttle(config.scrub_bytes_per_s))
        self.limbo_repair = LimboRepair(
            bookie_id, metadata, keys, clients, copies, tails, recovery.recover, rng
        )
        self.scrub = Scrub(bookie_id, metadata, keys, copies, data_check, rng, config)
        self._decommission = DecommissionFollower(bookie_id, metadata, keys, self.view, set_read_only)

    def start(self) -> None:
        """Starts in the background, even while metadata is unavailable. The registry must be started
        before.
        """
        self._tasks.spawn(self._start(), "start")

    async def close(self) -> None:
        """Stops immediately and gives up leadership and locks; idempotent."""
        await self._worker.close()
        await self._tasks.close()
        await self.view.close()
        with contextlib.suppress(MetadataError):
            await self._sessions.close()

    async def _start(self) -> None:
        await self.view.start()
        self._tasks.spawn(self._decommission.run(), "decommission")
        if not self._config.enabled:
            return
        self._worker.start()
        self._tasks.spawn(self._candidate.run(), "candidate")
        self._tasks.spawn(self.limbo_repair.run(), "doubts")
        self._tasks.spawn(self.scrub.run(), "scrub")

    async def _audit(self, leadership: Leadership) -> None:
        auditor = Auditor(self._metadata, self._keys, self.view, self._clock, self._config, leadership)
        IS_AUDITOR.set(1)
        try:
            await auditor.run()
        finally:
            IS_AUDITOR.set(0)
