"""Trouble of several parts, which chance alone hardly ever brings together. Each seed has some kinds of it.

What really came about is counted in `Cluster.happened`, under the names below: to strike is not enough.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import Final

from magnetar.common.errors import DataCorruption
from magnetar.ledger.bookie_protocol.bookie_client import EncodedAppend
from magnetar.ledger.ledger_store import LedgerRef
from magnetar.ledger.segment_log.log import SegmentLog

from tests.simulation.quorum.cluster import AUTO_RECOVERY_CONFIG, BookieNode, Cluster
from tests.simulation.quorum.happenings import MOVED_LATE, REPAIRS_COMPACTED

EAGER_AUTO_RECOVERY: Final = replace(
    AUTO_RECOVERY_CONFIG, lost_bookie_recovery_delay_s=0, audit_interval_s=1, open_ledger_grace_ms=100
)

CHOSEN_BY_SEED: Final = 0.3
"""The chance of each kind to be part of a seed's climate."""

SHORT_GRACE_S: Final = 0.2

BYTES_BEFORE_BACKPRESSURE: Final = 200
"""On a stream, or on their way to a bookie's disk: two small entries."""


class RarerTrouble:
    """Kinds of trouble for a `Nemesis`, with chances of their own: other kinds come at the same moments
    with and without them."""

    def __init__(self, cluster: Cluster, seed: int, note: Callable[[str], None]) -> None:
        self.rng = rng = random.Random(f"rarer trouble {seed}")
        self.recover_some_ledger: Callable[[], None] | None = None
        """By the workload: a client begins to recover a ledger that is written."""
        self.create_at_once: Callable[[], None] | None = None
        """By the workload: every client creates a ledger at this moment."""
        self._cluster = cluster
        self._note = note
        self._stopped = False
        self.kinds: list[tuple[Callable[[], None], int]] = [
            (self.delay_commits, 2),
            (self.hold_back, 3),
            (self.auto_recover, 3),
            (self.move_shares_late, 2),
            (self.race_for_ids, 2),
            (self.refuse_and_fence, 3),
            (self.compact_repairs, 3),
        ]
        self.chosen = [kind for kind in self.kinds if rng.random() < CHOSEN_BY_SEED]

    def stop(self) -> None:
        """Strike no more; what is under way goes on."""
        self._stopped = True
        cluster = self._cluster
        cluster.auto_recovery_stands_still = None
        for store in cluster.metadata_stores:
            store.faults.late_probability = 0.0
        for client in cluster.clients:
            client.clients.pending_bytes_max = None
        for bookie in cluster.bookies:
            self._set_log_bytes_max(bookie, None)

    # --- kinds ---

    def delay_commits(self) -> None:
        """Commits of clients and bookies are given up, and land up to a second later."""
        probability = self.rng.choice((0.1, 0.3, 0.5))
        late_max_s = self.rng.choice((0.01, 0.1, 1.0))
        self._note(f"{probability:.0%} of commits land late")
        for store in self._cluster.metadata_stores:
            store.faults.late_probability = probability
            store.faults.late_max_s = late_max_s

    def hold_back(self) -> None:
        """Streams or bookies take hardly more than one append at a time."""
        cluster, rng = self._cluster, self.rng
        self._note("appends are held back")
        for client in cluster.clients:
            if rng.random() < 0.5:
                client.clients.pending_bytes_max = BYTES_BEFORE_BACKPRESSURE
        for bookie in rng.sample(cluster.bookies, rng.randint(1, len(cluster.bookies))):
            self._set_log_bytes_max(bookie, BYTES_BEFORE_BACKPRESSURE)
        cluster.later(rng.choice((0.05, 0.3)), self._let_go)

    def auto_recover(self) -> None:
        """Auto-recovery that waits for nothing begins on every bookie, and on each that starts later."""
        cluster = self._cluster
        if cluster.auto_recovery is None:
            self._note("auto-recovery begins")
            cluster.auto_recovery = EAGER_AUTO_RECOVERY
        for bookie in cluster.bookies:
            bookie.begin_auto_recovery()

    def move_shares_late(self) -> None:
        """A worker stands still right after it copied entries of a closed ledger to another bookie, for
        longer than that one keeps what it need not."""
        self.auto_recover()
        cluster = self._cluster
        cluster.core_config = replace(cluster.core_config, moved_grace_s=SHORT_GRACE_S)
        for bookie in cluster.bookies:
            bookie.shorten_moved_grace(SHORT_GRACE_S)
        cluster.auto_recovery_stands_still = self.stand_still
        # A bookie that is away for long gives the workers something to move.
        bookie = self.rng.choice(cluster.bookies)
        if len([each for each in cluster.bookies if each.up]) == len(cluster.bookies):
            bookie.down_s = (1.0, 2.0)
            bookie.crash("kill")

    def race_for_ids(self) -> None:
        """Every client creates a ledger at the same moment."""
        if self.create_at_once is not None:
            self._note("ledgers are created at once")
            self.create_at_once()

    def refuse_and_fence(self) -> None:
        """A ledger is recovered while bookies refuse appends for one reason or another."""
        if self.recover_some_ledger is None:
            return
        cluster, rng = self._cluster, self.rng
        some = rng.sample(cluster.bookies, rng.randint(1, min(2, len(cluster.bookies))))
        self._note(f"{[each.name for each in some]} refuse appends, and a ledger is recovered")
        for bookie in some:
            how = rng.randrange(3)
            if how == 0:
                self._set_log_bytes_max(bookie, 1)
            elif how == 1:
                bookie.disk.capacity -= bookie.disk.free_bytes()
            else:
                start = bookie.disk.operations + 1
                bookie.disk.faults.sync_errors.update(range(start, start + rng.randint(1, 4)))
        cluster.later(rng.uniform(0, 0.005), self.recover_some_ledger)
        cluster.later(rng.choice((0.02, 0.1)), self._let_go)

    def compact_repairs(self) -> None:
        """Segments of a bookie that auto-recovery has copied entries to are rewritten, some at a time."""
        self.auto_recover()
        for bookie in self._cluster.bookies:
            core = bookie.core
            if bookie.process is not None and core is not None and bookie.name in self._cluster.copied_to:
                bookie.process.spawn(self._compact(bookie))

    # --- inside ---

    def _let_go(self) -> None:
        for client in self._cluster.clients:
            client.clients.pending_bytes_max = None
        for bookie in self._cluster.bookies:
            self._set_log_bytes_max(bookie, None)
            bookie.disk.capacity = 1 << 40

    def _set_log_bytes_max(self, bookie: BookieNode, maximum: int | None) -> None:
        if bookie.core is not None:
            log = bookie.core.log
            usual = self._cluster.log_config.pending_bytes_max
            log.config = replace(log.config, pending_bytes_max=usual if maximum is None else maximum)

    def stand_still(self, worker: str, target: str, append: EncodedAppend) -> None:
        """A copy is on its way to its target."""
        cluster, rng = self._cluster, self.rng
        if self._stopped or worker == target or rng.random() < 0.5:
            return
        process = next((each.process for each in cluster.bookies if each.name == worker), None)
        if process is None or process.paused:
            return

        def pause() -> None:
            if not self._stopped and cluster.checker.may_be_collected(append.ref.id, target):
                cluster.happened[MOVED_LATE] += 1
                process.pause(rng.choice((2, 4, 8)) * SHORT_GRACE_S)

        cluster.later(rng.uniform(0, 0.02), pause)

    async def _compact(self, bookie: BookieNode) -> None:
        """One compaction of any finished segments, where a collection has no choice but by its settings."""
        core, cluster = bookie.core, self._cluster
        assert core is not None
        space = core.log.space
        async with core.garbage._passing:
            candidates = [each for each in core.log.finished_segments() if space._may_rewrite(each)]
            if not candidates:
                return
            inputs = self.rng.sample(candidates, min(len(candidates), self.rng.choice((1, 2, 3))))
            copied = cluster.copied_to[bookie.name]
            repaired = any(ref.id in copied for segment in inputs for ref in segment.lines)
            refs = {ref for segment in inputs for ref in segment.lines}
            before = {ref: entries_held(core.log, ref) for ref in refs}
            with suppress(OSError):
                done = await space._rewrite(sorted(inputs, key=lambda each: each.sequence), set())
                cluster.happened[REPAIRS_COMPACTED] += done and repaired
            for ref in refs:
                if lost := before[ref] - entries_held(core.log, ref):
                    cluster.checker.broken.append(
                        f"compaction of {bookie.name} drops {sorted(lost)} of ledger {ref.id}"
                    )


def entries_held(log: SegmentLog, ref: LedgerRef) -> set[int]:
    """Entries of a ledger that a log would look for in its segments, but for those whose index is damaged."""
    held: set[int] = set()
    for segment in log.segments_of(ref):
        with suppress(DataCorruption, KeyError):
            index = segment.load_index(ref) if segment.sealed else segment.indexes[ref]
            for place in range(len(index)):
                held.update(range(index.first_entry_id(place), index.end_after(place)))
    return held
