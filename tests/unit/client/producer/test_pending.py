"""Entries on their way: who is called for which receipt."""

from __future__ import annotations

from magnetar.client.errors import ClientError
from magnetar.client.messages import MessageId, OnSent
from magnetar.client.producer.pending import PendingEntries, PendingEntry

ERROR = ClientError("no")


class Called:
    """The ends of messages by their names."""

    def __init__(self) -> None:
        self.ends: list[tuple[str, ClientError | None, MessageId | None]] = []

    def on(self, name: str) -> OnSent:
        return lambda error, at: self.ends.append((name, error, at))


def entry(sequence_id: int, *done: OnSent | None, sent_at: float = 0.0, batch: bool = False) -> PendingEntry:
    return PendingEntry(sequence_id, b"%d" % sequence_id, list(done), 10, sent_at, batch)


def test_only_the_oldest_entry_is_confirmed_and_once() -> None:
    called, pending = Called(), PendingEntries(3)
    pending.add(entry(5, called.on("a")))
    pending.add(entry(6, called.on("b")))
    assert (len(pending), pending.message_count, pending.next_sequence_id) == (2, 2, 5)
    assert list(pending.frames()) == [b"5", b"6"]
    assert pending.confirm(6, 1, 1) is None
    assert pending.confirm(4, 1, 1) is None
    assert pending.confirm(5, 1, 0) is not None
    assert pending.confirm(5, 1, 0) is None
    assert called.ends == [("a", None, MessageId(1, 0, 3))]
    assert (len(pending), pending.message_count, pending.next_sequence_id) == (1, 1, 6)


def test_each_message_of_a_batch_has_its_id() -> None:
    called, pending = Called(), PendingEntries(-1)
    pending.add(entry(5, called.on("a"), None, called.on("c"), batch=True))
    assert pending.message_count == 3
    pending.confirm(5, 1, 0)
    assert called.ends == [("a", None, MessageId(1, 0, -1, 0)), ("c", None, MessageId(1, 0, -1, 2))]
    assert [at.batch_size for _, _, at in called.ends if at is not None] == [3, 3]
    assert not pending


def test_a_chunked_message_ends_with_its_last_chunk_and_names_the_first() -> None:
    called, pending = Called(), PendingEntries(-1)
    for done in ([], [], [called.on("a")]):
        pending.add(entry(5, *done))
    for number in range(3):
        assert pending.confirm(5, 1, number) is not None
    ((_, error, at),) = called.ends
    assert error is None
    assert at == MessageId(1, 2)
    assert at is not None
    assert at.first_chunk == MessageId(1, 0)
    pending.add(entry(6, called.on("b")))
    pending.confirm(6, 1, 3)
    assert called.ends[1][2] == MessageId(1, 3)
    assert called.ends[1][2] is not None
    assert called.ends[1][2].first_chunk is None


def test_a_receipt_of_a_chunk_that_comes_twice_confirms_no_other_chunk() -> None:
    called, pending = Called(), PendingEntries(-1)
    for done in ([], [], [called.on("a")]):
        pending.add(entry(5, *done))
    for number in (0, 0, 1, 1):
        pending.confirm(5, 1, number)
    assert (len(pending), called.ends) == (1, [])
    pending.confirm(5, 1, 2)
    assert called.ends == [("a", None, MessageId(1, 2))]


def test_a_message_after_chunks_without_a_callback_names_no_chunk() -> None:
    called, pending = Called(), PendingEntries(-1)
    for added in (entry(5), entry(5, None), entry(6, called.on("b"))):
        pending.add(added)
    for number, sequence_id in enumerate((5, 5, 6)):
        pending.confirm(sequence_id, 1, number)
    ((_, _, at),) = called.ends
    assert at is not None
    assert at.first_chunk is None


def test_a_refusal_ends_all_chunks_of_a_message_and_no_other() -> None:
    called, pending = Called(), PendingEntries(-1)
    pending.add(entry(5))
    pending.add(entry(5, called.on("a")))
    pending.add(entry(6, called.on("b")))
    assert len(pending.refuse(5, ERROR)) == 2
    assert called.ends == [("a", ERROR, None)]
    assert pending.confirm(6, 1, 0) is not None
    assert called.ends[1][2] is not None
    assert called.ends[1][2].first_chunk is None


def test_entries_expire_in_time_and_in_order() -> None:
    called, pending = Called(), PendingEntries(-1)
    for number in range(3):
        pending.add(entry(number, called.on(str(number)), sent_at=10.0 + number))
    assert pending.oldest_sent_at == 10.0
    assert pending.expire(14.9, 5.0, ERROR) == []
    assert len(pending.expire(16.0, 5.0, ERROR)) == 2
    assert [name for name, _, _ in called.ends] == ["0", "1"]
    assert pending.oldest_sent_at == 12.0
    assert len(pending.fail(ERROR)) == 1
    assert pending.message_count == 0
    assert list(pending.frames()) == []
    fresh = PendingEntries(-1)
    assert (fresh.oldest_sent_at, fresh.next_sequence_id) == (None, None)


def test_expiry_holds_at_the_time_that_a_timer_is_set_to_whatever_it_is_rounded_to() -> None:
    for number in range(1_000):
        pending = PendingEntries(-1)
        sent_at = 0.1 * number
        pending.add(entry(1, sent_at=sent_at))
        assert pending.expire(sent_at + 30.0, 30.0, ERROR)
