"""A few bookies on one simulated loop, each with its core, its disk and its auto-recovery; calls go straight
from one to the other. Ledgers are written to cores and metadata as a writer would have left them.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

from magnetar.bookie.autorecovery.auto_recovery import AutoRecovery
from magnetar.bookie.autorecovery.config import AutoRecoveryConfig
from magnetar.bookie.bookie_core import BookieCore, open_bookie_core
from magnetar.bookie.core_config import BookieCoreConfig
from magnetar.bookie.registration import Registration
from magnetar.common.metadata.store import ABSENT, Put
from magnetar.common.metadata.values import (
    BookieCookie,
    BookieRegistration,
    Counter,
    Decommission,
    InstanceId,
    Leader,
    LedgerMetadata,
    UnderReplicated,
    decode,
    encode,
)
from magnetar.ledger.bookie_protocol.bookie_client import (
    AppendDone,
    BookieUnreachable,
    EncodedAppend,
    ReadAnswer,
)
from magnetar.ledger.bookie_protocol.bookie_pb2 import (
    OK,
    UNREACHABLE,
    AppendBatch,
    AppendResult,
    ClearLimboRequest,
    Code,
    DescribeRequest,
    Description,
    EntryRanges,
    FenceRequest,
    LedgerList,
    LedgerState,
    ListEntriesRequest,
    ListLedgersRequest,
    ReadLacRequest,
    ReadPart,
    ReadRequest,
    Record,
)
from magnetar.ledger.bookie_protocol.bookie_pb2 import LedgerRef as WireRef
from magnetar.ledger.bookie_protocol.records import decode_run, encode_append
from magnetar.ledger.bookie_protocol.registry import BookieRegistry
from magnetar.ledger.ledger_store import LedgerRef, Run
from magnetar.ledger.quorum.striping import Striping
from magnetar.sim.disk import SimDisk
from magnetar.sim.loop import SimClock, SimLoop, SimPool, run
from magnetar.sim.metadata import SimMetadataServer, SimMetadataStore
from magnetar.sim.syncer import SimSyncer

from tests.simulation.power_loss import INSTANCE_ID, KEYS, SMALL_SEGMENTS

T = TypeVar("T")

SESSION_MS = 2_000

QUICK = AutoRecoveryConfig(
    lost_bookie_recovery_delay_s=10,
    open_ledger_grace_ms=5_000,
    retry_after_ms=1_000,
    scrub_interval_s=0,
    session_timeout_ms=SESSION_MS,
)
"""Short delays; the scrub runs only when a test says so."""

CORE = BookieCoreConfig(disk_usage_threshold=1.0, disk_usage_low_water_mark=1.0, accept_empty_directory=True)


def payload(ledger_id: int, entry_id: int) -> bytes:
    return f"{ledger_id}/{entry_id}/".encode().ljust(100, b".")


class DirectClients:
    """`BookieClients`: straight to the cores of the cluster."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    def client(self, bookie_id: str) -> DirectClient:
        return DirectClient(self._cluster, bookie_id)

    async def close(self) -> None:
        pass


@dataclass(slots=True)
class DirectClient:
    """`BookieClient` of one bookie, wherever its core is now."""

    _cluster: Cluster
    bookie_id: str
    pending_bytes: int = 0

    def _core(self) -> BookieCore:
        node = self._cluster.nodes.get(self.bookie_id)
        if node is None or node.core is None or node.unreachable:
            raise BookieUnreachable(f"{self.bookie_id} does not answer")
        return node.core

    def _died(self, core: BookieCore) -> bool:
        """Whether a core is another process's by now, or nobody's.

        What a killed core still does, it does to a disk that nobody will see again. So an answer that it had
        not given before must not get through: 'durable' would be a promise that its bookie has not heard of.
        """
        node = self._cluster.nodes.get(self.bookie_id)
        return node is None or node.core is not core

    async def _ask(self, ask: Callable[[BookieCore], Awaitable[T]]) -> T:
        core = self._core()
        answer = await ask(core)
        if self._died(core):
            raise BookieUnreachable(f"{self.bookie_id} died before it answered")
        return answer

    def append(self, append: EncodedAppend, done: AppendDone) -> None:
        loop = asyncio.get_running_loop()
        self._cluster.appends.append((self.bookie_id, append.ref.id, append.first_entry_id))
        self._cluster.on_append(len(self._cluster.appends))
        try:
            core = self._core()
        except BookieUnreachable as error:
            loop.call_soon(done, UNREACHABLE, str(error))
            return

        def answered(result: AppendResult) -> None:
            if self._died(core):
                loop.call_soon(done, UNREACHABLE, f"{self.bookie_id} died before it answered")
            else:
                loop.call_soon(done, result.code, result.reason)

        [each] = AppendBatch.FromString(append.wire).appends
        core.append(each, answered)

    def write_lac(self, ref: LedgerRef, lac: int) -> None:
        pass

    async def read(
        self, ref: LedgerRef, first: int, last: int, max_bytes: int, *, fence: bool = False
    ) -> ReadAnswer:
        request = ReadRequest(
            ledger=wire(ref), first_entry_id=first, last_entry_id=last, max_bytes=max_bytes, fence=fence
        )

        async def ask(core: BookieCore) -> ReadAnswer:
            records: list[Record] = []
            part = ReadPart()
            async for part in core.read(request):
                records += part.records
            return ReadAnswer(records, part.code, part.stopped_at, part.reason, part.torn)

        return await self._ask(ask)

    async def read_lac(self, ref: LedgerRef, *, above: int = -1, wait_ms: int = 0) -> LedgerState:
        request = ReadLacRequest(ledger=wire(ref), above=above, wait_ms=wait_ms)
        return await self._ask(lambda core: core.read_lac(request))

    async def fence(self, ref: LedgerRef) -> LedgerState:
        return await self._ask(lambda core: core.fence(FenceRequest(ledger=wire(ref))))

    async def list_ledgers(
        self, *, after_ledger_id: int = -1, limit: int = 0, only_limbo: bool = False
    ) -> LedgerList:
        request = ListLedgersRequest(after_ledger_id=after_ledger_id, limit=limit, only_limbo=only_limbo)
        return await self._ask(lambda core: core.list_ledgers(request))

    async def delete_hint(self, refs: Sequence[LedgerRef]) -> None:
        pass

    async def clear_limbo(self, ref: LedgerRef) -> LedgerState:
        return await self._ask(lambda core: core.clear_limbo(ClearLimboRequest(ledger=wire(ref))))

    async def describe(self) -> Description:
        return await self._ask(lambda core: core.describe(DescribeRequest()))

    async def list_entries(self, ref: LedgerRef, first: int, last: int) -> EntryRanges:
        request = ListEntriesRequest(ledger=wire(ref), first_entry_id=first, last_entry_id=last)
        return await self._ask(lambda core: core.list_entries(request))


@dataclass(slots=True)
class Node:
    """One bookie."""

    cluster: Cluster
    bookie_id: str
    rack: str
    config: AutoRecoveryConfig
    disk: SimDisk = field(default_factory=SimDisk)
    core: BookieCore | None = None
    unreachable: bool = False
    """It runs, and nobody gets an answer."""
    metadata: SimMetadataStore | None = None
    registration: Registration | None = None
    registry: BookieRegistry | None = None
    recovery: AutoRecovery | None = None

    async def start(self) -> None:
        cluster = self.cluster
        self.metadata = SimMetadataStore(cluster.server, random.Random(cluster.loop.rng.random()))
        self.core = await open_bookie_core(
            self.disk,
            self.metadata,
            KEYS,
            bookie_id=self.bookie_id,
            instance_id=INSTANCE_ID,
            pool=SimPool(cluster.loop),
            syncer=SimSyncer(cluster.loop),
            clock=SimClock(cluster.loop),
            rng=random.Random(cluster.loop.rng.random()),
            log_config=SMALL_SEGMENTS,
            config=CORE,
        )
        cookie = BookieCookie(bookie_id=self.bookie_id, created_ms=1)
        if await self.metadata.get(KEYS.cookie(self.bookie_id)) is None:
            await self.metadata.put(KEYS.cookie(self.bookie_id), encode(cookie))
        self.registration = Registration(self.metadata, KEYS, self.describe, SESSION_MS)
        self.core.on_mode_change(self.registration.changed)
        await self.registration.start()
        self.registry = BookieRegistry(self.metadata, KEYS)
        await self.registry.start()
        self.recovery = AutoRecovery(
            self.bookie_id,
            self.metadata,
            KEYS,
            self.registry,
            DirectClients(cluster),
            SimClock(cluster.loop),
            random.Random(cluster.loop.rng.random()),
            self.config,
            set_read_only=self.core.set_read_only,
            data_check=self.core.data_check,
        )
        self.recovery.start()

    def describe(self) -> BookieRegistration:
        assert self.core is not None
        return BookieRegistration(
            bookie_id=self.bookie_id,
            address=self.bookie_id,
            rack=self.rack,
            read_only=self.core.read_only,
            protocol_version=1,
            free_bytes=1 << 30,
        )

    async def stop(self) -> None:
        """In good order; its disk stays."""
        if self.core is None:
            return
        assert self.recovery is not None
        assert self.registration is not None
        assert self.registry is not None
        assert self.metadata is not None
        await self.recovery.close()
        await self.registry.close()
        await self.registration.close()
        core, self.core = self.core, None
        await core.close()
        await self.metadata.close()


class Cluster:
    """Bookies b1, b2, ... and one metadata store."""

    def __init__(self, loop: SimLoop) -> None:
        self.loop = loop
        self.server = SimMetadataServer()
        self.server.commit([Put(KEYS.instance_id, encode(InstanceId(uuid=INSTANCE_ID)), ABSENT)])
        self.metadata = SimMetadataStore(self.server, random.Random(1))
        self.nodes: dict[str, Node] = {}
        self.appends: list[tuple[str, int, int]] = []
        """(bookie, ledger, first entry) of everything that clients appended."""
        self.killed: list[Node] = []
        self.on_append: Callable[[int], None] = lambda count: None
        """Told of each append as it is sent: how many there were."""
        self._background: set[asyncio.Task[None]] = set()

    def background(self, work: Awaitable[None]) -> None:
        task = asyncio.ensure_future(work)
        self._background.add(task)
        task.add_done_callback(self._background.discard)

    async def add(self, bookie_id: str, rack: str = "", config: AutoRecoveryConfig = QUICK) -> Node:
        node = self.nodes[bookie_id] = Node(self, bookie_id, rack or f"/r/{bookie_id}", config)
        await node.start()
        return node

    async def close(self) -> None:
        for node in self.nodes.values():
            await node.stop()
        if self._background:
            await asyncio.wait(self._background)
        await self.metadata.close()

    def client(self, bookie_id: str) -> DirectClient:
        return DirectClient(self, bookie_id)

    def kill(self, bookie_id: str) -> None:
        """The process dies: nothing returns to it any more, its sessions end when their time is over, and
        nobody gets an answer that it had not given."""
        node = self.nodes.pop(bookie_id)
        assert node.metadata is not None
        assert node.core is not None
        assert node.recovery is not None
        assert node.registry is not None
        assert node.registration is not None
        node.metadata.crash()
        node.core.mode.stop()
        node.core.high_water.stop()
        node.core = None
        node.disk = node.disk.kill()  # what the dead core still does happens to nobody's disk
        self.background(node.recovery.close())
        self.background(node.registry.close())
        self.background(node.registration.close())
        self.killed.append(node)

    async def revive(self, node: Node) -> None:
        """Start what was killed again, with what its disk kept."""
        self.killed.remove(node)
        self.nodes[node.bookie_id] = node
        await node.start()

    # --- ledgers ---

    async def ledger(
        self,
        ledger_id: int,
        fragments: Sequence[tuple[int, Sequence[str]]],
        entries: int,
        *,
        state: LedgerMetadata.State.ValueType = LedgerMetadata.CLOSED,
        quorums: tuple[int, int] = (3, 2),
        gaps: Sequence[tuple[str, int, int]] = (),
        run_length: int = 4,
        lac: int | None = None,
    ) -> LedgerMetadata:
        """A ledger with entries 0 to `entries` - 1 on the bookies of its fragments, but for the gaps."""
        size = len(fragments[0][1])
        value = LedgerMetadata(
            state=state, ensemble_size=size, write_quorum=quorums[0], ack_quorum=quorums[1], created_ms=1
        )
        value.ref.id, value.ref.key = ledger_id, 1000 + ledger_id
        for first, bookies in fragments:
            value.fragments.add(first_entry_id=first, bookie_ids=bookies)
        for bookie, first, last in gaps:
            value.gaps.add(bookie_id=bookie, first_entry_id=first, last_entry_id=last)
        value.last_entry_id = entries - 1 if state == LedgerMetadata.CLOSED else -1
        await self.metadata.put(KEYS.ledger(ledger_id), encode(value))
        counter = await self.metadata.get(KEYS.ledger_id_counter)
        if counter is None or decode(Counter, counter.value).next <= ledger_id:
            await self.metadata.put(KEYS.ledger_id_counter, encode(Counter(next=ledger_id + 1)))
        bounds = [first for first, _ in fragments[1:]] + [entries]
        striping = Striping(size, *quorums)
        told = entries - 1 if lac is None else lac
        for (first, bookies), end in zip(fragments, bounds, strict=True):
            for position, bookie in enumerate(bookies):
                for start, last in striping.shares(position, first, end - 1):
                    for at in range(start, last + 1, run_length):
                        stop = min(at + run_length - 1, last)
                        missing = any(b == bookie and f <= stop and at <= to for b, f, to in gaps)
                        if not missing:
                            await self.append(bookie, ledger_id, at, stop, min(at - 1, told))
        return value

    async def append(self, bookie: str, ledger_id: int, first: int, last: int, lac: int = -1) -> None:
        """Entries as their writer sent them, durable on one bookie."""
        assert await self.send(bookie, ledger_id, first, last, lac) == OK
        self.appends.pop()

    def send(
        self, bookie: str, ledger_id: int, first: int, last: int, lac: int = -1
    ) -> asyncio.Future[Code.ValueType]:
        """Entries on their way to one bookie; the result is what it answers."""
        run_ = Run([payload(ledger_id, entry) for entry in range(first, last + 1)], first_entry_id=first)
        answer: asyncio.Future[Code.ValueType] = self.loop.create_future()
        append = encode_append(run_, ref_of(ledger_id), lac)
        self.client(bookie).append(append, lambda code, reason: answer.set_result(code))
        return answer

    async def metadata_of(self, ledger_id: int) -> LedgerMetadata:
        found = await self.metadata.get(KEYS.ledger(ledger_id))
        assert found is not None
        return decode(LedgerMetadata, found.value)

    def auditor(self) -> str | None:
        """Who leads auto-recovery."""
        value = self.server.dump().get(KEYS.auditor)
        return None if value is None else decode(Leader, value).id

    def named(self, ledger_id: int) -> set[str]:
        """The bookies in a ledger's metadata."""
        value = decode(LedgerMetadata, self.server.dump()[KEYS.ledger(ledger_id)])
        return {bookie for fragment in value.fragments for bookie in fragment.bookie_ids}

    def marks(self) -> dict[int, list[str]]:
        return {
            KEYS.under_replicated_of(key): list(decode(UnderReplicated, value).missing_bookie_ids)
            for key, value in self.server.dump().items()
            if key.startswith(KEYS.under_replicated_prefix)
        }

    async def mark(self, ledger_id: int, *missing: str) -> None:
        """As a writer or an auditor does."""
        value = UnderReplicated(missing_bookie_ids=missing, created_ms=1)
        value.ref.id, value.ref.key = ledger_id, 1000 + ledger_id
        await self.metadata.put(KEYS.under_replicated(ledger_id), encode(value))

    async def decommission(self, bookie_id: str) -> None:
        """As an operator does."""
        value = Decommission(bookie_id=bookie_id, created_ms=1)
        await self.metadata.put(KEYS.decommission(bookie_id), encode(value))

    async def entries_at(self, bookie: str, ledger_id: int, first: int, last: int) -> list[int]:
        """Which entries a bookie gives, undamaged and as they were written."""
        found = []
        for entry in range(first, last + 1):
            answer = await self.client(bookie).read(ref_of(ledger_id), entry, entry, 1 << 20)
            for record in answer.records:
                run_ = decode_run(record).slice(entry, entry)
                assert run_.entries == [payload(ledger_id, entry)]
                found.append(entry)
        return found

    async def fully_replicated(self, *ledger_ids: int, open_ends: Mapping[int, int] | None = None) -> None:
        """Every bookie that metadata names is up and has every entry of its share; nothing is marked.

        Ledgers are closed, but for those in `open_ends`, which may end there and be open.
        """
        for ledger_id in ledger_ids:
            value = await self.metadata_of(ledger_id)
            assert not value.gaps
            if value.state != LedgerMetadata.CLOSED:
                assert value.state == LedgerMetadata.OPEN
                assert ledger_id in (open_ends or {})
                value.last_entry_id = (open_ends or {})[ledger_id]
            striping = Striping(value.ensemble_size, value.write_quorum, value.ack_quorum)
            ends = [f.first_entry_id - 1 for f in value.fragments[1:]] + [value.last_entry_id]
            for fragment, end in zip(value.fragments, ends, strict=True):
                assert len(set(fragment.bookie_ids)) == value.ensemble_size
                for position, bookie in enumerate(fragment.bookie_ids):
                    for first, last in striping.shares(position, fragment.first_entry_id, end):
                        have = await self.entries_at(bookie, ledger_id, first, last)
                        assert have == list(range(first, last + 1)), (ledger_id, bookie)
            assert ledger_id not in self.marks()

    async def until(self, condition: Callable[[], bool], timeout_s: float = 200.0) -> None:
        """Wait in virtual time."""
        async with asyncio.timeout(timeout_s):
            while not condition():  # noqa: ASYNC110
                await asyncio.sleep(0.05)


def ref_of(ledger_id: int) -> LedgerRef:
    return LedgerRef(ledger_id, 1000 + ledger_id)


def wire(ref: LedgerRef) -> WireRef:
    return WireRef(id=ref.id, key=ref.key)


def on_a_cluster(
    act: Callable[[Cluster], Awaitable[None]],
    bookies: int | Sequence[str] = 3,
    *,
    seed: int = 1,
    config: AutoRecoveryConfig = QUICK,
) -> None:
    """Run `act` with bookies b1, b2, ... (or in the given racks), in virtual time."""
    loop = SimLoop(seed, time_max_s=1_000_000)
    racks = [""] * bookies if isinstance(bookies, int) else list(bookies)

    async def main() -> None:
        cluster = Cluster(loop)
        for number, rack in enumerate(racks, 1):
            await cluster.add(f"b{number}", rack, replace(config))
        await asyncio.sleep(1.0)
        await act(cluster)
        await cluster.close()

    run(loop, main())
