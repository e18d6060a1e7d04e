"""A compacted topic over bookies: owners publish, compact and read while bookies, network and metadata fail.

The promises are those of `tests.simulation.compaction_workload`: each owner finds a complete view that is not
older than any that was served, and whatever is not in it yet. A former owner goes on until it learns that it
is one; a view that it makes is never named.
"""

from __future__ import annotations

import asyncio
import random
from dataclasses import replace

from magnetar.common.errors import MetadataError, StorageError
from magnetar.common.naming.position import EARLIEST
from magnetar.ledger.managed_ledger import (
    EntryCache,
    ManagedLedger,
    ManagedLedgerContext,
    finish_intents,
    open_managed_ledger,
)

from tests.simulation.compaction_workload import CONFIG, TOPIC, CompactionWorkload, WorkloadListener
from tests.simulation.quorum.cluster import KEYS, ClientNode, Cluster
from tests.simulation.quorum.nemesis import Nemesis
from tests.unit.ledger.compacted.history import RandomHistory

OWNERS = 3
FINAL_S = 60.0
"""Once everything is healed, the topic is loaded, checked and compacted within so much virtual time."""


class QuorumCompaction:
    """One run over one cluster."""

    def __init__(self, cluster: Cluster) -> None:
        shape = cluster.shape
        self.rng = random.Random(f"compaction {cluster.seed}")
        self.workload = CompactionWorkload(cluster.seed, unknown_outcomes=True)
        self.nemesis = Nemesis(cluster, cluster.seed)
        self._history = RandomHistory(self.rng, keys=self.rng.choice((2, 5)))
        self._cluster = cluster
        self._epoch = 0
        self._config = replace(
            CONFIG,
            ensemble_size=shape.ensemble_size,
            write_quorum=shape.write_quorum,
            ack_quorum=shape.ack_quorum,
        )

    async def run(self) -> None:
        """Everything, from the first bookie's start to the last check."""
        cluster, rng = self._cluster, self.rng
        for bookie in cluster.bookies:
            bookie.start()
        await asyncio.sleep(0.1)
        trouble = asyncio.ensure_future(self.nemesis.run())
        for number in range(OWNERS):
            client = await cluster.client(f"owner{number}")
            client.process.spawn(self._own(client, random.Random(rng.getrandbits(64))))
            await asyncio.sleep(rng.choice((0.3, 0.6, 1.0)))
            fate = rng.random()
            if fate < 0.3:
                client.process.kill()
            elif fate < 0.6:
                client.process.kill_after(rng.randint(1, 600))
            cluster.checker.raise_broken()
        self.nemesis.stop()
        await trouble
        await asyncio.sleep(0.5)
        for client in cluster.clients:
            client.process.kill()
        last = await cluster.client("last")
        await asyncio.wait_for(last.process.spawn(self._check_everything(last)), FINAL_S)
        cluster.checker.raise_broken()

    async def _own(self, client: ClientNode, rng: random.Random) -> None:
        """Loads the topic, then publishes, compacts and reads until the topic is known to be another's."""
        workload = self.workload
        ledger, _ = await self._load(client, rng)
        while ledger._lost is None:
            if workload.ledger is ledger:
                for _ in range(rng.randrange(1, 6)):
                    workload.publish(self._history.next())
            what = rng.random()
            if what < 0.5 and not ledger.compaction.running:
                client.process.spawn(workload.compact_as(ledger, rng))
            elif what < 0.7 and workload.ledger is ledger:
                client.process.spawn(workload.read())
            await asyncio.sleep(rng.choice((0.001, 0.01, 0.03, 0.1)))

    async def _load(
        self, client: ClientNode, rng: random.Random
    ) -> tuple[ManagedLedger, ManagedLedgerContext]:
        """Loads the topic and reads all of it: what a former owner left without a confirmation exists now."""
        workload = self.workload
        ctx = ManagedLedgerContext(
            client.store, client.metadata, KEYS, self._cluster.clock, self._config, EntryCache(1 << 20)
        )
        while True:
            listener = WorkloadListener(workload)
            try:
                ledger = await open_managed_ledger(
                    ctx, TOPIC, listener, create=not workload.made, properties={}
                )
            except (StorageError, MetadataError):
                await asyncio.sleep(rng.uniform(0.02, 0.1))
                continue
            workload.made = True
            epoch = ledger._head.decode().owner_epoch
            if ledger._lost is not None or epoch <= self._epoch:
                continue  # another owner took it over while this one was still loading
            self._epoch = epoch
            ledger.compaction.hold(True)
            workload.ledger = listener.ledger = ledger
            while workload.ledger is ledger:
                try:
                    await workload.learn(ledger)
                    break
                except (StorageError, MetadataError):
                    await asyncio.sleep(rng.uniform(0.02, 0.1))
            return ledger, ctx

    async def _check_everything(self, client: ClientNode) -> None:
        workload, rng = self.workload, self.rng
        ledger, ctx = await self._load(client, rng)
        readable = await workload.learn(ledger)
        workload.checker.check_hold(ledger.compaction.horizon or EARLIEST, readable)
        await workload.check_view(ledger, ctx)
        failures = workload.failures
        await workload.compact_as(ledger, rng)
        assert workload.failures == failures, "nothing is in the way any more"
        assert ledger.compaction.horizon == (ledger.read_limit() if workload.checker.history else None)
        await workload.check_view(ledger, ctx)
        await asyncio.sleep(0.5)
        await finish_intents(ctx)
        workload.checker.check_ledgers(self._cluster.server)
        await ledger.close()
