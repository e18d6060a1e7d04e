"""Mistakes in transactions: their coordinator, and what a topic makes of them."""

from __future__ import annotations

from typing import Final

from tests.mutations.mistake import Mistake

_COORDINATOR: Final = "services/broker/magnetar/broker/transactions/"
_LOG: Final = "libs/ledger/magnetar/ledger/transaction_log/"
_HISTORIES: Final = (
    "tests/transactions/test_simulation.py::test_every_promise_of_transactions_holds_over_one_log",
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
        _HISTORIES,
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
        _HISTORIES,
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
        _HISTORIES,
    ),
)

TRANSACTIONS: Final = (*_OF_COORDINATORS,)
