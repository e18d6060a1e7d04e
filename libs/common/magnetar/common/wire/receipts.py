"""SendReceipts, assembled by hand, a run at a time: equal to protobuf's encoding, byte for byte.

    totalSize(4) commandSize(4) | 08 07  3a length  08 producer_id  10 sequence_id
                                  1a length (08 ledgerId 10 entryId)  [20 highest_sequence_id]

producer_id and sequence_id have the numbers 1 and 2 in Send as well, so the sequence id's varint is copied as
the client wrote it. Between the receipts of a run only the sequence id and the lowest bits of the entry id
differ; everything else is one separator, made once.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Final

from magnetar.common.wire.varint import consecutive, encode_varint

_TYPE_AND_FIELD: Final = b"\x08\x07\x3a"


def receipts(
    producer_id: int,
    ledger_id: int,
    first_entry_id: int,
    sequence_varints: Sequence[bytes],
    highest_varints: Sequence[bytes] | None = None,
) -> bytes:
    """Returns the SendReceipt frames of a run, whose entries have consecutive ids from `first_entry_id` on.

    Takes the varints of a SendRun. A highest id of zero is omitted, as it is the default.
    """
    if highest_varints is not None or len(set(map(len, sequence_varints))) > 1:
        return _one_by_one(producer_id, ledger_id, first_entry_id, sequence_varints, highest_varints)
    frames = []
    done = 0
    for heads, tail in consecutive(first_entry_id, len(sequence_varints)):
        sequences = sequence_varints[done : done + len(heads)]
        done += len(heads)
        before, between, _ = _template(
            producer_id, ledger_id, len(sequences[0]), len(heads[0]) + len(tail), 0
        )
        pieces = [sequence + between + head for sequence, head in zip(sequences, heads, strict=True)]
        frames.append(before + (tail + before).join(pieces) + tail)
    return b"".join(frames)


def receipt(
    producer_id: int, sequence_id: int, ledger_id: int, entry_id: int, highest_sequence_id: int = 0
) -> bytes:
    """Returns one SendReceipt frame; ledger and entry -1 mean that the message was a duplicate."""
    return _receipt(
        producer_id,
        ledger_id,
        encode_varint(entry_id),
        encode_varint(sequence_id),
        encode_varint(highest_sequence_id),
    )


def _one_by_one(
    producer_id: int,
    ledger_id: int,
    first_entry_id: int,
    sequence_varints: Sequence[bytes],
    highest_varints: Sequence[bytes] | None,
) -> bytes:
    frames = []
    for index, sequence in enumerate(sequence_varints):
        entry = encode_varint(first_entry_id + index)
        highest = highest_varints[index] if highest_varints is not None else b"\x00"
        frames.append(_receipt(producer_id, ledger_id, entry, sequence, highest))
    return b"".join(frames)


def _receipt(producer_id: int, ledger_id: int, entry: bytes, sequence: bytes, highest: bytes) -> bytes:
    if highest == b"\x00":
        highest = b""
    before, between, after = _template(producer_id, ledger_id, len(sequence), len(entry), len(highest))
    return before + sequence + between + entry + after + highest


@lru_cache(maxsize=4096)
def _template(
    producer_id: int, ledger_id: int, sequence_bytes: int, entry_bytes: int, highest_bytes: int
) -> tuple[bytes, bytes, bytes]:
    """Returns (bytes before the sequence id, bytes up to the entry id, bytes up to the highest id), by
    lengths.

    No length in here reaches 128: seven varints of at most ten bytes.
    """
    producer, ledger = encode_varint(producer_id), encode_varint(ledger_id)
    message_id = b"\x08" + ledger + b"\x10"
    between = bytes((0x1A, len(message_id) + entry_bytes)) + message_id
    after = b"\x20" if highest_bytes else b""
    start = b"\x08" + producer + b"\x10"
    length = len(start) + sequence_bytes + len(between) + entry_bytes + len(after) + highest_bytes
    command_size = len(_TYPE_AND_FIELD) + 1 + length
    sizes = (command_size + 4).to_bytes(4, "big") + command_size.to_bytes(4, "big")
    return sizes + _TYPE_AND_FIELD + bytes((length,)) + start, between, after
