"""Mistakes in the bookie and in auto-recovery."""

from __future__ import annotations

from typing import Final

from tests.mutations.mistake import Mistake

_BOOKIE: Final = "services/bookie/magnetar/bookie/"
_UNIT: Final = "tests/unit/bookie/"
_LIMBO: Final = (f"{_UNIT}test_limbo.py",)
_COMPARED: Final = (f"{_UNIT}test_comparisons.py",)
_CORE: Final = (f"{_UNIT}test_bookie_core.py",)
_AUTO: Final = f"{_UNIT}autorecovery/"
_DOUBTS: Final = "a_doubt_about_a_silent_ledger_ends_with_its_recovery"

BOOKIE: Final = (
    Mistake(
        "a_ledger_in_doubt_takes_entries",
        "a bookie that may have lost a fence acknowledges the old writer",
        f"{_BOOKIE}appends.py",
        "            if ledger.limbo:\n",
        "            if False:\n",
        _LIMBO,
    ),
    Mistake(
        "compared_entries_pass_a_fence",
        "what waited to be compared is written though the ledger was fenced meanwhile",
        f"{_BOOKIE}comparisons.py",
        "        if refusal := self._refusal(ledger, comparison.recovery):",
        "        if refusal := None:",
        _COMPARED,
    ),
    Mistake(
        "comparing_does_not_wait",
        "an entry on its way is not seen, and stored twice",
        f"{_BOOKIE}comparisons.py",
        "            await ledger.settled()\n            look",
        "            look",
        _COMPARED,
    ),
    Mistake(
        "an_entry_on_its_way_is_denied",
        "a fencing read says 'no such entry' of one that is about to be acknowledged",
        "libs/ledger/magnetar/ledger/bookie_protocol/stored_reads.py",
        "            if ledger.pending and not settled:",
        "            if False and not settled:",
        _COMPARED,
    ),
    Mistake(
        "a_ledger_in_doubt_is_not_fenced",
        "a fence that was lost with the disk is not made again",
        f"{_BOOKIE}limbo.py",
        "waiting += [segment_log.fence(ref), segment_log",
        "waiting += [segment_log",
        _LIMBO,
    ),
    Mistake(
        "only_what_is_left_is_in_doubt",
        "a ledger whose every record was lost is answered for with 'no such entry'",
        f"{_BOOKIE}limbo.py",
        "touched = {*named, *ledgers.refs()} if torn",
        "touched = {*ledgers.refs()} if torn",
        _LIMBO,
    ),
    Mistake(
        "a_restored_directory_raises_no_doubt",
        "a disk that is older than metadata remembers is believed",
        f"{_BOOKIE}identity.py",
        "here.generation < there.generation:",
        "here.generation < 0:",
        (f"{_UNIT}test_identity.py",),
    ),
    Mistake(
        "closed_ledgers_are_not_checked_after_a_doubt",
        "what a doubtful start lacks of closed ledgers waits for the weekly scrub",
        f"{_BOOKIE}limbo.py",
        "    note_unchecked(disk)\n",
        "",
        (
            f"{_AUTO}test_scrub.py::test_an_emptied_disk_is_filled_again_with_what_metadata_says_belongs_there",
        ),
    ),
    Mistake(
        "another_key_is_accepted",
        "an id that was given anew after a metadata restore mixes two ledgers",
        f"{_BOOKIE}ledger_storage.py",
        "        if ledger is not None and ledger.ref.key != key:",
        "        if False:",
        _CORE,
    ),
    Mistake(
        "a_fence_under_way_is_forgotten",
        "a refused append forgets a ledger whose fence is being written",
        f"{_BOOKIE}ledger_storage.py",
        "        if not ledger.segments and not ledger.pending:",
        "        if not ledger.segments:",
        (f"{_UNIT}test_appends.py",),
    ),
    Mistake(
        "a_fence_refuses_recoveries",
        "a recovery cannot write again what it found",
        f"{_BOOKIE}appends.py",
        "        if recovery:\n            return None\n",
        "",
        _CORE,
    ),
    Mistake(
        "hints_lower_the_lac",
        "a hint that comes late takes back what is known to be confirmed",
        f"{_BOOKIE}bookie_core.py",
        "            if ledger is not None and update.lac > ledger.lac:",
        "            if ledger is not None:",
        (f"{_UNIT}test_lac_and_listing.py",),
    ),
    Mistake(
        "a_doubt_is_forgotten_before_it_is_marked",
        "the note of a doubt goes while its marks are still on their way to the disk",
        f"{_BOOKIE}limbo.py",
        "    await asyncio.gather(*waiting)\n",
        "    asyncio.gather(*waiting)\n",
        _LIMBO,
    ),
)

AUTO_RECOVERY: Final = (
    Mistake(
        "a_share_is_named_without_a_guard",
        "a move names a bookie that was emptied since it was copied to",
        f"{_BOOKIE}autorecovery/replication_worker.py",
        'version, guard):\n            log.info(\n                "a lost bookie',
        'version):\n            log.info(\n                "a lost bookie',
        (
            f"{_AUTO}test_replication_worker.py::"
            "test_a_bookie_that_was_started_anew_while_it_was_copied_to_is_not_believed_to_have_the_copies",
        ),
    ),
    Mistake(
        "a_ledger_under_recovery_is_changed",
        "auto-recovery spoils the compare-and-set with which a recovery ends",
        f"{_BOOKIE}autorecovery/replication_worker.py",
        "            if ledger.state == LedgerMetadata.IN_RECOVERY:",
        "            if False:",
        (
            f"{_AUTO}test_replication_worker.py::test_a_ledger_is_left_alone_while_a_recovery_of_it_is_under_way",
        ),
    ),
    Mistake(
        "a_doubt_ends_without_the_entries",
        "a ledger is certain again although an entry could not be had from any peer",
        f"{_BOOKIE}autorecovery/limbo_repair.py",
        "        if not sound:\n            return False\n",
        "",
        (f"{_AUTO}test_scrub.py::test_a_doubt_stays_while_entries_that_belong_here_can_be_had_from_no_peer",),
    ),
    Mistake(
        "a_doubt_about_an_open_ledger_ends",
        "a ledger is certain again before its end is known",
        f"{_BOOKIE}autorecovery/limbo_repair.py",
        "            await self._recover(ref)\n            return False\n",
        "            pass\n",
        (f"{_AUTO}test_scrub.py::test_{_DOUBTS}",),
    ),
    Mistake(
        "a_tail_is_abandoned_at_once",
        "a writer that pauses is fenced without a grace period",
        f"{_BOOKIE}autorecovery/open_tail.py",
        "        return now >= seen.since_s + self.grace_s",
        "        return True",
        (
            f"{_AUTO}test_scrub.py::"
            "test_a_doubt_that_is_looked_at_often_fences_no_writer_within_the_grace_period",
        ),
    ),
)
