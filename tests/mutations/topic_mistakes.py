"""Mistakes in the managed ledger: order, ownership, trimming, cursors."""

from __future__ import annotations

from typing import Final

from tests.mutations.mistake import Mistake

_TOPIC: Final = "libs/ledger/magnetar/ledger/managed_ledger/"
_UNIT: Final = "tests/unit/ledger/managed_ledger/"
_FAILED: Final = (f"{_UNIT}test_failed_ledgers.py",)
_OWNERS: Final = (f"{_UNIT}test_ownership_and_failures.py",)

TOPICS: Final = (
    Mistake(
        "confirmations_are_looked_for_in_the_next_ledger",
        "confirmations of a ledger do not wait for the one before",
        f"{_TOPIC}appender.py",
        "            if not ledger.settled:\n                break\n",
        "",
        (),
        "what waits is in the topic's order, so that a later ledger finds none of its own at the front",
    ),
    Mistake(
        "a_ledger_made_during_a_failure_is_used_at_once",
        "new entries go before those that the ledger before loses, and the next ledger is given up for it",
        f"{_TOPIC}appender.py",
        "        if all(ledger.error is None for ledger in self.ledgers):",
        "        if True:",
        _FAILED,
    ),
    Mistake(
        "lost_entries_go_to_the_end",
        "what a failed ledger lost is written again behind what waits",
        f"{_TOPIC}appender.py",
        "        self._queue.extendleft(reversed(again))",
        "        self._queue.extend(again)",
        _FAILED,
    ),
    Mistake(
        "a_takeover_keeps_the_owner_epoch",
        "a former owner that reads the head again takes it for its own",
        f"{_TOPIC}takeover.py",
        "            value.owner_epoch += 1\n",
        "",
        _OWNERS,
    ),
    Mistake(
        "trimming_forgets_cursors_being_deleted",
        "a cursor that is back after a crash has lost its entries",
        f"{_TOPIC}topic_cursors.py",
        "(*self.durable(), *(self._deleting or ()))",
        "(*self.durable(),)",
        _FAILED,
    ),
    Mistake(
        "cursors_in_the_making_hold_nothing_back",
        "a ledger goes before the subscription that needs it is confirmed",
        f"{_TOPIC}topic_cursors.py",
        "        if self._creating:\n            yield from",
        "        if False:\n            yield from",
        (f"{_UNIT}test_cursors.py",),
    ),
    Mistake(
        "an_adopted_cursor_ledger_is_to_be_deleted",
        "the intent to delete a cursor ledger outlives its adoption",
        f"{_TOPIC}new_record_ledger.py",
        "ops: list[Op] = [Delete(self._intent_key, self._intent_version)]",
        "ops: list[Op] = []",
        (f"{_UNIT}test_intents.py",),
    ),
    Mistake(
        "an_intent_is_finished_blindly",
        "a ledger is deleted though it came to be of use since the intent was read",
        f"{_TOPIC}intents.py",
        "[Delete(intent.key, intent.version)]",
        "[Delete(intent.key)]",
        (f"{_UNIT}test_intents.py",),
    ),
    Mistake(
        "a_ledger_goes_with_its_last_entry_unread",
        "trimming takes a ledger of which the slowest cursor lacks one entry",
        f"{_TOPIC}trimming.py",
        "span.last_position > needed",
        "Position(span.ref.id, span.entries - 2) > needed",
        (f"{_UNIT}test_trimming.py",),
    ),
    Mistake(
        "trimming_passes_the_deduplication_snapshot",
        "entries go from which the state of deduplication has to be replayed",
        f"{_TOPIC}topic_deduplication.py",
        "return slowest if record is None else min(slowest or LATEST, record.durable_mark)",
        "return slowest",
        (f"{_UNIT}test_deduplication.py",),
    ),
    Mistake(
        "a_former_owner_lets_ledgers_leave",
        "leaving the bookies is not guarded by the head",
        f"{_TOPIC}bookie_release.py",
        "                Check(head.key, head.version),\n",
        "",
        (f"{_UNIT}test_bookie_release.py",),
    ),
    Mistake(
        "an_entry_with_copies_is_skipped",
        "reading goes past an entry that another replica may have",
        f"{_TOPIC}storage_reads.py",
        "only_copy = reads.is_only_copy(span)",
        "only_copy = True",
        (f"{_UNIT}test_replicated_ledgers.py",),
    ),
    Mistake(
        "a_change_record_moves_a_cursor_back",
        "records that are applied in another order leave a cursor behind where it was",
        f"{_TOPIC}ack_state.py",
        "        if delta.mark_delete > (self._mark_ledger, self._mark_entry):",
        "        if True:",
        (f"{_UNIT}test_ack_state.py",),
    ),
    Mistake(
        "a_seek_back_leaves_the_mark_on_disk",
        "a ledger goes that a cursor, as it is on disk after a seek, stands before",
        f"{_TOPIC}topic_cursors.py",
        "            cursor.durable_mark = min(cursor.durable_mark, position)\n",
        "",
        _FAILED,
    ),
    Mistake(
        "the_head_is_written_blindly",
        "a former owner makes a ledger in a topic that another one has",
        f"{_TOPIC}guarded_key.py",
        "return Put(self.key, value, self.version)",
        "return Put(self.key, value)",
        _OWNERS,
    ),
    Mistake(
        "a_flush_confirms_what_came_later",
        "what was acknowledged after a flush was written counts as being on disk with it",
        f"{_TOPIC}cursor_ledger.py",
        "            cursor.durable_mark = mark\n        _answer",
        "            cursor.durable_mark = cursor.mark_delete\n        _answer",
        _FAILED,
    ),
    Mistake(
        "an_abandoned_cursor_ledger_confirms",
        "a late confirmation of a ledger that was given up answers a flush in the next one",
        f"{_TOPIC}cursor_ledger.py",
        "        if writer is self.writer and flush is not None and 0 <=",
        "        if flush is not None and 0 <=",
        _FAILED,
    ),
)
