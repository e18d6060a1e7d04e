"""The managed ledger's workload beside jobs that offload its ledgers, and an owner that lets storage go.

At each moment something has every entry that was promised: the ledger, or complete objects. Bytes of ledgers
that left are really gone: garbage collection waits for nothing.
"""

from __future__ import annotations

import asyncio
import random
from contextlib import suppress
from dataclasses import dataclass, field, replace

from magnetar.common.errors import MagnetarError, OwnershipLost
from magnetar.common.naming.position import Position
from magnetar.common.naming.topic_name import TopicName
from magnetar.ledger.cold.cold_reader import ColdLedger, ObjectsDamaged, ObjectsUnavailable, Verified
from magnetar.ledger.local_store import LocalLedgerStore
from magnetar.ledger.managed_ledger import ManagedLedger, ManagedLedgerContext, ReadResult, bookie_release
from magnetar.ledger.managed_ledger.offload_ledgers import OffloadLedgers
from magnetar.ledger.managed_ledger.offload_progress import OffloadRules
from magnetar.ledger.managed_ledger.trimming import Retention
from magnetar.sim.metadata import SimMetadataServer, SimMetadataStore

from tests.simulation.cold_objects import (
    Objects,
    SimColdStore,
    SimJob,
    check_every_ledger_is_somewhere,
    sweep,
)
from tests.simulation.managed_ledger_workload import TOPIC, ManagedLedgerWorkload
from tests.simulation.power_loss import KEYS, SMALL_SEGMENTS, Process

NO_GRACE = replace(SMALL_SEGMENTS, gc_grace_s=0.0, gc_share_max=1.0)

JOBS = 2
"""At work at the same topic: they take ledgers from one another."""


@dataclass(slots=True)
class ColdWorkload(ManagedLedgerWorkload):
    """`left` counts ledgers that left storage."""

    objects: Objects = field(default_factory=dict)
    in_use: list[str] = field(default_factory=list)
    """Paths of what is being verified, or was just now: bits that rot from then on nobody would notice."""
    left: int = 0
    owners_left: set[int] = field(default_factory=set)
    zombies_refused: int = 0
    cold: SimColdStore | None = None
    store: LocalLedgerStore | None = None
    jobs: list[SimJob] = field(default_factory=list)
    keepers: int = 0
    process: Process | None = None

    def fork(self) -> ColdWorkload:
        twin = ManagedLedgerWorkload.fork(self)
        assert isinstance(twin, ColdWorkload)
        twin.objects, twin.in_use = dict(self.objects), []
        twin.cold = twin.store = twin.process = None
        twin.jobs = []
        return twin

    def context(self, process: Process, store: LocalLedgerStore) -> ManagedLedgerContext:
        ctx = ManagedLedgerWorkload.context(self, process, store)
        self.cold = SimColdStore(self.objects, self.in_use, random.Random(process.loop.rng.getrandbits(64)))
        ctx.cold = self.cold
        return ctx

    async def open_store(self, process: Process) -> LocalLedgerStore:
        process.config = NO_GRACE
        self.store = await ManagedLedgerWorkload.open_store(self, process)
        return self.store

    async def load(self, process: Process, store: LocalLedgerStore) -> None:
        await ManagedLedgerWorkload.load(self, process, store)
        self.process = process
        topic, rng = self.topic, random.Random(f"{self.seed}/{self.keepers}")
        topic.retain(Retention(time_ms=150, size_bytes=-1))
        topic.offload = OffloadRules(rng.choice((0, 0, 20)), rng.random() < 0.3)
        self.keepers += 1
        self.spawn(self.keep(topic, rng))
        if not self.jobs:
            for number in range(JOBS):
                metadata = SimMetadataStore(process.world.metadata, process.loop.rng)
                metadata.faults.unknown_probability = 0.05
                offloads = OffloadLedgers(metadata, KEYS, process.clock)
                rng = random.Random(f"{self.seed}/job {number}")
                job = SimJob(TopicName.parse(TOPIC), offloads, self.objects, rng)
                self.jobs.append(job)
                self.spawn(self.offload(job, process))

    async def step(self, rng: random.Random) -> None:
        await ManagedLedgerWorkload.step(self, rng)
        # Another owner comes just as a ledger has been verified.
        due = self.topic.due_to_leave() is not None
        if due and rng.random() < 0.1 and self.process is not None and self.store is not None:
            await self.take_over(self.process, self.store)

    async def offload(self, job: SimJob, process: Process) -> None:
        while True:
            await asyncio.sleep(job.rng.choice((0, 0, 0.002)))
            assert self.store is not None, "it was opened"
            await job.offload_one(self.store)
            if job.rng.random() < 0.05:
                job.damage_one(process.world.metadata, self.in_use)

    async def keep(self, topic: ManagedLedger, rng: random.Random) -> None:
        """What an owner does by the clock, for as long as it may."""
        while topic._lost is None and not topic._closing:
            await asyncio.sleep(rng.choice((0.001, 0.005, 0.01)))
            try:
                await topic.refresh_offload()
                cold = topic.due_to_leave()
                if cold is None or self.cold is None:
                    continue
                with self.cold.untouched(cold):
                    await self.let_go(topic, cold, self.cold)
                if self.store is not None:
                    await self.store.garbage.collect()
            except MagnetarError:
                continue  # the next time

    async def let_go(self, topic: ManagedLedger, cold: ColdLedger, store: SimColdStore) -> None:
        try:
            verified = await store.verify(cold)
        except ObjectsDamaged as error:
            await bookie_release.want_again(topic._ctx, cold, str(error))
        else:
            if await topic.leave_bookies(verified):
                self.left += 1
                self.owners_left.add(cold.ref.id)

    async def take_over(self, process: Process, store: LocalLedgerStore) -> None:
        """A former owner that has just verified a ledger does not let storage go of it any more."""
        former, verified = self.topic, None
        cold, objects = former.due_to_leave(), self.cold
        if cold is None or objects is None:
            await ManagedLedgerWorkload.take_over(self, process, store)
            return
        with objects.untouched(cold):
            with suppress(MagnetarError):
                verified = await objects.verify(cold)
            await ManagedLedgerWorkload.take_over(self, process, store)
            if verified is not None:
                await self.zombie(former, verified)

    async def zombie(self, former: ManagedLedger, verified: Verified) -> None:
        span = former.spans.by_id.get(verified.ledger.ref.id)
        if span is None:
            return
        try:
            left = await bookie_release.leave(former._ctx, former._head, former.creation_id, span, verified)
        except OwnershipLost:
            self.zombies_refused += 1
            return
        assert not left or self.left_by_owner(span.ref.id), "a former owner let storage go of a ledger"

    def left_by_owner(self, ledger_id: int) -> bool:
        """Whether the present owner had done it before, or one that came after him."""
        return ledger_id in self.owners_left

    async def read(self, ledger: ManagedLedger, at: Position) -> ReadResult:
        while True:
            try:
                return await ManagedLedgerWorkload.read(self, ledger, at)
            except ObjectsUnavailable:
                continue

    async def check(self, process: Process) -> None:
        metadata = process.world.metadata
        check_every_ledger_is_somewhere(self.objects, metadata)
        await ManagedLedgerWorkload.check(self, process)
        if self.ledger is None:
            return
        # What nobody needs goes, and everything is still there.
        self.check_whole(metadata)
        sweep(self.objects, metadata)
        self.check_whole(metadata)
        assert self.store is not None, "it was opened"
        await self.store.garbage.collect()
        await self.verify(self.topic._ctx)

    def check_whole(self, metadata: SimMetadataServer) -> None:
        check_every_ledger_is_somewhere(self.objects, metadata)
