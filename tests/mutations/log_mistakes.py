"""Mistakes in the segment log and in garbage collection."""

from __future__ import annotations

from typing import Final

from tests.mutations.mistake import Mistake

_LEDGER: Final = "libs/ledger/magnetar/ledger/"
_LOG: Final = f"{_LEDGER}segment_log/"
_UNIT: Final = "tests/unit/ledger/"
_UNIT_LOG: Final = f"{_UNIT}segment_log/"
_BOOKIE: Final = "tests/unit/bookie/"

LOG: Final = (
    Mistake(
        "a_torn_group_may_leave_a_gap_of_one",
        "a record of a torn group is kept although the entry before it is lost",
        f"{_LOG}recovery.py",
        "gap = header.first_entry_id > last + 1 and",
        "gap = header.first_entry_id > last + 2 and",
        (
            f"{_UNIT_LOG}test_recovery.py::test_a_torn_last_group_keeps_its_sound_records_up_to_the_first_lost_one",
        ),
    ),
    Mistake(
        "one_group_too_many_is_taken_for_durable",
        "the group after the known durable end is believed from the page cache",
        f"{_LOG}recovery.py",
        "group.offset >= tail.durable_end:\n            break\n        segment.last",
        "group.offset > tail.durable_end:\n            break\n        segment.last",
        (f"{_UNIT_LOG}test_recovery.py",),
    ),
    Mistake(
        "a_group_sequence_is_used_twice",
        "recovery writes its first group under the sequence of the last one of the former life",
        f"{_LOG}recovery.py",
        "group_sequence = max(_last_group_sequence(sealed, tails), floor) + 1",
        "group_sequence = max(_last_group_sequence(sealed, tails), floor)",
        (f"{_UNIT_LOG}test_recovery.py",),
    ),
    Mistake(
        "only_the_last_tail_is_kept",
        "of several unsealed segments, the tails of all but the newest are lost",
        f"{_LOG}recovery.py",
        "for tail in tails for record in _judge_tail(",
        "for tail in tails[-1:] for record in _judge_tail(",
        (f"{_UNIT}test_local_store.py::test_the_contract_under_simulation",),
    ),
    Mistake(
        "tails_raise_no_doubt",
        "a bookie does not doubt what a damaged tail may have held",
        f"{_LOG}recovery.py",
        "for tail in tails for doubt in tail.doubts]",
        "for tail in tails[:0] for doubt in tail.doubts]",
        (f"{_BOOKIE}test_limbo.py",),
    ),
    Mistake(
        "a_lost_directory_raises_no_doubt",
        "a durable group that does not say what it held is no reason for doubt",
        f"{_LOG}recovery.py",
        'tail.doubts.append(f"group {group.header.sequence} does not say what it holds")',
        "pass",
        (f"{_BOOKIE}test_limbo.py",),
    ),
    Mistake(
        "a_second_fence_answers_at_once",
        "a fence that is durable already is answered before a recovery's writes on their way are",
        f"{_LOG}log.py",
        "        if ledger.fence_durable:\n            await ledger.settled()",
        "        if ledger.fence_durable:\n            pass",
        (f"{_BOOKIE}test_bookie_core.py",),
    ),
    Mistake(
        "a_failed_group_fails_no_ledger",
        "a ledger whose group failed goes on taking entries, behind a hole",
        f"{_LOG}group_commit.py",
        "                ledger.failed = error\n",
        "                pass\n",
        (f"{_BOOKIE}test_appends.py",),
    ),
    Mistake(
        "entries_without_a_checksum_are_believed",
        "an entry that carries no CRC of its own is served without a look at its record's",
        f"{_LOG}reader.py",
        "            sound = whole\n",
        "            sound = True\n",
        (f"{_UNIT_LOG}test_space.py::test_damage_is_carried_as_damage", f"{_BOOKIE}test_appends.py"),
    ),
    Mistake(
        "compaction_drops_cleared_doubts",
        "the mark that clears a doubt goes, and the doubt in another segment is back",
        f"{_LOG}compaction.py",
        "        if doubt := max((doubt_of(line.marks) for line in lines), default=0):",
        "        if (doubt := max((doubt_of(line.marks) for line in lines), default=0)) & 1:",
        (f"{_BOOKIE}test_limbo.py",),
    ),
    Mistake(
        "a_segment_goes_that_names_an_end",
        "the group that says where an unsealed segment ends goes: damage passes for a torn end",
        f"{_LOG}space.py",
        "        return any(\n            not segment.header.flags & FLAG_SORTED",
        "        return False and any(\n            not segment.header.flags & FLAG_SORTED",
        (f"{_BOOKIE}test_garbage.py",),
    ),
    Mistake(
        "zeros_are_written_behind_a_trailer",
        "a seal does not wait for zeros under way, which then hide the footer from the next start",
        f"{_LOG}segment_chain.py",
        "            await asyncio.wait([self._fill_task])",
        "            pass",
        (f"{_UNIT_LOG}test_log.py",),
    ),
    Mistake(
        "only_the_latest_run_is_looked_at",
        "an entry is not found in an earlier, longer run where runs overlap",
        f"{_LOG}index.py",
        "        while self.span and place and ",
        "        while False and place and ",
        (f"{_UNIT_LOG}test_index.py",),
    ),
    Mistake(
        "the_reserve_is_not_kept",
        "a full disk takes appends to its last byte",
        f"{_LOG}log.py",
        "        if self._chain.is_full() and not ",
        "        if False and not ",
        (f"{_UNIT}test_local_store.py",),
    ),
    Mistake(
        "a_shorter_copy_stands_for_a_longer_record",
        "compaction drops entries because a segment elsewhere holds the first of them",
        f"{_LOG}compaction.py",
        "copy.header.entry_count >= count:",
        "copy.header.entry_count >= 1:",
        (f"{_UNIT_LOG}test_compaction.py",),
    ),
    Mistake(
        "the_newest_segment_says_the_lac",
        "a ledger's LAC goes back when an older segment was rewritten last",
        f"{_LOG}log.py",
        "            if line.lac > ledger.lac:\n                ledger.lac = line.lac",
        "            ledger.lac = line.lac",
        (f"{_BOOKIE}test_lac_and_listing.py",),
    ),
    Mistake(
        "the_newest_segment_says_the_doubt",
        "a doubt counts as cleared because a segment with an older mark was rewritten last",
        f"{_LOG}log.py",
        "ledger.doubt = max(ledger.doubt, doubt_of(line.marks))",
        "ledger.doubt = doubt_of(line.marks)",
        (f"{_BOOKIE}test_limbo.py",),
    ),
)

GARBAGE: Final = (
    Mistake(
        "a_ledger_with_a_writer_may_be_dead",
        "what is written here is collected because a listing lacks it",
        f"{_LEDGER}garbage_collector.py",
        "gone = stored - live - in_use",
        "gone = stored - live",
        (f"{_UNIT}test_garbage_collector.py",),
    ),
    Mistake(
        "copies_that_arrive_late_die",
        "what was appended to while metadata was asked once more is dead all the same",
        f"{_LEDGER}garbage_collector.py",
        "return {ref for ref in confirmed if ref in self._gone_since or ref in self._moved_since}",
        "return confirmed",
        (f"{_BOOKIE}test_garbage.py",),
    ),
    Mistake(
        "an_append_begins_no_grace",
        "the grace period of a ledger goes on although copies of it arrive",
        f"{_LEDGER}garbage_collector.py",
        "            self._moved_since.pop(ref, None)\n            self._gone_since.pop(ref, None)",
        "            pass",
        (f"{_BOOKIE}test_garbage.py",),
    ),
    Mistake(
        "open_ledgers_may_move_away",
        "a bookie lets go of a ledger that is not closed, perhaps the last with an entry of it",
        "services/bookie/magnetar/bookie/garbage.py",
        "        ledger.state == LedgerMetadata.CLOSED\n        and bool",
        "        True\n        and bool",
        (f"{_BOOKIE}test_garbage.py",),
    ),
    Mistake(
        "what_comes_back_stays_dead",
        "a ledger that is copied here again goes with the bytes that were dead",
        f"{_LEDGER}garbage_collector.py",
        "        self._dead.discard(ref)\n",
        "",
        (f"{_BOOKIE}test_garbage.py",),
    ),
)
