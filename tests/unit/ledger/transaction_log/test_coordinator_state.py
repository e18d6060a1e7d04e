"""The state of a coordinator, without storage."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from magnetar.common.errors import DataCorruption
from magnetar.common.naming.txn_id import Action
from magnetar.ledger.transaction_log import coordinator_state
from magnetar.ledger.transaction_log.coordinator_state import OUTCOME_MS, CoordinatorState, Reason


def begun(*numbers: int) -> CoordinatorState:
    state = CoordinatorState()
    for number in numbers:
        state.begin(number, "ana", 1_000, 400)
    return state


def ended(state: CoordinatorState, number: int, at_ms: int = 0) -> None:
    state.decide(number, Action.COMMIT, Reason.REQUESTED)
    state.end(number, at_ms)
    state.forget(number)


def test_the_low_watermark_is_below_every_transaction_whose_end_is_not_durable() -> None:
    state = CoordinatorState()
    assert state.low_watermark == -1
    for number in range(3):
        state.begin(number, "", 1, 1)
    assert state.low_watermark == -1
    ended(state, 1)
    assert state.low_watermark == -1
    state.decide(0, Action.ABORT, Reason.TIMED_OUT)
    state.end(0, 5)
    assert state.low_watermark == -1
    assert state.active == 1
    state.forget(0)
    assert state.low_watermark == 1
    ended(state, 2)
    assert (state.low_watermark, state.active) == (2, 0)


def test_numbers_that_were_passed_over_count_as_ended() -> None:
    state = CoordinatorState()
    state.next_number = 100
    assert state.low_watermark == 99
    with pytest.raises(DataCorruption, match="transaction 99 begins though the next number is 100"):
        state.begin(99, "", 1, 1)


def test_participants_are_kept_once_and_in_order() -> None:
    state = begun(0)
    state.add_topics(0, ["b", "a", "b"])
    state.add_subscriptions(0, [("c", "s"), ("a", "s"), ("c", "s")])
    after = state.add_topics(0, ["a", "d"])
    assert after.topics == ("b", "a", "d")
    assert after.subscriptions == (("c", "s"), ("a", "s"))
    assert list(after.participants) == ["b", "a", "d", "c"]
    assert after.began_ms == 600


def test_a_decided_transaction_changes_no_more() -> None:
    state = begun(0)
    state.decide(0, Action.COMMIT, Reason.REQUESTED)
    changes: list[Callable[[], object]] = [
        lambda: state.add_topics(0, ["a"]),
        lambda: state.add_subscriptions(0, [("a", "s")]),
        lambda: state.decide(0, Action.ABORT, Reason.TIMED_OUT),
    ]
    for change in changes:
        with pytest.raises(DataCorruption, match=r"transaction 0 changes, which is decided \(commit\)"):
            change()


def test_only_a_decided_transaction_ends_and_once() -> None:
    state = begun(0)
    with pytest.raises(DataCorruption, match="transaction 0 ends, which is open"):
        state.end(0, 1)
    with pytest.raises(DataCorruption, match="transaction 1 ends, which is unknown"):
        state.end(1, 1)
    state.decide(0, Action.ABORT, Reason.REQUESTED)
    state.end(0, 1)
    with pytest.raises(DataCorruption, match=r"which is ended \(abort\)"):
        state.end(0, 1)


def test_outcomes_are_forgotten_by_age() -> None:
    state = begun(0, 1, 2)
    ended(state, 0, 10)
    ended(state, 1, 11)
    ended(state, 2, 11 + OUTCOME_MS)
    assert list(state.outcomes) == [1, 2]


def test_outcomes_are_forgotten_by_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(coordinator_state, "OUTCOMES_MAX", 2)
    state = begun(*range(4))
    for number in (3, 0, 1):
        ended(state, number)
    assert list(state.outcomes) == [0, 1]
    assert state.outcomes[0].action is Action.COMMIT
    assert state.outcomes[0].owner == "ana"


def test_what_a_snapshot_took_is_not_changed_by_later_changes() -> None:
    state = begun(0, 1)
    state.decide(1, Action.COMMIT, Reason.REQUESTED)
    state.end(1, 1)
    (taken,) = state.unfinished()
    state.add_topics(0, ["a"])
    assert taken.topics == ()
