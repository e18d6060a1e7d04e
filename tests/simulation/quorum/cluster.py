"""A cluster on one simulated loop: bookies on their own disks, clients, one metadata store, a network.

Every process can die at any of its steps or stand still; bookies come back by themselves after a while, with
what their disk kept. The cluster counts the disks that lost data: never more than the workload allows.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

from magnetar.bookie.autorecovery.auto_recovery import AutoRecovery
from magnetar.bookie.autorecovery.config import AutoRecoveryConfig
from magnetar.bookie.bookie_core import BookieCore, open_bookie_core
from magnetar.bookie.core_config import BookieCoreConfig
from magnetar.bookie.identity import BOOKIE_COOKIE
from magnetar.bookie.registration import Registration
from magnetar.common.errors import MetadataError, StorageError
from magnetar.common.metadata.keys import Keys
from magnetar.common.metadata.store import ABSENT, Put
from magnetar.common.metadata.values import (
    BookieCookie,
    BookieMark,
    BookieRegistration,
    InstanceId,
    decode,
    encode,
)
from magnetar.ledger.bookie_protocol.bookie_client import EncodedAppend
from magnetar.ledger.bookie_protocol.registry import BookieRegistry
from magnetar.ledger.ledger_store import LedgerStore
from magnetar.ledger.quorum.config import QuorumConfig
from magnetar.ledger.quorum.quorum_store import QuorumLedgerStore
from magnetar.ledger.quorum.reader import ReadOptions
from magnetar.ledger.quorum.recovery import RecoveryOptions
from magnetar.ledger.segment_log.config import SegmentLogConfig
from magnetar.sim.disk import SimDisk
from magnetar.sim.loop import SimClock, SimPool
from magnetar.sim.metadata import MetadataFaults, SimMetadataServer, SimMetadataStore
from magnetar.sim.network import NetworkFaults, SimNetwork
from magnetar.sim.process import SimProcess, WorldLoop
from magnetar.sim.syncer import SimSyncer

from tests.simulation.quorum.bookie_service import BookieService
from tests.simulation.quorum.checker import Checker
from tests.simulation.quorum.happenings import COPIES_BESIDE, LATE_COMMITS, RACED_IDS
from tests.simulation.quorum.sim_clients import SimBookieClients

INSTANCE_ID = b"simulated-instan"
KEYS = Keys("sim")
SESSION_MS = 1000

SMALL_SEGMENTS = SegmentLogConfig(
    segment_size_bytes=24 << 10,
    segment_entries_max=200,
    fill_ahead_bytes=12 << 10,
    group_bytes_max=12 << 10,
    free_space_headroom_bytes=0,
    pending_bytes_max=1 << 20,
    gc_wait_ms=300,
    gc_grace_s=0.2,
)


CORE_CONFIG = BookieCoreConfig(
    disk_usage_threshold=1.0, disk_usage_low_water_mark=1.0, disk_check_interval_ms=200, mark_interval_ms=5
)

AUTO_RECOVERY_CONFIG = AutoRecoveryConfig(
    lost_bookie_recovery_delay_s=1,
    audit_interval_s=2,
    open_ledger_grace_ms=200,
    retry_after_ms=200,
    copy_bytes_per_s=0,
    scrub_interval_s=2,
    scrub_bytes_per_s=0,
    session_timeout_ms=1000,
)

QUORUM_CONFIG = QuorumConfig(
    ledger_pending_bytes_max=256 << 10,
    pending_bytes_max=1 << 20,
    add_entry_timeout_s=0.4,
    no_quorum_timeout_s=1.5,
    replace_retry_s=0.2,
    close_wait_s=0.1,
    explicit_lac_interval_ms=50,
    quarantine_errors=3,
    quarantine_interval_s=2.0,
    quarantine_s=0.5,
)


@dataclass(frozen=True, slots=True)
class Shape:
    """How ledgers are replicated, over how many bookies."""

    ensemble_size: int
    write_quorum: int
    ack_quorum: int
    bookies: int

    @property
    def lost_disks_max(self) -> int:
        """Disks that may be lost without losing an acknowledged entry."""
        return self.ack_quorum - 1

    @property
    def unreachable_max(self) -> int:
        """Bookies that may be away while writes go on."""
        return self.write_quorum - self.ack_quorum


SHAPES = (
    Shape(3, 3, 2, 4),
    Shape(3, 2, 2, 4),
    Shape(5, 3, 2, 6),
    Shape(4, 3, 3, 5),
    Shape(3, 3, 2, 3),
    Shape(3, 3, 1, 4),
)
"""The last one acknowledges a single copy: no disk may be lost, only processes."""


@dataclass(frozen=True, slots=True)
class Image:
    """A copy of a bookie's disk, and how far the log can have got on it."""

    disk: SimDisk
    generation: int
    group_sequence: int


class BookieNode:
    """A bookie's machine: its disk stays, its process comes and goes."""

    def __init__(self, cluster: Cluster, name: str) -> None:
        self.name = name
        self.address = name
        """Where it listens from its next start on."""
        self.disk = SimDisk()
        self.process: SimProcess | None = None
        self.outage = "crash"
        """What its process's next death is: 'crash' (power loss), 'kill', or one with another disk: 'wipe' an
        empty one, 'roll back' to its image, 'lose files' without some segments, 'swap' another bookie's for
        one start."""
        self.image: Image | None = None
        self.starts = 0
        self.core: BookieCore | None = None
        self.metadata: SimMetadataStore | None = None
        self.down_s: tuple[float, float] | None = (0.05, 0.8)
        """How long it is away; None: until somebody starts it."""
        self._cluster = cluster
        self._serving: SimProcess | None = None
        """The life in which it answers."""
        self._recovering: SimProcess | None = None
        """The life in which its auto-recovery runs."""
        self._own: SimDisk | None = None
        """Its disk, while it has another bookie's."""

    @property
    def up(self) -> bool:
        return self.process is not None

    def start(self) -> None:
        """Start its process; nothing when it runs."""
        if self.process is not None:
            return
        self.starts += 1
        process = self.process = SimProcess(self._cluster.loop, self.name)
        process.on_death(self._died)
        disk = self.disk
        disk.on_operation = None
        process.spawn(self._run(process, disk))

    def crash(self, outage: str) -> None:
        """Its process ends now."""
        self.outage = outage
        if self.process is not None:
            self.process.kill()
        elif outage not in ("crash", "kill"):
            self._replace_disk()

    def trade_addresses(self, other: BookieNode, outage: str) -> None:
        """Both processes end now, and each comes back at the other's address."""
        self.address, other.address = other.address, self.address
        self.crash(outage)
        other.crash(outage)

    def take_image(self) -> None:
        """Copy its disk while it runs."""
        if self.process is not None and self.core is not None and self._own is None:
            commit = self.core.log.group_commit
            generation = self.core.high_water.mark.generation
            self.image = Image(self.disk.kill(), generation, commit._next_sequence - 1)

    def may_roll_back(self) -> bool:
        """Whether the image is older than the window in which it may go unseen."""
        image, server = self.image, self._cluster.server
        cookie, mark = server.get(KEYS.cookie(self.name)), server.get(KEYS.bookie_mark(self.name))
        if image is None or cookie is None or mark is None:
            return False
        started_since = decode(BookieCookie, cookie.value).generation > image.generation
        return started_since or decode(BookieMark, mark.value).group_sequence > image.group_sequence

    def _died(self) -> None:
        self.process = self.core = None
        self._replace_disk()
        if self.down_s is not None:
            self._cluster.later(self._cluster.rng.uniform(*self.down_s), self.start)

    def _replace_disk(self) -> None:
        outage, self.outage = self.outage, "crash"
        dead = self.disk
        if self._own is not None:
            self.disk, self._own = self._own, None
        elif outage == "wipe":
            self.disk = SimDisk(dead.capacity)
            self.image = (
                None  # a copy of the directory that was replaced is refused until an operator decides
            )
        elif outage == "roll back" and self.image is not None and self.may_roll_back():
            self.disk = self.image.disk.crash(self._cluster.rng)
        else:
            self.disk = dead.kill() if outage != "crash" else dead.crash(self._cluster.rng)
            if outage == "lose files":
                self._lose_files()
            elif outage == "swap":
                self._swap()
        dead.crashed = True

    def _lose_files(self) -> None:
        files = [path for path in self.disk.paths() if path.endswith(".seg")]
        rng = self._cluster.rng
        for path in files if rng.random() < 0.3 else rng.sample(files, min(1, len(files))):
            self.disk.unlink(path)
        self.disk.sync_dir("segments")

    def _swap(self) -> None:
        others = [each.disk for each in self._cluster.bookies if each is not self]
        others = [disk for disk in others if BOOKIE_COOKIE in disk.paths()]
        if others:
            self._own, self.disk = self.disk, self._cluster.rng.choice(others).kill()

    async def _run(self, process: SimProcess, disk: SimDisk) -> None:
        """The bookie's main program."""
        cluster = self._cluster
        metadata = cluster.metadata_store(process)
        try:
            core = await open_core(cluster, self.name, disk, metadata)
        except (OSError, StorageError, MetadataError):
            process.kill()  # it starts again, as a supervisor would have it
            return
        if self._own is not None:
            cluster.checker.broken.append(f"{self.name} serves the directory of another bookie")
        self.core, self.metadata, self._serving = core, metadata, process
        service = BookieService(core, cluster.checker, cluster.happened)
        cluster.network.listen(process, service, self.address)
        describe = partial(self._describe, core, self.address)
        await Registration(metadata, KEYS, describe, SESSION_MS).start()
        if cluster.auto_recovery is not None:
            self.begin_auto_recovery()

    async def recover_others(self) -> None:
        """Begin auto-recovery in its process; nothing when it runs there."""
        process, cluster = self.process, self._cluster
        assert process is not None, f"{self.name} is up"
        assert self.core is not None, f"{self.name} serves"
        assert self.metadata is not None, f"{self.name} serves"
        if self._recovering is not process:
            self._recovering = process
            await process.spawn(self._start_auto_recovery(process, cluster, self.core, self.metadata))

    def begin_auto_recovery(self) -> None:
        """Begin auto-recovery in its process if it serves; nothing when it runs there."""
        process, core, metadata = self.process, self.core, self.metadata
        if process is None or process is not self._serving or process is self._recovering:
            return
        assert core is not None, f"{self.name} serves"
        assert metadata is not None, f"{self.name} serves"
        self._recovering = process
        process.spawn(self._start_auto_recovery(process, self._cluster, core, metadata))

    def shorten_moved_grace(self, grace_s: float) -> None:
        """From now on it gives back after so long what others keep."""
        garbage = None if self.core is None else self.core.garbage
        if garbage is not None and garbage._replica is not None:
            garbage._replica = replace(garbage._replica, moved_grace_s=grace_s)

    async def _start_auto_recovery(
        self, process: SimProcess, cluster: Cluster, core: BookieCore, metadata: SimMetadataStore
    ) -> None:
        registry = BookieRegistry(metadata, KEYS)
        await registry.start()
        AutoRecovery(
            self.name,
            metadata,
            KEYS,
            registry,
            SimBookieClients(
                cluster.network, process, registry, on_append=partial(cluster.copying, self.name)
            ),
            cluster.clock,
            random.Random(cluster.rng.getrandbits(64)),
            cluster.auto_recovery or AUTO_RECOVERY_CONFIG,
            set_read_only=core.set_read_only,
            data_check=core.data_check,
            quorum=QUORUM_CONFIG,
        ).start()

    def _describe(self, core: BookieCore, address: str) -> BookieRegistration:
        return BookieRegistration(
            bookie_id=self.name,
            address=address,
            protocol_version=1,
            directory_id=core.identity.directory_id,
        )


async def open_core(cluster: Cluster, name: str, disk: SimDisk, metadata: SimMetadataStore) -> BookieCore:
    """A bookie's core on its disk, as its process opens it."""
    return await open_bookie_core(
        disk,
        metadata,
        KEYS,
        bookie_id=name,
        instance_id=INSTANCE_ID,
        pool=SimPool(cluster.loop),
        syncer=SimSyncer(cluster.loop),
        clock=cluster.clock,
        rng=random.Random(cluster.rng.getrandbits(64)),
        log_config=cluster.log_config,
        config=cluster.core_config,
        accept_empty_directory=True,
    )


@dataclass(slots=True, eq=False)
class ClientNode:
    """A process that writes and reads ledgers."""

    process: SimProcess
    metadata: SimMetadataStore
    clients: SimBookieClients
    registry: BookieRegistry
    store: LedgerStore


class Cluster:
    """Everything there is."""

    def __init__(self, loop: WorldLoop, seed: int, shape: Shape) -> None:
        self.loop = loop
        self.seed = seed
        self.shape = shape
        self.rng = random.Random(f"cluster {seed}")
        self.clock = SimClock(loop)
        self.server = SimMetadataServer()
        self.server.commit([Put(KEYS.instance_id, encode(InstanceId(uuid=INSTANCE_ID)), ABSENT)])
        self.network = SimNetwork(loop, random.Random(f"network {seed}"), NetworkFaults(give_up_s=0.3))
        self.checker = Checker(self.server, KEYS)
        self.metadata_faults = MetadataFaults()
        self.bookies = [BookieNode(self, f"b{number}") for number in range(shape.bookies)]
        self.clients: list[ClientNode] = []
        self.lost_disks: set[str] = set()
        self.log_config = SMALL_SEGMENTS
        self.core_config = CORE_CONFIG
        self.auto_recovery: AutoRecoveryConfig | None = None
        """Begins with each bookie; None: when a workload says so."""
        self.auto_recovery_stands_still: Callable[[str, str, EncodedAppend], None] | None = None
        """Told of each copy that a worker (the first) sends to a bookie (the second)."""
        self.metadata_stores: list[SimMetadataStore] = []
        self.copied_to: dict[str, set[int]] = {}
        """By bookie: ledgers of which auto-recovery sent it entries."""
        self.happened: Counter[str] = Counter()
        """How often what some trouble is about really came about."""

    def copying(self, worker: str, target: str, append: EncodedAppend) -> None:
        """Auto-recovery on a bookie sends a copy to another one, or to its own."""
        ledger_id = append.ref.id
        self.copied_to.setdefault(target, set()).add(ledger_id)
        if self.checker.is_written(ledger_id):
            self.happened[COPIES_BESIDE] += 1
        if self.auto_recovery_stands_still is not None:
            self.auto_recovery_stands_still(worker, target, append)

    def count_metadata(self) -> None:
        """At the end of a run: what the metadata store saw."""
        self.happened[LATE_COMMITS] += self.server.landed_late
        self.happened[RACED_IDS] += self.server.lost_races[KEYS.ledger_id_counter]

    def later(self, delay_s: float, call: Callable[[], None]) -> None:
        """Call something in the world."""
        self.loop.call_later(delay_s, call)

    async def client(self, name: str) -> ClientNode:
        """A new process that can write and read ledgers."""
        process = SimProcess(self.loop, name)
        node = await process.spawn(self._start_client(process))
        self.clients.append(node)
        return node

    async def _start_client(self, process: SimProcess) -> ClientNode:
        metadata = self.metadata_store(process)
        registry = BookieRegistry(metadata, KEYS)
        await registry.start()
        clients = SimBookieClients(self.network, process, registry, happened=self.happened)
        store = QuorumLedgerStore(
            clients,
            registry,
            metadata,
            KEYS,
            self.clock,
            random.Random(self.rng.getrandbits(64)),
            QUORUM_CONFIG,
            read_options=ReadOptions(speculative_delay_s=0.05),
            recovery_options=RecoveryOptions(batch_bytes=16 << 10, patience_s=0.1, grace_s=0.1),
        )
        return ClientNode(process, metadata, clients, registry, store)

    def metadata_store(self, process: SimProcess) -> SimMetadataStore:
        """A process's way to metadata."""
        store = SimMetadataStore(self.server, random.Random(self.rng.getrandbits(64)))
        process.on_death(store.crash)
        self.metadata_stores.append(store)
        return store
