from __future__ import annotations

from magnetar.broker.subscriptions.types.key_shared.waiting_entries import (
    Share,
    WaitingEntries,
    pack,
    share_of,
    unpack,
)
from magnetar.ledger.ledger_store import Run


def share(*entry_ids: int, counts: list[int] | None = None) -> Share:
    entries = [b"%d" % entry_id for entry_id in entry_ids]
    return Share(5, list(entry_ids), entries, [7] * len(entries), counts, None)


def test_packed_entries_sort_as_positions_do_and_keep_their_slot() -> None:
    entries = [(1, 2, 65_535), (1, 3, 0), (2, 0, 9), (2, 2**32 - 1, 1), (3, 0, 0), (2**40, 1, 1)]
    packed = [pack(*entry) for entry in entries]
    assert packed == sorted(packed)
    assert [unpack(each) for each in packed] == entries


def test_a_share_has_what_the_run_has_at_its_indexes() -> None:
    run = Run([b"a", b"bb", b"ccc"], message_counts=[1, 5, 2], ledger_id=5, first_entry_id=10)
    taken = share_of(run, [7, 8, 9], [0, 2], [b"x", b"y", b"z"])
    assert list(taken.entry_ids) == [10, 12]
    assert list(taken.entries) == [b"a", b"ccc"]
    assert list(taken.slots) == [7, 9]
    assert list(taken.message_counts or ()) == [1, 2]
    assert list(taken.metadata or ()) == [b"x", b"z"]
    assert (taken.messages, taken.byte_length, taken.first) == (3, 4, pack(5, 10, 7))
    single = share_of(run, [7, 8, 9], [1], None)
    assert (list(single.entry_ids), list(single.entries), list(single.slots)) == ([11], [b"bb"], [8])
    assert single.packed() == [pack(5, 11, 8)]


def test_shares_are_taken_as_far_as_they_fit_and_batches_are_not_split() -> None:
    waiting = WaitingEntries()
    waiting.add_share(share(1, 2, 3, counts=[2, 2, 2]))
    assert len(waiting) == 3
    front = waiting.take_share(3)
    assert front is not None
    assert list(front.entry_ids) == [1, 2]
    rest = waiting.take_share(3)
    assert rest is not None
    assert list(rest.entry_ids) == [3]
    assert waiting.take_share(3) is None
    assert len(waiting) == 0


def test_what_is_to_be_read_again_comes_first_and_what_lies_beyond_last() -> None:
    waiting = WaitingEntries()
    waiting.add_share(share(3, 4))
    waiting.add_beyond([pack(5, 6, 7), pack(5, 8, 7)])
    assert not waiting.keeps_bytes, "what is newer goes behind what lies beyond"
    assert waiting.add_again(pack(5, 1, 7)) == 0
    assert waiting.oldest == pack(5, 1, 7)
    assert waiting.reads_again
    assert waiting.take_again(9) == [(5, 1)]
    assert not waiting.reads_again
    assert waiting.oldest == pack(5, 3, 7)
    assert waiting.take_share(9) is not None
    assert waiting.reads_again
    assert waiting.keeps_bytes
    assert waiting.take_again(1) == [(5, 6)]
    assert waiting.take_again(9) == [(5, 8)]
    assert waiting.oldest is None


def test_an_entry_that_is_newer_than_waiting_shares_does_not_pass_them() -> None:
    waiting = WaitingEntries()
    waiting.add_share(share(3, 4))
    waiting.add_beyond([pack(5, 9, 7)])
    assert waiting.add_again(pack(5, 5, 7)) == 2, "the bytes of the shares are given up for it"
    assert waiting.take_share(9) is None
    assert waiting.take_again(9) == [(5, 3), (5, 4), (5, 5), (5, 9)]


def test_without_bytes_everything_still_comes_in_order() -> None:
    waiting = WaitingEntries()
    waiting.add_again(pack(5, 2, 7))
    waiting.add_share(share(3, 4))
    waiting.add_beyond([pack(5, 9, 7)])
    assert waiting.drop_bytes() == 2
    assert waiting.drop_bytes() == 0
    assert len(waiting) == 4
    assert [unpack(each)[1] for each in sorted(waiting.take_all())] == [2, 3, 4, 9]
    assert len(waiting) == 0
