from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from magnetar.common.wire import pulsar_pb2 as pb
from magnetar.common.wire.frame import encode_payload_command
from magnetar.common.wire.messages import MessageFramer, run_entry_metadata

from tests.unit.common.wire import frames

ENTRIES = [frames.entry(bytes(size)) for size in (0, 1, 100, 1_000, 70_000)]


def by_protobuf(
    consumer_id: int,
    ledger_id: int,
    first_entry_id: int,
    partition: int = -1,
    entries: Sequence[bytes] = ENTRIES,
    **fields: Any,
) -> bytes:
    made = []
    for index, entry in enumerate(entries):
        message_id = pb.MessageIdData(ledgerId=ledger_id, entryId=first_entry_id + index)
        if partition != -1:
            message_id.partition = partition
        message = pb.CommandMessage(consumer_id=consumer_id, message_id=message_id, **fields)
        made.append(
            encode_payload_command(pb.BaseCommand(type=pb.BaseCommand.MESSAGE, message=message), entry)
        )
    return b"".join(made)


@pytest.mark.parametrize("first_entry", [0, 125, 16_382, 7 * 16_384 - 2, 2**62])
@pytest.mark.parametrize("partition", [-1, 0, 300])
def test_the_frames_of_a_run_are_those_of_protobuf(first_entry: int, partition: int) -> None:
    out: list[bytes] = []
    MessageFramer(4, partition).frames(out, 2**40, first_entry, ENTRIES)
    assert b"".join(out) == by_protobuf(4, 2**40, first_entry, partition)


@pytest.mark.parametrize("sizes", [(9, 9, 9), (9, 100, 9), (9, 100, 100, 7, 9), (9,)])
@pytest.mark.parametrize("first_entry", [0, 126, 16_382])
def test_entries_of_one_length_or_nearly_so_have_the_frames_of_protobuf(
    sizes: tuple[int, ...], first_entry: int
) -> None:
    entries = [frames.entry(bytes(size)) for size in sizes]
    out: list[bytes] = []
    MessageFramer(4).frames(out, 5, first_entry, entries)
    assert b"".join(out) == by_protobuf(4, 5, first_entry, entries=entries)


@pytest.mark.parametrize(
    "fields",
    [
        {"redelivery_count": 3},
        {"ack_set": [-1, 5]},
        {"ack_set": [0]},
        {"consumer_epoch": 0},
        {"redelivery_count": 300, "ack_set": [1 << 62, -(1 << 63)], "consumer_epoch": 2**63},
    ],
)
def test_message_command_fields_are_encoded_as_by_protobuf(fields: dict[str, Any]) -> None:
    out: list[bytes] = []
    MessageFramer(4).frames(out, 5, 6, ENTRIES, **fields)
    assert b"".join(out) == by_protobuf(4, 5, 6, **fields)


def test_a_long_ack_set_lengthens_the_lengths() -> None:
    ack_set = [-1] * 16
    out: list[bytes] = []
    MessageFramer(4).frames(out, 5, 6, ENTRIES, ack_set=ack_set)
    assert b"".join(out) == by_protobuf(4, 5, 6, ack_set=ack_set)


def test_a_framer_follows_its_consumer_from_ledger_to_ledger() -> None:
    framer = MessageFramer(4)
    for ledger_id in (5, 300, 5):
        out: list[bytes] = []
        framer.frames(out, ledger_id, 6, ENTRIES)
        assert b"".join(out) == by_protobuf(4, ledger_id, 6)


@pytest.mark.parametrize("gap", [1, 2, 50, 16_384])
@pytest.mark.parametrize("first_entry", [0, 125, 16_382, 7 * 16_384 - 2])
@pytest.mark.parametrize("epoch", [None, 3])
def test_entries_with_gaps_between_them_have_the_frames_of_each_alone(
    gap: int, first_entry: int, epoch: int | None
) -> None:
    ids = [first_entry + index * gap for index in range(len(ENTRIES))]
    added = run_entry_metadata(1_700_000_000_000, 10, len(ENTRIES), None)
    for metadata in (None, added):
        out: list[bytes] = []
        alone: list[bytes] = []
        framer = MessageFramer(4, 2)
        framer.frames_of(out, 5, ids, ENTRIES, consumer_epoch=epoch, entry_metadata=metadata)
        for index, entry_id in enumerate(ids):
            its_own = None if metadata is None else metadata[index : index + 1]
            framer.frames(alone, 5, entry_id, [ENTRIES[index]], consumer_epoch=epoch, entry_metadata=its_own)
        assert out == alone


def test_entries_are_handed_on_and_not_copied() -> None:
    out: list[bytes] = []
    MessageFramer(4).frames(out, 5, 6, ENTRIES)
    assert all(sent is entry for sent, entry in zip(out[1::2], ENTRIES, strict=True))


def test_broker_entry_metadata_stands_between_command_and_entry() -> None:
    added = run_entry_metadata(1_700_000_000_000, 10, len(ENTRIES), [1, 5, 1, 1, 2])
    plain: list[bytes] = []
    MessageFramer(4).frames(plain, 5, 126, ENTRIES)
    out: list[bytes] = []
    MessageFramer(4).frames(out, 5, 126, ENTRIES, entry_metadata=added)
    for annotated, header, metadata, entry in zip(out[::2], plain[::2], added, ENTRIES, strict=True):
        inserted = b"\x0e\x02" + len(metadata).to_bytes(4, "big") + metadata
        total = int.from_bytes(header[:4], "big") + len(inserted)
        assert annotated == total.to_bytes(4, "big") + header[4:] + inserted
        assert total + 4 == len(annotated) + len(entry)


def test_the_index_of_an_entry_is_that_of_its_last_message() -> None:
    batches = run_entry_metadata(1_000, 10, 3, [1, 5, 2])
    assert [pb.BrokerEntryMetadata.FromString(each).index for each in batches] == [10, 15, 17]
    singles = run_entry_metadata(1_000, 10, 3, None)
    assert [pb.BrokerEntryMetadata.FromString(each).index for each in singles] == [10, 11, 12]
    assert pb.BrokerEntryMetadata.FromString(singles[0]).broker_timestamp == 1_000
