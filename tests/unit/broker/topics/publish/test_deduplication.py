"""The rules of deduplication, one by one."""

from __future__ import annotations

from typing import Any

from magnetar.broker.topics.publish.deduplication import (
    UNCOUNTED,
    DeduplicationState,
    Verdict,
    counted_ids,
    counted_ids_of,
)
from magnetar.common.naming.position import EARLIEST, Position
from magnetar.common.naming.txn_id import Action, TxnId
from magnetar.common.wire.events import SendRun
from magnetar.common.wire.pulsar_pb2 import MessageMetadata
from magnetar.common.wire.varint import encode_varint
from magnetar.ledger.managed_ledger import DeduplicationSnapshot, ProducerSequence

NEW, DUPLICATE, IN_FLIGHT = Verdict.NEW, Verdict.DUPLICATE, Verdict.IN_FLIGHT


def state(
    snapshot: DeduplicationSnapshot | None = None,
    *,
    now_ms: int = 0,
    producers_max: int = 10,
    connected: tuple[str, ...] = (),
) -> DeduplicationState:
    return DeduplicationState(
        snapshot or DeduplicationSnapshot(EARLIEST),
        now_ms=now_ms,
        producers_max=producers_max,
        inactivity_ms=1_000,
        connected=connected,
    )


def persisted(*names: str, **options: int) -> DeduplicationState:
    """A state that saw one message with id 5 of each name, one ms after the other."""
    result = state(**options)  # type: ignore[arg-type]
    for now_ms, name in enumerate(names):
        result.push(name, 5, now_ms)
        result.confirm(name, now_ms)
    return result


def judge(what: DeduplicationState, *ids: int, name: str = "a", txn: TxnId | None = None) -> list[Verdict]:
    """Verdicts of the entries of one run, none of which is taken."""
    verdicts: list[Verdict] = []
    while len(verdicts) < len(ids):
        verdict, end = what.judge(name, ids, ids, len(verdicts), txn)
        verdicts += [verdict] * (end - len(verdicts))
    return verdicts


def test_ids_are_duplicates_once_persisted_and_in_flight_before() -> None:
    one = state()
    assert judge(one, 0, 1, 2) == [NEW] * 3
    one.push("a", 2, 0)
    assert judge(one, 0, 2, 3) == [IN_FLIGHT, IN_FLIGHT, NEW]
    assert judge(one, 0, name="b") == [NEW]
    one.confirm("a", 0)
    assert judge(one, 0, 2, 3, 1, 4) == [DUPLICATE, DUPLICATE, NEW, DUPLICATE, NEW]
    assert one.last_sequence_id("a") == 2
    assert one.last_sequence_id("b") == -1


def test_a_copy_within_one_run_is_not_taken_with_its_original() -> None:
    one = state()
    assert one.judge("a", [3, 3, 4], [3, 3, 4]) == (NEW, 1)
    one.push("a", 3, 0)
    assert one.judge("a", [3, 3, 4], [3, 3, 4], 1) == (IN_FLIGHT, 2)
    assert one.judge("a", [3, 3, 4], [3, 3, 4], 2) == (NEW, 3)


def test_a_refusal_takes_pushed_back_to_what_is_still_in_flight() -> None:
    one = state()
    for highest in (3, 6, 9):
        one.push("a", highest, 0)
    one.refuse("a")
    assert judge(one, 6, 7) == [IN_FLIGHT, NEW]
    one.refuse("a")
    assert judge(one, 3, 4) == [IN_FLIGHT, NEW]
    one.confirm("a", 0)
    assert not one.in_flight("a")
    one.push("a", 20, 0)
    one.refuse("a")
    assert judge(one, 3, 4) == [DUPLICATE, NEW]


def test_a_batch_is_judged_by_its_first_id_and_recorded_by_its_last() -> None:
    one = state()
    assert one.judge("a", [0, 10], [9, 19]) == (NEW, 2)
    assert one.judge("a", [0, 5], [9, 14]) == (NEW, 1)
    one.push("a", 9, 0)
    one.confirm("a", 0)
    assert one.judge("a", [9, 10], [18, 19]) == (DUPLICATE, 1)


def test_what_does_not_count_always_passes() -> None:
    one = persisted("a")
    assert one.judge("a", [UNCOUNTED, 6], [UNCOUNTED, 6]) == (NEW, 2)
    one.push("a", UNCOUNTED, 0)
    one.confirm("a", 0)
    assert one.last_sequence_id("a") == 5


def test_only_the_last_chunk_of_a_message_counts() -> None:
    def ids(**fields: Any) -> tuple[int, int]:
        return counted_ids(MessageMetadata(producer_name="a", sequence_id=7, publish_time=1, **fields))

    assert ids() == (7, 7)
    assert ids(highest_sequence_id=9) == (7, 9)
    assert ids(highest_sequence_id=3) == (7, 7)
    assert ids(num_chunks_from_msg=3, chunk_id=0) == (UNCOUNTED, UNCOUNTED)
    assert ids(num_chunks_from_msg=3, chunk_id=2) == (7, 7)
    assert ids(num_chunks_from_msg=1, chunk_id=0) == (7, 7)
    assert ids(highest_sequence_id=2**64 - 1) == (7, 7)


def test_ids_beyond_signed_numbers_and_markers_do_not_count() -> None:
    def run(*ids: int, marker: bool = False) -> SendRun:
        return SendRun(1, [b""] * len(ids), [encode_varint(n) for n in ids], None, None, False, marker, 0)

    assert counted_ids_of(run(1, 2)) == ([1, 2], [1, 2])
    assert counted_ids_of(run(1, 2**63)) == ([1, UNCOUNTED], [1, UNCOUNTED])
    assert counted_ids_of(run(1, 2, marker=True)) == ([UNCOUNTED] * 2, [UNCOUNTED] * 2)


def test_a_snapshot_has_what_is_persisted_and_comes_back() -> None:
    one = persisted("a", "b")
    one.push("a", 8, 50)
    one.push("new", 1, 50)
    one.position = Position(3, 1)
    snapshot = one.snapshot()
    assert snapshot == DeduplicationSnapshot(
        Position(3, 1), {"a": ProducerSequence(5, 0), "b": ProducerSequence(5, 1)}
    )
    again = state(snapshot, now_ms=1)
    assert again.position == Position(3, 1)
    assert judge(again, 5, 6) == [DUPLICATE, NEW]
    again.replay("a", 8, 2)
    again.replay("a", 7, 3)
    assert again.last_sequence_id("a") == 8


def test_the_names_active_longest_ago_go_first_when_there_are_too_many() -> None:
    one = persisted("a", "b", "c", producers_max=3)
    one.push("a", 6, 3)
    one.confirm("a", 3)
    one.push("d", 1, 4)
    assert len(one.snapshot().producers) == 3
    one.confirm("d", 4)
    assert list(one.snapshot().producers) == ["c", "a", "d"]


def test_names_that_are_connected_or_in_flight_are_not_forgotten() -> None:
    one = state(producers_max=2, connected=("a",))
    for now_ms, name in enumerate("abcd"):
        one.push(name, 5, now_ms)
        if name != "b":
            one.confirm(name, now_ms)
    assert [name for name in "abcd" if one.in_flight(name) or one.last_sequence_id(name) == 5] == ["a", "b"]
    assert len(one) == 2
    one.forget_inactive(1_000_000)
    assert len(one) == 2
    one.confirm("b", 1_000_000)
    one.forget_inactive(2_000_000)
    assert list(one.snapshot().producers) == ["a"]


def test_a_name_is_forgotten_after_a_time_without_activity() -> None:
    one = persisted("a", "b")
    one.forget_inactive(999)
    assert len(one) == 2
    one.forget_inactive(1_000)
    assert list(one.snapshot().producers) == ["b"]


def test_the_time_that_a_topic_was_not_loaded_does_not_count_as_inactivity() -> None:
    producers = {"new": ProducerSequence(1, 5_000), "old": ProducerSequence(1, 4_500)}
    one = state(DeduplicationSnapshot(EARLIEST, producers), now_ms=1_000_000)
    one.forget_inactive(1_000_100)
    assert len(one) == 2
    one.forget_inactive(1_000_600)
    assert list(one.snapshot().producers) == ["new"]


A, B = TxnId(0, 0), TxnId(0, 1)


def in_txns(*sent: tuple[int, TxnId | None]) -> DeduplicationState:
    """A state that saw these durable messages of name a, each in its transaction."""
    result = state()
    for number, txn in sent:
        result.push("a", number, 0, txn)
        if txn is None:
            result.confirm("a", 0)
        else:
            result.confirm_open("a", txn, [number], [number], 0)
    return result


def test_an_id_of_an_open_transaction_is_a_duplicate_for_that_one_and_in_flight_for_others() -> None:
    one = in_txns((0, A), (1, B))
    assert judge(one, 0, 1, 2, txn=A) == [DUPLICATE, IN_FLIGHT, NEW]
    assert judge(one, 0, 1, 2, txn=B) == [IN_FLIGHT, DUPLICATE, NEW]
    assert judge(one, 0, 1, 2) == [IN_FLIGHT, IN_FLIGHT, NEW]
    assert one.last_sequence_id("a") == 1
    assert not one.in_flight("a")


def test_what_is_not_durable_yet_is_in_flight_for_its_own_transaction_as_well() -> None:
    one = in_txns((0, A))
    one.push("a", 1, 0)
    assert judge(one, 0, 1, 2, txn=A) == [DUPLICATE, IN_FLIGHT, NEW]


def test_a_commit_persists_ids_and_an_abort_forgets_them() -> None:
    one = in_txns((0, A), (1, B))
    assert list(one.end(A, Action.COMMIT)) == ["a"]
    assert judge(one, 0, 1, txn=B) == [DUPLICATE, DUPLICATE]
    assert list(one.end(B, Action.ABORT)) == ["a"]
    assert judge(one, 0, 1) == [DUPLICATE, NEW]
    assert one.snapshot().producers["a"].sequence_id == 0
    assert list(one.end(B, Action.ABORT)) == []


def test_an_aborted_id_below_one_that_was_persisted_meanwhile_stays_a_duplicate() -> None:
    one = in_txns((0, A), (1, None))
    one.end(A, Action.ABORT)
    assert judge(one, 0, 1, 2) == [DUPLICATE, DUPLICATE, NEW]


def test_an_aborted_id_below_one_of_a_transaction_that_goes_on_is_new() -> None:
    one = in_txns((0, A), (1, B))
    one.end(A, Action.ABORT)
    assert judge(one, 0, 1) == [NEW, IN_FLIGHT]
    assert one.judge("a", [0, 0], [0, 0], 0, B) == (NEW, 1)


def test_a_name_in_an_open_transaction_is_not_forgotten() -> None:
    one = in_txns((0, A))
    one.forget_inactive(1_000_000)
    assert len(one) == 1
    one.end(A, Action.COMMIT)
    one.forget_inactive(2_000_000)
    assert len(one) == 0


def test_chunks_before_the_last_leave_nothing_open() -> None:
    one = state()
    one.push("a", UNCOUNTED, 0, A)
    one.confirm_open("a", A, [UNCOUNTED], [UNCOUNTED], 0)
    assert list(one.end(A, Action.COMMIT)) == []
    one.forget_inactive(1_000_000)
    assert len(one) == 0


def test_the_same_unknown_id_twice_in_a_run_is_new_once() -> None:
    assert state().judge("a", [5, 5], [5, 5]) == (NEW, 1)
    assert in_txns((0, A)).judge("a", [5, 5], [5, 5], 0, A) == (NEW, 1)


def test_a_replay_ends_where_publishing_had_ended() -> None:
    one = state()
    one.replay_open("a", A, 0, 4, 0)
    one.replay("a", 5, 0)
    one.replay_open("a", B, 6, 6, 0)
    assert judge(one, 4, 6, 7, txn=B) == [DUPLICATE, DUPLICATE, NEW]
    assert judge(one, 6) == [IN_FLIGHT]
    assert list(one.end(B, Action.ABORT)) == ["a"]
    assert judge(one, 5, 6) == [DUPLICATE, NEW]
