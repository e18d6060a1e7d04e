"""A topic over bookies: one owner takes it over from the next, which may not know that it is replaced.

The promises are those of the workload on one process: confirmed publishes and acknowledgements stay, whatever
was never asked for is not there. New here is that a former owner lives on, publishes, and may even be told of
confirmations: of entries that its successor found, and of no others.
"""

from __future__ import annotations

import asyncio
import random
from dataclasses import dataclass, field, replace

from magnetar.common.errors import MagnetarError, MetadataError, StorageError
from magnetar.common.naming.position import Position
from magnetar.ledger.ledger_store import Run
from magnetar.ledger.managed_ledger import (
    EntryCache,
    ManagedLedger,
    ManagedLedgerContext,
    finish_intents,
    open_managed_ledger,
)

from tests.simulation.managed_ledger_workload import CONFIG, TOPIC, ManagedLedgerWorkload
from tests.simulation.quorum.cluster import KEYS, ClientNode, Cluster
from tests.simulation.quorum.nemesis import Nemesis

ROUNDS = 3
FINAL_S = 60.0
"""Once everything is healed, the topic is loaded and checked within so much virtual time."""


@dataclass(slots=True, eq=False)
class Owner:
    """A topic's listener in one process."""

    workload: TopicPromises
    ledger: ManagedLedger | None = None
    lost: bool = False

    @property
    def former(self) -> bool:
        """Somebody else has loaded the topic since."""
        return self.workload.owner is not self

    def on_confirmed(self, publishes: list[tuple[Run, object]]) -> None:
        confirmed = self.workload.confirmed
        for run, batch in publishes:
            for place, data in enumerate(run.entries):
                position = Position(run.ledger_id, run.first_entry_id + place)
                number = int(data.split(b"\0")[0])
                if self.former:
                    self.workload.late_news(position, number)
                    continue
                last = max(confirmed, default=Position(-1, -1))
                self.workload.require(position > last, f"{position} is confirmed after {last}")
                confirmed[position] = number
                if batch:
                    self.workload.batches.add(position)

    def on_refused(self, publishes: list[tuple[Run, object]], error: StorageError) -> None:
        for run, _ in publishes:
            self.workload.refused.update(int(data.split(b"\0")[0]) for data in run.entries)

    def on_lost(self, error: StorageError) -> None:
        self.workload.require(not self.lost, "the loss is told once")
        self.workload.require(isinstance(error, MagnetarError), f"lost by {error!r}")
        self.lost = True


@dataclass(slots=True)
class TopicPromises(ManagedLedgerWorkload):
    """The promises of the topic, and its present owner."""

    owner: Owner | None = None
    epoch: int = 0
    """Of the present owner."""
    verified: ManagedLedger | None = None
    """The topic as its present owner found it, once that was compared with the promises."""
    late: dict[Position, int] = field(default_factory=dict)
    """What former owners were told since somebody else has the topic."""
    broken: list[str] = field(default_factory=list)

    async def verify(self, ctx: ManagedLedgerContext) -> None:
        ledger = self.topic
        await ManagedLedgerWorkload.verify(self, ctx)
        if self.ledger is ledger:
            self.verified = ledger
            late, self.late = self.late, {}
            for position, number in late.items():
                self.late_news(position, number)

    def late_news(self, position: Position, number: int) -> None:
        """A former owner is told that an entry is confirmed: its successor has to have found it."""
        if self.verified is not self.ledger:
            self.late[position] = number
            return
        # What went by trimming is missing at the front, and nowhere else.
        first = next(iter(self.confirmed), None)
        known = self.confirmed.get(position, number if first is None or position < first else None)
        self.require(known == number, f"a former owner confirms {position}, which holds {known}")

    def require(self, holds: bool, what: str) -> None:
        if not holds:
            self.broken.append(what)


class TopicWorkload:
    """One run over one cluster."""

    def __init__(self, cluster: Cluster, *, rounds: int = ROUNDS) -> None:
        shape = cluster.shape
        self.rng = random.Random(f"topic {cluster.seed}")
        self.nemesis = Nemesis(cluster, cluster.seed)
        self.promises = TopicPromises(
            cluster.seed,
            sync_error_at=frozenset({-1}),  # storage may fail
            config=replace(
                CONFIG,
                ensemble_size=shape.ensemble_size,
                write_quorum=shape.write_quorum,
                ack_quorum=shape.ack_quorum,
            ),
        )
        self._cluster = cluster
        self._rounds = rounds

    async def run(self) -> None:
        """Everything, from the first bookie's start to the last check."""
        cluster, rng = self._cluster, self.rng
        for bookie in cluster.bookies:
            bookie.start()
        await asyncio.sleep(0.1)
        trouble = asyncio.ensure_future(self.nemesis.run())
        for number in range(self._rounds):
            client = await cluster.client(f"owner{number}")
            client.process.spawn(self._own(client, random.Random(rng.getrandbits(64))))
            await asyncio.sleep(rng.choice((0.2, 0.5, 1.0)))
            fate = rng.random()
            if fate < 0.3:
                client.process.kill()
            elif fate < 0.5:
                client.process.kill_after(rng.randint(1, 400))
            self._raise_broken()
        self.nemesis.stop()
        await trouble
        await asyncio.sleep(0.5)
        for client in cluster.clients:
            client.process.kill()  # or they would take the topic from the last one
        last = await cluster.client("last")
        await asyncio.wait_for(last.process.spawn(self._check_everything(last)), FINAL_S)
        self._raise_broken()

    def _raise_broken(self) -> None:
        assert not self.promises.broken, self.promises.broken[0]
        self._cluster.checker.raise_broken()

    async def _own(self, client: ClientNode, rng: random.Random) -> None:
        """Load the topic, look whether every promise was kept, then use it until it is lost."""
        promises = self.promises
        while True:
            owner, ctx = await self._load(client, rng)
            while not owner.former:
                try:
                    await promises.verify(ctx)
                    break
                except (StorageError, MetadataError):
                    await asyncio.sleep(rng.uniform(0.02, 0.1))
            while not owner.lost and not owner.former:
                await promises.step(rng)
                await asyncio.sleep(rng.choice((0, 0.001, 0.003, 0.01, 0.03)))
            if owner.former:
                await self._haunt(owner, rng)
            if rng.random() < 0.5:
                return
            await asyncio.sleep(0.05)

    async def _haunt(self, owner: Owner, rng: random.Random) -> None:
        """Go on publishing what nobody may ever confirm."""
        assert owner.ledger is not None
        while not owner.lost:
            try:
                owner.ledger.append(Run([b"%d" % self.promises.next_number()]), False)
                owner.ledger.flush_cursors()
            except StorageError:
                pass
            await asyncio.sleep(rng.uniform(0.01, 0.1))

    async def _load(self, client: ClientNode, rng: random.Random) -> tuple[Owner, ManagedLedgerContext]:
        promises = self.promises
        ctx = ManagedLedgerContext(
            client.store, client.metadata, KEYS, self._cluster.clock, promises.config, EntryCache(1 << 20)
        )
        while True:
            owner = Owner(promises)
            try:
                owner.ledger = await open_managed_ledger(
                    ctx, TOPIC, owner, create=not promises.made, properties={}
                )
            except (StorageError, MetadataError):
                await asyncio.sleep(rng.uniform(0.02, 0.1))
                continue
            promises.made = True
            epoch = owner.ledger._head.decode().owner_epoch
            if owner.lost or epoch <= promises.epoch:
                continue  # somebody took it over while this one was still loading
            promises.epoch = epoch
            promises.owner, promises.ledger = owner, owner.ledger
            return owner, ctx

    async def _check_everything(self, client: ClientNode) -> None:
        rng = random.Random(self.rng.getrandbits(64))
        owner, ctx = await self._load(client, rng)
        await finish_intents(ctx)
        await self.promises.verify(ctx)
        self.promises.check_no_orphans(self._cluster.server)
        for _ in range(3):
            self.promises.publish(rng)
            self.promises.acknowledge(rng)
        await self.promises.flushed()
        await asyncio.sleep(1)
        assert owner.ledger is not None
        assert owner.ledger._appender.drained, "everything is confirmed after a while"
        await owner.ledger.close()
