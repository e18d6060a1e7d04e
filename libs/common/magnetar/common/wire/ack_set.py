"""The one conversion between the wire's ack sets and ours.

On the wire (Ack, Message) an ack set is 64-bit words, lowest indexes in the first word, lowest index in its
lowest bit, and a bit says STILL UNACKNOWLEDGED. Protobuf gives the words as signed numbers. Everywhere else
it is one number whose bit i says that message i of the batch is ACKED (storage contract, section 5).
"""

from __future__ import annotations

from collections.abc import Sequence
from struct import pack, unpack

from magnetar.common.errors import MalformedFrame
from magnetar.common.wire.frame import BATCH_MESSAGES_MAX

_WORD_BITS = 64
_WORD_BYTES = 8


def words_to_acked_bits(words: Sequence[int], batch_size: int) -> int:
    """The acked messages of a batch of `batch_size`.

    Words that are missing hold no bit (senders cut zero words off the end): their messages are acked. Bits
    beyond the batch mean nothing. Raises MalformedFrame for a batch size that no batch has.
    """
    if not 0 <= batch_size <= BATCH_MESSAGES_MAX:
        raise MalformedFrame(f"an ack set for a batch of {batch_size} messages")
    within = words[: _word_count(batch_size)]
    unacked = int.from_bytes(pack(f"<{len(within)}q", *within), "little")
    return ~unacked & (1 << batch_size) - 1


def acked_bits_to_words(acked_bits: int, batch_size: int) -> list[int]:
    """The wire words for a batch of `batch_size`, signed; one for each 64 messages begun."""
    unacked = ~acked_bits & (1 << batch_size) - 1
    count = _word_count(batch_size)
    return list(unpack(f"<{count}q", unacked.to_bytes(count * _WORD_BYTES, "little")))


def _word_count(batch_size: int) -> int:
    return -(-batch_size // _WORD_BITS)
