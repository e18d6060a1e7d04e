"""A transaction coordinator over bookies: one owner takes it over from the next, which may live on unaware.

The promises are those of the workload on one process. New here is that a former owner goes on: it may tell
topics what was decided before, and nothing else.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final

from magnetar.broker.transactions.coordinator import Coordinator, open_coordinator
from magnetar.broker.transactions.participants import EndOutcome, EndResult, TransactionEnd
from magnetar.broker.transactions.status import TxnState
from magnetar.common.errors import (
    InvalidTxnStatus,
    MagnetarError,
    MetadataError,
    StorageError,
    TransactionNotFound,
)
from magnetar.common.naming.txn_id import Action, TxnId
from magnetar.ledger.managed_ledger import (
    EntryCache,
    ManagedLedgerConfig,
    ManagedLedgerContext,
    finish_intents,
)

from tests.simulation.coordinator_workload import ID, MOVED, SMALL, TOPICS, CoordinatorChecker, outcome_of
from tests.simulation.quorum.cluster import KEYS, ClientNode, Cluster
from tests.simulation.quorum.nemesis import Nemesis

OWNERS: Final = 3
CLIENTS: Final = 2
FINAL_S: Final = 200.0
"""Once everything is healed, every transaction ends within so much virtual time."""


@dataclass(slots=True, eq=False)
class Owner:
    """The coordinator in one process, and the topics that it tells."""

    workload: CoordinatorOverBookies
    rng: random.Random
    failures: float = 0.2
    coordinator: Coordinator | None = None
    epoch: int = 0
    lost: bool = False

    @property
    def former(self) -> bool:
        """Whether another process has loaded the coordinator since."""
        return self.epoch < self.workload.epoch

    async def end(self, ends: Sequence[TransactionEnd]) -> list[EndResult]:
        await asyncio.sleep(self.rng.choice((0.001, 0.01, 0.05)))
        results = []
        for end in ends:
            failure = self.rng.random() < self.failures
            if not failure or self.rng.random() < 0.5:
                self.workload.check(partial(self.workload.checker.tell, end, former=self.former))
            results.append(EndResult(EndOutcome.RETRY if failure else EndOutcome.DONE))
        return results


@dataclass(slots=True, eq=False)
class CoordinatorOverBookies:
    """One run over one cluster."""

    cluster: Cluster
    rng: random.Random = field(init=False)
    nemesis: Nemesis = field(init=False)
    checker: CoordinatorChecker = field(default_factory=CoordinatorChecker)
    epoch: int = 0
    """Epoch of the present owner."""
    broken: list[str] = field(default_factory=list)
    config: ManagedLedgerConfig = field(init=False)

    def __post_init__(self) -> None:
        shape = self.cluster.shape
        self.rng = random.Random(f"coordinator {self.cluster.seed}")
        self.nemesis = Nemesis(self.cluster, self.cluster.seed)
        self.config = replace(
            ManagedLedgerConfig(),
            ensemble_size=shape.ensemble_size,
            write_quorum=shape.write_quorum,
            ack_quorum=shape.ack_quorum,
        )

    def check(self, promise: Callable[[], None]) -> None:
        """Checks a promise; what is broken is raised by the run, since owners retry after any error."""
        try:
            promise()
        except AssertionError as error:
            self.broken.append(str(error))

    def raise_broken(self) -> None:
        assert not self.broken, self.broken[0]
        self.cluster.checker.raise_broken()

    async def run(self) -> None:
        """Everything, from the first bookie's start to the last check."""
        cluster, rng = self.cluster, self.rng
        for bookie in cluster.bookies:
            bookie.start()
        await asyncio.sleep(0.1)
        trouble = asyncio.ensure_future(self.nemesis.run())
        for number in range(OWNERS):
            client = await cluster.client(f"owner{number}")
            client.process.spawn(self._own(client, random.Random(rng.getrandbits(64))))
            await asyncio.sleep(rng.choice((0.2, 0.5, 1.0)))
            fate = rng.random()
            if fate < 0.3:
                client.process.kill()
            elif fate < 0.5:
                client.process.kill_after(rng.randint(1, 400))
            self.raise_broken()
        self.nemesis.stop()
        await trouble
        await asyncio.sleep(0.5)
        for client in cluster.clients:
            client.process.kill()  # or they would take the coordinator from the last one
        last = await cluster.client("last")
        await asyncio.wait_for(last.process.spawn(self._check_everything(last)), FINAL_S)
        self.raise_broken()

    async def _own(self, client: ClientNode, rng: random.Random) -> None:
        """Load the coordinator, and serve clients in this process until another one has it."""
        owner, _ = await self._load(client, rng)
        serving = [self._serve(owner, random.Random(rng.getrandbits(64))) for _ in range(CLIENTS)]
        await asyncio.gather(*serving)

    async def _serve(self, owner: Owner, rng: random.Random) -> None:
        coordinator = owner.coordinator
        assert coordinator is not None
        while not owner.lost:
            try:
                await self._transact(coordinator, rng)
            except (*MOVED, InvalidTxnStatus, TransactionNotFound):
                await asyncio.sleep(0.02)

    async def _transact(self, coordinator: Coordinator, rng: random.Random) -> None:
        checker = self.checker
        txn = await coordinator.begin(rng.choice((300, 3_000)), "ana")
        self.check(lambda: checker.begun(txn.least))
        for topic in rng.sample(TOPICS, rng.randrange(len(TOPICS) + 1)):
            await coordinator.add_partitions(txn, [topic], "ana")
            checker.members[txn.least].add(topic)
        if rng.random() < 0.8:
            action = rng.choice(tuple(Action))
            await coordinator.end(txn, action, "ana")
            self.check(lambda: checker.answer(txn.least, action))

    async def _load(self, client: ClientNode, rng: random.Random) -> tuple[Owner, ManagedLedgerContext]:
        ctx = ManagedLedgerContext(
            client.store, client.metadata, KEYS, self.cluster.clock, self.config, EntryCache(1 << 20)
        )
        while True:
            owner = Owner(self, random.Random(rng.getrandbits(64)))
            try:
                coordinator = await open_coordinator(
                    ctx, ID, owner, cluster="sim", active_max=0, limits=SMALL
                )
            except (StorageError, MetadataError):
                await asyncio.sleep(rng.uniform(0.02, 0.1))
                continue
            owner.coordinator = coordinator
            coordinator.on_lost = lambda owner=owner: setattr(owner, "lost", True)
            # Another process may have taken it over while this one was still loading.
            owner.epoch = coordinator.log._head.decode().owner_epoch
            self.epoch = max(self.epoch, owner.epoch)
            return owner, ctx

    async def _check_everything(self, client: ClientNode) -> None:
        owner, ctx = await self._load(client, random.Random(self.rng.getrandbits(64)))
        coordinator, checker = owner.coordinator, self.checker
        assert coordinator is not None
        await finish_intents(ctx)
        for number in checker.given:
            state = coordinator.status(TxnId(ID, number)).state
            known = checker.decided.get(number)
            assert state is not TxnState.UNKNOWN, f"{number} is not known any more"
            assert known is None or outcome_of(state) is known, f"{number} is {state} and was {known}"
            if state is TxnState.OPEN:
                topics = set(coordinator.transaction(TxnId(ID, number)).participants)
                assert checker.members[number] <= topics, f"{number} lost a topic"
        owner.failures = 0.0
        for _ in range(300):
            if not coordinator.active:
                break
            await asyncio.sleep(0.1)
        left = list(coordinator.transactions())
        assert not left, f"{left} never end"
        for number in checker.given:
            action = outcome_of(coordinator.status(TxnId(ID, number)).state)
            assert action is not None
            await coordinator.end(TxnId(ID, number), action, "ana")
            checker.answer(number, action)
        begun = await coordinator.begin(300, "ana")
        checker.begun(begun.least)
        await coordinator.close()
        try:
            checker.check_ledgers(self.cluster.server, KEYS)
        except MagnetarError as error:
            raise AssertionError(f"metadata is damaged: {error}") from error
