"""Tells every topic that takes part in a decided transaction how it ends, until all have confirmed.

Ends of many transactions share calls, whose number and size are bounded. A topic that fails is told again
each second, for ever, and does not delay the others: while it fails, its ends have calls of their own.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from magnetar.broker.transactions.figures import CoordinatorFigures
from magnetar.broker.transactions.participants import EndOutcome, EndResult, Participants, TransactionEnd
from magnetar.common.errors import MagnetarError
from magnetar.common.naming.txn_id import Action, TxnId
from magnetar.common.obs.log_limit import LogLimit
from magnetar.common.obs.logs import get_logger
from magnetar.common.runtime.clock import Clock
from magnetar.common.runtime.task_owner import TaskOwner
from magnetar.ledger.transaction_log.coordinator_state import Transaction

log = get_logger(__name__)

FIRST_RETRY_S: Final = 0.1
"""Seconds until the first retry: most topics fail because they are moving."""

RETRY_S: Final = 1.0
"""Seconds between further retries."""

ENDS_MAX: Final = 500
"""Ends in one call."""

CALLS_MAX: Final = 6
"""Calls in flight for topics without failures."""

RETRY_CALLS_MAX: Final = 2
"""Calls in flight for topics that failed before."""


class _End(NamedTuple):
    number: int
    topic: str
    action: Action
    tries: int = 0


@dataclass(slots=True)
class _Lane:
    """Ends that wait, and how many calls may carry them."""

    calls_max: int
    waiting: deque[_End]
    calls: int = 0


class OutcomeDelivery:
    """Calls `on_confirmed` with a transaction's number once each of its topics has confirmed."""

    def __init__(
        self,
        coordinator_id: int,
        participants: Participants,
        low_watermark: Callable[[], int],
        on_confirmed: Callable[[int], None],
        clock: Clock,
        figures: CoordinatorFigures,
    ) -> None:
        self._coordinator_id = coordinator_id
        self._participants = participants
        self._low_watermark = low_watermark
        self._on_confirmed = on_confirmed
        self._clock = clock
        self._figures = figures
        self._left: dict[int, int] = {}
        """Topics that have not confirmed, by transaction."""
        self._fresh = _Lane(CALLS_MAX, deque())
        self._again = _Lane(RETRY_CALLS_MAX, deque())
        self._failing: dict[str, int] = {}
        """Topics whose last end failed, with the number of their ends that wait for a retry."""
        self._later: tuple[deque[tuple[float, _End]], deque[tuple[float, _End]]] = (deque(), deque())
        """Ends by the time of their first, and of a further, retry."""
        self._timer: asyncio.TimerHandle | None = None
        self._scheduled = False
        self._log_limit = LogLimit()
        self._tasks = TaskOwner(f"transactions of coordinator {coordinator_id}")
        self._closed = False

    @property
    def unconfirmed(self) -> int:
        """Number of ends that are not confirmed."""
        return sum(self._left.values())

    def deliver(self, transaction: Transaction) -> None:
        """Tells the topics of a decided transaction. `on_confirmed` is never called from inside."""
        assert transaction.action is not None, "it is decided"
        if self._closed:
            return
        number, action = transaction.number, transaction.action
        topics = list(transaction.participants)
        if not topics:
            asyncio.get_running_loop().call_soon(self._confirm_empty, number)
            return
        self._left[number] = len(topics)
        self._figures.unconfirmed_ends.inc(len(topics))
        for topic in topics:
            lane = self._again if topic in self._failing else self._fresh
            lane.waiting.append(_End(number, topic, action))
        self._pump_soon()

    async def close(self) -> None:
        """Stops; calls in flight are cancelled, and the next owner tells their topics again. Idempotent."""
        self.stop()
        await self._tasks.close()

    def stop(self) -> None:
        """Begins no further call."""
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _confirm_empty(self, number: int) -> None:
        if not self._closed:
            self._on_confirmed(number)

    # Calls

    def _pump_soon(self) -> None:
        if not self._scheduled:
            self._scheduled = True
            asyncio.get_running_loop().call_soon(self._pump)

    def _pump(self) -> None:
        self._scheduled = False
        if self._closed:
            return
        for lane in (self._fresh, self._again):
            while lane.waiting and lane.calls < lane.calls_max:
                count = min(len(lane.waiting), ENDS_MAX)
                batch = [lane.waiting.popleft() for _ in range(count)]
                lane.calls += 1
                self._tasks.spawn(self._call(lane, batch), "tell topics")

    async def _call(self, lane: _Lane, batch: Sequence[_End]) -> None:
        try:
            results = await self._ask(batch)
        finally:
            lane.calls -= 1
        if self._closed:
            return
        for end, result in zip(batch, results, strict=True):
            if result.over:
                self._confirm(end)
            elif result.outcome is EndOutcome.REFUSED:
                self._contradicted(end, result)
            else:
                self._retry(end, result)
        self._pump_soon()

    async def _ask(self, batch: Sequence[_End]) -> list[EndResult]:
        low_watermark = self._low_watermark()
        ends = [
            TransactionEnd(TxnId(self._coordinator_id, end.number), end.topic, end.action, low_watermark)
            for end in batch
        ]
        try:
            return await self._participants.end(ends)
        except MagnetarError as error:
            reason = str(error)
        except Exception as error:
            log.exception("telling topics failed unexpectedly", coordinator=self._coordinator_id)
            reason = repr(error)
        return [EndResult(EndOutcome.RETRY, reason=reason)] * len(batch)

    # Results

    def _confirm(self, end: _End) -> None:
        self._figures.unconfirmed_ends.dec()
        if end.tries:
            self._recovered(end.topic)
        left = self._left[end.number] - 1
        if left:
            self._left[end.number] = left
        else:
            del self._left[end.number]
            self._on_confirmed(end.number)

    def _recovered(self, topic: str) -> None:
        left = self._failing[topic] - 1
        if left:
            self._failing[topic] = left
        else:
            del self._failing[topic]

    def _contradicted(self, end: _End, result: EndResult) -> None:
        """Handles a topic that has recorded the other action: telling it again cannot change that."""
        self._figures.contradictions.inc()
        log.error(
            "topic ended a transaction with another action",
            txn=str(TxnId(self._coordinator_id, end.number)),
            topic=end.topic,
            action=end.action.value,
            reason=result.reason,
        )
        self._confirm(end)

    def _retry(self, end: _End, result: EndResult) -> None:
        self._figures.end_retries.inc()
        now = self._clock.monotonic()
        if not end.tries:
            self._failing[end.topic] = self._failing.get(end.topic, 0) + 1
            self._later[0].append((now + FIRST_RETRY_S, end._replace(tries=1)))
        else:
            self._later[1].append((now + RETRY_S, end._replace(tries=end.tries + 1)))
            if events := self._log_limit.note(now):
                log.warning(
                    "transaction not ended in a topic, retrying",
                    txn=str(TxnId(self._coordinator_id, end.number)),
                    topic=end.topic,
                    tries=end.tries,
                    reason=result.reason,
                    ends=events,
                )
        self._set_timer()

    def _set_timer(self) -> None:
        if self._timer is not None or self._closed:
            return
        due = [queue[0][0] for queue in self._later if queue]
        if due:
            wait_s = max(0.0, min(due) - self._clock.monotonic())
            self._timer = asyncio.get_running_loop().call_later(wait_s, self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        now = self._clock.monotonic()
        for queue in self._later:
            while queue and queue[0][0] <= now:
                self._again.waiting.append(queue.popleft()[1])
        self._set_timer()
        self._pump_soon()
