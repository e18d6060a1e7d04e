"""Staged runs of the rarer trouble, one kind each: what a nemesis brings together by chance happens in every
run here. Moments vary by the seed; `Outcome.happened` says how often each came about."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import Final

from magnetar.common.errors import MetadataError, StorageError
from magnetar.ledger.bookie_protocol.bookie_client import EncodedAppend
from magnetar.ledger.ledger_store import LedgerWriter

from tests.simulation.quorum.checker import Promises
from tests.simulation.quorum.cluster import SMALL_SEGMENTS, BookieNode, ClientNode, Cluster, Shape
from tests.simulation.quorum.directed import THREE, Staged, staged
from tests.simulation.quorum.ledger_workload import LedgerWorkload
from tests.simulation.quorum.rarer_trouble import EAGER_AUTO_RECOVERY
from tests.simulation.quorum.running import Outcome, run_cluster

FOUR: Final = Shape(3, 3, 2, 4)

WRITTEN_WITHIN_S: Final = 5.0
NEVER_S: Final = 1_000_000
REPLICATED_WITHIN_S: Final = 30.0


class LateCommits(Staged):
    """A writer that goes on when it hears that its close was refused, and metadata that carries out commits
    which were given up."""

    async def stage(self) -> None:
        client = await self._cluster.client("writer")
        faults = client.metadata.faults
        for _ in range(6):
            promises, writer = await self.create(client)
            await self.write(client, promises, writer, 5)
            faults.late_probability, faults.late_max_s = 0.7, self.rng.choice((0.005, 0.02, 0.1))
            try:
                closed = await client.process.spawn(writer.close())
                self._checker.closed(promises, closed, by_writer=True)
            except (StorageError, MetadataError):
                await self.write(client, promises, writer, 5)  # refused, but where nothing was closed
                await asyncio.sleep(0.05)
            faults.late_probability = 0.0

    async def write(self, client: ClientNode, promises: Promises, writer: LedgerWriter, entries: int) -> None:
        for _ in range(entries):
            self.append(client, promises, writer, b"entry %d" % len(promises.appended))
            await asyncio.sleep(self.rng.uniform(0, 0.004))


class HeldBack(LateCommits):
    """Streams and bookies that take one or two appends at a time: slow, and no reason to give a bookie up."""

    async def stage(self) -> None:
        cluster, rng = self._cluster, self.rng
        client = await cluster.client("writer")
        promises, writer = await self.create(client)
        client.clients.pending_bytes_max = rng.choice((None, 400, 800))
        for bookie in rng.sample(cluster.bookies, rng.randint(1, 3)):
            assert bookie.core is not None
            log = bookie.core.log
            log.config = replace(log.config, pending_bytes_max=rng.choice((400, 800)))
        for _ in range(12):
            for _ in range(rng.choice((1, 3, 6))):
                self.append(client, promises, writer, b"entry %d" % len(promises.appended))
            await asyncio.sleep(rng.uniform(0, 0.01))
        until_s = cluster.loop.time() + WRITTEN_WITHIN_S
        while promises.told < len(promises.appended) - 1 or self.lacking(promises):
            assert not promises.failed, f"{promises} failed"
            assert cluster.loop.time() < until_s, f"{promises}: {self.lacking(promises)} lack the last entry"
            await asyncio.sleep(0.05)
        value = cluster.checker.metadata[promises.ref.id]
        assert len(value.fragments) == 1, f"{promises}: a bookie was given up since it held appends back"
        assert not value.gaps, f"{promises}: gaps {value.gaps}"

    def lacking(self, promises: Promises) -> set[str]:
        names = {bookie.name for bookie in self._cluster.bookies}
        return names - set(self._checker.holders(promises, len(promises.appended) - 1))


class CopiesBeside(LateCommits):
    """Auto-recovery fills gaps of ledgers whose writer changes ensembles again and again, with metadata that
    loses outcomes."""

    replicate = True

    async def stage(self) -> None:
        cluster, rng = self._cluster, self.rng
        # No scrub mends what metadata says nothing of any more.
        cluster.auto_recovery = replace(EAGER_AUTO_RECOVERY, scrub_interval_s=NEVER_S)
        for bookie in cluster.bookies:
            bookie.begin_auto_recovery()
        client = await cluster.client("writer")
        client.metadata.faults.unknown_probability = 0.2
        cluster.auto_recovery_stands_still = self.stand_still
        for _ in range(2):
            with suppress(MetadataError, StorageError):
                promises, writer = await self.create(client)
                for _ in range(5):
                    bookie = rng.choice(cluster.bookies)
                    bookie.down_s = (0.05, 0.6)
                    bookie.crash(rng.choice(("kill", "crash")))
                    for _ in range(12):
                        await self.write(client, promises, writer, 2)
                        await asyncio.sleep(0.02)
                client.metadata.faults.unknown_probability = 0.0
                await client.process.spawn(writer.close())
        client.metadata.faults.unknown_probability = 0.0
        cluster.auto_recovery_stands_still = None
        client.process.kill()
        await asyncio.sleep(1)

    def stand_still(self, worker: str, target: str, append: EncodedAppend) -> None:
        """A worker that copies pauses: meanwhile the ledger's writer changes what the worker has read."""
        for bookie in self._cluster.bookies:
            if bookie.name == worker != target and bookie.process is not None and self.rng.random() < 0.3:
                bookie.process.pause(self.rng.uniform(0.05, 0.3))


class MovedLate(LateCommits):
    """A worker stands still between the copies of a share and the metadata that names them, for longer than
    the bookie that has the copies keeps what nothing names."""

    replicate = True

    async def stage(self) -> None:
        cluster, rng = self._cluster, self.rng
        cluster.auto_recovery = EAGER_AUTO_RECOVERY
        cluster.core_config = replace(cluster.core_config, moved_grace_s=0.2)
        trouble = self.nemesis.rarer
        for bookie in cluster.bookies:
            bookie.shorten_moved_grace(0.2)
            bookie.begin_auto_recovery()
        client = await cluster.client("writer")
        for _ in range(3):
            promises, writer = await self.create(client)
            await self.write(client, promises, writer, 40)
            closed = await client.process.spawn(writer.close())
            self._checker.closed(promises, closed, by_writer=True)
        cluster.auto_recovery_stands_still = trouble.stand_still
        for bookie in rng.sample(cluster.bookies, 2):
            bookie.down_s = (3.0, 4.0)
            bookie.crash("kill")
            await asyncio.sleep(4.5)
        cluster.auto_recovery_stands_still = None
        await asyncio.sleep(2)


class RacedIds(LateCommits):
    """Three processes create ledgers at the same moments, some of them without hearing the outcome."""

    async def stage(self) -> None:
        cluster, rng = self._cluster, self.rng
        clients = [await cluster.client(f"writer{number}") for number in range(3)]
        for client in clients:
            client.metadata.faults.unknown_probability = rng.choice((0.0, 0.3))
            client.metadata.faults.late_probability = rng.choice((0.0, 0.3))
            client.metadata.faults.late_max_s = 0.02
        for _ in range(6):
            await asyncio.gather(*(client.process.spawn(self.create_one(client)) for client in clients))

    async def create_one(self, client: ClientNode) -> None:
        with suppress(StorageError, MetadataError):
            before = max(self._checker.ledgers, default=0)
            promises, writer = await self.create(client)
            assert promises.ref.id > before, f"ledger {promises.ref.id} was created after ledger {before}"
            self.append(client, promises, writer, b"an entry of %d" % promises.ref.id)


class RefusedAtAFence(LateCommits):
    """A bookie cannot make the fence of a recovery durable, refuses what is appended meanwhile, and forgets
    the fence when its power goes; another bookie never heard of it."""

    async def stage(self) -> None:
        cluster, network, rng = self._cluster, self._cluster.network, self.rng
        writing, recovering = await cluster.client("writer"), await cluster.client("recoverer")
        promises, writer = await self.create(writing)
        await self.write(writing, promises, writer, 4)
        await asyncio.sleep(0.02)
        failing, fenced, unheard = rng.sample(cluster.bookies, 3)
        network.partition(["recoverer"], [unheard.name])
        network.partition(["writer"], [fenced.name])
        at = -1 if rng.random() < 0.5 else rng.randrange(10)
        if at < 0:  # the fence alone is refused: the writer does not hear that anything went wrong
            self.fail_syncs(failing, 60)
            cluster.later(0.012, failing.disk.faults.sync_errors.clear)
        recovery = recovering.process.spawn(self._recover(recovering, promises, rng, 4))
        for number in range(12 if at >= 0 else 0):
            if number == at:
                self.fail_syncs(failing, rng.randint(1, 8))
            self.append(writing, promises, writer, b"refused or not %d" % len(promises.appended))
            await asyncio.sleep(rng.uniform(0, 0.001))
        await asyncio.wait([recovery], timeout=2)
        failing.disk.faults.sync_errors.clear()
        failing.crash("crash")
        await asyncio.sleep(0.1)
        for _ in range(3):
            self.append(writing, promises, writer, b"after the fence %d" % len(promises.appended))
            await asyncio.sleep(0.2)

    def fail_syncs(self, bookie: BookieNode, operations: int) -> None:
        start = bookie.disk.operations + 1
        bookie.disk.faults.sync_errors.update(range(start, start + operations))


class RepairsCompacted(LateCommits):
    """A bookie that is filled up, in ledgers that are written on, rewrites its segments meanwhile, and loses
    its power now and then."""

    replicate = True

    async def stage(self) -> None:
        cluster, rng = self._cluster, self.rng
        cluster.auto_recovery = EAGER_AUTO_RECOVERY
        cluster.log_config = replace(SMALL_SEGMENTS, segment_size_bytes=8 << 10, fill_ahead_bytes=4 << 10)
        client = await cluster.client("writer")
        pairs = [await self.create(client) for _ in range(3)]
        away = rng.choice(cluster.bookies)
        for part in range(6):
            if part in (1, 3):
                away.down_s = (0.3, 0.5)
                away.crash(rng.choice(("kill", "crash")))
            for number in range(20):
                if number % 4 == 0:
                    self.nemesis.rarer.compact_repairs()
                for promises, writer in pairs:
                    self.append(client, promises, writer, bytes(rng.randrange(400)))
                await asyncio.sleep(0.01)
            for bookie in cluster.bookies:
                bookie.begin_auto_recovery()
            await asyncio.sleep(rng.uniform(0, 0.1))
        until_s = cluster.loop.time() + REPLICATED_WITHIN_S
        while any(cluster.checker.metadata[promises.ref.id].gaps for promises, _ in pairs):
            assert cluster.loop.time() < until_s, "gaps are left"
            self.nemesis.rarer.compact_repairs()
            await asyncio.sleep(0.2)
        self.nemesis.rarer.compact_repairs()
        await asyncio.sleep(0.5)


class AllAtOnce(LedgerWorkload):
    """Owners over ledgers under every rarer kind of trouble, and few others."""

    fights = 6
    fight_pauses_s = (0.15, 0.4)

    def __init__(self, cluster: Cluster) -> None:
        super().__init__(cluster)
        self.nemesis.only_rarer()


def run_all_at_once(seed: int) -> Outcome:
    """One run of them."""
    return run_cluster(seed, lambda cluster: AllAtOnce(cluster).run())


def run_rarer(kind: type[Staged]) -> Callable[[int], Outcome]:
    """Runs of one kind."""
    shape = FOUR if kind in (CopiesBeside, MovedLate) else THREE
    return lambda seed: run_cluster(seed, lambda cluster: staged(cluster, kind).run(), shape=shape)


SUITES: Final = {
    kind.__name__: run_rarer(kind)
    for kind in (LateCommits, HeldBack, CopiesBeside, MovedLate, RacedIds, RefusedAtAFence, RepairsCompacted)
}
