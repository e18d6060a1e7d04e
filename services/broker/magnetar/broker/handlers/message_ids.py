"""Conversion of message ids on the wire to positions."""

from __future__ import annotations

from magnetar.common.naming.position import Position
from magnetar.common.wire.pulsar_pb2 import MessageIdData

_SIGN = 1 << 63
_RANGE = 1 << 64


def position_of(message_id: MessageIdData) -> Position:
    """Returns ledger and entry id; the wire's unsigned fields hold -1 as its two's complement."""
    return Position(_signed(message_id.ledgerId), _signed(message_id.entryId))


def _signed(value: int) -> int:
    return value - _RANGE if value >= _SIGN else value
