"""What is assembled by hand against protobuf, and what is taken apart against what it was made of."""

from __future__ import annotations

import struct

from hypothesis import given, settings
from hypothesis import strategies as st
from magnetar.common.errors import DataCorruption
from magnetar.common.wire import pulsar_pb2 as pb
from magnetar.common.wire.ack_set import acked_bits_to_words, words_to_acked_bits
from magnetar.common.wire.batch import batch_messages, parse_metadata
from magnetar.common.wire.frame import encode_command, encode_payload_command
from magnetar.common.wire.messages import MessageFramer
from magnetar.common.wire.receipts import receipts
from magnetar.common.wire.varint import decode_varint, encode_varint

from tests.examples import examples
from tests.property.wire.strategies import UINT64

ENTRY_IDS = UINT64.filter(lambda value: value < 2**63)
INT64 = st.integers(-(2**63), 2**63 - 1)


@given(UINT64)
def test_a_varint_decodes_to_what_it_encodes(value: int) -> None:
    assert decode_varint(encode_varint(value)) == value


@settings(max_examples=examples(300))
@given(UINT64, UINT64, ENTRY_IDS, st.lists(st.tuples(UINT64, st.one_of(st.just(0), UINT64)), max_size=20))
def test_receipts_equal_protobuf_s(
    producer_id: int, ledger_id: int, first_entry_id: int, ids: list[tuple[int, int]]
) -> None:
    expected = []
    for index, (sequence_id, highest) in enumerate(ids):
        receipt = pb.CommandSendReceipt(producer_id=producer_id, sequence_id=sequence_id)
        receipt.message_id.ledgerId = ledger_id
        receipt.message_id.entryId = first_entry_id + index
        if highest:
            receipt.highest_sequence_id = highest
        expected.append(
            encode_command(pb.BaseCommand(type=pb.BaseCommand.SEND_RECEIPT, send_receipt=receipt))
        )
    sequences = [encode_varint(each) for each, _ in ids]
    highest_ids = [encode_varint(each) for _, each in ids] if any(each for _, each in ids) else None
    assert receipts(producer_id, ledger_id, first_entry_id, sequences, highest_ids) == b"".join(expected)


@settings(max_examples=examples(300))
@given(
    consumer_id=UINT64,
    ledger_id=UINT64,
    first_entry_id=ENTRY_IDS,
    sizes=st.lists(st.integers(0, 300), max_size=20),
    partition=st.integers(-1, 2**31 - 1),
    redelivery_count=st.one_of(st.just(0), st.integers(0, 2**32 - 1)),
    ack_set=st.one_of(st.none(), st.lists(INT64, min_size=1, max_size=20)),
    consumer_epoch=st.one_of(st.none(), UINT64),
)
def test_messages_equal_protobuf_s(
    consumer_id: int,
    ledger_id: int,
    first_entry_id: int,
    sizes: list[int],
    partition: int,
    redelivery_count: int,
    ack_set: list[int] | None,
    consumer_epoch: int | None,
) -> None:
    entries = [bytes(size) for size in sizes]
    expected = []
    for index, entry in enumerate(entries):
        message = pb.CommandMessage(consumer_id=consumer_id, ack_set=ack_set, consumer_epoch=consumer_epoch)
        message.message_id.ledgerId = ledger_id
        message.message_id.entryId = first_entry_id + index
        if partition != -1:
            message.message_id.partition = partition
        if redelivery_count:
            message.redelivery_count = redelivery_count
        command = pb.BaseCommand(type=pb.BaseCommand.MESSAGE, message=message)
        expected.append(encode_payload_command(command, entry))
    out: list[bytes] = []
    MessageFramer(consumer_id, partition).frames(
        out,
        ledger_id,
        first_entry_id,
        entries,
        redelivery_count=redelivery_count,
        ack_set=ack_set,
        consumer_epoch=consumer_epoch,
    )
    assert b"".join(out) == b"".join(expected)


@given(st.integers(0, 300), st.integers(min_value=0))
def test_ack_sets_survive_the_wire(batch_size: int, bits: int) -> None:
    acked = bits & (1 << batch_size) - 1
    words = acked_bits_to_words(acked, batch_size)
    assert list(pb.CommandMessage(ack_set=words).ack_set) == words
    assert words_to_acked_bits(words, batch_size) == acked


@given(st.lists(INT64, max_size=6), st.integers(0, 400))
def test_any_words_give_acked_bits_within_the_batch(words: list[int], batch_size: int) -> None:
    acked = words_to_acked_bits(words, batch_size)
    assert acked >> batch_size == 0
    for index in range(batch_size):
        word = words[index // 64] if index // 64 < len(words) else 0
        assert bool(acked >> index & 1) is not bool(word >> index % 64 & 1)


@given(st.lists(st.binary(max_size=30), max_size=10), st.data())
def test_a_batch_gives_back_its_messages_and_damage_is_corruption(
    payloads: list[bytes], choice: st.DataObject
) -> None:
    packed = b""
    for payload in payloads:
        metadata = pb.SingleMessageMetadata(payload_size=len(payload)).SerializeToString()
        packed += struct.pack(">I", len(metadata)) + metadata + payload
    assert [bytes(view) for _, view in batch_messages(packed, len(payloads))] == payloads
    damaged = bytearray(packed)
    if damaged:
        damaged[choice.draw(st.integers(0, len(damaged) - 1))] ^= choice.draw(st.integers(1, 255))
    try:
        list(batch_messages(bytes(damaged), len(payloads)))
    except DataCorruption:
        pass


@given(st.binary(max_size=60))
def test_metadata_of_garbage_is_corruption_and_nothing_else(garbage: bytes) -> None:
    for entry in (garbage, b"\x0e\x01" + garbage):
        try:
            parse_metadata(entry)
        except DataCorruption:
            pass
