"""Conversion between the wire's ack sets and the internal form.

On the wire (Ack, Message) an ack set is 64-bit words, lowest indexes in the first word, lowest index in its
lowest bit, and a bit means STILL UNACKNOWLEDGED. Protobuf returns the words as signed numbers. Internally it
is one number whose bit i means that message i of the batch is ACKED (storage contract, section 5).
"""

from __future__ import annotations

from collections.abc import Sequence
from struct import pack, unpack

from magnetar.common.errors import MalformedFrame
from magnetar.common.wire.frame import BATCH_MESSAGES_MAX

_WORD_BITS = 64
_WORD_BYTES = 8


def words_to_acked_bits(words: Sequence[int], batch_size: int) -> int:
    """Returns the acknowledged messages of a batch of `batch_size` as bits.

    Missing words count as zero (senders omit trailing zero words): their messages are acknowledged. Bits
    beyond the batch are ignored. Raises MalformedFrame for an invalid batch size.
    """
    if not 0 <= batch_size <= BATCH_MESSAGES_MAX:
        raise MalformedFrame(f"an ack set for a batch of {batch_size} messages")
    within = words[: _word_count(batch_size)]
    unacked = int.from_bytes(pack(f"<{len(within)}q", *within), "little")
    return ~unacked & (1 << batch_size) - 1


def acked_bits_to_words(acked_bits: int, batch_size: int) -> list[int]:
    """Returns the signed wire words for a batch of `batch_size`, one per 64 messages or part of it."""
    unacked = ~acked_bits & (1 << batch_size) - 1
    count = _word_count(batch_size)
    return list(unpack(f"<{count}q", unacked.to_bytes(count * _WORD_BYTES, "little")))


def _word_count(batch_size: int) -> int:
    return -(-batch_size // _WORD_BITS)
