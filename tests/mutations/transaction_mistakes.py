"""Mistakes in transactions: their coordinator, and what a topic makes of them."""

from __future__ import annotations

from typing import Final

from tests.mutations.mistake import Mistake

_COORDINATOR: Final = "services/broker/magnetar/broker/transactions/"
_LOG: Final = "libs/ledger/magnetar/ledger/transaction_log/"
_TOPIC: Final = "libs/ledger/magnetar/ledger/managed_ledger/"
_UNIT: Final = "tests/unit/ledger/managed_ledger/"
_BROKER: Final = "services/broker/magnetar/broker/"
_BROKER_UNIT: Final = "tests/unit/broker/"
_HISTORIES: Final = (
    "tests/transactions/test_simulation.py::test_every_promise_of_transactions_holds_in_a_few_runs",
)
"""Histories of simulated runs, which the checker judges."""

_OF_COORDINATORS: Final = (
    Mistake(
        "a_decision_is_carried_out_before_it_is_durable",
        "topics learn of a commit that a coordinator's death turns into an abort",
        f"{_COORDINATOR}coordinator.py",
        "            self.log.decide(number, action, reason, partial(self._decided, number))\n",
        "            self.log.decide(number, action, reason, lambda error: None)\n"
        "            self._decided(number, None)\n",
        (f"{_BROKER_UNIT}transactions/test_coordinator.py",),
    ),
    Mistake(
        "a_transaction_ends_before_every_topic_confirmed",
        "a topic that could not be reached is never told the outcome",
        f"{_COORDINATOR}outcome_delivery.py",
        "            if result.over:\n",
        "            if result.over or result.outcome is EndOutcome.RETRY:\n",
        _HISTORIES,
    ),
    Mistake(
        "the_low_watermark_is_one_too_high",
        "topics refuse messages of the oldest open transaction",
        f"{_LOG}coordinator_state.py",
        "        return lowest - 1\n",
        "        return lowest\n",
        _HISTORIES,
    ),
    Mistake(
        "a_timeout_comes_after_the_decision",
        "a transaction that is being committed is decided once more",
        f"{_COORDINATOR}coordinator.py",
        "        return found is not None and found.action is None\n",
        "        return found is not None\n",
        (),
        "the state refuses to decide a transaction a second time",
    ),
    Mistake(
        "numbers_begin_anew_at_a_takeover",
        "numbers that the former owner may have given are given twice",
        f"{_LOG}takeover.py",
        "    state.next_number = max(state.next_number, start)\n",
        "",
        ("tests/unit/ledger/transaction_log/test_transaction_log.py",),
    ),
    Mistake(
        "outcomes_are_not_remembered",
        "a repeated end, whose answer was lost, gets no answer about the outcome",
        f"{_LOG}coordinator_state.py",
        "        self.remember(number, Outcome(found.action, ended_ms, found.owner))\n",
        "",
        _HISTORIES,
    ),
    Mistake(
        "decisions_of_the_former_owner_are_not_carried_out",
        "topics that had not been told when the coordinator moved wait for ever",
        f"{_COORDINATOR}coordinator.py",
        "                self._delivery.deliver(each)\n",
        "                pass\n",
        _HISTORIES,
    ),
    Mistake(
        "open_transactions_outlive_a_takeover",
        "a transaction whose client is gone has no deadline with the next owner",
        f"{_COORDINATOR}coordinator.py",
        "        self._deadlines.add_all(deadlines)\n",
        "",
        _HISTORIES,
    ),
    Mistake(
        "an_end_with_the_other_action_succeeds",
        "an abort of a committed transaction is answered with success",
        f"{_COORDINATOR}coordinator.py",
        "        if decided is not wanted:\n",
        "        if False:\n",
        _HISTORIES,
    ),
    Mistake(
        "an_end_is_answered_when_it_is_decided",
        "a client reads its own commit before topics know of it",
        f"{_COORDINATOR}coordinator.py",
        "            self._delivery.deliver(self._state.transactions[number])\n",
        "            self._delivery.deliver(self._state.transactions[number])\n"
        "            for waiting in self._attached.pop(number, ()):\n"
        "                waiting.set_result(None)\n",
        _HISTORIES,
    ),
    Mistake(
        "topics_are_added_before_the_record_is_durable",
        "a topic that published in a transaction is unknown to the next owner, and never told the outcome",
        f"{_COORDINATOR}coordinator.py",
        "            change(written.done)\n        except StorageError as error:\n"
        "            raise self._refusal(error) from error\n        await written.wait()\n",
        "            change(written.done)\n        except StorageError as error:\n"
        "            raise self._refusal(error) from error\n",
        (f"{_BROKER_UNIT}transactions/test_coordinator.py",),
    ),
)

_OF_TOPICS: Final = (
    Mistake(
        "confirmed_messages_of_open_transactions_limit_nothing",
        "readers get messages of open transactions",
        f"{_TOPIC}topic_transactions.py",
        "        self._show_limit()\n        for txn in decided:\n",
        "        for txn in decided:\n",
        _HISTORIES,
    ),
    Mistake(
        "an_outcome_does_not_wait_for_messages_in_flight",
        "a message that is confirmed after the outcome opens its transaction again",
        f"{_TOPIC}topic_transactions.py",
        "            if opened is None or not opened.runs_in_flight:\n",
        "            if True:\n",
        (f"{_UNIT}test_topic_transactions.py",),
    ),
    Mistake(
        "late_messages_are_accepted",
        "a message that arrives after the end of its transaction opens it again",
        f"{_TOPIC}topic_transactions.py",
        "        if over or txn in self._ends or txn in self._state.outcomes:\n",
        "        if over:\n",
        _HISTORIES,
    ),
    Mistake(
        "conflicts_are_not_looked_for",
        "two transactions acknowledge the same message",
        f"{_TOPIC}topic_transactions.py",
        "        (self.pending(cursor) or CursorPending()).check(txn, pending, cursor)\n",
        "",
        _HISTORIES,
    ),
    Mistake(
        "a_topic_takes_the_other_action_too",
        "a topic that aborted a transaction confirms its commit",
        f"{_TOPIC}topic_transactions.py",
        "        if earlier is not None and earlier is not action:\n",
        "        if False:\n",
        (f"{_UNIT}test_topic_transactions.py",),
    ),
    Mistake(
        "the_scan_begins_after_open_transactions",
        "the next load does not find messages of transactions that were open then",
        f"{_TOPIC}topic_transactions.py",
        "        return min(self._topic.appender.last_confirmed, self._state.limit)\n",
        "        return self._topic.last_confirmed\n",
        _HISTORIES,
    ),
    Mistake(
        "aborted_acknowledgements_are_applied",
        "an aborted transaction's inputs are gone",
        f"{_TOPIC}topic_transactions.py",
        "                if action is Action.COMMIT:\n                    pending.apply_to(cursor)\n",
        "                pending.apply_to(cursor)\n",
        _HISTORIES,
    ),
    Mistake(
        "aborted_acknowledgements_are_replayed",
        "an aborted transaction's inputs are gone after the next load, those of committed ones are back",
        f"{_TOPIC}cursor_loader.py",
        "        if action is Action.COMMIT and self._cursors is not None:\n",
        "        if action is Action.ABORT and self._cursors is not None:\n",
        _HISTORIES,
    ),
    Mistake(
        "the_scan_position_passes_aborted_entries_unseen",
        "aborted messages are delivered after the next load",
        f"{_TOPIC}topic_transactions.py",
        "            self.record.aborted_in(list(opened.entries))\n",
        "            pass\n",
        _HISTORIES,
    ),
    Mistake(
        "a_load_scans_nothing",
        "open transactions of the former owner are readable",
        f"{_TOPIC}transaction_scan.py",
        "            if run.flags & RUN_TXN:\n",
        "            if False:\n",
        _HISTORIES,
    ),
    Mistake(
        "the_first_message_does_not_wait_for_the_record",
        "a topic's first transaction is not looked for after a crash",
        f"{_TOPIC}topic_transactions.py",
        "            if self._ready:\n",
        "            if True:\n",
        (f"{_UNIT}test_topic_transactions.py", f"{_UNIT}test_first_transaction.py"),
    ),
    Mistake(
        "a_scan_takes_open_transactions_for_settled",
        "messages before the snapshot count as committed though their transaction is open",
        f"{_TOPIC}transaction_state.py",
        "            txn in self._open or Position(run.ledger_id, run.first_entry_id) > self.complete_to\n",
        "            Position(run.ledger_id, run.first_entry_id) > self.complete_to\n",
        _HISTORIES,
    ),
    Mistake(
        "outcomes_in_flight_miss_the_next_snapshot",
        "an outcome that was handed over is lost when the cursor ledger rolls",
        f"{_TOPIC}topic_transactions.py",
        "        return {txn: end.action for txn, end in self._ends.items() if end.recorded}\n",
        "        return {}\n",
        _HISTORIES,
    ),
    Mistake(
        "an_outcome_takes_effect_before_it_is_durable",
        "the coordinator forgets a transaction whose outcome a crash takes back",
        f"{_TOPIC}topic_transactions.py",
        "        self._topic.record([outcome_change(txn, end.action, end.low_watermark)], None)\n"
        "        self._topic.flush(partial(self._on_recorded, txn))\n",
        "        self._topic.record([outcome_change(txn, end.action, end.low_watermark)], None)\n"
        "        self._on_recorded(txn, None)\n",
        _HISTORIES,
    ),
    Mistake(
        "acknowledgements_are_answered_before_they_are_durable",
        "a committed transaction's inputs come again",
        f"{_TOPIC}topic_transactions.py",
        "        self._topic.flush(lambda error: _answer([done], error))\n",
        "        asyncio.get_running_loop().call_soon(done, None)\n",
        _HISTORIES,
    ),
    Mistake(
        "snapshots_forget_pending_acknowledgements",
        "a committed transaction's inputs come again once the cursor ledger has rolled",
        f"{_TOPIC}transaction_records.py",
        "        for cursor_id, cursor in state.pending.items():\n",
        "        for cursor_id, cursor in ():\n",
        _HISTORIES,
    ),
    Mistake(
        "two_transactions_acknowledge_cumulatively",
        "the second one replaces the first one's acknowledgement",
        f"{_TOPIC}pending_acks.py",
        "            if holder != txn:\n",
        "            if False:\n",
        (f"{_UNIT}test_pending_acks.py",),
    ),
    Mistake(
        "messages_of_batches_are_compared_inverted",
        "transactions conflict that acknowledge other messages of a batch, and those of the same do not",
        f"{_TOPIC}pending_acks.py",
        "            or (self._batches.get(at, 0) | self._tail_bits(at)) & bits\n",
        "            or (self._batches.get(at, 0) | self._tail_bits(at)) & ~bits\n",
        (f"{_UNIT}test_pending_acks.py",),
    ),
    Mistake(
        "an_abort_frees_the_other_messages_of_a_batch",
        "messages of an aborted transaction stay withheld, those of another one are free",
        f"{_TOPIC}pending_acks.py",
        "            if left := self._batches.get(at, 0) & ~bits:\n",
        "            if left := self._batches.get(at, 0) & bits:\n",
        (f"{_UNIT}test_pending_acks.py",),
    ),
)

_OF_BROKERS: Final = (
    Mistake(
        "aborted_entries_are_not_passed",
        "messages of aborted transactions are delivered, by redelivery and after a seek as well",
        f"{_BROKER}subscriptions/entries/aborted_entries.py",
        "    if aborted is None or start.entry_id not in aborted:\n",
        "    if True:\n",
        (f"{_BROKER_UNIT}subscriptions/test_transactional_dispatch.py",),
    ),
    Mistake(
        "transaction_zero_is_none_in_a_send",
        "messages of the first transaction are visible at once",
        "libs/common/magnetar/common/wire/send_parser.py",
        'if send.HasField("txnid_least_bits") else None',
        "if send.txnid_least_bits else None",
        ("tests/unit/common/wire/test_send_parser.py",),
    ),
    Mistake(
        "transaction_zero_is_none_in_an_acknowledgement",
        "what the first transaction acknowledges is acknowledged at once",
        f"{_BROKER}handlers/acks.py",
        '    if command.HasField("txnid_most_bits") or command.HasField("txnid_least_bits"):\n',
        "    if command.txnid_most_bits or command.txnid_least_bits:\n",
        (f"{_BROKER_UNIT}handlers/test_transactional_acks.py",),
    ),
    Mistake(
        "pending_acknowledgements_withhold_nothing",
        "a message that a transaction acknowledges goes to another consumer",
        f"{_BROKER}subscriptions/filters/withheld_acks.py",
        "        if entry_id in pending.withheld.get(ledger_id, ()):\n            return True\n",
        "",
        (f"{_BROKER_UNIT}subscriptions/test_transactional_acks.py",),
    ),
    Mistake(
        "a_coordinator_that_does_not_know_means_abort_at_once",
        "a topic aborts a transaction of which a coordinator that has just moved says nothing",
        f"{_BROKER}transactions/lingering.py",
        "                if now - watched.unknown_since >= UNKNOWN_CONFIRMED_S:\n",
        "                if True:\n",
        (f"{_BROKER_UNIT}transactions/test_lingering.py",),
    ),
    Mistake(
        "aborted_messages_count_as_stored",
        "a message that is sent again after the abort of its transaction is dropped as a duplicate",
        f"{_BROKER}topics/publish/deduplication.py",
        "            if action is Action.COMMIT:\n                producer.persisted",
        "            if True:\n                producer.persisted",
        (
            f"{_BROKER_UNIT}topics/publish/test_deduplication.py",
            f"{_BROKER_UNIT}topics/publish/test_transactional_publishing.py",
        ),
    ),
    Mistake(
        "a_resend_by_the_same_transaction_waits_for_its_end",
        "a client that waits for the receipt before it commits waits for ever",
        f"{_BROKER}topics/publish/deduplication.py",
        "        if txn is not None and ids.sent_by(txn, first):\n",
        "        if False:\n",
        (
            f"{_BROKER_UNIT}topics/publish/test_deduplication.py",
            f"{_BROKER_UNIT}topics/publish/test_transactional_publishing.py",
        ),
    ),
)

TRANSACTIONS: Final = (*_OF_COORDINATORS, *_OF_TOPICS, *_OF_BROKERS)
