"""Settles transactions that stay open in topics although their coordinators may have ended them.

A coordinator tells every topic that takes part. This check repairs what that misses: a topic that was never
registered with the coordinator, or whose end was lost together with both brokers. It asks the coordinator;
one that cannot be asked is never taken for an abort.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from magnetar.broker.topics.persistent_topic import PersistentTopic
from magnetar.broker.topics.topic import Topic
from magnetar.broker.transactions.participants import Participants, TransactionEnd
from magnetar.broker.transactions.status import Statuses, TransactionStatus, TransactionStatuses, TxnState
from magnetar.common.errors import MagnetarError
from magnetar.common.naming.txn_id import Action, TxnId
from magnetar.common.obs.log_limit import LogLimit
from magnetar.common.obs.logs import get_logger
from magnetar.common.obs.metrics import REGISTRY, begin_at_zero
from magnetar.common.runtime.clock import Clock
from magnetar.common.runtime.cooperative_iteration import iterate_cooperatively
from prometheus_client import Counter

log = get_logger(__name__)

CHECK_INTERVAL_S: Final = 5.0
"""Seconds between two passes over the loaded topics."""

GRACE_S: Final = 30.0
"""Seconds that an open transaction may be older than its deadline before its coordinator is asked; also the
interval of further questions.
"""

UNKNOWN_CONFIRMED_S: Final = 60.0
"""Seconds for which a coordinator must not know a transaction before a topic aborts it. It exceeds a broker's
session: one that no longer has the coordinator has stopped answering by then.
"""

STATUSES_PER_QUESTION_MAX: Final = 500
"""Maximum transactions in one question to a coordinator."""

SETTLED: Final = Counter(
    "magnetar_txn_lingering_settled_total",
    "Transactions that a topic settled because its coordinator, when asked, had ended them, by action: "
    "commit, abort, or abort_unknown when the coordinator no longer knew the transaction.",
    ["action"],
    registry=REGISTRY,
)
begin_at_zero(SETTLED, "commit", "abort", "abort_unknown")


@dataclass(slots=True)
class _Watched:
    """An open transaction of one topic."""

    topic: str
    txn: TxnId
    ask_at: float
    """Monotonic time of the next question, in seconds."""
    unknown_since: float | None = None
    """Monotonic time since when the coordinator does not know the transaction."""


class LingeringTransactions:
    """Watches the open transactions of loaded topics."""

    def __init__(
        self,
        topics: Callable[[], Mapping[str, Topic]],
        statuses: Callable[[], Statuses],
        ends: Participants,
        clock: Clock,
    ) -> None:
        """`statuses` returns whom to ask now; `ends` settles transactions in topics of this broker."""
        self._topics = topics
        self._statuses = statuses
        self._ends = ends
        self._clock = clock
        self._watched: dict[tuple[int, TxnId], _Watched] = {}
        self._unreachable = LogLimit()

    async def run(self) -> None:
        """Checks for ever."""
        while True:
            await asyncio.sleep(CHECK_INTERVAL_S)
            await self.check()

    async def check(self) -> None:
        """Asks about every open transaction that is due, and settles those that are over."""
        await self._look()
        now = self._clock.monotonic()
        due: dict[int, list[_Watched]] = {}
        for watched in self._watched.values():
            if watched.ask_at <= now:
                due.setdefault(watched.txn.most, []).append(watched)
        for coordinator_id, some in due.items():
            for first in range(0, len(some), STATUSES_PER_QUESTION_MAX):
                await self._ask(coordinator_id, some[first : first + STATUSES_PER_QUESTION_MAX])

    async def _look(self) -> None:
        """Finds the open transactions of the loaded topics; those that are over are forgotten."""
        found: dict[tuple[int, TxnId], _Watched] = {}
        wall_ms, now = self._clock.wall_ms(), self._clock.monotonic()
        async for topic in iterate_cooperatively(list(self._topics().values())):
            if not isinstance(topic, PersistentTopic) or topic.closing:
                continue
            transactions = topic.ledger.transactions
            if transactions is None:
                continue
            for txn, opened in transactions.open.items():
                key = (id(transactions), txn)
                known = self._watched.get(key)
                if known is None:
                    age_s = max(0.0, (wall_ms - opened.began_ms) / 1000)
                    wait_s = max(0.0, GRACE_S - age_s) if opened.began_ms else 0.0
                    known = _Watched(topic.name.full, txn, now + wait_s)
                found[key] = known
        self._watched = found

    async def _ask(self, coordinator_id: int, asked: list[_Watched]) -> None:
        now = self._clock.monotonic()
        for watched in asked:
            watched.ask_at = now + GRACE_S
        transactions = list({each.txn: None for each in asked})
        try:
            statuses = await self._statuses().status(coordinator_id, transactions)
        except MagnetarError as error:
            for watched in asked:
                watched.unknown_since = None
            if count := self._unreachable.note(now):
                log.warning(
                    "coordinator of open transactions cannot be asked; their topics wait",
                    coordinator=coordinator_id,
                    transactions=len(transactions),
                    reason=str(error),
                    questions=count,
                )
            return
        await self._settle(list(self._over(asked, statuses)), statuses.low_watermark)

    def _over(
        self, asked: Iterable[_Watched], statuses: TransactionStatuses
    ) -> Iterable[tuple[_Watched, Action, str]]:
        """Yields the transactions that are over; plans the next question about the others."""
        wall_ms, now = self._clock.wall_ms(), self._clock.monotonic()
        for watched in asked:
            status = statuses.of.get(watched.txn, TransactionStatus(TxnState.UNKNOWN))
            if status.state is not TxnState.UNKNOWN:
                watched.unknown_since = None
            if status.state is TxnState.OPEN:
                left_s = max(0.0, (status.until_ms - wall_ms) / 1000)
                watched.ask_at = now + left_s + GRACE_S
            elif status.state is TxnState.COMMITTED:
                yield watched, Action.COMMIT, "commit"
            elif status.state is TxnState.ABORTED:
                yield watched, Action.ABORT, "abort"
            elif status.state is TxnState.UNKNOWN:
                if watched.unknown_since is None:
                    watched.unknown_since = now
                if now - watched.unknown_since >= UNKNOWN_CONFIRMED_S:
                    yield watched, Action.ABORT, "abort_unknown"

    async def _settle(self, over: list[tuple[_Watched, Action, str]], low_watermark: int) -> None:
        ends = [TransactionEnd(each.txn, each.topic, action, low_watermark) for each, action, _ in over]
        if not ends:
            return
        for (watched, _, name), result in zip(over, await self._ends.end(ends), strict=True):
            if result.over:
                SETTLED.labels(name).inc()
            log.warning(
                "lingering transaction settled" if result.over else "lingering transaction not settled",
                topic=watched.topic,
                txn=str(watched.txn),
                action=name,
                reason=result.reason,
            )
