"""Mistakes that only show under trouble of several parts; the staged runs of each kind find them."""

from __future__ import annotations

from typing import Any

import pytest
from magnetar.bookie.bookie_core import BookieCore
from magnetar.common.errors import UnknownOutcome, VersionMismatch
from magnetar.common.metadata import id_counter
from magnetar.common.metadata.store import ABSENT, ANY_VERSION, Put
from magnetar.common.metadata.values import LedgerMetadata, decode
from magnetar.ledger import ledger_catalog
from magnetar.ledger.ledger_catalog import LedgerCatalog
from magnetar.ledger.quorum import repair_plan
from magnetar.ledger.quorum.ledger_metadata import OPEN_GAP_END
from magnetar.ledger.quorum.writer import QuorumLedgerWriter
from magnetar.ledger.segment_log.compaction import Rewrite

from tests.simulation.mutants import Mutation, Patch, Suite, assert_noticed, noticed
from tests.simulation.quorum.cluster import KEYS
from tests.simulation.quorum.rarer import SUITES


def a_close_that_may_still_happen_counts_as_refused(patch: Patch) -> None:
    """The writer goes on, and the close lands on what was confirmed meanwhile."""
    commit = LedgerCatalog.commit_closed

    async def mutant(self: LedgerCatalog, value: Any, version: int, *args: Any) -> None:
        try:
            await commit(self, value, version, *args)
        except UnknownOutcome:
            raise VersionMismatch("another key", version, version) from None

    patch.setattr(LedgerCatalog, "commit_closed", mutant)


def what_was_held_back_is_not_sent_again(patch: Patch) -> None:
    def mutant(self: QuorumLedgerWriter, member: Any) -> None:
        member.open = not member.dead

    patch.setattr(QuorumLedgerWriter, "_release", mutant)


def only_the_last_append_that_was_held_back_is_sent_again(patch: Patch) -> None:
    hold = QuorumLedgerWriter._hold

    def mutant(self: QuorumLedgerWriter, member: Any, add: Any) -> None:
        hold(self, member, add)
        member.held_from = add.first

    patch.setattr(QuorumLedgerWriter, "_hold", mutant)


def a_gap_that_is_filled_in_part_is_struck_out_as_a_whole(patch: Patch) -> None:
    """Wrong where the writer still goes on without the bookie."""
    strike_out = repair_plan._strike_out

    def mutant(metadata: Any, bookie_id: str, first: int, last: int) -> None:
        strike_out(metadata, bookie_id, 0, OPEN_GAP_END)

    patch.setattr(repair_plan, "_strike_out", mutant)


def an_id_is_taken_without_compare_and_set(patch: Patch) -> None:
    def mutant(key: str, value: bytes, version: int) -> Put:
        unguarded = version == ABSENT or key == KEYS.ledger_id_counter
        return Put(key, value, ANY_VERSION if unguarded else version)

    patch.setattr(id_counter, "Put", mutant)
    patch.setattr(ledger_catalog, "Put", mutant)


def a_ledger_is_found_by_its_id_alone(patch: Patch) -> None:
    """A creation whose outcome is unknown takes the ledger of another process for its own."""

    async def mutant(self: LedgerCatalog, ref: Any) -> Any:
        found = await self._metadata.get(self._keys.ledger(ref.id))
        return None if found is None else (found, decode(LedgerMetadata, found.value))

    patch.setattr(LedgerCatalog, "find", mutant)


def a_fence_in_memory_counts_as_durable(patch: Patch) -> None:
    """The first request for it is refused, since it could not be made durable; the next one is not."""
    fence = BookieCore._fence

    async def mutant(self: BookieCore, ref: Any) -> Any:
        ledger = self.ledgers.find(ref.id, ref.key)
        return ledger if ledger is not None and ledger.fenced else await fence(self, ref)

    patch.setattr(BookieCore, "_fence", mutant)


def a_segment_whose_range_overlaps_counts_as_one_with_the_copy(patch: Patch) -> None:
    """True where a ledger's entries come in order, and wrong where a repair filled a gap later."""

    def mutant(self: Rewrite, ref: Any, first: int, count: int, copies: Any, others: Any) -> bool:
        return bool(others)

    patch.setattr(Rewrite, "_is_elsewhere", mutant)


MUTATIONS = [
    noticed(a_close_that_may_still_happen_counts_as_refused, SUITES["LateCommits"], 8),
    noticed(what_was_held_back_is_not_sent_again, SUITES["HeldBack"], 2),
    noticed(only_the_last_append_that_was_held_back_is_sent_again, SUITES["HeldBack"], 8),
    noticed(a_gap_that_is_filled_in_part_is_struck_out_as_a_whole, SUITES["CopiesBeside"], 6),
    noticed(an_id_is_taken_without_compare_and_set, SUITES["RacedIds"], 2),
    noticed(a_ledger_is_found_by_its_id_alone, SUITES["RacedIds"], 8),
    noticed(a_fence_in_memory_counts_as_durable, SUITES["RefusedAtAFence"], 20),
    noticed(a_segment_whose_range_overlaps_counts_as_one_with_the_copy, SUITES["RepairsCompacted"], 12),
]


@pytest.mark.nightly
@pytest.mark.parametrize(("mutation", "run", "seeds"), MUTATIONS)
def test_the_runs_find(mutation: Mutation, run: Suite, seeds: range, monkeypatch: Patch) -> None:
    assert_noticed(mutation, run, seeds, monkeypatch)
