"""Acks of many entries at once, parsed by hand: how clients send acknowledgements that they group.

Most ids differ from each other in the entry id alone, so the bytes before it cut the whole command into the
entry ids. Those of one length are decoded together, as columns of bytes. What a client writes in any other
form is left to protobuf, which is the definition.

    08 0a  52 length  08 consumer_id  10 00  (1a length (08 ledgerId  10 entryId))...  [40 request_id]
"""

from __future__ import annotations

import re
import sys
from array import array
from typing import Final

from magnetar.common.wire.events import AckGroup
from magnetar.common.wire.varint import decode_varint

KINDS_MAX: Final = 16
"""Maximum kinds of ids, by ledger and length, for which this parser pays off; each kind costs a pass."""

_VARINT: Final = rb"([\x80-\xff]{0,8}[\x00-\x7f])"
_HEAD: Final = re.compile(rb"\x08\x0a\x52([\x80-\xff]{0,3}[\x00-\x7f])\x08" + _VARINT + rb"\x10\x00")
_ID: Final = re.compile(rb"\x1a([\x00-\x7f])\x08" + _VARINT + rb"\x10([\x80-\xff]{0,3}[\x00-\x7f])")
_TAIL: Final = re.compile(rb"(?:\x40" + _VARINT + rb")?")
_OTHER_LENGTH: Final = [re.compile(b"[^%c]" % size) for size in range(5)]


def parse_ack_group(command: bytes) -> AckGroup | None:
    """Returns the event of a command that begins like an Ack; None if protobuf must parse it. Never
    raises.
    """
    head = _HEAD.match(command)
    if head is None or head.end(1) + decode_varint(head[1]) != len(command):
        return None
    by_ledger: dict[int, array[int]] = {}
    rest = command[head.end() :]
    for _ in range(KINDS_MAX):
        first = _ID.match(rest)
        if first is None:
            break
        length, ledger, entry = first.groups()
        size = len(entry)
        if length[0] != len(ledger) + size + 2:
            return None
        # Occurs only at the beginning of an id: the byte after 1a inside of one is never a length.
        pieces = rest.split(rest[: first.start(3)])[1:]
        others = []
        for place in _of_other_length(pieces, size):
            # An id is followed by ids of other kinds; the last of these by the request id.
            others.append(pieces[place][size:])
            pieces[place] = pieces[place][:size]
        entry_ids = _decode(b"".join(pieces), size, len(pieces))
        if entry_ids is None:
            return None
        by_ledger.setdefault(decode_varint(ledger), array("I")).extend(entry_ids)
        rest = b"".join(others)
    tail = _TAIL.fullmatch(rest)
    if tail is None or not by_ledger:
        return None
    return AckGroup(decode_varint(head[2]), by_ledger, None if tail[1] is None else decode_varint(tail[1]))


def _of_other_length(pieces: list[bytes], size: int) -> list[int]:
    """Returns the indexes of the pieces whose length is not `size`; expected to be few."""
    try:
        lengths = bytes(map(len, pieces))
    except ValueError:
        return [place for place, piece in enumerate(pieces) if len(piece) != size]
    return [match.start() for match in _OTHER_LENGTH[size].finditer(lengths)]


def _decode(varints: bytes, size: int, count: int) -> array[int] | None:
    """Decodes `count` varints of `size` bytes each, at most four; None if one has another length."""
    if len(varints) != count * size:
        return None
    spread = bytearray(4 * count)
    for place in range(size):
        spread[place::4] = varints[place::size]
    # One large number with 32 bits per varint. The high bit of every byte but the last must be set.
    raw = int.from_bytes(spread, "little")
    if raw & _repeated(b"\x80" * size, count) != _repeated(b"\x80" * (size - 1), count):
        return None
    seven_bits = _repeated(b"\x7f", count)
    packed = raw & seven_bits
    for place in range(1, size):
        packed |= raw >> place & seven_bits << 7 * place
    decoded = array("I", packed.to_bytes(4 * count, "little"))
    if sys.byteorder == "big":
        decoded.byteswap()
    return decoded


def _repeated(low_bytes: bytes, count: int) -> int:
    return int.from_bytes(low_bytes.ljust(4, b"\x00") * count, "little")
