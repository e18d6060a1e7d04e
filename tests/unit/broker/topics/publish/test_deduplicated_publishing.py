"""What becomes of runs with duplicates in them, and in which order their sender hears of it."""

from __future__ import annotations

import asyncio

from magnetar.broker.client_endings import EndCode
from magnetar.common.errors import LogFull
from magnetar.common.naming.txn_id import Action, TxnId

from tests.unit.broker.topics.fakes import FakeTopic


def test_a_run_without_duplicates_stays_one_append() -> None:
    async def scenario() -> None:
        topic = FakeTopic(snapshot_entries=100)
        producer, peer = topic.producer()
        topic.send(producer, *range(50))
        assert len(topic.ledger.pending) == 1
        assert peer.answers == []
        topic.confirm()
        assert peer.answers == [(number, "stored") for number in range(50)]
        assert (producer.pending_runs, peer.pending_bytes) == (0, 0)
        assert topic.ledger.saves == 0
        topic.send(producer, *range(50, 100))
        topic.confirm()
        assert topic.ledger.saves == 1

    asyncio.run(scenario())


def test_a_duplicate_is_answered_after_what_was_sent_before_it() -> None:
    topic = FakeTopic(snapshot_entries=1)
    producer, peer = topic.producer()
    topic.send(producer, 0)
    topic.confirm()
    topic.send(producer, 1, 0, 2)
    assert peer.answers == [(0, "stored")]
    topic.confirm(1)
    assert peer.answers[1:] == [(1, "stored"), (0, "duplicate")]
    topic.confirm()
    assert peer.answers[3:] == [(2, "stored")]
    assert topic.ledger.stored == [b"0", b"1", b"2"]


def test_what_is_in_flight_is_held_until_it_is_confirmed() -> None:
    topic = FakeTopic(snapshot_entries=1)
    old, _ = topic.producer()
    topic.send(old, 0, 1)
    topic.send(old, 2)
    old.peer.close("gone", EndCode.BROKER_STOPPING)
    new, peer = topic.producer()
    topic.send(new, 0, 1, 2, 3)
    assert peer.answers == []
    assert peer.pending_bytes == 4
    topic.confirm(1)
    assert peer.answers == [(0, "duplicate"), (1, "duplicate")]
    topic.confirm()
    assert peer.answers[2:] == [(2, "duplicate"), (3, "stored")]
    assert topic.ledger.stored == [b"0", b"1", b"2", b"3"]
    assert (new.pending_runs, peer.pending_bytes, old.pending_runs) == (0, 0, 0)


def test_what_was_in_flight_is_stored_anew_when_that_failed() -> None:
    topic = FakeTopic(snapshot_entries=1)
    old, _ = topic.producer()
    topic.send(old, 0)
    topic.send(old, 1, 2)
    new, peer = topic.producer()
    topic.send(new, 0, 1, 2)
    topic.refuse(1)
    assert peer.answers == []
    topic.confirm()
    assert peer.answers == [(0, "duplicate"), (1, "stored"), (2, "stored")]
    assert topic.ledger.stored == [b"0", b"1", b"2"]


def test_what_was_held_of_a_producer_that_was_fenced_is_not_stored_behind_the_one_that_fenced_it() -> None:
    topic = FakeTopic(snapshot_entries=1)
    producer, peer = topic.producer()
    topic.send(producer, 0)
    topic.send(producer, 0)
    producer.fenced = True
    topic.refuse()
    assert peer.answers == [(0, "refused")]
    assert topic.ledger.pending == []
    assert (producer.pending_runs, peer.pending_bytes) == (0, 0)


def test_what_is_in_flight_is_refused_when_storage_goes_on_failing() -> None:
    topic = FakeTopic(snapshot_entries=1)
    producer, peer = topic.producer()
    topic.send(producer, 0, 0)
    topic.ledger.refusing = LogFull("full")
    topic.refuse()
    assert peer.answers == [(0, "refused"), (0, "refused")]
    assert (producer.pending_runs, peer.pending_bytes) == (0, 0)


def test_nothing_overtakes_a_refused_message() -> None:
    topic = FakeTopic(snapshot_entries=1)
    producer, peer = topic.producer()
    topic.send(producer, 0, 1)
    topic.ledger.refusing = LogFull("full")
    topic.send(producer, 2, 3)
    topic.ledger.refusing = None
    # Sent before the client heard of it.
    topic.send(producer, 4, 5)
    topic.confirm()
    assert peer.answers == [(0, "stored"), (1, "stored"), *((number, "refused") for number in (2, 3, 4, 5))]
    topic.send(producer, *range(6))
    topic.send(producer, 6)
    topic.confirm()
    assert topic.ledger.stored == [b"%d" % number for number in range(7)]


def test_what_was_held_does_not_overtake_a_refused_message_either() -> None:
    topic = FakeTopic(snapshot_entries=1)
    producer, peer = topic.producer()
    topic.send(producer, 0, 1)
    topic.send(producer, 1)
    topic.refuse()
    topic.confirm()
    assert peer.answers == [(0, "refused"), (1, "refused"), (1, "refused")]
    assert topic.ledger.stored == []


def test_refused_messages_come_again_one_after_the_other() -> None:
    topic = FakeTopic(snapshot_entries=1)
    producer, peer = topic.producer()
    topic.send(producer, 0, 1, 2)
    topic.send(producer, 0, 2)
    topic.refuse()
    topic.confirm()
    assert peer.answers[3:] == [(0, "stored"), (2, "refused")]
    topic.send(producer, 2)
    topic.send(producer, 1, 2, 3)
    topic.confirm()
    assert topic.ledger.stored == [b"0", b"1", b"2", b"3"]


def test_a_new_producer_of_the_name_need_not_begin_where_a_former_one_was_refused() -> None:
    topic = FakeTopic(snapshot_entries=1)
    producer, _ = topic.producer()
    topic.send(producer, 3)
    topic.refuse()
    again, peer = topic.producer()
    topic.send(again, 4)
    topic.confirm()
    assert peer.answers == [(4, "stored")]


def test_a_producer_that_opens_waits_for_what_its_name_has_in_flight() -> None:
    async def scenario() -> None:
        topic = FakeTopic(snapshot_entries=1)
        producer, _ = topic.producer()
        topic.send(producer, 0, 1)
        settled = asyncio.ensure_future(topic.publishing.settled("a"))
        await topic.publishing.settled("b")
        await asyncio.sleep(0)
        assert not settled.done()
        topic.confirm()
        await settled
        assert topic.publishing.last_sequence_id("a") == 1
        topic.send(producer, 2)
        settled = asyncio.ensure_future(topic.publishing.settled("a"))
        await asyncio.sleep(0)
        topic.refuse()
        await settled
        assert topic.publishing.last_sequence_id("a") == 1

    asyncio.run(scenario())


def test_a_state_that_changed_is_saved_after_the_interval_and_at_close() -> None:
    async def scenario() -> None:
        topic = FakeTopic(snapshot_entries=1_000, snapshot_interval_s=0)
        producer, _ = topic.producer()
        topic.send(producer, 0)
        topic.confirm()
        assert topic.ledger.saves == 0
        await asyncio.sleep(0.01)
        assert topic.ledger.saves == 1
        await asyncio.sleep(0.01)
        assert topic.ledger.saves == 1
        topic.publishing.close()
        assert topic.ledger.saves == 1
        topic.send(producer, 1)
        topic.confirm()
        assert topic.ledger.saves == 2

    asyncio.run(scenario())


A, B = TxnId(0, 0), TxnId(0, 1)


def test_a_resend_in_the_same_transaction_is_answered_as_soon_as_the_original_is_durable() -> None:
    topic = FakeTopic(snapshot_entries=1)
    old, _ = topic.producer()
    topic.send(old, 0, 1, txn=A)
    new, peer = topic.producer()
    topic.send(new, 0, 1, 2, txn=A)
    assert peer.answers == []
    topic.confirm(1)
    assert peer.answers == [(0, "duplicate"), (1, "duplicate")]
    topic.confirm()
    assert peer.answers[2:] == [(2, "stored")]
    assert topic.ledger.stored == [b"0", b"1", b"2"]
    assert (new.pending_runs, peer.pending_bytes) == (0, 0)


def test_a_resend_in_another_transaction_waits_until_the_first_is_settled() -> None:
    for action, answer in ((Action.COMMIT, "duplicate"), (Action.ABORT, "stored")):
        topic = FakeTopic(snapshot_entries=1)
        producer, peer = topic.producer()
        topic.send(producer, 0, txn=A)
        topic.confirm()
        topic.send(producer, 0, txn=B)
        topic.confirm()
        assert peer.answers == [(0, "stored")]
        assert peer.pending_bytes == 1
        topic.publishing.transaction_ended(A, action)
        topic.confirm()
        assert peer.answers[1:] == [(0, answer)]
        assert (producer.pending_runs, peer.pending_bytes) == (0, 0)
        assert topic.ledger.stored == [b"0"] * (1 if action is Action.COMMIT else 2)


def test_a_message_without_a_transaction_waits_for_one_that_has_its_id_as_well() -> None:
    topic = FakeTopic(snapshot_entries=1)
    producer, peer = topic.producer()
    topic.send(producer, 0, txn=A)
    topic.confirm()
    topic.send(producer, 0, 1)
    topic.send(producer, 2)
    topic.confirm()
    assert peer.answers == [(0, "stored")]
    topic.publishing.transaction_ended(A, Action.ABORT)
    topic.confirm()
    topic.confirm()
    assert peer.answers[1:] == [(0, "stored"), (1, "stored"), (2, "stored")]
    assert topic.ledger.stored == [b"0", b"0", b"1", b"2"]


def test_a_message_of_a_transaction_that_is_over_is_refused_after_the_answers_before_it() -> None:
    topic = FakeTopic(snapshot_entries=1)
    producer, peer = topic.producer()
    topic.send(producer, 0)
    topic.ledger.over.add(A)
    topic.send(producer, 1, 2, txn=A)
    assert topic.not_allowed == [(producer, [1, 2])]
    assert peer.answers == []
    topic.confirm()
    assert peer.answers == [(0, "stored")]
    assert producer.pending_runs == 0


def test_nothing_passes_a_message_that_waits_for_a_copy_in_a_transaction_that_is_not_durable_yet() -> None:
    topic = FakeTopic(snapshot_entries=1)
    producer, peer = topic.producer()
    topic.send(producer, 0, txn=A)
    topic.send(producer, 0)
    topic.send(producer, 1)
    topic.confirm()
    topic.publishing.transaction_ended(A, Action.ABORT)
    topic.confirm()
    topic.confirm()
    assert peer.answers == [(0, "stored"), (0, "stored"), (1, "stored")]
    assert topic.ledger.stored == [b"0", b"0", b"1"]


def test_nothing_that_waited_is_stored_behind_a_message_whose_transaction_ended_meanwhile() -> None:
    topic = FakeTopic(snapshot_entries=1)
    producer, peer = topic.producer()
    topic.send(producer, 0, txn=A)
    topic.confirm()
    topic.send(producer, 0, txn=B)
    topic.send(producer, 1)
    topic.ledger.over.add(B)
    topic.publishing.transaction_ended(A, Action.ABORT)
    assert topic.not_allowed == [(producer, [0])]
    assert topic.ledger.pending == []
    assert peer.answers == [(0, "stored")]
    assert (producer.pending_runs, peer.pending_bytes) == (0, 0)


def test_a_message_that_waits_for_a_transaction_is_turned_away_when_deduplication_ends() -> None:
    topic = FakeTopic(snapshot_entries=1)
    producer, peer = topic.producer()
    topic.send(producer, 0, txn=A)
    topic.confirm()
    topic.send(producer, 0, txn=B)
    topic.publishing.retire()
    assert peer.answers == [(0, "stored"), (0, "refused")]
    assert (producer.pending_runs, peer.pending_bytes) == (0, 0)


def test_a_message_that_waits_for_its_own_copy_is_answered_also_when_deduplication_ends() -> None:
    topic = FakeTopic(snapshot_entries=1)
    producer, peer = topic.producer()
    topic.send(producer, 0, txn=A)
    topic.send(producer, 0, txn=A)
    topic.send(producer, 0, txn=B)
    topic.publishing.retire()
    assert peer.answers == []
    topic.confirm()
    assert peer.answers == [(0, "stored"), (0, "duplicate"), (0, "refused")]
