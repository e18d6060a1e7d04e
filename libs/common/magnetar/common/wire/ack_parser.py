"""Individual Acks, parsed by hand: the command that comes once per message on shared subscriptions.

Consecutive Acks of one consumer for entries of one ledger become one AckRun. An Ack is recognized by one
regular expression in its usual form; those behind it that differ in nothing but the entry id are taken by
their bytes. Everything else (several ids, cumulative, ack sets, request ids, other field orders) is left to
protobuf, which is the definition.

    totalSize(4) commandSize(4) | 08 0a  52 length  08 consumer_id  10 00  1a length (08 ledgerId  10 entryId)
"""

from __future__ import annotations

import re
from typing import Final

from magnetar.common.wire.events import AckRun, Event
from magnetar.common.wire.frame import SIZES
from magnetar.common.wire.varint import decode_varint

ACK_PREFIX: Final = b"\x08\x0a\x52"
"""The first bytes of a BaseCommand with an Ack: type ACK, then field `ack`."""

ACK_RUN_ENTRIES_MAX: Final = 5_000

_ACK: Final = re.compile(
    rb"\x08\x0a\x52([\x00-\x7f])\x08([\x80-\xff]{0,8}[\x00-\x7f])\x10\x00"
    rb"\x1a([\x00-\x7f])\x08([\x80-\xff]{0,8}[\x00-\x7f])\x10([\x80-\xff]{0,8}[\x00-\x7f])",
    re.DOTALL,
)


def parse_acks(buffer: bytes, start: int, end: int, events: list[Event]) -> int:
    """Appends the events of the plain individual Acks at the beginning of `buffer[start:end]`.

    Returns the offset after them: the first incomplete or other frame. Never raises.
    """
    position = start
    while buffer.startswith(ACK_PREFIX, position + SIZES.size):
        total_size, command_size = SIZES.unpack_from(buffer, position)
        frame_end = position + 4 + total_size
        command_start = position + SIZES.size
        if total_size != command_size + 4 or frame_end > end:
            break
        match = _ACK.fullmatch(buffer, command_start, frame_end)
        if match is None:
            break
        length, consumer, id_length, ledger, entry = match.groups()
        if length[0] != command_size - 4 or id_length[0] != len(ledger) + len(entry) + 2:
            break
        run = _run_for(decode_varint(consumer), decode_varint(ledger), events)
        run.entry_ids.append(decode_varint(entry))
        head = buffer[position : match.start(5)]
        position = _same_head(buffer, frame_end, end, head, len(entry), run.entry_ids)
    return position


def _run_for(consumer_id: int, ledger_id: int, events: list[Event]) -> AckRun:
    run = events[-1] if events else None
    if (
        isinstance(run, AckRun)
        and run.consumer_id == consumer_id
        and run.ledger_id == ledger_id
        and len(run.entry_ids) < ACK_RUN_ENTRIES_MAX
    ):
        return run
    run = AckRun(consumer_id, ledger_id, [])
    events.append(run)
    return run


def _same_head(
    buffer: bytes, start: int, end: int, head: bytes, entry_bytes: int, entry_ids: list[int]
) -> int:
    """Parses Acks that differ from the previous one in an id of the same length; returns the offset after
    them.
    """
    head_bytes = len(head)
    frame_bytes = head_bytes + entry_bytes
    if entry_bytes > 4:
        return start
    # The id's bytes, lowest seven bits first, as one little-endian number: all but the last have the high bit
    # set.
    mask = int.from_bytes(b"\x80" * entry_bytes, "little")
    pattern = int.from_bytes(b"\x80" * (entry_bytes - 1) + b"\x00", "little")
    from_bytes, starts_with, add = int.from_bytes, buffer.startswith, entry_ids.append
    room = ACK_RUN_ENTRIES_MAX - len(entry_ids)
    position = start
    last = min(end - frame_bytes, start + (room - 1) * frame_bytes)
    while position <= last and starts_with(head, position):
        raw = from_bytes(buffer[position + head_bytes : position + frame_bytes], "little")
        if raw & mask != pattern:
            break
        add(raw & 0x7F | raw >> 1 & 0x3F80 | raw >> 2 & 0x1FC000 | raw >> 3 & 0xFE00000)
        position += frame_bytes
    return position
