"""Recovery: the end of a ledger whose writer is gone, decided once and for all readers.

OPEN -> IN_RECOVERY by compare-and-set: from here on no writer changes the ensemble. Fence, so that the old
writer confirms nothing any more; take the highest last add confirmed; read forward from there, never below
the last fragment, and re-write what is found; where (Qw - Qa) + 1 are certain that nothing follows, the
ledger ends. One compare-and-set publishes end, changed ensembles and gaps, together with what the new owner
wants committed. A writer that closes the ledger meanwhile, or another recovery, is decided by that
compare-and-set: the loser adopts the winner's result. A recovery that cannot be sure stops with
NotEnoughBookies, leaves no trace but the state IN_RECOVERY, and may be retried by any process
(storage contract, section 3; BookKeeper's LedgerRecoveryOp).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from magnetar.common.errors import NotEnoughBookies, UnknownOutcome, VersionMismatch
from magnetar.common.metadata.keys import Keys
from magnetar.common.metadata.store import ABSENT, MetadataStore, Op, Put, Versioned
from magnetar.common.metadata.values import LedgerMetadata, UnderReplicated, encode
from magnetar.common.obs.logs import get_logger
from magnetar.common.obs.metrics import REGISTRY, begin_at_zero
from magnetar.common.runtime.clock import Clock
from magnetar.ledger.ledger_catalog import LedgerCatalog
from magnetar.ledger.ledger_store import ClosedLedger, LedgerRef
from magnetar.ledger.quorum.entry_rewrite import Gap, Replace, Rewriter
from magnetar.ledger.quorum.fencing import fence_ensemble
from magnetar.ledger.quorum.forward_read import Batch, ForwardRead
from magnetar.ledger.quorum.ledger_metadata import add_gap, end_gaps
from magnetar.ledger.quorum.missing_entries import MissingEntries
from magnetar.ledger.quorum.reader import QuorumLedgerReader, ReadContext
from magnetar.ledger.quorum.recovered_length import KnownLength
from magnetar.ledger.quorum.striping import LedgerLayout
from prometheus_client import Counter

log = get_logger(__name__)

RECOVERIES = Counter(
    "magnetar_ledger_recoveries",
    "Recoveries of ledgers. result: closed (this one decided), found_closed, stopped (too few bookies "
    "answered with certainty, it may be tried again).",
    ["result"],
    registry=REGISTRY,
)
begin_at_zero(RECOVERIES, "closed", "found_closed", "stopped")

WithOps = Callable[[ClosedLedger], Sequence[Op]]

ATTEMPTS_MAX: Final = 16
"""Maximum compare-and-sets that one recovery may lose to concurrent changes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecoveryOptions:
    """Times in seconds, sizes in bytes of entries."""

    batch_bytes: int = 512 << 10
    """Size of a batch to read and re-write."""
    patience_s: float = 0.5
    """Time without an answer to a read after which the other replicas are read as well."""
    linger_s: float = 0.05
    """Time to wait for slower bookies once enough are fenced."""
    grace_s: float = 0.5
    """Time to wait for slower bookies once Qa have a batch; then they are replaced."""
    listing_s: float = 2.0
    """Time for bookies to list their entries; entries not listed count as missing."""


@dataclass(frozen=True, slots=True)
class _End:
    """The result of a recovery."""

    last_entry_id: int
    byte_length: int
    layout: LedgerLayout
    gaps: list[Gap]


class LedgerRecovery:
    """Recovers ledgers; one per process."""

    __slots__ = ("_catalog", "_clients", "_clock", "_keys", "_metadata", "_options", "_reads", "_replace")

    def __init__(
        self,
        catalog: LedgerCatalog,
        metadata: MetadataStore,
        keys: Keys,
        reads: ReadContext,
        replace: Replace,
        clock: Clock,
        options: RecoveryOptions | None = None,
    ) -> None:
        self._catalog = catalog
        self._metadata = metadata
        self._keys = keys
        self._reads = reads
        self._clients = reads.clients
        self._replace = replace
        self._clock = clock
        self._options = RecoveryOptions() if options is None else options

    async def recover(
        self, ref: LedgerRef, with_ops: WithOps | None = None, *, decided_end: int | None = None
    ) -> tuple[LedgerMetadata, ClosedLedger]:
        """Closes the ledger at its end, together with `with_ops`; returns its metadata.

        With `decided_end`, an operator's decision, it ends there without waiting for unavailable or uncertain
        bookies, but not below known confirmed entries and not beyond the last entry that some bookie has.

        Idempotent: on a closed ledger only `with_ops` is committed. Raises NoSuchLedger, VersionMismatch (of
        a guard of `with_ops`), NotEnoughBookies (retriable: nothing was decided), UnknownOutcome, and
        ValueError for an impossible `decided_end`.
        """
        for _ in range(ATTEMPTS_MAX):
            found, value = await self._catalog.get(ref)
            if value.state == LedgerMetadata.CLOSED:
                closed = ClosedLedger(ref, value.last_entry_id, value.byte_length)
                if ops := _ops(with_ops, closed):
                    await self._metadata.commit(ops)
                RECOVERIES.labels("found_closed").inc()
                return value, closed
            if value.state == LedgerMetadata.OPEN:
                await self._enter(found, value)
                continue
            try:
                end = await self._find_end(ref, value, decided_end)
            except NotEnoughBookies as error:
                RECOVERIES.labels("stopped").inc()
                log.warning("recovery stopped", ledger=ref.id, reason=str(error))
                raise
            end.layout.write_to(value)
            for gap in end.gaps:
                add_gap(value, gap.bookie_id, gap.first_entry_id, gap.last_entry_id)
            end_gaps(value, end.last_entry_id)
            closed = ClosedLedger(ref, end.last_entry_id, end.byte_length)
            mark = [await self._under_replicated(ref)] if value.gaps else []
            try:
                await self._catalog.commit_closed(value, found.version, closed, _with_mark(mark, with_ops))
            except VersionMismatch as error:
                if error.key not in (found.key, self._keys.under_replicated(ref.id)):
                    raise
                continue  # closed, changed or deleted concurrently: use its current state
            except UnknownOutcome:
                # The value differs, so it was written elsewhere; if this write did not happen, the caller
                # must know.
                after, _ = await self._catalog.get(ref)
                if after.version == found.version:
                    raise
                continue
            RECOVERIES.labels("closed").inc()
            log.info("ledger recovered", ledger=ref.id, last=closed.last_entry_id, bytes=closed.byte_length)
            return value, closed
        raise UnknownOutcome(f"ledger {ref.id} changed {ATTEMPTS_MAX} times while it was recovered")

    async def _enter(self, found: Versioned, value: LedgerMetadata) -> None:
        """Changes the state from OPEN to IN_RECOVERY. The next read shows whether that succeeded."""
        value.state = LedgerMetadata.IN_RECOVERY
        try:
            await self._metadata.put(self._keys.ledger(value.ref.id), encode(value), found.version)
        except (VersionMismatch, UnknownOutcome):
            pass

    async def _under_replicated(self, ref: LedgerRef) -> Put:
        """Marks the ledger for auto-recovery; rewrites an existing mark, so that a concurrent removal
        fails.
        """
        key = self._keys.under_replicated(ref.id)
        found = await self._metadata.get(key)
        if found is not None:
            return Put(key, found.value, found.version)
        value = UnderReplicated(created_ms=self._clock.wall_ms())
        value.ref.id, value.ref.key = ref.id, ref.key
        return Put(key, encode(value), ABSENT)

    async def _now(self, ref: LedgerRef) -> LedgerMetadata:
        return (await self._catalog.get(ref))[1]

    async def _find_end(self, ref: LedgerRef, value: LedgerMetadata, decided_end: int | None) -> _End:
        options, layout = self._options, LedgerLayout.of(value)
        striping, fragment = layout.striping, layout.last_fragment
        ensemble = [self._clients.client(bookie_id) for bookie_id in fragment.bookie_ids]
        states = await fence_ensemble(
            ref, striping, ensemble, options.linger_s, enough_anyway=decided_end is not None
        )
        # Earlier fragments are confirmed: a writer begins a new one at its LAC + 1.
        first = max(fragment.first_entry_id, 1 + max((state.lac for state in states.values()), default=-1))
        if decided_end is not None and decided_end < first - 1:
            raise ValueError(
                f"ledger {ref.id} cannot end at {decided_end}: entries up to {first - 1} are confirmed"
            )
        length = KnownLength(ref, layout, first, states)
        confirmed = QuorumLedgerReader(ref, layout, self._reads, reload=lambda: self._now(ref), end=first - 1)
        # Reads use the old writer's ensemble; only writes follow changes.
        written = LedgerLayout(striping, layout.fragments)
        rewriter = Rewriter(ref, written, self._clients, self._replace, first - 1, options.grace_s)
        reads = ForwardRead(
            ref,
            striping,
            ensemble,
            states,
            batch_bytes=options.batch_bytes,
            patience_s=options.patience_s,
        )
        end = await _rewrite_all(reads, rewriter, length, first, decided_end)
        missing = MissingEntries(ref, layout, self._clients, states, options.listing_s)
        gaps = await missing.gaps(first - 1)
        byte_length = await length.total(confirmed.read)
        return _End(end, byte_length, written, gaps + rewriter.gaps(end))


def _ops(with_ops: WithOps | None, closed: ClosedLedger) -> Sequence[Op]:
    return () if with_ops is None else with_ops(closed)


def _with_mark(mark: Sequence[Op], with_ops: WithOps | None) -> WithOps:
    return lambda closed: [*mark, *_ops(with_ops, closed)]


async def _rewrite_all(
    reads: ForwardRead, rewriter: Rewriter, length: KnownLength, first: int, decided_end: int | None
) -> int:
    """Reads and re-writes up to the end, reading the next batch while one is written; returns the ledger's
    last entry. Raises ValueError if it ends before `decided_end`.
    """
    if decided_end is not None and first > decided_end:
        return first - 1
    loop = asyncio.get_running_loop()
    reading: asyncio.Task[Batch] = loop.create_task(reads.batch(first))
    try:
        while True:
            batch = await reading
            if decided_end is not None:
                batch = batch.cut(decided_end)
            if batch.runs:
                following = batch.runs[-1].last_entry_id + 1
                if not batch.ended:
                    reading = loop.create_task(reads.batch(following))
                await rewriter.write(batch.runs)
                length.add(batch.runs)
                first = following
            if batch.ended:
                if decided_end is not None and first <= decided_end:
                    raise ValueError(
                        f"the ledger certainly ends at {first - 1}: it cannot be ended at {decided_end}"
                    )
                return first - 1
    finally:
        reading.cancel()
        await asyncio.gather(reading, return_exceptions=True)
