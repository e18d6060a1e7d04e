"""Batches of which some messages are compacted out."""

from __future__ import annotations

from collections.abc import Container, Generator
from typing import Final, TypeVar

from magnetar.common.errors import DataCorruption
from magnetar.common.wire.batch import parse_metadata, payload_offset
from magnetar.common.wire.frame import encode_entry
from magnetar.common.wire.pulsar_pb2 import NONE, SingleMessageMetadata
from magnetar.ledger.compacted.entry_keys import batch_messages
from magnetar.ledger.payload_codecs import compress, decompress

T = TypeVar("T")

MESSAGES_PER_STEP: Final = 64
"""Messages of a batch between two steps, some 0.1 ms."""

_COMPACTED_OUT: Final = SingleMessageMetadata(payload_size=0, compacted_out=True).SerializeToString()
_EMPTY: Final = len(_COMPACTED_OUT).to_bytes(4, "big") + _COMPACTED_OUT


def without(entry: bytes, dropped: Container[int]) -> bytes:
    """Returns a batch in which the messages with these indexes are compacted out.

    Entry id, number of messages and all other metadata stay; the payload is packed with the same codec,
    `uncompressed_size` and checksum are made anew. The batch must be one that `examine` decoded. Raises
    DataCorruption.
    """
    return drain(without_in_steps(entry, dropped))


def without_in_steps(entry: bytes, dropped: Container[int]) -> Generator[None, None, bytes]:
    """Does as `without`; yields every some dozen messages."""
    metadata = parse_metadata(entry)
    payload = entry[payload_offset(entry) :]
    if metadata.compression != NONE:
        payload = decompress(metadata.compression, payload, metadata.uncompressed_size)
    parts: list[bytes] = []
    at = 0
    single = SingleMessageMetadata()
    for index in range(metadata.num_messages_in_batch):
        start = at + 4
        metadata_end = start + int.from_bytes(payload[at:start], "big")
        single.ParseFromString(payload[start:metadata_end])
        end = metadata_end + single.payload_size
        if end > len(payload):
            raise DataCorruption(f"message {index} does not fit into its batch")
        parts.append(_EMPTY if index in dropped else payload[at:end])
        at = end
        if not (index + 1) % MESSAGES_PER_STEP:
            yield
    rebuilt = b"".join(parts)
    metadata.uncompressed_size = len(rebuilt)
    if metadata.compression != NONE:
        rebuilt = compress(metadata.compression, rebuilt)
    return encode_entry(metadata.SerializeToString(), rebuilt)


def drain(steps: Generator[None, None, T]) -> T:
    """Returns the result of a computation in steps, without a pause."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            result: T = end.value
            return result


def last_live_index(entry: bytes) -> int:
    """Returns the highest batch index of a decodable batch that is not compacted out; -1 without one. Raises
    DataCorruption.
    """
    metadata = parse_metadata(entry)
    payload = entry[payload_offset(entry) :]
    if metadata.compression != NONE:
        payload = decompress(metadata.compression, payload, metadata.uncompressed_size)
    return max(
        (each.batch_index for each in batch_messages(payload, metadata.num_messages_in_batch)), default=-1
    )
