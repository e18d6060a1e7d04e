"""A coordinator's log over the local store or over scripted ledgers, in a simulated process."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from magnetar.common.errors import StorageError
from magnetar.common.metadata.values import TransactionLogHead, decode
from magnetar.common.naming.txn_id import Action
from magnetar.ledger.ledger_store import LedgerStore
from magnetar.ledger.managed_ledger import EntryCache, ManagedLedgerConfig, ManagedLedgerContext
from magnetar.ledger.transaction_log.coordinator_state import Reason, Subscription
from magnetar.ledger.transaction_log.takeover import take_over_log
from magnetar.ledger.transaction_log.transaction_log import LogLimits, TransactionLog

from tests.simulation.power_loss import KEYS, Process, World
from tests.unit.ledger.managed_ledger.harness import until

ID = 3
OWNER = "ana"


@dataclass
class Answers:
    """Awaits confirmations, and notes losses."""

    log: TransactionLog
    lost: list[StorageError] = field(default_factory=list)

    async def begin(self, ttl_ms: int = 60_000) -> int:
        answer, done = answered()
        number = self.log.begin(OWNER, ttl_ms, done)
        await answer
        return number

    async def add(self, number: int, *topics: str, subscriptions: tuple[Subscription, ...] = ()) -> None:
        answer, done = answered()
        if topics:
            self.log.add_topics(number, topics, lambda error: None)
        self.log.add_subscriptions(number, subscriptions, done)
        await answer

    async def decide(self, number: int, action: Action = Action.COMMIT) -> None:
        answer, done = answered()
        self.log.decide(number, action, Reason.REQUESTED, done)
        await answer

    async def finish(self, number: int, action: Action = Action.COMMIT) -> None:
        """Decides and ends; the end is not awaited."""
        await self.decide(number, action)
        self.log.end(number)


def answered() -> tuple[asyncio.Future[None], Callable[[StorageError | None], None]]:
    future: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def done(error: StorageError | None) -> None:
        if future.done():
            return
        if error is None:
            future.set_result(None)
        else:
            future.set_exception(error)

    return future, done


def context(process: Process, ledgers: LedgerStore) -> ManagedLedgerContext:
    return ManagedLedgerContext(
        ledgers, process.metadata, KEYS, process.clock, ManagedLedgerConfig(), EntryCache(1 << 20)
    )


async def take(ctx: ManagedLedgerContext, limits: LogLimits | None = None) -> Answers:
    """Takes the log over."""
    lost: list[StorageError] = []
    taken = await take_over_log(ctx, ID, lost.append, limits or LogLimits())
    return Answers(taken, lost)


def head_of(world: World) -> TransactionLogHead:
    return decode(TransactionLogHead, world.metadata.dump()[KEYS.transaction_log_head(ID)])


async def rolled(answers: Answers) -> None:
    """Waits until no replacement of the ledger is in progress."""
    await until(lambda: answers.log._maintenance is None)


Scenario = Callable[[Process], Awaitable[None]]
