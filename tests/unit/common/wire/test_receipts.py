from __future__ import annotations

import pytest
from magnetar.common.wire import pulsar_pb2 as pb
from magnetar.common.wire.frame import encode_command
from magnetar.common.wire.receipts import receipt, receipts
from magnetar.common.wire.varint import encode_varint

MINUS_ONE = 2**64 - 1


def by_protobuf(producer_id: int, sequence_id: int, ledger_id: int, entry_id: int, highest: int = 0) -> bytes:
    fields = {"highest_sequence_id": highest} if highest else {}
    command = pb.CommandSendReceipt(
        producer_id=producer_id,
        sequence_id=sequence_id,
        message_id=pb.MessageIdData(ledgerId=ledger_id, entryId=entry_id),
        **fields,
    )
    return encode_command(pb.BaseCommand(type=pb.BaseCommand.SEND_RECEIPT, send_receipt=command))


@pytest.mark.parametrize("first_sequence", [0, 120, 16_380, 2**63 - 5])
@pytest.mark.parametrize("first_entry", [0, 120, 16_380, 10 * 16_384 - 4, 2**40])
def test_the_receipts_of_a_run_are_those_of_protobuf_one_after_the_other(
    first_sequence: int, first_entry: int
) -> None:
    sequences = [encode_varint(first_sequence + index) for index in range(20)]
    expected = [by_protobuf(9, first_sequence + index, 7, first_entry + index) for index in range(20)]
    assert receipts(9, 7, first_entry, sequences) == b"".join(expected)


def test_highest_ids_are_given_where_a_batch_had_them() -> None:
    sequences = [encode_varint(each) for each in (1, 2, 300)]
    highest = [encode_varint(each) for each in (0, 299, 400)]
    expected = by_protobuf(9, 1, 7, 50) + by_protobuf(9, 2, 7, 51, 299) + by_protobuf(9, 300, 7, 52, 400)
    assert receipts(9, 7, 50, sequences, highest) == expected


def test_sequence_ids_need_not_be_consecutive_nor_of_one_length() -> None:
    ids = [2**63, 1, 1, 500]
    expected = b"".join(by_protobuf(1, each, 2, 3 + index) for index, each in enumerate(ids))
    assert receipts(1, 2, 3, [encode_varint(each) for each in ids]) == expected


def test_a_duplicate_s_receipt_has_the_id_minus_one() -> None:
    assert receipt(1, 5, -1, -1) == by_protobuf(1, 5, MINUS_ONE, MINUS_ONE)
    assert receipt(1, 5, 0, 0, highest_sequence_id=8) == by_protobuf(1, 5, 0, 0, 8)


def test_the_largest_ids_of_all_fit_the_one_byte_lengths() -> None:
    assert receipt(MINUS_ONE, MINUS_ONE, -1, -1, MINUS_ONE) == by_protobuf(*[MINUS_ONE] * 5)


def test_no_entries_make_no_receipts() -> None:
    assert receipts(1, 2, 3, []) == b""
