"""Sends, parsed by hand: the one command that comes once per message.

All consecutive Sends of a producer in a received chunk become one SendRun. Three ways, from fast to general:

- the second and later Sends of a shape (the same header bytes but for a sequence id of the same length) are
  cut up by one precompiled struct;
- a Send with the usual fields in the usual order is recognized by one regular expression;
- everything else goes to protobuf. It is the definition: the other two accept only what it would read alike.

    totalSize(4) commandSize(4) | 08 06  32 length  08 producer_id  10 sequence_id  [18 num_messages]
    [20 txnid_least_bits  28 txnid_most_bits]  [30 highest_sequence_id]  [38 is_chunk]  [40 marker]
    | 0x0e01 CRC32-C(4) metadataSize(4) metadata payload

Sends in a transaction have an expression of their own, so that others pay nothing for them.
"""

from __future__ import annotations

import re
from functools import lru_cache
from itertools import repeat
from struct import Struct
from typing import Final, NamedTuple

from magnetar.common.errors import ChecksumMismatch, MalformedFrame
from magnetar.common.naming.txn_id import TxnId
from magnetar.common.wire.checksum import COPY_BYTES_MAX, crc32c
from magnetar.common.wire.command_parser import parse_command
from magnetar.common.wire.events import (
    Event,
    SendRejected,
    SendRun,
    SendUnsupported,
    TransactionalSends,
)
from magnetar.common.wire.frame import (
    BATCH_MESSAGES_MAX,
    ENTRY_HEADER_BYTES,
    SIZES,
    check_sizes,
    checked_entry,
    strip_entry_metadata,
)
from magnetar.common.wire.pulsar_pb2 import BaseCommand, CommandSend, ServerError
from magnetar.common.wire.varint import decode_varint, encode_varint

RUN_ENTRIES_MAX: Final = 5_000
RUN_BYTES_MAX: Final = 4 << 20

SEND_PREFIX: Final = b"\x08\x06\x32"
"""The first bytes of a BaseCommand with a Send: type SEND, then field `send`."""

_SEND_BYTES_MIN: Final = SIZES.size + len(SEND_PREFIX)
_MAGIC: Final = b"\x0e\x01"

# Varints of at most nine bytes (four for counts): larger numbers are left to protobuf.
_SEND: Final = re.compile(
    rb"\x08\x06\x32([\x00-\x7f])\x08([\x80-\xff]{0,8}[\x00-\x7f])\x10([\x80-\xff]{0,8}[\x00-\x7f])"
    rb"(?:\x18([\x80-\xff]{0,3}[\x00-\x7f]))?(?:\x30([\x80-\xff]{0,8}[\x00-\x7f]))?"
    rb"(?:\x38([\x00\x01]))?(?:\x40([\x00\x01]))?",
    re.DOTALL,
)

_SEND_IN_TRANSACTION: Final = re.compile(
    rb"\x08\x06\x32([\x00-\x7f])\x08([\x80-\xff]{0,8}[\x00-\x7f])\x10([\x80-\xff]{0,8}[\x00-\x7f])"
    rb"(?:\x18([\x80-\xff]{0,3}[\x00-\x7f]))?"
    rb"\x20([\x80-\xff]{0,8}[\x00-\x7f])\x28([\x80-\xff]{0,8}[\x00-\x7f])"
    rb"(?:\x30([\x80-\xff]{0,8}[\x00-\x7f]))?(?:\x38([\x00\x01]))?(?:\x40([\x00\x01]))?",
    re.DOTALL,
)


_recurring: Final = lru_cache(maxsize=1024)(decode_varint)
"""Decodes recurring varints: producer ids and counts."""


class Send(NamedTuple):
    """The command of one Send."""

    producer_id: int
    sequence: bytes
    message_count: int
    highest: bytes
    is_chunk: bool
    marker: bool
    tail: bytes | None
    """The bytes after the sequence id if later Sends may differ only in that id; otherwise None."""

    refusal: str | None = None
    txn: TxnId | None = None


class _Shape(NamedTuple):
    """The template of Sends that differ only in the digits of their sequence id."""

    layout: Struct
    """Layout: totalSize; commandSize and command to the sequence id; that id; tail and magic; CRC;
    metadataSize.
    """

    entry_offset: int
    mask: int
    pattern: int
    """Expected bits: `sequence & mask == pattern` means one varint of exactly this length."""


@lru_cache(maxsize=256)
def _shape(head_bytes: int, sequence_bytes: int, tail_bytes: int) -> _Shape:
    return _Shape(
        Struct(f">I{head_bytes}s{sequence_bytes}s{tail_bytes + len(_MAGIC)}sII"),
        4 + head_bytes + sequence_bytes + tail_bytes,
        int.from_bytes(b"\x80" * sequence_bytes, "big"),
        int.from_bytes(b"\x80" * (sequence_bytes - 1) + b"\x00", "big"),
    )


def parse_sends(
    buffer: bytes, start: int, end: int, message_bytes_max: int, frame_bytes_max: int, events: list[Event]
) -> int:
    """Appends the events of the Sends at the beginning of `buffer[start:end]`; returns the offset after them.

    Stops at the first frame that is incomplete or not a Send. The entries are copies, so the buffer may be
    released. Raises FrameTooLarge, MalformedFrame; `events` then has those before the broken frame.
    """
    position = start
    while end - position >= _SEND_BYTES_MIN and buffer.startswith(SEND_PREFIX, position + SIZES.size):
        total_size, command_size = SIZES.unpack_from(buffer, position)
        check_sizes(total_size, command_size, frame_bytes_max)
        command_start = position + SIZES.size
        entry_start = command_start + command_size
        frame_end = position + 4 + total_size
        if frame_end > end:
            break
        send = _parse_send(buffer, command_start, entry_start)
        run = take_send(send, buffer[entry_start:frame_end], message_bytes_max, events)
        if run is not None and send.tail is not None:
            head = buffer[position + 4 : entry_start - len(send.tail) - len(send.sequence)]
            if buffer.startswith(head, frame_end + 4):
                frame_end = _same_shape(buffer, frame_end, end, message_bytes_max, head, send, run)
        position = frame_end
    return position


def take_send(send: Send, body: bytes, message_bytes_max: int, events: list[Event]) -> SendRun | None:
    """Adds one Send, whose command precedes `body`, to the run at the end of `events` or to a new one.

    Returns None if it is not stored: the event is then a SendRejected. Raises MalformedFrame.
    """
    entry = _entry(body, send, message_bytes_max)
    if not isinstance(entry, bytes):
        events.append(entry)
        return None
    if send.txn is not None:
        return _take_in(send.txn, send, entry, events)
    run = events[-1] if events else None
    if not (isinstance(run, SendRun) and _belongs(run, send)):
        run = SendRun(send.producer_id, [], [], None, None, send.is_chunk, send.marker, 0)
        events.append(run)
    _add(run, send, entry)
    return run


def _take_in(txn: TxnId, send: Send, entry: bytes, events: list[Event]) -> SendRun:
    """Adds a Send in a transaction to the run of its transaction at the end of `events`, or to a new one."""
    last = events[-1] if events else None
    if not (isinstance(last, TransactionalSends) and last.txn == txn and _belongs(last.sends, send)):
        run = SendRun(send.producer_id, [], [], None, None, send.is_chunk, send.marker, 0)
        last = TransactionalSends(txn, run)
        events.append(last)
    _add(last.sends, send, entry)
    return last.sends


def _same_shape(
    buffer: bytes,
    start: int,
    end: int,
    message_bytes_max: int,
    head: bytes,
    like: Send,
    run: SendRun,
) -> int:
    """Parses Sends as long as they match the previous one; returns the offset after them. Never raises.

    Unusual frames (wrong checksum or lengths, a large message) are left to the caller.
    """
    assert like.tail is not None, "only Sends of the usual form have a shape"
    layout, entry_offset, mask, pattern = _shape(len(head), len(like.sequence), len(like.tail))
    tail_and_magic = like.tail + _MAGIC
    unpack = layout.unpack_from
    last = min(end, start + RUN_BYTES_MAX - run.byte_length) - layout.size
    entries, sequences = run.entries, run.sequence_varints
    add_entry, add_sequence = entries.append, sequences.append
    from_bytes, crc_of = int.from_bytes, crc32c
    taken_before = len(entries)
    header_bytes = entry_offset - 4
    position = start
    for _ in repeat(None, RUN_ENTRIES_MAX - taken_before):
        if position > last:
            break
        total_size, its_head, sequence, its_tail, crc, metadata_size = unpack(buffer, position)
        frame_end = position + 4 + total_size
        if (
            its_head != head
            or frame_end > end
            or its_tail != tail_and_magic
            or from_bytes(sequence, "big") & mask != pattern
            or total_size > message_bytes_max
        ):
            break
        entry = buffer[position + entry_offset : frame_end]
        if total_size <= COPY_BYTES_MAX:
            if crc_of(entry[6:]) != crc:
                break
        elif crc_of(memoryview(entry)[6:]) != crc:
            break
        if metadata_size > total_size - header_bytes - ENTRY_HEADER_BYTES:
            break
        add_entry(entry)
        add_sequence(sequence)
        position = frame_end
    taken = len(entries) - taken_before
    run.byte_length += position - start - taken * entry_offset
    if run.message_counts is not None:
        run.message_counts.extend([like.message_count] * taken)
    if run.highest_varints is not None:
        run.highest_varints.extend([b"\x00"] * taken)
    return position


def _parse_send(buffer: bytes, start: int, end: int) -> Send:
    """Parses the command at `buffer[start:end]`, which begins like a Send."""
    match = _SEND.fullmatch(buffer, start, end)
    if match is None:
        return _parse_send_in_transaction(buffer, start, end)
    length, producer, sequence, count, highest, is_chunk, marker = match.groups()
    if length[0] != end - start - len(SEND_PREFIX) - 1:
        return _parse_unusual(buffer[start:end])
    if match.lastindex == 3:
        return Send(_recurring(producer), sequence, 1, b"", False, False, b"")
    message_count = 1 if count is None else _message_count(_recurring(count))
    if message_count > BATCH_MESSAGES_MAX:
        return _parse_unusual(buffer[start:end])
    is_chunk, marker = is_chunk == b"\x01", marker == b"\x01"
    # The highest sequence id changes with the sequence id, so a Send with one has no shape.
    tail = buffer[match.end(3) : end] if highest is None else None
    return Send(_recurring(producer), sequence, message_count, highest or b"", is_chunk, marker, tail)


def _parse_send_in_transaction(buffer: bytes, start: int, end: int) -> Send:
    match = _SEND_IN_TRANSACTION.fullmatch(buffer, start, end)
    if match is None:
        return _parse_unusual(buffer[start:end])
    length, producer, sequence, count, least, most, highest, is_chunk, marker = match.groups()
    message_count = 1 if count is None else _message_count(_recurring(count))
    if length[0] != end - start - len(SEND_PREFIX) - 1 or message_count > BATCH_MESSAGES_MAX:
        return _parse_unusual(buffer[start:end])
    return Send(
        producer_id=_recurring(producer),
        sequence=sequence,
        message_count=message_count,
        highest=highest or b"",
        is_chunk=is_chunk == b"\x01",
        marker=marker == b"\x01",
        tail=buffer[match.end(3) : end] if highest is None else None,
        txn=TxnId(_recurring(most), _recurring(least)),
    )


def _parse_unusual(encoded: bytes) -> Send:
    command = parse_command(encoded)
    if command.type != BaseCommand.SEND:
        raise MalformedFrame("a command that begins as a Send and is none")
    return send_of(command.send)


def send_of(send: CommandSend) -> Send:
    """Converts a Send parsed by protobuf."""
    return Send(
        producer_id=send.producer_id,
        sequence=encode_varint(send.sequence_id),
        message_count=_message_count(send.num_messages),
        highest=encode_varint(send.highest_sequence_id) if send.HasField("highest_sequence_id") else b"",
        is_chunk=send.is_chunk,
        marker=send.marker,
        tail=None,
        refusal=_refusal(send),
        txn=TxnId(send.txnid_most_bits, send.txnid_least_bits) if send.HasField("txnid_least_bits") else None,
    )


def _message_count(count: int) -> int:
    if count < 1:
        raise MalformedFrame(f"a Send of {count} messages")
    return count


def _refusal(send: CommandSend) -> str | None:
    """Returns why a well-formed Send is unsupported; refused, not ignored, since the client relies on it."""
    if send.HasField("txnid_least_bits") != send.HasField("txnid_most_bits"):
        return "a Send with half of a transaction id: set both txnid_most_bits and txnid_least_bits"
    if send.HasField("message_id"):
        return "a Send with a message id of its own is only for shadow topics, which are not supported"
    if send.num_messages > BATCH_MESSAGES_MAX:
        return f"a batch of {send.num_messages} messages, at most {BATCH_MESSAGES_MAX} are allowed"
    return None


def _entry(body: bytes, send: Send, message_bytes_max: int) -> bytes | SendRejected:
    """Returns the verified entry of a Send, or the reason why it is not stored."""
    try:
        entry = checked_entry(strip_entry_metadata(body)[1])
    except ChecksumMismatch as error:
        return _rejected(send, ServerError.ChecksumError, str(error))
    if send.refusal is not None:
        return SendUnsupported(
            send.producer_id, _last_sequence_id(send), ServerError.NotAllowedError, send.refusal
        )
    if len(entry) > message_bytes_max and (payload_bytes := _payload_bytes(entry)) > message_bytes_max:
        what = f"a message of {payload_bytes} bytes, at most {message_bytes_max} are allowed (maxMessageSize)"
        return _rejected(send, ServerError.NotAllowedError, what)
    return entry


def _payload_bytes(entry: bytes) -> int:
    return len(entry) - ENTRY_HEADER_BYTES - int.from_bytes(entry[6:10], "big")


def _rejected(send: Send, error: ServerError.ValueType, message: str) -> SendRejected:
    return SendRejected(send.producer_id, _last_sequence_id(send), error, message)


def _last_sequence_id(send: Send) -> int:
    """Returns the sequence id by which clients identify a refused batch."""
    sequence_id = decode_varint(send.sequence)
    return max(sequence_id, decode_varint(send.highest)) if send.highest else sequence_id


def _belongs(run: SendRun, send: Send) -> bool:
    return (
        run.producer_id == send.producer_id
        and run.is_chunk == send.is_chunk
        and run.marker == send.marker
        and len(run.entries) < RUN_ENTRIES_MAX
        and run.byte_length < RUN_BYTES_MAX
    )


def _add(run: SendRun, send: Send, entry: bytes) -> None:
    if send.message_count != 1 and run.message_counts is None:
        run.message_counts = [1] * len(run.entries)
    if send.highest and run.highest_varints is None:
        run.highest_varints = [b"\x00"] * len(run.entries)
    run.entries.append(entry)
    run.sequence_varints.append(send.sequence)
    run.byte_length += len(entry)
    if run.message_counts is not None:
        run.message_counts.append(send.message_count)
    if run.highest_varints is not None:
        run.highest_varints.append(send.highest or b"\x00")
