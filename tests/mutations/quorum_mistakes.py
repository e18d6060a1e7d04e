"""Mistakes in replication: the writer, recovery, readers."""

from __future__ import annotations

from typing import Final

from tests.mutations.mistake import Mistake

_LEDGER: Final = "libs/ledger/magnetar/ledger/"
_QUORUM: Final = f"{_LEDGER}quorum/"
_METADATA: Final = "libs/common/magnetar/common/metadata/"
_UNIT: Final = "tests/unit/ledger/quorum/"
_CHANGES: Final = (f"{_UNIT}test_ensemble_change.py",)
_WRITER: Final = (f"{_UNIT}test_writer.py",)
_RECOVERY: Final = (f"{_UNIT}test_recovery.py",)

WRITING: Final = (
    Mistake(
        "a_fragment_begins_one_entry_late",
        "the first entry that is not confirmed stays with a bookie that failed it",
        f"{_QUORUM}ensemble_change.py",
        "        first = adds.last_confirmed + 1\n",
        "        first = adds.last_confirmed + 2\n",
        _CHANGES,
    ),
    Mistake(
        "a_newcomer_lacks_its_first_entry",
        "a bookie that replaces another is not sent the first entry of its fragment",
        f"{_QUORUM}writer.py",
        "self._resend(member, from_entry_id)",
        "self._resend(member, from_entry_id + 1)",
        _CHANGES,
    ),
    Mistake(
        "acknowledgements_of_the_replaced_count",
        "an entry is confirmed by a bookie that metadata no longer names for it",
        f"{_QUORUM}pending_adds.py",
        "            add.acked &= ~bits\n",
        "",
        _CHANGES,
    ),
    Mistake(
        "answers_of_the_given_up_count",
        "a bookie that was given up still acknowledges, perhaps in the name of its successor",
        f"{_QUORUM}writer.py",
        "        elif member.dead:\n            return\n        elif code == OK:",
        "        elif code == OK:",
        _CHANGES,
    ),
    Mistake(
        "a_fence_of_the_given_up_is_not_heard",
        "the writer goes on although a bookie says that another owner has fenced the ledger",
        f"{_QUORUM}writer.py",
        "        if code == FENCED:",
        "        if code == FENCED and not member.dead:",
        _WRITER,
    ),
    Mistake(
        "an_unknown_change_is_followed_by_another",
        "a change that lands late is not known again, and the writer takes itself for fenced",
        f"{_QUORUM}ensemble_change.py",
        "                    raise  # it may still happen",
        "                    raise _Rebase from None  # it may still happen",
        _CHANGES,
    ),
    Mistake(
        "any_metadata_of_ours_is_our_change",
        "a change counts as made although what was read is without it",
        f"{_QUORUM}ensemble_change.py",
        "        if found.value != change.data and (\n",
        "        if False and (\n",
        _CHANGES,
    ),
    Mistake(
        "the_writer_ignores_that_its_ledger_is_not_open",
        "the writer goes on in a ledger that another owner recovers or has closed",
        f"{_QUORUM}ensemble_change.py",
        "value.ref.key == writer.ref.key and value.state == LedgerMetadata.OPEN:",
        "value.ref.key == writer.ref.key:",
        _CHANGES,
    ),
    Mistake(
        "a_close_records_no_gaps",
        "what a slow bookie lacks at the close is not recorded, so it is not copied",
        f"{_QUORUM}ensemble_change.py",
        "                if lacking is not None:\n                    add_gap(",
        "                if False:\n                    add_gap(",
        _WRITER,
    ),
    Mistake(
        "a_held_bookie_gets_the_latest_refused",
        "a bookie without room is sent again from the last refused entry on, not from the first",
        f"{_QUORUM}writer.py",
        "min(member.held_from, add.first)",
        "max(member.held_from, add.first)",
        _WRITER,
    ),
    Mistake(
        "what_memory_lets_go_is_forgotten",
        "an entry that a bookie lacks leaves the writer without a note",
        f"{_QUORUM}pending_adds.py",
        "        self._owe(add, add.awaited)\n        self._let_go()",
        "        self._let_go()",
        (f"{_UNIT}test_pending_adds.py",),
    ),
    Mistake(
        "a_gap_begins_at_the_lac",
        "confirmed entries that an absent bookie lacks are not in its gap",
        f"{_QUORUM}ensemble_change.py",
        "lacking[0] if lacking else first, OPEN_GAP_END",
        "first, OPEN_GAP_END",
        _CHANGES,
    ),
    Mistake(
        "a_write_set_may_be_left_without_its_quorum",
        "bookies are recorded as absent although fewer than Qa are left without them",
        f"{_QUORUM}ensemble_change.py",
        "len(each - without) >= striping.ack_quorum for",
        "len(each - without) >= striping.ack_quorum - 1 for",
        _CHANGES,
    ),
)

RECOVERY: Final = (
    Mistake(
        "recovery_begins_one_entry_late",
        "the first entry behind the LAC is not read, and taken for confirmed",
        f"{_QUORUM}recovery.py",
        "1 + max((state.lac for state in",
        "2 + max((state.lac for state in",
        _RECOVERY,
    ),
    Mistake(
        "recovery_records_no_laggards",
        "confirmed entries that a bookie of the last fragment lacks stay at Qa copies",
        f"{_QUORUM}recovery.py",
        "gaps = await missing.gaps(first - 1)",
        "gaps: list[Gap] = []",
        _RECOVERY,
    ),
    Mistake(
        "rewriting_is_content_with_too_few",
        "a recovery closes behind an entry that it has on Qa - 1 bookies",
        f"{_QUORUM}entry_rewrite.py",
        "striping.write_set(entry_id)) >= striping.ack_quorum\n",
        "striping.write_set(entry_id)) >= striping.ack_quorum - 1\n",
        (f"{_UNIT}test_entry_rewrite.py",),
    ),
    Mistake(
        "a_recovery_claims_a_lac_of_its_own",
        "a recovery's writes say that entries are confirmed before it has ended",
        f"{_QUORUM}entry_rewrite.py",
        "parts = _Parts(self.ref, runs, striping, self.lac)",
        "parts = _Parts(self.ref, runs, striping, first - 1)",
        _RECOVERY,
    ),
    Mistake(
        "too_few_fences_suffice",
        "recovery goes on though the old writer can still reach Qa bookies",
        f"{_QUORUM}striping.py",
        "all(len(write_set - reached) < self.ack_quorum for",
        "all(len(write_set - reached) <= self.ack_quorum for",
        (f"{_UNIT}test_striping.py",),
    ),
    Mistake(
        "damage_counts_as_absence",
        "an entry that cannot be read ends the ledger before it",
        f"{_QUORUM}forward_read.py",
        "absent = sum(verdict.code == NO_SUCH_ENTRY for",
        "absent = sum(verdict.code in (NO_SUCH_ENTRY, 5) for",
        _RECOVERY,
    ),
    Mistake(
        "certainty_about_another_entry_counts",
        "a bookie's word on one entry is taken for its word on another",
        f"{_QUORUM}checked_read.py",
        "    if code == NO_SUCH_ENTRY and answer.stopped_at != at:",
        "    if False and answer.stopped_at != at:",
        (f"{_UNIT}test_checked_read.py",),
    ),
    Mistake(
        "gaps_of_the_rewriting_are_dropped",
        "what a bookie did not take of a recovery's writes is not recorded",
        f"{_QUORUM}recovery.py",
        "gaps + rewriter.gaps(end))",
        "gaps)",
        _RECOVERY,
    ),
    Mistake(
        "any_closing_is_ours",
        "after an unknown outcome another recovery's end is taken for our own",
        f"{_LEDGER}ledger_catalog.py",
        "            if found is None or found.value != data:\n                raise\n        value.CopyFrom",
        "            if found is None:\n                raise\n        value.CopyFrom",
        _RECOVERY,
    ),
    Mistake(
        "ids_are_taken_without_compare_and_set",
        "the counter of ledger ids goes back, and an id is given twice",
        f"{_METADATA}id_counter.py",
        "encode(Counter(next=after)), version)",
        "encode(Counter(next=after)))",
        ("tests/unit/ledger/test_ledger_catalog.py",),
    ),
    Mistake(
        "joined_transactions_read_what_each_other_writes",
        "two transactions that exclude each other are both committed",
        f"{_METADATA}joint_transaction.py",
        "if any(key in self._written or key in self._checked for key in written):",
        "if any(key in self._written for key in written):",
        ("tests/unit/common/metadata/test_joint_transactions.py",),
    ),
    Mistake(
        "recovery_does_not_say_that_it_began",
        "the writer may change the ensemble of a ledger that is being fenced",
        f"{_QUORUM}recovery.py",
        "        value.state = LedgerMetadata.IN_RECOVERY\n        try:",
        "        value.state = LedgerMetadata.OPEN\n        try:",
        _RECOVERY,
    ),
)

READING: Final = (
    Mistake(
        "the_first_entry_of_a_fragment_is_shown_unheard",
        "a reader sees an entry that was not said to be confirmed",
        f"{_QUORUM}reader.py",
        "        self._heard = layout.last_fragment.first_entry_id - 1\n        self._entry_bytes",
        "        self._heard = layout.last_fragment.first_entry_id\n        self._entry_bytes",
        (f"{_UNIT}test_reader.py",),
    ),
    Mistake(
        "what_a_bookie_holds_is_shown",
        "a reader takes a bookie's last entry for its LAC",
        f"{_QUORUM}reader.py",
        "self._heard = max(self._heard, answer.lac)",
        "self._heard = max(self._heard, answer.last_entry_id)",
        (f"{_UNIT}test_reader.py",),
    ),
)
