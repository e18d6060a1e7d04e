"""Frames as the connection cuts them out of its bytes, against parsing each command on its own."""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import example, given, settings
from hypothesis import strategies as st
from magnetar.client.connection.frames import Delivery, Entry, FrameReader, Receipts, Run
from magnetar.common.errors import ProtocolError
from magnetar.common.wire.frame import (
    MAGIC_ENTRY_METADATA,
    SIZES,
    encode_command,
    encode_entry,
    encode_payload_command,
)
from magnetar.common.wire.pulsar_pb2 import (
    BaseCommand,
    BrokerEntryMetadata,
    CommandPing,
    CommandSendReceipt,
    MessageIdData,
)

from tests.examples import examples

EDGES = (0, 1, 126, 127, 128, 16_382, 16_383, 16_384, 32_767, 2**21 - 2, 2**63, 2**64 - 2)


@dataclass(frozen=True)
class Sent:
    """A delivery that a broker sends."""

    consumer_id: int
    ledger_id: int
    entry_id: int
    count: int
    """Entries that follow one another."""
    redelivery_count: int
    ack_set: tuple[int, ...]
    epoch: int
    partition: int
    form: str


SENT = st.builds(
    Sent,
    st.sampled_from([0, 1, 2, 127, 128]),
    st.sampled_from([0, 1, 2, 8, 16, 300, 2**40, 2**64 - 1]),
    st.sampled_from(EDGES),
    st.integers(1, 6),
    st.sampled_from([0, 0, 0, 1]),
    st.sampled_from([(), (), (), (5,), (-1, 0)]),
    st.sampled_from([-1, -1, 0, 1, 200]),
    st.sampled_from([-1, -1, 3]),
    st.sampled_from(["plain", "plain", "plain", "no checksum", "with index", "damaged", "short"]),
)


@dataclass(frozen=True)
class Stored:
    """Receipts that a broker sends."""

    producer_id: int
    sequence_id: int
    ledger_id: int
    entry_id: int
    count: int
    """Receipts of which each has both ids larger by one."""


STORED = st.builds(
    Stored,
    st.sampled_from([0, 1, 2, 127, 128]),
    st.sampled_from(EDGES),
    st.sampled_from([0, 1, 2, 16, 300, 2**40, 2**64 - 1]),
    st.sampled_from(EDGES),
    st.integers(1, 6),
)


def bodies(sent: Sent) -> list[tuple[bytes, Entry | None]]:
    """The bytes after each command, and the entry to be made of them; None where there is a problem."""
    made: list[tuple[bytes, Entry | None]] = []
    for number in range(sent.count):
        metadata, payload = b"metadata%d" % number, b"p" * number
        whole = encode_entry(metadata, payload)
        if sent.form == "no checksum":
            made.append((whole[6:], Entry(metadata, payload)))
        elif sent.form == "with index":
            index = BrokerEntryMetadata(index=number).SerializeToString()
            head = MAGIC_ENTRY_METADATA + len(index).to_bytes(4, "big") + index
            made.append((head + whole, Entry(metadata, payload, index)))
        elif sent.form == "damaged":
            made.append((whole[:-1] + bytes((whole[-1] ^ 1,)), None))
        elif sent.form == "short":
            made.append((encode_entry(metadata, b"")[:12] + b"", None))
        else:
            made.append((whole, Entry(metadata, payload)))
    return made


def receipt(stored: Stored, number: int) -> BaseCommand:
    at = MessageIdData(ledgerId=stored.ledger_id, entryId=(stored.entry_id + number) % 2**64)
    body = CommandSendReceipt(
        producer_id=stored.producer_id, sequence_id=(stored.sequence_id + number) % 2**64, message_id=at
    )
    return BaseCommand(type=BaseCommand.SEND_RECEIPT, send_receipt=body)


def one_by_one(frame: Delivery | Run | Receipts | BaseCommand) -> list[Delivery | BaseCommand]:
    """The frames of which one was made."""
    if isinstance(frame, Run):
        return list(frame.deliveries())
    if isinstance(frame, Receipts):
        ids = frame.producer_id, frame.first_sequence_id, frame.ledger_id, frame.first_entry_id
        return [receipt(Stored(*ids, frame.count), number) for number in range(frame.count)]
    return [frame]


def frames_of(
    sent: list[Sent | Stored | None],
) -> tuple[bytes, list[tuple[Delivery, bool] | BaseCommand]]:
    """The bytes, and what is expected: deliveries with whether they are readable, and other commands."""
    data, expected = bytearray(), list[tuple[Delivery, bool] | BaseCommand]()
    for each in sent:
        if each is None:
            ping = BaseCommand(type=BaseCommand.PING, ping=CommandPing())
            data += encode_command(ping)
            expected.append(ping)
            continue
        if isinstance(each, Stored):
            for number in range(each.count):
                command = receipt(each, number)
                data += encode_command(command)
                expected.append(command)
            continue
        for number, (body, entry) in enumerate(bodies(each)):
            entry_id = (each.entry_id + number) % 2**64
            command = BaseCommand(type=BaseCommand.MESSAGE)
            message = command.message
            message.consumer_id = each.consumer_id
            message.message_id.CopyFrom(MessageIdData(ledgerId=each.ledger_id, entryId=entry_id))
            if each.partition >= 0:
                message.message_id.partition = each.partition
            if each.redelivery_count:
                message.redelivery_count = each.redelivery_count
            message.ack_set.extend(each.ack_set)
            if each.epoch >= 0:
                message.consumer_epoch = each.epoch
            data += encode_payload_command(command, body)
            delivery = Delivery(
                each.consumer_id,
                each.ledger_id,
                entry_id,
                each.redelivery_count,
                each.ack_set,
                each.epoch,
                entry or Entry(b"", b""),
            )
            expected.append((delivery, entry is not None))
    return bytes(data), expected


@settings(max_examples=examples(120))
@given(st.lists(SENT | STORED | st.none(), max_size=8), st.lists(st.integers(0, 10_000), max_size=8))
@example([Sent(1, 8, 126, 5, 0, (), -1, -1, "plain")], [])
@example([Sent(1, 8, 16_382, 5, 0, (), -1, -1, "plain"), None], [70])
@example([Stored(1, 126, 2, 7, 5), Stored(1, 131, 2, 12, 2), Stored(2, 16_382, 3, 16_380, 6)], [])
@example([Sent(2, 1, 2, 3, 0, (), -1, -1, "plain"), Sent(2, 1, 5, 3, 0, (), -1, -1, "damaged")], [])
def test_frames_are_those_of_parsing_each_command(sent: list[Sent | Stored | None], cuts: list[int]) -> None:
    data, expected = frames_of(sent)
    reader = FrameReader(1_000_000)
    found: list[Delivery | BaseCommand] = []
    begin = 0
    for end in [*sorted(cut % (len(data) + 1) for cut in cuts), len(data)]:
        for frame in reader.receive_data(data[begin:end]):
            found += one_by_one(frame)
        begin = end
    assert len(found) == len(expected)
    for frame, wanted in zip(found, expected, strict=True):
        if isinstance(wanted, BaseCommand):
            assert frame == wanted
            continue
        assert isinstance(frame, Delivery)
        delivery, is_readable = wanted
        assert frame[:6] == delivery[:6]
        assert bool(frame.entry.problem) is not is_readable
        if is_readable:
            assert frame.entry == delivery.entry


@given(st.integers(1, 2**33), st.integers(0, 2**33))
def test_sizes_that_no_frame_has_are_refused_before_anything_is_kept(total: int, command: int) -> None:
    limit = 1_000
    total, command = total % 2**32, command % 2**32
    reader = FrameReader(limit)
    try:
        assert reader.receive_data(SIZES.pack(total, command)) == []
        is_refused = False
    except ProtocolError:
        is_refused = True
    assert is_refused == (total + 4 > limit or command == 0 or command + 4 > total)
