"""Garbage collection and compaction are worth what their suite catches: each guard is removed in turn."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from magnetar.ledger import garbage_collector
from magnetar.ledger.garbage_collector import GarbageCollector
from magnetar.ledger.segment_log import compaction, recovery, segment, segment_chain, space
from magnetar.ledger.segment_log.compaction import Rewrite
from magnetar.ledger.segment_log.file_codec_v1 import encode_segment_header
from magnetar.ledger.segment_log.segment import SEGMENTS_DIRECTORY, Segment
from magnetar.sim.disk import SimFile

from tests.simulation.garbage_workload import GarbageWorkload
from tests.simulation.mutants import Mutation, Patch, Suite, assert_noticed, noticed
from tests.simulation.power_loss import cut_everywhere
from tests.unit.ledger.segment_log import test_recovery
from tests.unit.ledger.segment_log.test_log import (
    a_recycled_file_is_one_segment_or_the_other,
    stale_bytes_of_a_recycled_file_are_no_data,
)
from tests.unit.ledger.test_garbage_collector import (
    grace,
    interruption,
    lost_metadata,
    mixed_listing,
    readers,
    stale_listing,
)


def garbage(seed: int) -> None:
    cut_everywhere(GarbageWorkload(seed), seed, every=7)


# --- what may be deleted ---


def gc_on_a_stale_listing(patch: Patch) -> None:
    patch.setattr(GarbageCollector, "saw_revision", lambda self, revision: None)


def gc_on_a_listing_of_two_revisions(patch: Patch) -> None:
    patch.setattr(garbage_collector, "_is_of_one_revision", lambda listing: True)


def no_guard_against_lost_metadata(patch: Patch) -> None:
    patch.setattr(GarbageCollector, "_too_many", lambda self, missing, present: False)


def no_grace(patch: Patch) -> None:
    init = GarbageCollector.__init__

    def mutant(self: GarbageCollector, *args: Any) -> None:
        init(self, *args)
        self._config = dataclasses.replace(self._config, gc_grace_s=0.0)

    patch.setattr(GarbageCollector, "__init__", mutant)


# --- the order of compaction's steps ---


def inputs_go_before_the_output_is_durable(patch: Patch) -> None:
    step = Rewrite.step

    def mutant(self: Rewrite) -> int:
        for each in self._inputs:
            if each.path in self._disk.paths():  # type: ignore[attr-defined]
                self._disk.unlink(each.path)
        self._disk.sync_dir(SEGMENTS_DIRECTORY)
        return step(self)

    patch.setattr(Rewrite, "step", mutant)


def the_output_is_not_synced(patch: Patch) -> None:
    sync = SimFile.fdatasync

    def mutant(self: SimFile) -> None:
        if not self._path.endswith(".compact"):
            sync(self)

    patch.setattr(SimFile, "fdatasync", mutant)


def the_name_of_the_output_is_not_synced(patch: Patch) -> None:
    """Neither by itself nor with the removal of the inputs, whose names may go first."""

    def publish(self: Segment) -> None:
        path = segment.segment_path(self.sequence)
        self.disk.rename(self.path, path)
        self.path = path

    def unlink(self: Segment) -> None:
        # The directory writes the removal before the renaming that came first.
        self.close()
        disk: Any = self.disk
        pending, disk._changes = disk._changes, []
        disk.unlink(self.path)
        disk.sync_dir(SEGMENTS_DIRECTORY)
        disk._changes = pending

    patch.setattr(Segment, "publish", publish)
    patch.setattr(Segment, "unlink", unlink)


def an_unfinished_output_counts(patch: Patch) -> None:
    patch.setattr(compaction, "compaction_path", segment.segment_path)
    patch.setattr(Segment, "publish", lambda self: None)

    def early(self: Rewrite) -> int:
        size = STEP(self)
        if self._segment is not None and size and not self._segment.sealed:
            for each in self._inputs:
                if each.path in self._disk.paths():  # type: ignore[attr-defined]
                    self._disk.unlink(each.path)
            self._disk.sync_dir(SEGMENTS_DIRECTORY)
        return size

    patch.setattr(Rewrite, "step", early)


STEP = Rewrite.step


def readers_are_not_waited_for(patch: Patch) -> None:
    async def retire(self: Segment) -> None:
        self.retired = True

    patch.setattr(Segment, "retire", retire)


def the_copy_left_by_an_interruption_stays(patch: Patch) -> None:
    patch.setattr(space, "duplicated_segments", lambda segments: set())


# --- what compaction carries ---


def marks_are_dropped(patch: Patch) -> None:
    patch.setattr(Rewrite, "_marks", lambda self, ref, lac: iter(()))


def live_entries_are_dropped(patch: Patch) -> None:
    entries = Rewrite._entries
    patch.setattr(Rewrite, "_entries", lambda self, ref: iter(list(entries(self, ref))[:-1]))


# --- recycling ---


def no_salt_in_recycled_files(patch: Patch) -> None:
    original = segment.new_header

    def mutant(*args: Any) -> Any:
        return dataclasses.replace(original(*args), salt=0, uuid=bytes(16))

    for module in (segment, recovery, segment_chain, space, test_recovery):
        patch.setattr(module, "new_header", mutant)


def a_spare_is_written_before_its_name_is_durable(patch: Patch) -> None:
    def recycle(self: Segment) -> str:
        self.close()
        spare = self.path.replace(".seg", ".spare")
        self.disk.rename(self.path, spare)
        return spare

    patch.setattr(Segment, "recycle", recycle)


def a_recycled_file_gets_its_name_before_its_header(patch: Patch) -> None:
    def recycled(disk: Any, header: Any, spare: str) -> Segment:
        made = Segment(disk, header, disk.open(spare), spare)
        made.publish()
        made.file.pwritev([encode_segment_header(header)], 0)
        made.file.fdatasync()
        made.filled_end = made.file.size()
        return made

    patch.setattr(segment, "_recycled_segment", recycled)


MUTATIONS = [
    noticed(gc_on_a_stale_listing, stale_listing, 1),
    noticed(gc_on_a_listing_of_two_revisions, mixed_listing, 1),
    noticed(no_guard_against_lost_metadata, lost_metadata, 1),
    noticed(no_grace, grace, 1),
    noticed(inputs_go_before_the_output_is_durable, garbage, 6),
    noticed(the_output_is_not_synced, garbage, 6),
    noticed(the_name_of_the_output_is_not_synced, garbage, 6),
    noticed(an_unfinished_output_counts, garbage, 6),
    noticed(readers_are_not_waited_for, readers, 1),
    noticed(the_copy_left_by_an_interruption_stays, interruption, 1),
    noticed(marks_are_dropped, garbage, 6, first=1),
    noticed(live_entries_are_dropped, garbage, 6),
    noticed(no_salt_in_recycled_files, stale_bytes_of_a_recycled_file_are_no_data, 1),
    noticed(a_spare_is_written_before_its_name_is_durable, a_recycled_file_is_one_segment_or_the_other, 3),
    noticed(a_recycled_file_gets_its_name_before_its_header, a_recycled_file_is_one_segment_or_the_other, 3),
]


@pytest.mark.nightly
@pytest.mark.parametrize(("mutation", "suite", "seeds"), MUTATIONS)
def test_the_suite_catches(mutation: Mutation, suite: Suite, seeds: range, monkeypatch: Patch) -> None:
    assert_noticed(mutation, suite, seeds, monkeypatch)
