"""One log for all simulated brokers, on another machine: much cheaper than bookies, and it never fails.

Calls run outside of the broker's process: a broker that dies leaves them behind, and hears of nothing more.
Appends take time to arrive, in order; of those under way when their broker dies the last ones may be lost.
"""

from __future__ import annotations

import asyncio
import random
from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, TypeVar

from magnetar.common.errors import StorageError
from magnetar.common.metadata.store import Op
from magnetar.ledger.ledger_store import (
    ClosedLedger,
    LedgerListener,
    LedgerReader,
    LedgerRef,
    LedgerStore,
    LedgerWriter,
    Obstacle,
    Run,
    WriteReport,
)
from magnetar.ledger.local_store import LocalLedgerStore, open_local_store
from magnetar.sim.disk import SimDisk
from magnetar.sim.loop import SimPool
from magnetar.sim.metadata import SimMetadataStore
from magnetar.sim.process import WORLD, SimProcess
from magnetar.sim.syncer import SimSyncer

from tests.simulation.quorum.cluster import INSTANCE_ID, KEYS, SMALL_SEGMENTS, Cluster

T = TypeVar("T")

GC_WAIT_MS: Final = 5_000
"""Garbage collection is seldom, because idle time would be the most expensive part of a run."""

WithOps = Callable[[ClosedLedger], Sequence[Op]]


async def open_shared_log(cluster: Cluster) -> LocalLedgerStore:
    """Opens the log in the world."""
    return await open_local_store(
        SimDisk(),
        SimMetadataStore(cluster.server, random.Random(cluster.rng.getrandbits(64))),
        KEYS,
        instance_id=INSTANCE_ID,
        pool=SimPool(cluster.loop),
        syncer=SimSyncer(cluster.loop, cluster.rng.choice((0.001, 0.003, 0.02))),
        clock=cluster.clock,
        rng=random.Random(cluster.rng.getrandbits(64)),
        config=replace(SMALL_SEGMENTS, gc_wait_ms=GC_WAIT_MS),
    )


async def _outside(make: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Awaits a call that goes on whatever becomes of the caller."""
    loop = asyncio.get_running_loop()
    task = loop.create_task(make(), context=WORLD.copy())
    # Its error is lost with a caller that does not wait any more.
    task.add_done_callback(lambda done: done.cancelled() or done.exception())
    return await asyncio.shield(task)


@dataclass(slots=True)
class RemoteStore:
    """The shared log as one broker uses it; a `LedgerStore`."""

    store: LedgerStore
    process: SimProcess
    rng: random.Random
    delay_max_s: float
    """Longest time in seconds that an append is under way."""

    async def create(
        self,
        listener: LedgerListener,
        *,
        ensemble_size: int,
        write_quorum: int,
        ack_quorum: int,
        properties: dict[str, str],
        with_ops: Callable[[LedgerRef], Sequence[Op]] | None = None,
    ) -> LedgerWriter:
        process = self.process
        heard = LedgerListener(
            lambda last: process.post(listener.on_confirmed, last),
            lambda error, last: process.post(listener.on_failed, error, last),
        )
        writer = await _outside(
            lambda: self.store.create(
                heard,
                ensemble_size=ensemble_size,
                write_quorum=write_quorum,
                ack_quorum=ack_quorum,
                properties=properties,
                with_ops=with_ops,
            )
        )
        return _RemoteWriter(writer, process, heard, self.rng, self.delay_max_s)

    async def disk_usage(self, copies: int) -> float | None:
        return await self.store.disk_usage(copies)

    async def open(self, ref: LedgerRef) -> LedgerReader:
        return _RemoteReader(await _outside(lambda: self.store.open(ref)))

    async def recover(
        self, ref: LedgerRef, with_ops: WithOps | None = None
    ) -> tuple[LedgerReader, ClosedLedger]:
        reader, closed = await _outside(lambda: self.store.recover(ref, with_ops))
        return _RemoteReader(reader), closed

    async def delete(self, ref: LedgerRef, with_ops: Sequence[Op] = ()) -> None:
        await _outside(lambda: self.store.delete(ref, with_ops))

    def obstacle(self, ack_quorum: int) -> Obstacle | None:
        return self.store.obstacle(ack_quorum)


@dataclass(slots=True)
class _RemoteWriter:
    writer: LedgerWriter
    process: SimProcess
    listener: LedgerListener
    rng: random.Random
    delay_max_s: float
    failed: StorageError | None = None
    _next_entry_id: int = 0
    _last_s: float = 0.0
    _under_way: deque[Run] = field(default_factory=deque)
    _lost: bool = False
    _arrived: asyncio.Future[None] | None = None

    @property
    def ref(self) -> LedgerRef:
        return self.writer.ref

    @property
    def last_confirmed(self) -> int:
        return self.writer.last_confirmed

    def append(self, run: Run) -> int:
        if self.failed is not None:
            raise type(self.failed)(*self.failed.args)
        run.ledger_id, run.first_entry_id = self.writer.ref.id, self._next_entry_id
        self._next_entry_id += len(run.entries)
        self._under_way.append(run)
        loop = asyncio.get_running_loop()
        self._last_s = max(self._last_s, loop.time() + self.rng.uniform(0, self.delay_max_s))
        loop.call_at(self._last_s, self._arrive, context=WORLD)
        return run.first_entry_id

    def write_report(self) -> WriteReport | None:
        return self.writer.write_report()

    def _arrive(self) -> None:
        run = self._under_way.popleft()  # timers of one moment have no order
        if not self.process.alive and self.rng.random() < 0.5:
            self._lost = True
        if not self._lost and self.failed is None:
            try:
                self.writer.append(run)
            except StorageError as error:
                self.failed = error
                self.listener.on_failed(error, self.writer.last_confirmed)
        if not self._under_way and self._arrived is not None:
            self._arrived.set_result(None)
            self._arrived = None

    async def close(self, with_ops: WithOps | None = None) -> ClosedLedger:
        async def close() -> ClosedLedger:
            if self._under_way:
                self._arrived = asyncio.get_running_loop().create_future()
                await self._arrived
            return await self.writer.close(with_ops)

        return await _outside(close)


@dataclass(slots=True)
class _RemoteReader:
    reader: LedgerReader

    @property
    def ref(self) -> LedgerRef:
        return self.reader.ref

    @property
    def last_confirmed(self) -> int:
        return self.reader.last_confirmed

    @property
    def copies(self) -> int:
        return self.reader.copies

    async def read(self, first: int, last: int, max_bytes: int) -> list[Run]:
        return await _outside(lambda: self.reader.read(first, last, max_bytes))
