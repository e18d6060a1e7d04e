"""Bookies of an open ledger that fail are replaced, or what they lack is recorded, while it is written.

One task per ledger, which lives while something is wrong. A change takes all bookies that are lost when it
begins. It is one compare-and-set of the ledger's metadata, from LAC + 1 on:

- a bookie with a replacement leaves: the next fragment has another one in its place, or itself again when it
  answers again and no other is available. Only when that is written, the newcomer gets what was sent since
  (its answers cannot count before). What the old one lacks up to the LAC is recorded as a gap.
- a bookie without one stays in the ensemble with a gap that is open at its end, as long as each write set
  keeps Qa others; it is looked for a replacement again whenever bookies come or change, and periodically.

While metadata does not answer, a change waits and writing goes on as long as Qa holds (design, section 5). A
write of unknown outcome is read again, and only the very same bytes are ever written again after it. A ledger
that is not OPEN any more, or whose last fragment is not ours, has another owner: fenced.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Final, Protocol

from magnetar.common.errors import (
    LedgerFenced,
    MetadataError,
    StorageError,
    UnknownOutcome,
    VersionMismatch,
)
from magnetar.common.metadata.store import ABSENT, Op, Put, Versioned
from magnetar.common.metadata.values import LedgerMetadata, UnderReplicated, decode, encode
from magnetar.common.obs.logs import get_logger
from magnetar.common.obs.metrics import REGISTRY, begin_at_zero
from magnetar.ledger.ledger_store import ClosedLedger, LedgerRef
from magnetar.ledger.quorum.context import QuorumContext
from magnetar.ledger.quorum.ledger_metadata import OPEN_GAP_END, add_gap, end_gaps, too_long
from magnetar.ledger.quorum.member import Member
from magnetar.ledger.quorum.pending_adds import PendingAdds
from magnetar.ledger.quorum.striping import Fragment, LedgerLayout
from prometheus_client import Counter

log = get_logger(__name__)

METADATA_RETRY_S: Final = 0.1
METADATA_RETRY_MAX_S: Final = 2.0
"""Longest wait in seconds between attempts while metadata is unavailable; the wait doubles up to it."""

RETRY_DOUBLINGS_MAX: Final = 4
"""Number of doublings of the retry interval for a bookie that answers but keeps failing: up to 2^4 times the
first wait.
"""

CHANGES = Counter(
    "magnetar_ensemble_changes",
    "Changes of open ledgers' ensembles. kind: replaced, gap (no replacement was available), returned.",
    ["kind"],
    registry=REGISTRY,
)
begin_at_zero(CHANGES, "replaced", "gap", "returned")


@dataclass(frozen=True, slots=True)
class Change:
    """The content of one compare-and-set."""

    base: Versioned
    data: bytes
    fragment: Fragment
    """The resulting last fragment, which this writer starts at `first_entry_id`."""
    first_entry_id: int
    joining: dict[int, str]
    """New bookies by position, which receive everything from `first_entry_id` on."""
    absent: frozenset[int]
    """Positions whose bookies now have an open-ended gap."""
    recorded: int
    """Positions, as bits, whose missing entries below `first_entry_id` are now recorded as gaps."""
    gaps: bool
    """Whether gaps were recorded that auto-recovery must fill."""


def _given(ops: Sequence[Op], _: ClosedLedger) -> Sequence[Op]:
    return ops


class _Rebase(Exception):
    """Raised when the metadata changed but the ledger still belongs to this writer: decide again."""


class EnsembleWriter(Protocol):
    """The interface of an open ledger's writer for ensemble changes. All calls are plain."""

    @property
    def ref(self) -> LedgerRef: ...

    @property
    def layout(self) -> LedgerLayout:
        """The ledger's fragments; shared with readers."""
        ...

    @property
    def adds(self) -> PendingAdds: ...

    @property
    def members(self) -> Sequence[Member]:
        """The bookies of the last fragment, by position."""
        ...

    @property
    def failed(self) -> bool:
        """Whether the writer has stopped."""
        ...

    def await_positions(self, bits: int) -> None:
        """Makes entries from LAC + 1 on wait for the new bookies of these positions."""
        ...

    def absent_positions(self, bits: int) -> None:
        """Makes no entry wait for the bookies of these positions."""
        ...

    def join(self, position: int, bookie_id: str, from_entry_id: int) -> None:
        """Sends pending entries from `from_entry_id` on to the bookie that took a position."""
        ...

    def settle(self) -> None:
        """Releases entries that are now complete."""
        ...

    def fenced(self) -> None:
        """Stops because another owner fenced the ledger."""
        ...

    def fail(self, error: StorageError) -> None:
        """Stops with this error."""
        ...


class EnsembleChange:
    """The metadata of one open ledger, and its changes on behalf of the writer."""

    def __init__(self, context: QuorumContext, writer: EnsembleWriter, stored: Versioned) -> None:
        self._context = context
        self._writer = writer
        self._stored = stored
        self._attempt: Change | None = None
        self._absent: frozenset[int] = frozenset()
        self._failures: dict[str, tuple[int, float]] = {}
        self._answering: set[str] = set()
        """Failed bookies that have answered since."""
        self._asked: set[str] = set()
        self._task: asyncio.Task[None] | None = None
        self._stir = asyncio.Event()
        self._stopping = False

    def failed(self, bookie_id: str) -> None:
        """Records that a bookie of the ensemble failed. A plain call."""
        count, _ = self._failures.get(bookie_id, (0, 0.0))
        self._failures[bookie_id] = count + 1, self._context.clock.monotonic()
        self._answering.discard(bookie_id)
        self.start()

    def start(self) -> None:
        """Starts the task, because something must be changed or recorded. A plain call."""
        self.stir()
        if self._task is None and not self._stopping:
            self._task = self._context.tasks.spawn(self._run(), f"ensemble of {self._writer.ref.id}")

    def stir(self) -> None:
        """Makes the task check again after a bookie failed or the running bookies changed."""
        self._stir.set()

    def stop(self) -> None:
        """Starts no further change."""
        self._stopping = True
        self._stir.set()

    # --- the task ---

    async def _run(self) -> None:
        try:
            # Simultaneous failures are handled in the same change.
            await asyncio.sleep(0)
            retry_s = METADATA_RETRY_S
            while not self._stopping:
                self._stir.clear()
                try:
                    change = self._attempt or self._propose()
                    if change is None:
                        if not self._writer.adds.owed and not any(
                            member.dead for member in self._writer.members
                        ):
                            return
                        await self._wait(self._context.config.replace_retry_s)
                        continue
                    await self._make(change)
                    retry_s = METADATA_RETRY_S
                except _Rebase:
                    continue
                except LedgerFenced:
                    self._writer.fenced()
                    return
                except MetadataError as error:
                    log.warning(
                        "an ensemble change waits for metadata",
                        ledger=self._writer.ref.id,
                        reason=str(error),
                        retry_after_s=retry_s,
                    )
                    self._stir.clear()
                    await self._wait(retry_s)
                    retry_s = min(2 * retry_s, METADATA_RETRY_MAX_S)
                except StorageError as error:
                    self._writer.fail(error)
                    return
        finally:
            self._task = None

    async def _wait(self, timeout_s: float) -> None:
        if not self._stopping:
            waiting = asyncio.ensure_future(self._stir.wait())
            await asyncio.wait([waiting], timeout=timeout_s)
            waiting.cancel()

    def _propose(self) -> Change | None:
        """Returns the metadata to write next; None if no change is possible. From here on the writer awaits
        the new bookies' answers.
        """
        writer = self._writer
        adds, layout = writer.adds, writer.layout
        first = adds.last_confirmed + 1
        before = layout.last_fragment
        ensemble, joining, left = list(before.bookie_ids), dict[int, str](), set[int]()
        for position, member in enumerate(writer.members):
            if member.dead:
                found = self._replacement(ensemble, position)
                if found is None:
                    left.add(position)
                else:
                    ensemble[position] = joining[position] = found
        absent = left - self._absent if self._keep_quorum(left) else set[int]()
        # Entries released while a healthy bookie lacked them only need a recorded gap.
        owing = {p for p, member in enumerate(writer.members) if member.bit in adds.owed and not member.dead}
        if not joining and not absent and not owing:
            return None
        value = decode(LedgerMetadata, self._stored.value)
        changed = LedgerLayout.of(value)
        gaps = False
        for position in sorted({*joining, *absent, *owing}):
            bookie_id = before.bookie_ids[position]
            lacking = adds.lacking(1 << position)
            if position in joining:
                end_gaps(value, first - 1, bookie_id)
            if position in absent:
                add_gap(value, bookie_id, lacking[0] if lacking else first, OPEN_GAP_END)
            elif lacking:
                add_gap(value, bookie_id, *lacking)
            gaps = gaps or position in absent or lacking is not None
        if tuple(ensemble) != before.bookie_ids:
            changed.change_ensemble(first, ensemble)
            changed.write_to(value)
        if too_long(value):
            raise StorageError(f"ledger {writer.ref.id} had too many changes of its ensemble; it ends here")
        bits = sum(1 << position for position in joining)
        self._absent -= joining.keys()
        writer.await_positions(bits)
        return Change(
            self._stored,
            encode(value),
            changed.last_fragment,
            first,
            joining,
            frozenset(absent),
            sum(1 << position for position in (*joining, *owing)),
            gaps,
        )

    def _replacement(self, ensemble: Sequence[str], position: int) -> str | None:
        """Returns a bookie that did not fail this ledger, or failed some time ago and answers again."""
        now, wait_s = self._context.clock.monotonic(), self._context.config.replace_retry_s
        excluded = set()
        for bookie_id, (count, at) in self._failures.items():
            if now - at < wait_s * 2 ** min(count - 1, RETRY_DOUBLINGS_MAX):
                excluded.add(bookie_id)
            elif bookie_id not in self._answering:
                excluded.add(bookie_id)
                self._ask(bookie_id)
        return self._context.placement.replacement(
            ensemble, position, self._writer.layout.striping, excluded=excluded
        )

    def _ask(self, bookie_id: str) -> None:
        """Probes a bookie; other bookies are handled meanwhile."""
        if bookie_id not in self._asked:
            self._asked.add(bookie_id)
            self._context.tasks.spawn(self._find_out(bookie_id), f"does {bookie_id} answer")

    async def _find_out(self, bookie_id: str) -> None:
        try:
            if await self._context.revival.answers(bookie_id, self._writer.ref):
                self._answering.add(bookie_id)
                self.stir()
        finally:
            self._asked.discard(bookie_id)

    def _keep_quorum(self, without: set[int]) -> bool:
        """Returns whether each write set has Qa bookies outside these positions."""
        striping = self._writer.layout.striping
        return all(len(each - without) >= striping.ack_quorum for each in striping.write_sets())

    async def _make(self, change: Change) -> None:
        """Writes a change and applies it. Raises LedgerFenced, _Rebase, MetadataError (outcome unknown)."""
        self._attempt = change
        try:
            await self._commit(change)
        except (_Rebase, LedgerFenced):
            self._attempt = None
            raise
        self._attempt = None
        self._apply(change)

    async def _commit(self, change: Change) -> None:
        key = change.base.key
        while True:
            ops: list[Op] = [Put(key, change.data, change.base.version)]
            if change.gaps:
                ops.append(await self._under_replicated())
            try:
                self._stored = Versioned(key, change.data, await self._context.metadata.commit(ops))
                return
            except VersionMismatch as error:
                found = await self._context.metadata.get(key)
                if error.key != key and found is not None and found.version == change.base.version:
                    continue  # only the mark for auto-recovery changed
            except UnknownOutcome:
                found = await self._context.metadata.get(key)
                if found is not None and found.version == change.base.version:
                    raise  # it may still happen: wait, then the same again
            self._take_over(found, change)
            return

    def _take_over(self, found: Versioned | None, change: Change) -> None:
        """Adopts metadata that differs from the change's base. Returns if it contains the change."""
        last = self._check_ours(found, change)
        assert found is not None
        self._stored = found
        if found.value != change.data and (
            last != change.fragment or last == self._writer.layout.last_fragment
        ):
            raise _Rebase

    def _check_ours(self, found: Versioned | None, change: Change | None) -> Fragment:
        """Returns the last fragment. Raises LedgerFenced unless the ledger is open and the fragment is this
        writer's.
        """
        writer = self._writer
        if found is not None:
            value = decode(LedgerMetadata, found.value)
            if value.ref.key == writer.ref.key and value.state == LedgerMetadata.OPEN:
                last = LedgerLayout.of(value).last_fragment
                if last == writer.layout.last_fragment or (change is not None and last == change.fragment):
                    return last
        raise LedgerFenced(f"ledger {writer.ref.id} is no longer open: another owner closes or closed it")

    def _apply(self, change: Change) -> None:
        writer = self._writer
        before = writer.layout.last_fragment
        if change.fragment != before:
            writer.layout.change_ensemble(change.first_entry_id, change.fragment.bookie_ids)
        self._absent |= change.absent
        writer.absent_positions(sum(1 << position for position in change.absent))
        writer.adds.recorded(change.recorded, change.first_entry_id)
        for position, bookie_id in change.joining.items():
            kind = "returned" if before.bookie_ids[position] == bookie_id else "replaced"
            CHANGES.labels(kind).inc()
            log.info(
                f"bookie {kind} in a ledger",
                ledger=writer.ref.id,
                from_entry=change.first_entry_id,
                lost=before.bookie_ids[position],
                bookie=bookie_id,
            )
            writer.join(position, bookie_id, change.first_entry_id)
        for position in sorted(change.absent):
            CHANGES.labels("gap").inc()
            log.warning(
                "a ledger goes on without a bookie: no replacement is available",
                ledger=writer.ref.id,
                from_entry=change.first_entry_id,
                bookie=before.bookie_ids[position],
            )
        writer.settle()

    async def _under_replicated(self) -> Put:
        """Marks the ledger for auto-recovery; rewrites an existing mark, so that a concurrent removal
        fails.
        """
        context, ref = self._context, self._writer.ref
        key = context.keys.under_replicated(ref.id)
        found = await context.metadata.get(key)
        if found is not None:
            return Put(key, found.value, found.version)
        value = UnderReplicated(created_ms=context.clock.wall_ms())
        value.ref.id, value.ref.key = ref.id, ref.key
        return Put(key, encode(value), ABSENT)

    # --- the end ---

    async def commit_closed(
        self, closed: ClosedLedger, with_ops: Callable[[ClosedLedger], Sequence[Op]] | None
    ) -> None:
        """Closes the ledger by compare-and-set, together with recorded gaps and `with_ops`.

        Raises LedgerFenced if the ledger is not open any more, VersionMismatch if a guard of `with_ops`
        fails, MetadataError if metadata does not answer.
        """
        self.stop()
        try:
            if self._task is not None:
                await asyncio.wait([self._task])
            if self._attempt is not None:  # did it happen? What newcomers lack depends on it
                with suppress(_Rebase):
                    await self._make(self._attempt)
            await self._commit_closed(closed, with_ops)
        except BaseException:
            if not self._writer.failed:  # the ledger stays as it was
                self._stopping = False
                self.start()
            raise

    async def _commit_closed(
        self, closed: ClosedLedger, with_ops: Callable[[ClosedLedger], Sequence[Op]] | None
    ) -> None:
        catalog, writer = self._context.catalog, self._writer
        while True:
            value = decode(LedgerMetadata, self._stored.value)
            end_gaps(value, closed.last_entry_id)
            mark: list[Put] = []
            for member in writer.members:
                lacking = writer.adds.lacking(member.bit)
                if lacking is not None:
                    add_gap(value, member.bookie_id, *lacking)
            if value.gaps:
                mark.append(await self._under_replicated())
            ops = [*mark, *(with_ops(closed) if with_ops is not None else ())]
            try:
                await catalog.commit_closed(value, self._stored.version, closed, partial(_given, ops))
                return
            except VersionMismatch as error:
                if mark and error.key == mark[0].key:
                    continue
                if error.key != self._stored.key:
                    raise
                found = await self._context.metadata.get(self._stored.key)
                self._check_ours(found, None)
                assert found is not None
                self._stored = found
