"""The one conversion between the wire's ack sets and ours.

On the wire (Ack, Message) an ack set is 64-bit words, lowest indexes in the first word, lowest index in its
lowest bit, and a bit says STILL UNACKNOWLEDGED. Protobuf gives the words as signed numbers. Everywhere else
it is one number whose bit i says that message i of the batch is ACKED (storage contract, section 5).
"""

from __future__ import annotations

from collections.abc import Sequence

_WORD_BITS = 64
_WORD_MASK = (1 << _WORD_BITS) - 1


def words_to_acked_bits(words: Sequence[int], batch_size: int) -> int:
    """The acked messages of a batch of `batch_size`.

    Words that are missing hold no bit (senders cut zero words off the end): their messages are acked. Bits
    beyond the batch mean nothing.
    """
    unacked = 0
    for word in reversed(words[: -(-batch_size // _WORD_BITS)]):
        unacked = unacked << _WORD_BITS | word & _WORD_MASK
    return ~unacked & (1 << batch_size) - 1


def acked_bits_to_words(acked_bits: int, batch_size: int) -> list[int]:
    """The wire words for a batch of `batch_size`, signed; one for each 64 messages begun."""
    unacked = ~acked_bits & (1 << batch_size) - 1
    words = []
    for shift in range(0, batch_size, _WORD_BITS):
        word = unacked >> shift & _WORD_MASK
        words.append(word - (1 << _WORD_BITS) if word >> (_WORD_BITS - 1) else word)
    return words
