"""The back-off of producers whose messages are refused."""

from __future__ import annotations

import pytest
from magnetar.broker.topics.publish.refused_producers import (
    DELAY_S_MAX,
    FAILS_AT,
    FIRST_DELAY_S,
    FORGET_S,
    PRODUCERS_MAX,
    RefusedProducers,
)
from magnetar.common.errors import ProducerRefused
from magnetar.common.wire import pulsar_pb2 as pb
from magnetar.common.wire.error_codes import code_of


class Clock:
    now = 1_000.0

    def monotonic(self) -> float:
        return self.now

    def wall_ms(self) -> int:
        return 0


def message(
    table: RefusedProducers, first: int, last: int | None = None, *, fails_next: bool = False
) -> None:
    table.note_messages("t", "p", first, first if last is None else last, "too large", fails_next=fails_next)


def hold(table: RefusedProducers, producer: str = "p") -> float | str:
    """How long it is held, or why it fails."""
    try:
        return table.hold_s("t", producer)
    except ProducerRefused as refused:
        return str(refused)


def test_who_was_not_refused_is_not_held() -> None:
    table = RefusedProducers(Clock())
    assert hold(table) == 0
    message(table, 5)
    assert (hold(table, "another"), table.hold_s("another topic", "p")) == (0, 0)


def test_a_message_that_comes_again_and_again_is_let_in_ever_later_and_then_fails() -> None:
    clock = Clock()
    table = RefusedProducers(clock)
    held = []
    for _ in range(FAILS_AT - 1):
        message(table, 5)
        held.append(hold(table))
    assert held == [0, *(FIRST_DELAY_S * 2**times for times in range(FAILS_AT - 2))]
    message(table, 5)
    assert hold(table) == f"messages of producer 'p' were refused, {FAILS_AT} times in a row: too large"
    longest = FIRST_DELAY_S * 2 ** (FAILS_AT - 2)
    assert hold(table) == longest, "it fails once, and tries again"
    clock.now += longest
    assert hold(table) == 0
    for _ in range(1_000):
        message(table, 5)
        assert isinstance(hold(table), str)
    assert hold(table) == DELAY_S_MAX, "never longer"


def test_a_client_that_drops_what_is_refused_is_not_held() -> None:
    table = RefusedProducers(Clock())
    for number in range(0, 300, 3):
        message(table, number, number + 2)
        assert hold(table) == 0
    message(table, 298, 299)
    assert hold(table) == FIRST_DELAY_S, "these came again"


def test_a_client_that_was_told_nothing_of_the_message_fails_at_once_and_once() -> None:
    table = RefusedProducers(Clock())
    message(table, 5, fails_next=True)
    assert hold(table) == "messages of producer 'p' were refused: too large"
    assert hold(table) == 0


def test_what_storage_does_not_take_counts_whatever_its_ids_are() -> None:
    table = RefusedProducers(Clock())
    held = []
    for _ in range(FAILS_AT):
        table.note_storage("t", "p", "the disk is full")
        held.append(hold(table))
    assert held[:-1] == [0, *(FIRST_DELAY_S * 2**times for times in range(FAILS_AT - 2))]
    assert "the disk is full" in str(held[-1])


def test_after_a_while_without_a_refusal_a_producer_begins_anew() -> None:
    clock = Clock()
    table = RefusedProducers(clock)
    message(table, 5)
    clock.now += FORGET_S + 1
    message(table, 5)
    assert hold(table) == 0
    clock.now += FORGET_S + 1
    assert hold(table) == 0
    assert len(table) == 0


def test_so_many_are_remembered_and_no_more() -> None:
    table = RefusedProducers(Clock())
    for _ in range(2):
        table.note_storage("t", "first", "full")
    for number in range(PRODUCERS_MAX - 1):
        table.note_storage("t", f"p{number}", "full")
    assert hold(table, "first") > 0  # type: ignore[operator]
    table.note_storage("t", "one more", "full")
    assert (len(table), hold(table, "first")) == (PRODUCERS_MAX, 0)


def test_clients_fail_what_is_unanswered_at_the_code_of_it() -> None:
    table = RefusedProducers(Clock())
    message(table, 1, fails_next=True)
    with pytest.raises(ProducerRefused) as refused:
        table.hold_s("t", "p")
    assert code_of(refused.value) == pb.ProducerBlockedQuotaExceededException
