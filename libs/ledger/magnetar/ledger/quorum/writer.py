"""The single writer of one ledger on bookies.

A run is encoded once and the same bytes go to every bookie of its write set (with E > Qw each entry is sent
alone, since neighbors have different write sets). `PendingAdds` tracks answers and confirmations;
`EnsembleChange` handles failed bookies. This module connects them to clients, timers and the ledger's owner.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Sequence
from functools import partial

from magnetar.common.errors import (
    Backpressure,
    DataCorruption,
    LedgerClosed,
    LedgerFenced,
    NotEnoughBookies,
    StorageError,
    VersionMismatch,
)
from magnetar.common.metadata.store import Op, Versioned
from magnetar.common.obs.logs import get_logger
from magnetar.ledger.bookie_protocol.bookie_pb2 import (
    BACKPRESSURE,
    BAD_RECORD,
    FENCED,
    LOG_FAILED,
    OK,
    UNREACHABLE,
    Code,
)
from magnetar.ledger.bookie_protocol.records import encode_append
from magnetar.ledger.ledger_store import ClosedLedger, LedgerListener, LedgerRef, Run, WriteReport
from magnetar.ledger.quorum.context import QuorumContext
from magnetar.ledger.quorum.ensemble_change import EnsembleChange
from magnetar.ledger.quorum.member import Member
from magnetar.ledger.quorum.pending_adds import PendingAdd, PendingAdds
from magnetar.ledger.quorum.striping import LedgerLayout

log = get_logger(__name__)

WithOps = Callable[[ClosedLedger], Sequence[Op]]

TICKS_PER_TIMEOUT = 4
"""Number of checks of the oldest append within its timeout."""

_ILL = frozenset({UNREACHABLE, LOG_FAILED})

RESEND_AFTER_S = 0.02
"""Wait in seconds before a resend after a bookie, or the connection to it, lacked room for an append."""


class QuorumLedgerWriter:
    """Implements `ledger_store.LedgerWriter`. Made by `QuorumLedgerStore.create`."""

    __slots__ = (
        "_absent",
        "_advancing",
        "_change",
        "_closed",
        "_confirming",
        "_context",
        "_error",
        "_gone",
        "_lac_sent",
        "_lac_timer",
        "_listener",
        "_loop",
        "_next_entry_id",
        "_pending_bytes_max",
        "_progress_s",
        "_refusal",
        "_timer",
        "_waiter",
        "_write_set_masks",
        "adds",
        "awaited_masks",
        "last_confirmed",
        "layout",
        "members",
        "ref",
    )

    def __init__(
        self,
        context: QuorumContext,
        ref: LedgerRef,
        layout: LedgerLayout,
        metadata: Versioned,
        listener: LedgerListener,
        gone: Callable[[LedgerRef], None],
    ) -> None:
        self.ref = ref
        self.last_confirmed = -1
        self.layout = layout
        """The layout, shared with readers in this process."""
        self._context = context
        self._listener = listener
        self._gone = gone
        self._loop = asyncio.get_running_loop()
        striping = layout.striping
        self.adds = PendingAdds(striping.ack_quorum, context.budget)
        now = self._loop.time()
        self.members = [
            Member(position, context.clients.client(bookie_id), -math.inf)
            for position, bookie_id in enumerate(layout.last_fragment.bookie_ids)
        ]
        self._write_set_masks = [
            sum(1 << position for position in striping.write_set(start))
            for start in range(striping.ensemble_size if striping.striped else 1)
        ]
        """Write sets as bits, by entry id modulo their number."""
        self._absent = 0
        self.awaited_masks = list(self._write_set_masks)
        """Subset of each write set that a new entry awaits, as bits."""
        self._change = EnsembleChange(context, self, metadata)
        self._pending_bytes_max = context.config.ledger_pending_bytes_max
        self._next_entry_id = 0
        self._refusal: StorageError | None = None
        self._error: StorageError | None = None
        self._closed: ClosedLedger | None = None
        self._advancing = False
        self._confirming: PendingAdd | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._progress_s = now
        self._lac_timer: asyncio.TimerHandle | None = None
        self._lac_sent = -1
        self._waiter: asyncio.Future[None] | None = None

    # --- appending ---

    def append(self, run: Run) -> int:
        """See `LedgerWriter.append`."""
        if self._refusal is not None:
            raise self._refusal
        adds, size = self.adds, run.byte_length
        pending, budget = adds.pending, adds.budget
        if (pending and pending + size > self._pending_bytes_max) or (
            budget.pending and budget.pending + size > budget.maximum
        ):
            raise Backpressure(
                f"{pending} bytes of ledger {self.ref.id}, {budget.pending} of all ledgers, wait for bookies"
            )
        first = self._next_entry_id
        run.ledger_id = self.ref.id
        run.first_entry_id = first
        masks = self.awaited_masks
        if len(masks) == 1:
            self._send(run, masks[0])
        else:
            for entry_id in range(first, first + len(run.entries)):
                self._send(run.slice(entry_id, entry_id), masks[entry_id % len(masks)])
        self._next_entry_id = first + len(run.entries)
        if self._timer is None:
            self._watch()
        return first

    def _send(self, run: Run, awaited: int) -> None:
        lac = self._lac_sent = self.last_confirmed
        append = encode_append(run, self.ref, lac)
        first = run.first_entry_id
        add = PendingAdd(
            first, first + len(run.entries) - 1, run.byte_length, awaited, append, self._loop.time()
        )
        self.adds.add(add)
        for member in self.members:
            if member.open and awaited & member.bit:
                member.client.append(append, partial(self._answered, member, add))

    def _answered(self, member: Member, add: PendingAdd, code: Code.ValueType, reason: str) -> None:
        if code == FENCED:  # from any bookie: another owner has fenced the ledger
            self.fenced()
        elif member.dead:
            return
        elif code == OK:
            bit = member.bit
            if add.awaited & bit:
                add.awaited ^= bit
                add.acked |= bit
                if not self._advancing:
                    self._advancing = True
                    self._loop.call_soon(self._advance)
        elif code == BACKPRESSURE:
            self._hold(member, add)
        elif code == BAD_RECORD and add.refused:
            self.fail(DataCorruption(f"bookies refuse entry {self.ref.id}:{add.first}: {reason}"))
        else:
            add.refused = add.refused or code == BAD_RECORD
            self.lose(member, f"{Code.Name(code)}: {reason}", ill=code in _ILL)

    def _advance(self) -> None:
        """Advances the LAC once for all answers of a turn of the loop."""
        self._advancing = False
        if self._error is not None:
            return
        unconfirmed = self.adds.unconfirmed
        oldest = unconfirmed[0] if unconfirmed else None
        last = self.adds.advance()
        if last == self.last_confirmed:
            self._wake()
            return
        self.last_confirmed = last
        storing = self._context.storing
        storing.confirmed_s = self._progress_s = self._loop.time()
        if storing.failure is not None:
            storing.succeeded()
        if self._lac_timer is None and (interval_ms := self._context.config.explicit_lac_interval_ms):
            self._lac_timer = self._loop.call_later(interval_ms / 1000, self._tell_lac)
        self._relieve()
        self._wake()
        self._confirming = oldest
        self._listener.on_confirmed(last)
        self._confirming = None  # it would keep the entries in memory

    def write_report(self) -> WriteReport | None:
        """See `LedgerWriter.write_report`."""
        add = self._confirming
        if add is None:
            return None
        return WriteReport(
            add.sent_s,
            self._progress_s,
            tuple(each.bookie_id for each in self.members if add.acked & each.bit),
            tuple(each.bookie_id for each in self.members if add.awaited & each.bit),
            tuple(each.bookie_id for each in self.members if each.since_s >= add.sent_s),
        )

    def _tell_lac(self) -> None:
        """Sends the LAC to the bookies if no append carried it, because the ledger is idle."""
        self._lac_timer = None
        lac = self.last_confirmed
        if self._lac_sent < lac and self._error is None and self._closed is None:
            self._lac_sent = lac
            for member in self.members:
                if member.open:
                    member.client.write_lac(self.ref, lac)

    # --- bookies that fail ---

    def lose(self, member: Member, reason: str, *, ill: bool = True, slow: bool = False) -> None:
        """Drops a failed bookie: its answers no longer count, and it will be replaced. Once per failure.

        `ill`: the failure counts against the bookie in other ledgers, too; `slow`: it is quarantined at once.
        """
        if member.dead:
            return
        member.dead = True
        member.open = False
        log.warning("bookie lost for a ledger", ledger=self.ref.id, bookie=member.bookie_id, reason=reason)
        quarantine = self._context.placement.quarantine
        if slow:
            quarantine.too_slow(member.bookie_id, reason)
        elif ill:
            quarantine.failed(member.bookie_id, reason)
        self._change.failed(member.bookie_id)

    def join(self, position: int, bookie_id: str, from_entry_id: int) -> None:
        """Adds a bookie that took a position in metadata: it receives awaited entries from one on, and its
        answers count.
        """
        member = Member(position, self._context.clients.client(bookie_id), self._loop.time())
        self.members[position] = member
        self._resend(member, from_entry_id)

    def await_positions(self, bits: int) -> None:
        """Prepares an ensemble change: entries from LAC + 1 on wait for the new bookies of these
        positions.
        """
        self._set_absent(self._absent & ~bits)
        self.adds.await_replaced(bits, self.awaited_masks)

    def absent_positions(self, bits: int) -> None:
        """Stops waiting for the bookies of these positions, whose gap is recorded in metadata."""
        self._set_absent(self._absent | bits)
        self.adds.absent(bits)

    def _set_absent(self, bits: int) -> None:
        self._absent = bits
        self.awaited_masks = [mask & ~bits for mask in self._write_set_masks]

    def settle(self) -> None:
        """Releases complete entries after some answers are no longer awaited."""
        if not self._advancing:
            self._advancing = True
            self._loop.call_soon(self._advance)

    def _hold(self, member: Member, add: PendingAdd) -> None:
        if member.open:
            member.open = False
            member.held_from = add.first
            self._loop.call_later(RESEND_AFTER_S, self._release, member)
        else:
            member.held_from = min(member.held_from, add.first)

    def _release(self, member: Member) -> None:
        if not member.dead:
            member.open = True
            self._resend(member, member.held_from)

    def _resend(self, member: Member, from_entry_id: int) -> None:
        for add in self.adds:
            if add.first >= from_entry_id and add.awaited & member.bit:
                member.client.append(add.append, partial(self._answered, member, add))

    def _relieve(self) -> None:
        """Limits the memory of confirmed entries that one slow bookie has not acknowledged."""
        if not self._lag_above(1 / 2):
            return
        adds, now = self.adds, self._loop.time()
        patience_s = self._context.config.add_entry_timeout_s
        catching_up = False
        for member in self.members:
            if not adds.incomplete[0].awaited & member.bit or member.dead:
                continue
            if now - member.since_s < patience_s:
                catching_up = True  # it has just come
            else:
                self.lose(member, f"{adds.lagging} confirmed bytes of the ledger wait for it", slow=True)
        # Publishing continues without metadata: confirmed entries need not be kept until the gap is recorded.
        while not catching_up and self._lag_above(3 / 4):
            adds.owe_oldest()
            self._change.start()

    def _lag_above(self, share: float) -> bool:
        """Returns whether confirmed entries awaiting answers use more than a share of the memory limit."""
        adds, budget = self.adds, self.adds.budget
        return bool(adds.incomplete) and (
            adds.lagging > share * self._pending_bytes_max or budget.lagging > share * budget.maximum
        )

    def _watch(self) -> None:
        period_s = self._context.config.add_entry_timeout_s / TICKS_PER_TIMEOUT
        self._timer = self._loop.call_later(period_s, self._look_at_oldest)

    def _look_at_oldest(self) -> None:
        self._timer = None
        if not self.adds or self._error is not None:
            return
        config, now = self._context.config, self._loop.time()
        overdue_s = now - config.add_entry_timeout_s
        late = 0
        for add in self.adds:
            if add.sent_s > overdue_s:
                break
            late |= add.awaited
        for member in self.members:
            if late & member.bit and not member.dead and member.since_s <= overdue_s:
                self.lose(member, f"no answer within {config.add_entry_timeout_s:g} s")
        oldest = self.adds.unconfirmed[0] if self.adds.unconfirmed else None
        if oldest is not None:
            since_s = max(oldest.sent_s, self._progress_s)
            if since_s <= overdue_s:
                self._context.storing.failed(now, self._no_quorum(round(now - since_s)))
            if now - since_s >= config.no_quorum_timeout_s:
                self.fail(NotEnoughBookies(self._no_quorum(config.no_quorum_timeout_s)))
                return
        self._watch()

    def _no_quorum(self, seconds: float) -> str:
        bookies = [each.bookie_id for each in self.members]
        return f"ledger {self.ref.id}: no quorum of {bookies} answered for {seconds:g} s"

    # --- the end ---

    async def close(self, with_ops: WithOps | None = None) -> ClosedLedger:
        """Closes the ledger; see `LedgerWriter.close`. A repeated call returns the same."""
        if self._closed is not None:
            return self._closed
        if self._refusal is None:
            self._refusal = LedgerClosed(f"ledger {self.ref.id} is closed")
        await self._confirmed()
        await self._completed()
        closed = ClosedLedger(self.ref, self.last_confirmed, self.adds.byte_length)
        try:
            await self._change.commit_closed(closed, with_ops)
        except VersionMismatch:
            self._refusal = self._error  # the ledger stays as it was
            raise
        except LedgerFenced:
            self.fenced()
            raise
        self._closed = closed
        self._detach()
        self._gone(self.ref)
        return closed

    def fenced(self) -> None:
        """Fails once because another owner fenced the ledger."""
        self.fail(LedgerFenced(f"ledger {self.ref.id} was fenced by another owner"))

    def abandon(self) -> None:
        """Stops sending and reporting because the process ends. The ledger stays open for a recovery."""
        if self._refusal is None:
            self._refusal = LedgerClosed(f"the writer of ledger {self.ref.id} was shut down")
        self._error = self._error or self._refusal
        self._detach()
        self._wake()

    def fail(self, error: StorageError) -> None:
        """Stops at once with an error; never called from inside `append`."""
        if self._error is not None or self._closed is not None:
            return
        self._error = self._refusal = error
        self._detach()
        if isinstance(error, LedgerFenced):
            self._gone(self.ref)
        self._wake()
        self._listener.on_failed(error, self.last_confirmed)

    def bookies_changed(self) -> None:
        """Checks for replacements after the set of running bookies changed."""
        self._change.stir()

    @property
    def failed(self) -> bool:
        return self._error is not None

    async def _confirmed(self) -> None:
        """Waits until every append is confirmed, or the ledger failed."""
        while self.last_confirmed + 1 < self._next_entry_id and self._error is None:
            await self._something_happened()

    async def _completed(self) -> None:
        """Waits briefly for bookies that have not acknowledged confirmed entries."""
        deadline = self._loop.time() + self._context.config.close_wait_s
        while self.adds and self._error is None and (left := deadline - self._loop.time()) > 0:
            await self._something_happened(left)

    async def _something_happened(self, timeout_s: float | None = None) -> None:
        if self._waiter is None:
            self._waiter = self._loop.create_future()
        await asyncio.wait([self._waiter], timeout=timeout_s)

    def _wake(self) -> None:
        waiter, self._waiter = self._waiter, None
        if waiter is not None and not waiter.done():
            waiter.set_result(None)

    def _detach(self) -> None:
        for member in self.members:
            member.dead = True
            member.open = False
        self._change.stop()
        self.adds.clear()
        for timer in (self._timer, self._lac_timer):
            if timer is not None:
                timer.cancel()
