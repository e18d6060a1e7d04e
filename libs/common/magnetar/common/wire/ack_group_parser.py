"""Acks of many entries at once, parsed by hand: how clients send acknowledgements that they group.

Most ids differ from each other in the entry id alone, so the bytes before it cut the whole command into the
entry ids. Those of one length are decoded together, as columns of bytes. What a client writes in any other
form is left to protobuf, which is the definition.

    08 0a  52 length  08 consumer_id  10 00  (1a length (08 ledgerId  10 entryId))...
        [30 txnid_least_bits  38 txnid_most_bits]  [40 request_id]

Consecutive Acks in one transaction become one event.
"""

from __future__ import annotations

import re
import sys
from array import array
from typing import Final

from magnetar.common.naming.txn_id import TxnId
from magnetar.common.wire.events import AckGroup, Event, TransactionalAcks
from magnetar.common.wire.varint import decode_varint

KINDS_MAX: Final = 16
"""Maximum kinds of ids, by ledger and length, for which this parser pays off; each kind costs a pass."""

TRANSACTIONAL_ACKS_MAX: Final = 1_000
"""Maximum commands in one event."""

_VARINT: Final = rb"([\x80-\xff]{0,8}[\x00-\x7f])"
_HEAD: Final = re.compile(rb"\x08\x0a\x52([\x80-\xff]{0,3}[\x00-\x7f])\x08" + _VARINT + rb"\x10\x00")
_ID: Final = re.compile(rb"\x1a([\x00-\x7f])\x08" + _VARINT + rb"\x10([\x80-\xff]{0,3}[\x00-\x7f])")
_IN_TRANSACTION: Final = rb"\x30([\x80-\xff]{0,9}[\x00-\x7f])\x38([\x80-\xff]{0,9}[\x00-\x7f])"
_TAIL: Final = re.compile(rb"(?:" + _IN_TRANSACTION + rb")?(?:\x40" + _VARINT + rb")?")
_ONE_IN_TRANSACTION: Final = re.compile(
    rb"\x08\x0a\x52([\x00-\x7f])\x08%b\x10\x00\x1a([\x00-\x7f])\x08%b\x10([\x80-\xff]{0,3}[\x00-\x7f])%b(?:\x40%b)?"
    % (_VARINT, _VARINT, _IN_TRANSACTION, _VARINT),
    re.DOTALL,
)
_OTHER_LENGTH: Final = [re.compile(b"[^%c]" % size) for size in range(5)]


def parse_ack_group(command: bytes, events: list[Event]) -> bool:
    """Appends the event of a command that begins like an Ack, or adds it to the last one; False if protobuf
    must parse it. Never raises.
    """
    if _parse_one_in_transaction(command, events):
        return True
    head = _HEAD.match(command)
    if head is None or head.end(1) + decode_varint(head[1]) != len(command):
        return False
    by_ledger: dict[int, array[int]] = {}
    rest = command[head.end() :]
    for _ in range(KINDS_MAX):
        first = _ID.match(rest)
        if first is None:
            break
        length, ledger, entry = first.groups()
        size = len(entry)
        if length[0] != len(ledger) + size + 2:
            return False
        # Occurs only at the beginning of an id: the byte after 1a inside of one is never a length.
        pieces = rest.split(rest[: first.start(3)])[1:]
        others = []
        for place in _of_other_length(pieces, size):
            # An id is followed by ids of other kinds; the last of these by the request id.
            others.append(pieces[place][size:])
            pieces[place] = pieces[place][:size]
        entry_ids = _decode(b"".join(pieces), size, len(pieces))
        if entry_ids is None:
            return False
        by_ledger.setdefault(decode_varint(ledger), array("I")).extend(entry_ids)
        rest = b"".join(others)
    tail = _TAIL.fullmatch(rest)
    if tail is None or not by_ledger:
        return False
    least, most, request = tail.groups()
    consumer_id, request_id = decode_varint(head[2]), None if request is None else decode_varint(request)
    if least is None:
        events.append(AckGroup(consumer_id, by_ledger, request_id))
        return True
    event = _event_for(TxnId(decode_varint(most), decode_varint(least)), consumer_id, events)
    for ledger_id, ids in by_ledger.items():
        event.entry_ids.setdefault(ledger_id, array("I")).extend(ids)
    _take(event, command, request_id)
    return True


def _parse_one_in_transaction(command: bytes, events: list[Event]) -> bool:
    """Does the same for an Ack of one entry in a transaction, of which clients send one a message."""
    match = _ONE_IN_TRANSACTION.fullmatch(command)
    if match is None:
        return False
    length, consumer, id_length, ledger, entry, least, most, request = match.groups()
    if length[0] != len(command) - 4 or id_length[0] != len(ledger) + len(entry) + 2:
        return False
    txn = TxnId(decode_varint(most), decode_varint(least))
    event = _event_for(txn, decode_varint(consumer), events)
    event.entry_ids.setdefault(decode_varint(ledger), array("I")).append(decode_varint(entry))
    _take(event, command, None if request is None else decode_varint(request))
    return True


def _event_for(txn: TxnId, consumer_id: int, events: list[Event]) -> TransactionalAcks:
    """Returns the last event if a command of that consumer in the transaction fits into it, or a new one."""
    last = events[-1] if events else None
    if (
        isinstance(last, TransactionalAcks)
        and last.txn == txn
        and last.consumer_id == consumer_id
        and len(last.commands) < TRANSACTIONAL_ACKS_MAX
    ):
        return last
    event = TransactionalAcks(txn, consumer_id, {}, [], [])
    events.append(event)
    return event


def _take(event: TransactionalAcks, command: bytes, request_id: int | None) -> None:
    event.commands.append(command)
    if request_id is not None:
        event.request_ids.append(request_id)


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
