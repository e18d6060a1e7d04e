"""Known mistakes of replicated storage are planted; the runs find each within the stated number of seeds.

The style is that of tests/simulation/test_mutations.py: a mutation patches one function for one test.
"""

from __future__ import annotations

from typing import Any

import pytest
from magnetar.bookie import append_answers, bookie_core, comparisons, limbo
from magnetar.bookie.appends import Appends
from magnetar.bookie.high_water import HighWater
from magnetar.bookie.identity import Identity, claim_directory
from magnetar.common.metadata.store import ANY_VERSION, Listing
from magnetar.ledger.bookie_protocol import stored_reads
from magnetar.ledger.bookie_protocol.bookie_pb2 import FENCED, NO_SUCH_ENTRY, OK
from magnetar.ledger.data_directory import WrongDataDirectory
from magnetar.ledger.garbage_collector import GarbageCollector
from magnetar.ledger.ledger_catalog import LedgerCatalog
from magnetar.ledger.quorum import checked_read
from magnetar.ledger.quorum.ensemble_change import EnsembleChange
from magnetar.ledger.quorum.entry_rewrite import Rewriter
from magnetar.ledger.quorum.missing_entries import MissingEntries
from magnetar.ledger.quorum.pending_adds import PendingAdds
from magnetar.ledger.quorum.striping import Striping
from magnetar.ledger.quorum.writer import QuorumLedgerWriter
from magnetar.ledger.segment_log import log, recovery
from magnetar.ledger.segment_log.torn_group import Torn
from magnetar.sim.disk import SimFile

from tests.simulation.mutants import Mutation, Patch, Suite, assert_noticed, noticed
from tests.simulation.quorum.directed import (
    EmptiedDisk,
    FilledUp,
    ForgottenFence,
    ForgottenFenceOfAnEmptiedDisk,
    Garbage,
    KillThenPowerLoss,
    LateAppend,
    LostFiles,
    Returned,
    ReusedAddress,
    RottenTail,
)
from tests.simulation.quorum.test_quorum import run_duel, run_ledgers, run_staged
from tests.unit.ledger.quorum.replica_world import REF, ReplicaWorld, in_world

# --- the writer ---


def confirmed_by_one_bookie_too_few(patch: Patch) -> None:
    """Acknowledged at Qa - 1."""
    init = PendingAdds.__init__

    def mutant(self: PendingAdds, ack_quorum: int, *args: Any) -> None:
        init(self, max(1, ack_quorum - 1), *args)

    patch.setattr(PendingAdds, "__init__", mutant)


def a_new_bookie_counts_before_the_compare_and_set(patch: Patch) -> None:
    make = EnsembleChange._make

    async def mutant(self: EnsembleChange, change: Any) -> None:
        for position, bookie_id in change.joining.items():
            self._writer.join(position, bookie_id, change.first_entry_id)
        await make(self, change)

    patch.setattr(EnsembleChange, "_make", mutant)


def a_refusal_counts_as_an_acknowledgement(patch: Patch) -> None:
    answered = QuorumLedgerWriter._answered

    def mutant(self: QuorumLedgerWriter, member: Any, add: Any, code: Any, reason: str) -> None:
        answered(self, member, add, OK if code == FENCED else code, reason)

    patch.setattr(QuorumLedgerWriter, "_answered", mutant)


# --- the recovery ---


def what_a_recovery_found_is_not_rewritten(patch: Patch) -> None:
    async def mutant(self: Rewriter, runs: Any) -> None:
        return

    patch.setattr(Rewriter, "write", mutant)


def recovery_reads_do_not_fence(patch: Patch) -> None:
    read = checked_read.read_checked

    async def mutant(*args: Any, fence: bool) -> Any:
        return await read(*args, fence=False)

    patch.setattr("magnetar.ledger.quorum.forward_read.read_checked", mutant)


def one_bookie_without_an_entry_ends_a_ledger(patch: Patch) -> None:
    patch.setattr(Striping, "absences_needed", property(lambda self: 1))


def a_ledger_is_closed_without_compare_and_set(patch: Patch) -> None:
    commit = LedgerCatalog.commit_closed

    async def mutant(self: Any, value: Any, version: int, *args: Any) -> None:
        await commit(self, value, ANY_VERSION, *args)

    patch.setattr(LedgerCatalog, "commit_closed", mutant)


def what_bookies_lack_is_not_recorded(patch: Patch) -> None:
    """A recovery believes a bookie's last entry."""

    async def mutant(self: MissingEntries, last_confirmed: int) -> list[Any]:
        return []

    patch.setattr(MissingEntries, "gaps", mutant)


def every_torn_group_is_believed_to_be_unconfirmed(patch: Patch) -> None:
    """Even though Qa - 1 disks may have lost what they had synced."""
    patch.setattr(Striping, "is_absent", lambda self, absent, torn: absent + torn >= self.absences_needed)


# --- the bookie ---


def a_torn_group_raises_no_doubt(patch: Patch) -> None:
    patch.setattr(recovery, "torn_by", lambda groups, directory, kept: Torn(frozenset()))


def no_such_entry_is_answered_in_doubt(patch: Patch) -> None:
    patch.setattr(stored_reads, "ENTRY_UNKNOWN", NO_SUCH_ENTRY)


def an_emptied_disk_raises_no_doubt(patch: Patch) -> None:
    patch.setattr(bookie_core, "note_doubt", lambda disk, reason, torn=None: None)


def an_older_disk_raises_no_doubt(patch: Patch) -> None:
    async def mutant(self: HighWater, directory_id: bytes, generation: int) -> int | None:
        await read(self, directory_id, generation)
        return 0

    read = HighWater.read
    patch.setattr(HighWater, "read", mutant)


def the_mark_is_raised_at_starts_alone(patch: Patch) -> None:
    async def mutant(self: HighWater) -> None:
        return

    patch.setattr(HighWater, "_run", mutant)


def a_missing_file_raises_no_doubt(patch: Patch) -> None:
    compare = recovery._compare

    def mutant(*args: Any) -> Any:
        inventory, lost = compare(*args)
        return inventory, [doubt for doubt in lost if "missing" not in doubt]

    patch.setattr(recovery, "_compare", mutant)
    an_older_disk_raises_no_doubt(patch)  # the log ends sooner without its last file


def a_segment_is_used_before_it_is_listed(patch: Patch) -> None:
    patch.setattr("magnetar.ledger.segment_log.inventory.SegmentInventory.add", lambda self, sequence: None)
    patch.setattr(
        "magnetar.ledger.segment_log.inventory.SegmentInventory.replace",
        lambda self, sequences, floor: self._write(),
    )
    an_older_disk_raises_no_doubt(patch)


def a_doubt_fences_only_ledgers_that_are_open(patch: Patch) -> None:
    async def mutant(*args: Any) -> int:
        return 0

    patch.setattr(limbo, "_fenced_below", mutant)


def the_directory_of_another_bookie_is_taken(patch: Patch) -> None:
    async def mutant(*args: Any, bookie_id: str, instance_id: bytes, **kwargs: Any) -> Identity:
        try:
            return await claim_directory(*args, bookie_id=bookie_id, instance_id=instance_id, **kwargs)
        except WrongDataDirectory:
            return Identity(bookie_id, instance_id, bytes(16), 1)

    patch.setattr(bookie_core, "claim_directory", mutant)


def a_fence_is_not_looked_at(patch: Patch) -> None:
    refusal = Appends._refusal

    def mutant(self: Appends, ledger: Any, recovery: bool) -> Any:
        found = refusal(self, ledger, recovery)
        return None if found is not None and found[0] == FENCED else found

    patch.setattr(Appends, "_refusal", mutant)


def a_bookie_answers_what_is_meant_for_another(patch: Patch) -> None:
    patch.setattr(Identity, "require", lambda self, expected: None)


def a_copy_counts_as_one_that_is_here_already(patch: Patch) -> None:
    async def mutant(self: Any, comparison: Any) -> list[tuple[int, int]]:
        return []

    patch.setattr(comparisons._Look, "missing", mutant)


def appended_is_answered_before_it_is_durable(patch: Patch) -> None:
    append = log.SegmentLog.append_record

    def mutant(self: log.SegmentLog, ledger: Any, header: Any, raw: Any, body: Any, answer: Any) -> None:
        append(self, ledger, header, raw, body, lambda result: None)
        answer(append_answers.result_of(header, OK))

    patch.setattr(log.SegmentLog, "append_record", mutant)


def an_unsynced_tail_is_trusted(patch: Patch) -> None:
    """A start believes what the page cache shows, and syncs nothing of it."""
    find, recover = recovery._find_durable_ends, recovery.recover_log

    def believe(tails: list[Any], sealed: list[Any]) -> None:
        find(tails, sealed)
        for tail in tails:
            tail.durable_end = tail.segment.end = tail.segment.durable_end = tail.scan.content_end

    def mutant(*args: Any, **kwargs: Any) -> Any:
        with pytest.MonkeyPatch.context() as inner:
            inner.setattr(SimFile, "fdatasync", lambda self: None)
            return recover(*args, **kwargs)

    patch.setattr(recovery, "_find_durable_ends", believe)
    patch.setattr("magnetar.ledger.segment_log.log.recover_log", mutant)


def garbage_is_collected_on_a_stale_listing(patch: Patch) -> None:
    """What was listed a while ago is taken for what there is, and nobody is asked again."""
    judge = GarbageCollector._judge

    async def mutant(self: Any, segments: Any) -> bool:
        real = self._metadata
        if not getattr(self, "_stale", None):
            self._stale = (await real.children(self._keys.ledgers_prefix)).items

        class Stale:
            get = real.get

            async def children(self_, prefix: str) -> Listing:
                return Listing(max([self._revision, *(item.version for item in self._stale)]), self._stale)

        self._metadata = Stale()
        try:
            return await judge(self, segments)
        finally:
            self._metadata = real

    async def unasked(self: Any, replica: Any, dead: Any) -> Any:
        return dead

    patch.setattr(GarbageCollector, "_judge", mutant)
    patch.setattr(GarbageCollector, "_confirmed", unasked)


def run_holes(seed: int) -> None:
    """A bookie refused an entry, took the next ones, and the writer died."""

    async def scenario(world: ReplicaWorld) -> None:
        world.put(range(10))
        del world.bookies["c"].held[seed % 9]
        world.lac(9)
        await world.recovery().recover(REF)
        recorded = [(gap.bookie_id, gap.first_entry_id) for gap in world.stored().gaps]
        assert recorded == [("c", seed % 9)], f"gaps: {recorded}"

    in_world(scenario)


MUTATIONS = [
    noticed(confirmed_by_one_bookie_too_few, run_duel, 4),
    noticed(a_new_bookie_counts_before_the_compare_and_set, run_duel, 60),
    noticed(a_refusal_counts_as_an_acknowledgement, run_duel, 8),
    noticed(what_a_recovery_found_is_not_rewritten, run_duel, 6),
    noticed(recovery_reads_do_not_fence, run_staged(LateAppend), 20),
    noticed(one_bookie_without_an_entry_ends_a_ledger, run_duel, 60),
    noticed(a_ledger_is_closed_without_compare_and_set, run_duel, 10),
    noticed(what_bookies_lack_is_not_recorded, run_holes, 1),
    noticed(every_torn_group_is_believed_to_be_unconfirmed, run_staged(RottenTail), 6),
    noticed(a_torn_group_raises_no_doubt, run_staged(RottenTail), 6),
    noticed(no_such_entry_is_answered_in_doubt, run_staged(EmptiedDisk), 4),
    noticed(an_emptied_disk_raises_no_doubt, run_staged(EmptiedDisk), 4),
    noticed(an_older_disk_raises_no_doubt, run_staged(Returned), 4),
    noticed(the_mark_is_raised_at_starts_alone, run_staged(Returned), 4),
    noticed(a_missing_file_raises_no_doubt, run_staged(LostFiles), 4),
    noticed(a_segment_is_used_before_it_is_listed, run_staged(LostFiles), 4),
    noticed(a_doubt_fences_only_ledgers_that_are_open, run_staged(ForgottenFence), 4, 4),
    noticed(a_doubt_fences_only_ledgers_that_are_open, run_staged(ForgottenFenceOfAnEmptiedDisk), 4, 7),
    noticed(the_directory_of_another_bookie_is_taken, run_ledgers, 8),
    noticed(a_fence_is_not_looked_at, run_ledgers, 20),
    noticed(a_bookie_answers_what_is_meant_for_another, run_staged(ReusedAddress), 4),
    noticed(appended_is_answered_before_it_is_durable, run_duel, 40),
    noticed(a_copy_counts_as_one_that_is_here_already, run_staged(FilledUp), 1),
    noticed(an_unsynced_tail_is_trusted, run_staged(KillThenPowerLoss), 20),
    noticed(garbage_is_collected_on_a_stale_listing, run_staged(Garbage), 20),
]


@pytest.mark.nightly
@pytest.mark.parametrize(("mutation", "run", "seeds"), MUTATIONS)
def test_the_runs_find(mutation: Mutation, run: Suite, seeds: range, monkeypatch: Patch) -> None:
    assert_noticed(mutation, run, seeds, monkeypatch)
