"""Runs on their way into a topic: the open ledgers, what is not confirmed yet, and what waits for a ledger.

Appending never waits: while a ledger is open a run goes straight to its writer, else it queues (bounded).
Everything that needs metadata is a step that the managed ledger's maintenance runs one at a time:

- the first publish, or a full ledger, makes the next ledger; it is in the head before anything in it can be
  confirmed, and the ledger before it goes on being used until then, so that a roll is a switch;
- a ledger that is no longer appended to is closed once wholly confirmed, in one transaction with its topic
  ledger key and the head; confirmations of the next one wait for that of the last run before it;
- a ledger that failed is closed at its last add confirmed; what was not confirmed goes, in order and with new
  ids, into the next one; while storage goes on failing it is held for a time and then given back as refused.
  A later ledger that already had runs is given up with it (none of them was confirmed), so that
  nothing changes order.
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, NamedTuple

from magnetar.common.errors import (
    Backpressure,
    LedgerFenced,
    LogFull,
    OwnershipLost,
    StorageError,
    UnknownOutcome,
    VersionMismatch,
)
from magnetar.common.metadata.store import Op, Put
from magnetar.common.naming.position import Position
from magnetar.common.obs.logs import get_logger
from magnetar.ledger.ledger_store import ClosedLedger, LedgerRef, Run, WriteReport
from magnetar.ledger.managed_ledger import rollover
from magnetar.ledger.managed_ledger.context import ManagedLedgerContext
from magnetar.ledger.managed_ledger.intents import finish_quietly
from magnetar.ledger.managed_ledger.ledger_list import LedgerSpans
from magnetar.ledger.managed_ledger.open_ledger import OpenLedger, closing_ops, open_next
from magnetar.ledger.managed_ledger.topic_head import TopicHeadKey

log = get_logger(__name__)

Publish = tuple[Run, object]
Step = Callable[[], Awaitable[None]]

_RETRY_S: Final = 0.02
_BACKOFF_MIN_S: Final = 0.05
_BACKOFF_MAX_S: Final = 5.0
_HOLD_S: Final = 2.0
"""Time in seconds that publishes wait while storage refuses or fails, before they are refused."""
_IDLE_MS: Final = 60_000


class QueueWait(NamedTuple):
    """The last runs that waited for a ledger, and when they were handed to one."""

    ledger_id: int
    first_entry_id: int
    last_entry_id: int
    handed_s: float
    """Monotonic seconds."""
    cause: str


class Appender:
    """The write side of one managed ledger; `last_confirmed` is in topic order, across all ledgers."""

    __slots__ = (
        "_backoff_timer",
        "_failures",
        "_head",
        "_hold_timer",
        "_kick",
        "_on_closed",
        "_on_confirmed",
        "_on_refused",
        "_pending",
        "_queue",
        "_queued_bytes",
        "_retry_timer",
        "_roll_timer",
        "_roll_wanted",
        "_spans",
        "_topic",
        "_wait_cause",
        "_waited",
        "blocked",
        "confirmed_index",
        "creation_id",
        "ctx",
        "current",
        "held",
        "last_confirmed",
        "last_publish_ms",
        "ledgers",
        "next_index",
        "refused",
    )

    def __init__(
        self,
        ctx: ManagedLedgerContext,
        topic: str,
        head: TopicHeadKey,
        spans: LedgerSpans,
        *,
        creation_id: int,
        next_index: int,
        last_confirmed: Position,
        kick: Callable[[], None],
        on_confirmed: Callable[[list[Publish]], None],
        on_refused: Callable[[list[Publish], StorageError], None],
        on_closed: Callable[[], None],
    ) -> None:
        self.ctx = ctx
        self._topic = topic
        self._head = head
        self._spans = spans
        self._kick = kick
        self._on_confirmed = on_confirmed
        self._on_refused = on_refused
        self._on_closed = on_closed
        self.creation_id = creation_id
        self.next_index = self.confirmed_index = next_index
        self.last_confirmed = last_confirmed
        self.last_publish_ms = 0
        self.ledgers: list[OpenLedger] = []
        self.current: OpenLedger | None = None
        self.held = False
        self.refused: StorageError | None = None
        self.blocked: StorageError | None = None
        self._pending: deque[Publish] | None = None
        self._queue: deque[Publish] | None = None
        self._queued_bytes = 0
        self._wait_cause = ""
        self._waited: QueueWait | None = None
        self._roll_wanted = False
        self._roll_timer: asyncio.TimerHandle | None = None
        self._retry_timer: asyncio.TimerHandle | None = None
        self._failures = 0
        self._backoff_timer: asyncio.TimerHandle | None = None
        self._hold_timer: asyncio.TimerHandle | None = None

    # Publishing

    def append(self, run: Run, context: object) -> None:
        """See `ManagedLedger.append`."""
        if self.refused is not None:
            raise type(self.refused)(*self.refused.args)
        now_ms = self.ctx.clock.wall_ms()
        # Seek by time uses binary search, so publish times must not decrease while the topic is loaded.
        if now_ms < self.last_publish_ms:
            now_ms = self.last_publish_ms
        else:
            self.last_publish_ms = now_ms
        run.publish_time_ms = now_ms
        run.first_index = self.next_index
        current = self.current
        if current is None or self._queue:
            self._enqueue(run, context, "no ledger was open")
        else:
            try:
                current.writer.append(run)
            except LogFull:
                raise
            except Backpressure as error:
                # Confirmations free space; until then the run waits here, within a limit.
                self._enqueue(run, context, str(error))
                self._retry_soon()
            except StorageError as error:
                self._failed(current, error, current.confirmed)
                self._enqueue(run, context, str(error))
            else:
                self._appended(current, run, context)
        self.next_index += run.messages

    def _appended(self, current: OpenLedger, run: Run, context: object) -> None:
        current.appended = run.first_entry_id + len(run.entries) - 1
        current.byte_length += run.byte_length
        current.last_append_ms = run.publish_time_ms
        if self._pending is None:
            self._pending = deque()
        self._pending.append((run, context))
        self.ctx.write_samples.handed_over(run, self.ctx.clock)
        if current.appended >= current.check_entries or current.byte_length >= current.check_bytes:
            self._check_roll()

    def _enqueue(self, run: Run, context: object, cause: str) -> None:
        if self.blocked is not None:
            raise type(self.blocked)(*self.blocked.args)
        if self._queued_bytes and self._queued_bytes + run.byte_length > self.ctx.config.queued_bytes_max:
            raise Backpressure(f"{self._queued_bytes} bytes of {self._topic} wait for their ledger already")
        if not self._queue:
            self._wait_cause = cause
        self._queue = self._queue or deque()
        self._queue.append((run, context))
        self._queued_bytes += run.byte_length
        self._kick()

    def _drain_queue(self) -> None:
        if self.held:
            return
        queue, first = self._queue, -1
        while queue and self.current is not None:
            run, context = queue[0]
            current = self.current
            try:
                current.writer.append(run)
            except (Backpressure, LogFull) as error:
                if isinstance(error, LogFull):
                    self.block(error)
                self._retry_soon()
                return
            except StorageError as error:
                self._failed(current, error, current.confirmed)
                return
            queue.popleft()
            self._queued_bytes -= run.byte_length
            self._appended(current, run, context)
            first = run.first_entry_id if first < 0 else first
            now = self.ctx.clock.monotonic()
            self._waited = QueueWait(run.ledger_id, first, run.last_entry_id, now, self._wait_cause)
        if self.current is not None:
            self.blocked = None

    def report_to(
        self,
        on_confirmed: Callable[[list[Publish]], None],
        on_refused: Callable[[list[Publish], StorageError], None],
    ) -> None:
        """Replaces the callbacks for confirmed and refused runs."""
        self._on_confirmed, self._on_refused = on_confirmed, on_refused

    def append_held(self, run: Run, context: object) -> None:
        """Accepts a run that waits, and all later ones behind it, until `release`. Raises as `append`."""
        current, self.current = self.current, None
        try:
            self.append(run, context)
            self.held = True
        finally:
            self.current = current

    def release(self) -> None:
        """Appends the runs that were held."""
        self.held = False
        self._drain_queue()
        self._kick()

    def block(self, error: StorageError) -> None:
        """Refuses new waiting publishes; those already waiting get a deadline."""
        self.blocked = error
        if self._hold_timer is None:
            self._hold_timer = asyncio.get_running_loop().call_later(_HOLD_S, self._give_back)

    def _give_back(self) -> None:
        """Refuses waiting publishes. None is in a ledger that counts: such a ledger was closed below it."""
        self._hold_timer = None
        error, queue = self.blocked, self._queue
        if error is None or not queue:
            return
        self._queue, self._queued_bytes = None, 0
        self.next_index = queue[0][0].first_index
        log.warning("waiting publishes refused", topic=self._topic, runs=len(queue), error=str(error))
        self._on_refused(list(queue), error)
        self._kick()

    def _retry_soon(self) -> None:
        if self._retry_timer is None:
            self._retry_timer = asyncio.get_running_loop().call_later(_RETRY_S, self._retry)

    def _retry(self) -> None:
        self._retry_timer = None
        self._drain_queue()

    def prepare(self) -> None:
        """Opens a ledger in advance of an expected publish."""
        if self.refused is None and not self.ledgers:
            self._roll_wanted = True
            self._kick()

    def write_report(self, run: Run) -> tuple[WriteReport | None, QueueWait | None]:
        """Returns how a run was written that is being reported as confirmed, and its wait for a ledger.

        Either is None where it is not known, or where there was none.
        """
        ledger = next((each for each in self.ledgers if each.span.ref.id == run.ledger_id), None)
        waited = self._waited
        if waited is not None and not (
            waited.ledger_id == run.ledger_id
            and waited.first_entry_id <= run.first_entry_id <= waited.last_entry_id
        ):
            waited = None
        return None if ledger is None else ledger.writer.write_report(), waited

    @property
    def oldest(self) -> tuple[Publish, str | None] | None:
        """The oldest unconfirmed publish, and for what it waits where no ledger has it; None without one."""
        if self._pending:
            return self._pending[0], None
        if self._queue:
            return self._queue[0], str(self.blocked or self._wait_cause)
        return None

    @property
    def pending_entries(self) -> int:
        """Number of accepted, unconfirmed entries."""
        return sum(
            [len(run.entries) for publishes in (self._pending, self._queue) for run, _ in publishes or ()]
        )

    @property
    def drained(self) -> bool:
        """Whether no publish is waiting or unconfirmed."""
        return not self._queue and not self._pending

    def refuse(self, error: StorageError) -> None:
        """Refuses further publishes; accepted ones are still confirmed or refused."""
        self.refused = self.refused or error
        if self._roll_timer is not None:
            self._roll_timer.cancel()
            self._roll_timer = None

    def stop(self, error: StorageError) -> None:
        """Stops publishes and timers; the fate of accepted publishes stays undecided."""
        self.refused = error
        for timer in (self._roll_timer, self._retry_timer, self._backoff_timer, self._hold_timer):
            if timer is not None:
                timer.cancel()
        self._roll_timer = self._retry_timer = self._backoff_timer = self._hold_timer = None

    def give_up(self) -> list[Publish]:
        """Removes the accepted and undecided publishes; their callbacks are not called."""
        undecided = [*(self._pending or ()), *(self._queue or ())]
        self._pending, self._queue, self._queued_bytes = None, None, 0
        return undecided

    # Confirmation

    def _ledger_confirmed(self, ledger: OpenLedger, last_confirmed: int) -> None:
        if last_confirmed > ledger.confirmed:
            ledger.confirmed = last_confirmed
            self._collect()

    def _collect(self) -> None:
        """Reports confirmed runs in topic order."""
        done: list[Publish] = []
        pending = self._pending
        for ledger in self.ledgers:
            span, confirmed = ledger.span, ledger.confirmed
            ledger_id = span.ref.id
            before = len(done)
            while pending:
                run = pending[0][0]
                last = run.first_entry_id + len(run.entries) - 1
                if run.ledger_id != ledger_id or last > confirmed:
                    break
                done.append(pending.popleft())
                span.byte_length += run.byte_length
                span.messages += run.messages
            if len(done) > before:
                if not span.entries:
                    span.first_index = done[before][0].first_index
                    self._spans.add(span)
                run = done[-1][0]
                span.entries = run.first_entry_id + len(run.entries)
                span.max_publish_time_ms = run.publish_time_ms
                self.last_confirmed = Position(ledger_id, span.entries - 1)
                self.confirmed_index = run.first_index + run.messages
            if not ledger.settled:
                break
            if ledger is not self.current:
                self._kick()
        if done:
            self._failures = 0
            if self._hold_timer is not None:
                self._hold_timer.cancel()
                self._hold_timer = None
            samples = self.ctx.write_samples
            if samples.waits:
                samples.confirmed(self.last_confirmed, self.ctx.clock)
            self._on_confirmed(done)
        if self._queue and self.current is not None:
            self._drain_queue()

    def _failed(self, ledger: OpenLedger, error: StorageError, last_confirmed: int) -> None:
        if ledger.error is not None or ledger not in self.ledgers:
            return
        log.warning("ledger failed", topic=self._topic, ledger=ledger.span.ref.id, error=str(error))
        ledger.error = error
        # In any ledger: no new run may overtake the runs that this ledger loses.
        self.current = None
        self._ledger_confirmed(ledger, last_confirmed)
        self._back_off(error)
        self._kick()

    def _back_off(self, error: StorageError) -> None:
        """Limits the rate at which new ledgers are created when they fail before any confirmation."""
        self._failures += 1
        if self._failures > 1 and self._backoff_timer is None:
            self.block(error)
            delay_s = min(_BACKOFF_MIN_S * 2.0 ** min(self._failures, 20), _BACKOFF_MAX_S)
            self._backoff_timer = asyncio.get_running_loop().call_later(delay_s, self._try_again)

    def _try_again(self) -> None:
        self._backoff_timer = None
        self.step_done()
        self._kick()

    # Rolling

    def _check_roll(self) -> None:
        """Checks whether the current ledger is due to roll, and schedules the next check."""
        current = self.current
        if current is None or self._roll_wanted:
            return
        now_ms = self.ctx.clock.wall_ms()
        age_s = max(0.0, (now_ms - current.span.opened_ms) / 1000)
        plan = rollover.plan(self.ctx.config, current.appended + 1, current.byte_length, age_s)
        if plan.now:
            current.check_entries = current.check_bytes = 1 << 62
            if self.drained and now_ms - current.last_append_ms >= _IDLE_MS:
                # No publishes: close the ledger, and open the next one at the next publish.
                self.current = None
            else:
                self._roll_wanted = True
            self._kick()
            return
        current.check_entries = plan.entries - 1
        current.check_bytes = plan.byte_length
        self._arm_roll_timer(plan.seconds)

    def _arm_roll_timer(self, seconds: float) -> None:
        if self._roll_timer is not None:
            self._roll_timer.cancel()
        loop = asyncio.get_running_loop()
        self._roll_timer = loop.call_later(max(seconds, 0.01), self._on_roll_timer)

    def _on_roll_timer(self) -> None:
        self._roll_timer = None
        self._check_roll()

    def retire(self) -> None:
        """Stops appending to the current ledger, because the topic is closing."""
        self.current = None
        self._roll_wanted = False

    # Steps of maintenance

    def next_step(self) -> Step | None:
        """Returns the next maintenance step as a coroutine function; None without one."""
        oldest = self.ledgers[0] if self.ledgers else None
        if oldest is not None and (
            oldest.error is not None or (oldest is not self.current and oldest.settled)
        ):
            return self._close_oldest
        if self._backoff_timer is not None:
            return None
        # A topic that refuses publishes gets no new runs: its remaining runs can end in the open ledger.
        roll_wanted = self._roll_wanted and self.refused is None
        if len(self.ledgers) < 2 and (roll_wanted or (self.current is None and self._queue)):
            return self._make_next
        return None

    def step_done(self) -> None:
        """Records that maintenance works: publishes may queue for the next ledger again."""
        if self.current is None and self._backoff_timer is None:
            self.blocked = None

    async def _make_next(self) -> None:
        """Creates a ledger, adds it to the head and switches to it."""
        opened, early = await open_next(
            self.ctx, self._head, self._topic, self._ledger_confirmed, self._failed
        )
        if all(ledger.error is None for ledger in self.ledgers):
            # Otherwise the previous ledger failed meanwhile: its lost runs come first.
            self.current = opened
        self.ledgers.append(opened)
        self._roll_wanted = False
        for failure, last_confirmed in early:
            self._failed(opened, failure, last_confirmed)
        self._check_roll()
        self._drain_queue()

    async def _close_oldest(self) -> None:
        """Closes the oldest open ledger at its last add confirmed; its other runs go into the next ledger."""
        head, ledger = self._head, self.ledgers[0]
        await head.sync()
        put: Put | None = None
        given_up: list[LedgerRef] = []

        def with_ops(closed: ClosedLedger) -> Sequence[Op]:
            nonlocal put, given_up
            lost = ledger.appended > closed.last_entry_id
            # Runs in a later ledger must not overtake the runs that this ledger loses.
            given_up = [later.span.ref for later in self.ledgers[1:] if lost and later.appended >= 0]
            put, ops = closing_ops(self.ctx, head, self.creation_id, ledger.span, closed, given_up)
            return ops

        try:
            closed = await ledger.writer.close(with_ops)
        except VersionMismatch as error:
            raise head.explain(error) from error
        except LedgerFenced as error:
            raise OwnershipLost(f"ledger {ledger.span.ref.id} was closed by another owner") from error
        except UnknownOutcome as error:
            raise await head.unknown() or error from error
        assert put is not None, "the ledger was closed together with the head"
        head.written(put)
        self._closed(ledger, closed, given_up)
        for ref in [*given_up, *([closed.ref] if closed.last_entry_id < 0 else [])]:
            await finish_quietly(self.ctx, ref)
        self._on_closed()

    def _closed(self, ledger: OpenLedger, closed: ClosedLedger, given_up: list[LedgerRef]) -> None:
        self._ledger_confirmed(ledger, closed.last_entry_id)
        assert ledger.confirmed == closed.last_entry_id, "a ledger closes at its last add confirmed"
        gone = {closed.ref, *given_up}
        self.ledgers = [other for other in self.ledgers if other.span.ref not in gone]
        ledger.span.closed = True
        if ledger.error is not None and self.ledgers and self.ledgers[-1].error is None:
            self.current = self.ledgers[-1]
        if not ledger.settled:
            self._requeue(ledger)
        if self._queue:
            self._drain_queue()

    def _requeue(self, ledger: OpenLedger) -> None:
        """Requeues appended, unconfirmed runs before all others.

        Copies them: the log may still hold the runs as they were, under their old ids.
        """
        first = self._pending[0][0] if self._pending else None
        assert (
            first is None or first.ledger_id != ledger.span.ref.id or first.first_entry_id > ledger.confirmed
        ), "ledgers end between runs"
        again = [
            (dataclasses.replace(run, ledger_id=-1, first_entry_id=-1), context)
            for run, context in self._pending or ()
        ]
        self._pending = deque()
        self._wait_cause = str(ledger.error or self._wait_cause)
        self._queue = self._queue or deque()
        self._queue.extendleft(reversed(again))
        self._queued_bytes += sum(run.byte_length for run, _ in again)
        log.info("runs are written again", topic=self._topic, runs=len(again))
