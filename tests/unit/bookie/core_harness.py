"""One bookie core in a simulated world: opened, killed, cut off, with its metadata, and what it answered."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace

from magnetar.bookie.bookie_core import BookieCore, open_bookie_core
from magnetar.bookie.core_config import BookieCoreConfig
from magnetar.common.metadata.store import ANY_VERSION, Put
from magnetar.common.metadata.values import InstanceId, LedgerMetadata, encode
from magnetar.ledger.bookie_protocol.bookie_pb2 import (
    Append,
    AppendResult,
    ClearLimboRequest,
    FenceRequest,
    LedgerState,
    ListLedgersRequest,
    ReadPart,
    ReadRequest,
)
from magnetar.ledger.bookie_protocol.bookie_pb2 import LedgerRef as WireRef
from magnetar.ledger.bookie_protocol.records import decode_run, encode_run
from magnetar.ledger.ledger_store import LedgerRef, Run
from magnetar.ledger.segment_log.config import SegmentLogConfig
from magnetar.sim.disk import SimDisk
from magnetar.sim.loop import SimClock, SimLoop, SimPool, run
from magnetar.sim.metadata import SimMetadataServer, SimMetadataStore
from magnetar.sim.syncer import SimSyncer

from tests.simulation.power_loss import INSTANCE_ID, KEYS, SMALL_SEGMENTS

BOOKIE = "bookie-1"
A = LedgerRef(1, 0xA)
B = LedgerRef(2, 0xB)


@dataclass(slots=True)
class Bench:
    """What outlives a process, and the process."""

    loop: SimLoop
    disk: SimDisk = field(default_factory=SimDisk)
    server: SimMetadataServer = field(default_factory=SimMetadataServer)
    log_config: SegmentLogConfig = SMALL_SEGMENTS
    config: BookieCoreConfig = field(default_factory=BookieCoreConfig)
    bookie_id: str = BOOKIE
    instance_id: bytes = INSTANCE_ID
    core: BookieCore = field(init=False)
    metadata: SimMetadataStore = field(init=False)
    results: list[AppendResult] = field(default_factory=list)
    dead: list[BookieCore] = field(default_factory=list)
    """Cores whose process died: kept, so that their tasks are not collected but stand still."""

    async def open(self, *, accept_empty_directory: bool = False) -> BookieCore:
        if self.server.get(KEYS.instance_id) is None:
            self.name_instance(self.instance_id)
        self.metadata = SimMetadataStore(self.server, self.loop.rng)
        self.core = await open_bookie_core(
            self.disk,
            self.metadata,
            KEYS,
            bookie_id=self.bookie_id,
            instance_id=self.instance_id,
            pool=SimPool(self.loop),
            syncer=SimSyncer(self.loop),
            clock=SimClock(self.loop),
            rng=random.Random(self.loop.rng.getrandbits(64)),
            log_config=self.log_config,
            config=replace(self.config, accept_empty_directory=accept_empty_directory),
        )
        return self.core

    def name_instance(self, instance_id: bytes) -> None:
        """Have metadata say that it is this instance."""
        self.server.commit([Put(KEYS.instance_id, encode(InstanceId(uuid=instance_id)), ANY_VERSION)])

    async def restart(self, outage: str = "kill", rng: random.Random | None = None) -> BookieCore:
        """'kill': the process dies; 'crash': the power goes; 'close': it ends in good order."""
        if outage == "close":
            await self.core.close()
        dead = self.disk
        return await self.put_back(dead.crash(rng or random.Random(1)) if outage == "crash" else dead.kill())

    async def put_back(self, image: SimDisk) -> BookieCore:
        """The process dies, and the next one finds this disk."""
        self.disk.crashed = True
        self.disk = image
        self.core.mode.stop()
        self.core.garbage._stop.set()
        self.core.garbage._wake.set()
        self.core.high_water.stop()
        self.dead.append(self.core)
        return await self.open()

    def append(
        self,
        ref: LedgerRef,
        first: int,
        entries: Sequence[bytes],
        *,
        lac: int = -1,
        recovery: bool = False,
    ) -> None:
        """Append; its results are collected in `results`."""
        self.core.append(append_of(ref, first, entries, lac=lac, recovery=recovery), self.results.append)

    async def appended(
        self,
        ref: LedgerRef,
        first: int,
        entries: Sequence[bytes],
        *,
        lac: int = -1,
        recovery: bool = False,
    ) -> AppendResult:
        """Append and wait for the answer."""
        answer: asyncio.Future[AppendResult] = asyncio.get_running_loop().create_future()
        self.core.append(append_of(ref, first, entries, lac=lac, recovery=recovery), answer.set_result)
        return await answer

    async def compared(self) -> None:
        """Wait until nothing is being compared."""
        await self.core._appends.comparisons.drained()

    async def read(
        self, ref: LedgerRef, first: int, last: int, max_bytes: int = 1 << 30, *, fence: bool = False
    ) -> tuple[list[bytes], ReadPart]:
        """(entries, the last part)"""
        request = ReadRequest(
            ledger=wire(ref), first_entry_id=first, last_entry_id=last, max_bytes=max_bytes, fence=fence
        )
        entries: list[bytes] = []
        part = ReadPart()
        async for part in self.core.read(request):
            for record in part.records:
                got = decode_run(record)
                assert got.first_entry_id == first + len(entries), "in order, without a gap"
                entries += got.entries
        return entries, part

    async def fence(self, ref: LedgerRef) -> LedgerState:
        return await self.core.fence(FenceRequest(ledger=wire(ref)))

    async def clear_limbo(self, ref: LedgerRef) -> LedgerState:
        return await self.core.clear_limbo(ClearLimboRequest(ledger=wire(ref)))

    async def state(self, ref: LedgerRef) -> LedgerState:
        page = await self.core.list_ledgers(ListLedgersRequest(after_ledger_id=ref.id - 1, limit=1))
        [state] = page.ledgers
        assert (state.ledger.id, state.ledger.key) == (ref.id, ref.key)
        return state

    async def put_metadata(
        self,
        ref: LedgerRef,
        state: LedgerMetadata.State.ValueType = LedgerMetadata.OPEN,
        *bookies: str,
        last_entry_id: int = -1,
    ) -> None:
        """Write a ledger's metadata: one fragment on these bookies, by default on this one."""
        value = LedgerMetadata(state=state, ensemble_size=1, write_quorum=1, ack_quorum=1)
        value.ref.id, value.ref.key = ref.id, ref.key
        value.last_entry_id = last_entry_id
        value.fragments.add(first_entry_id=0, bookie_ids=bookies or (self.bookie_id,))
        await self.metadata.put(KEYS.ledger(ref.id), encode(value))


def wire(ref: LedgerRef) -> WireRef:
    return WireRef(id=ref.id, key=ref.key)


def append_of(
    ref: LedgerRef, first: int, entries: Sequence[bytes], *, lac: int = -1, recovery: bool = False
) -> Append:
    return Append(
        record=encode_run(Run(list(entries), 1000, first, first_entry_id=first), ref, lac),
        recovery=recovery,
    )


def on_a_bookie(
    act: Callable[[Bench], Awaitable[None]],
    seed: int = 0,
    *,
    log_config: SegmentLogConfig = SMALL_SEGMENTS,
    config: BookieCoreConfig | None = None,
    disk: SimDisk | None = None,
) -> None:
    """Run `act` with an open core, in virtual time."""
    loop = SimLoop(seed, time_max_s=10_000)

    async def main() -> None:
        bench = Bench(
            loop, disk or SimDisk(), log_config=replace(log_config), config=config or BookieCoreConfig()
        )
        await bench.open()
        await act(bench)
        await bench.core.close()

    run(loop, main())
