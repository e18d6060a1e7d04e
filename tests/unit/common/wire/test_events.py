from __future__ import annotations

from magnetar.common.wire.events import SendRun
from magnetar.common.wire.varint import encode_varint


def run(sequence_ids: list[int], highest_ids: list[int] | None) -> SendRun:
    highest = None if highest_ids is None else [encode_varint(each) for each in highest_ids]
    return SendRun(1, [], [encode_varint(each) for each in sequence_ids], highest, None, False, False, 0)


def test_sequence_ids_are_decoded_on_demand() -> None:
    assert run([5, 300, 2**63], None).sequence_ids() == [5, 300, 2**63]
    assert run([5, 300], None).sequence_id(1) == 300


def test_the_highest_id_of_an_entry_is_its_own_unless_a_batch_said_more() -> None:
    assert run([5, 300], None).highest_sequence_id(1) == 300
    batches = run([5, 300], [9, 0])
    assert [batches.highest_sequence_id(index) for index in range(2)] == [9, 300]
