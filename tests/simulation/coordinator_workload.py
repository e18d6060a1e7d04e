"""A transaction coordinator under load, with takeovers, restarts, failing topics and lost answers.

`CoordinatorChecker` has what was promised: to clients by answers, and to topics by what they were told.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from magnetar.broker.transactions.coordinator import Coordinator, open_coordinator
from magnetar.broker.transactions.participants import EndOutcome, EndResult, TransactionEnd
from magnetar.broker.transactions.status import TxnState
from magnetar.common.errors import (
    InvalidTxnStatus,
    MagnetarError,
    TooManyTransactions,
    TransactionCoordinatorNotFound,
    TransactionNotFound,
)
from magnetar.common.metadata.keys import Keys
from magnetar.common.metadata.values import Intent, LedgerMetadata, TransactionLogHead, decode
from magnetar.common.naming.txn_id import Action, TxnId
from magnetar.ledger.local_store import LocalLedgerStore
from magnetar.ledger.managed_ledger import (
    EntryCache,
    ManagedLedgerConfig,
    ManagedLedgerContext,
    finish_intents,
)
from magnetar.ledger.transaction_log.transaction_log import LogLimits
from magnetar.sim.metadata import SimMetadataServer

from tests.simulation.power_loss import KEYS, Process

ID = 2
TOPICS = ("a", "b", "c")
SMALL = LogLimits(bytes_min=500, growth=2, numbers_ahead=8)
TTL_MS = 300
MOVED = (TransactionCoordinatorNotFound, TooManyTransactions)


def outcome_of(state: TxnState) -> Action | None:
    """The decision in a state; None without one."""
    if state in (TxnState.COMMITTED, TxnState.COMMITTING):
        return Action.COMMIT
    return Action.ABORT if state in (TxnState.ABORTED, TxnState.ABORTING) else None


@dataclass(slots=True)
class CoordinatorChecker:
    """The promises of a coordinator."""

    given: set[int] = field(default_factory=set)
    """Numbers that clients got."""
    members: dict[int, set[str]] = field(default_factory=dict)
    """Topics that a transaction has for certain."""
    decided: dict[int, Action] = field(default_factory=dict)
    """Actions that a topic was told, or a client."""
    told: dict[tuple[int, str], Action] = field(default_factory=dict)
    answered: set[int] = field(default_factory=set)
    """Transactions whose end a client was told."""
    watermark: int = -1
    """The highest low watermark that a topic was told."""
    again: int = 0
    """Ends that topics were told once more."""

    def copy(self) -> CoordinatorChecker:
        return replace(
            self,
            given=set(self.given),
            members={number: set(topics) for number, topics in self.members.items()},
            decided=dict(self.decided),
            told=dict(self.told),
            answered=set(self.answered),
        )

    def begun(self, number: int) -> None:
        assert number not in self.given, f"number {number} is given twice"
        assert number > self.watermark, f"number {number} begins at or below a low watermark"
        self.given.add(number)
        self.members[number] = set()

    def decide(self, number: int, action: Action) -> None:
        assert self.decided.setdefault(number, action) is action, f"{number} has two outcomes"

    def tell(self, end: TransactionEnd, *, former: bool = False) -> None:
        """Checks what a topic is told; by a former owner also of what the topic may have forgotten."""
        number = end.txn.least
        assert former or number > self.watermark, (
            f"{end.topic} is told of {number}, though it may have forgotten all up to {self.watermark}"
        )
        assert end.low_watermark < number, "what is told is not over"
        self.decide(number, end.action)
        self.again += (number, end.topic) in self.told
        self.told[number, end.topic] = end.action
        self.watermark = max(self.watermark, end.low_watermark)

    def answer(self, number: int, action: Action) -> None:
        """Checks the answer to an end."""
        self.decide(number, action)
        self.answered.add(number)
        missing = {topic for topic in self.members[number] if (number, topic) not in self.told}
        assert not missing, f"{number} is answered though {missing} were not told"

    def check_ledgers(self, metadata: SimMetadataServer, keys: Keys = KEYS) -> None:
        """Checks that every ledger is the head's or has an intent, and never both."""
        values = metadata.dump()
        ledgers = {
            keys.ledger_id_of(key): decode(LedgerMetadata, value)
            for key, value in values.items()
            if key.startswith(keys.ledgers_prefix)
        }
        head = values.get(keys.transaction_log_head(ID))
        named = {decode(TransactionLogHead, head).log.id} - {0} if head is not None else set()
        intended = {
            decode(Intent, value).delete_ledger.ref.id
            for key, value in values.items()
            if key.startswith(keys.intents_prefix)
        }
        assert not named & intended, f"ledger {named} is in use and to be deleted"
        assert named <= set(ledgers), f"the log's ledger {named} does not exist"
        assert set(ledgers) <= named | intended, f"orphans: {set(ledgers) - named - intended}"


@dataclass(slots=True)
class FailingTopics:
    """Participants of one owner, which fail now and then; also after they have recorded an end."""

    checker: CoordinatorChecker
    rng: random.Random
    failures: float = 0.3
    dead: bool = False

    async def end(self, ends: Sequence[TransactionEnd]) -> list[EndResult]:
        await asyncio.sleep(self.rng.choice((0, 0.001, 0.01)))
        results = []
        for end in ends:
            failure = self.rng.random() < self.failures
            if not self.dead and (not failure or self.rng.random() < 0.5):
                self.checker.tell(end)
            results.append(EndResult(EndOutcome.RETRY if failure or self.dead else EndOutcome.DONE))
        return results


@dataclass(slots=True)
class CoordinatorWorkload:
    """Random but repeatable."""

    seed: int
    steps: int = 24
    unknown_outcomes: bool = False
    checker: CoordinatorChecker = field(default_factory=CoordinatorChecker)
    coordinator: Coordinator | None = None
    topics: FailingTopics | None = None
    rolls: int = 0
    tasks: set[asyncio.Task[None]] = field(default_factory=set)

    def fork(self) -> CoordinatorWorkload:
        return replace(self, checker=self.checker.copy(), coordinator=None, topics=None, tasks=set())

    # --- doing ---

    async def run(self, process: Process) -> None:
        rng = random.Random(self.seed)
        store = await process.open_store()
        await self.load(process, store, rng)
        for step in range(self.steps):
            for _ in range(rng.randrange(1, 4)):
                task = asyncio.get_running_loop().create_task(self.transact(rng))
                self.tasks.add(task)
                task.add_done_callback(self.tasks.discard)
            if self.unknown_outcomes and rng.random() < 0.3:
                process.metadata.lose_next_outcome(applied=rng.random() < 0.5)
            await asyncio.sleep(rng.choice((0, 0.001, 0.003, 0.01, 0.3)))
            if step == self.steps // 4:
                await self.load(process, store, rng)  # a takeover, while the former owner goes on
            elif step == self.steps // 2:
                self.kill(process)
                store = await process.open_store()
                await self.load(process, store, rng)
            elif step == self.steps * 3 // 4:
                await self.serving.close()
                await self.load(process, store, rng)
        while self.tasks:
            await asyncio.gather(*self.tasks)
        self.rolls += self.serving.log.figures.rolls
        await self.serving.close()
        await store.close()

    @property
    def serving(self) -> Coordinator:
        assert self.coordinator is not None, "the coordinator is loaded"
        return self.coordinator

    def kill(self, process: Process) -> None:
        assert self.topics is not None
        self.topics.dead = True
        process.world.kill()
        self.serving.abandon("killed")

    async def load(self, process: Process, store: LocalLedgerStore, rng: random.Random) -> None:
        if self.coordinator is not None:
            self.rolls += self.coordinator.log.figures.rolls
        ctx = ManagedLedgerContext(
            store, process.metadata, KEYS, process.clock, ManagedLedgerConfig(), EntryCache(1 << 20)
        )
        topics = FailingTopics(self.checker, random.Random(rng.random()))
        while True:
            try:
                coordinator = await open_coordinator(
                    ctx, ID, topics, cluster="sim", active_max=0, limits=SMALL
                )
                break
            except MagnetarError:
                assert self.unknown_outcomes, "metadata answers"
                await asyncio.sleep(0.01)
        self.coordinator, self.topics = coordinator, topics

    async def transact(self, rng: random.Random) -> None:
        """One client: begins, takes part, then ends, or leaves the end to the deadline."""
        coordinator = self.serving
        try:
            txn = await coordinator.begin(rng.choice((50, TTL_MS, 60_000)), "ana")
            self.checker.begun(txn.least)
            for topic in rng.sample(TOPICS, rng.randrange(len(TOPICS) + 1)):
                if rng.random() < 0.5:
                    await coordinator.add_partitions(txn, [topic], "ana")
                else:
                    await coordinator.add_subscriptions(txn, [(topic, "s")], "ana")
                self.checker.members[txn.least].add(topic)
        except (*MOVED, InvalidTxnStatus, TransactionNotFound):
            return
        if rng.random() < 0.8:
            action = rng.choice((Action.COMMIT, Action.COMMIT, Action.ABORT))
            for _ in range(rng.randrange(1, 4)):
                if await self.end(txn, action):
                    break
                await asyncio.sleep(0.02)

    async def end(self, txn: TxnId, action: Action) -> bool:
        """Ends a transaction at its owner of the moment; returns whether the outcome is known."""
        try:
            await self.serving.end(txn, action, "ana")
        except MOVED:
            return False
        except InvalidTxnStatus:
            other = Action.ABORT if action is Action.COMMIT else Action.COMMIT
            self.checker.decide(txn.least, other)
            return True
        self.checker.answer(txn.least, action)
        return True

    # --- checking ---

    async def check(self, process: Process) -> None:
        store = await process.open_store()
        self.checker.check_ledgers(process.world.metadata)
        rng = process.loop.rng
        checker = self.checker
        await self.load(process, store, rng)
        coordinator = self.serving
        ctx = coordinator.log._ctx
        await finish_intents(ctx)
        for number in checker.given:
            txn = TxnId(ID, number)
            state = coordinator.status(txn).state
            known = checker.decided.get(number)
            assert state is not TxnState.UNKNOWN, f"{number} is not known any more"
            if known is not None:
                assert outcome_of(state) is known, f"{number} is {state} and was {known}"
            if state is TxnState.OPEN:
                topics = set(coordinator.transaction(txn).participants)
                assert checker.members[number] <= topics, f"{number} lost a topic"
        assert self.topics is not None
        await asyncio.sleep(0.05)
        self.topics.failures = 0.0
        await asyncio.sleep(75)
        process.world.disk.check_alive()
        left = list(coordinator.transactions())
        assert coordinator.active == 0, f"{left} never end"
        for number in checker.given:
            action = outcome_of(coordinator.status(TxnId(ID, number)).state)
            assert action is not None, f"{number} is not decided"
            await coordinator.end(TxnId(ID, number), action, "ana")
            checker.answer(number, action)
        begun = await coordinator.begin(TTL_MS, "ana")
        checker.begun(begun.least)
        await coordinator.log.close()
        checker.check_ledgers(process.world.metadata)
        process.world.disk.check_alive()
