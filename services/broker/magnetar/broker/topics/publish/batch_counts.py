"""Message counts of batches, taken from their metadata instead of their Send commands.

Permits, unacked limits and rates count messages, so a wrong count in a Send would starve or flood consumers
of other clients. The metadata's num_messages_in_batch is authoritative, up to the number that fits in the
payload; for compressed or encrypted payloads the protocol's bound applies. Only Sends that claim more than
one message are checked: a batch sent as one message counts as one.
"""

from __future__ import annotations

from typing import Final

from magnetar.common.errors import DataCorruption
from magnetar.common.wire.batch import parse_metadata, payload_offset
from magnetar.common.wire.events import SendRejected, SendRun
from magnetar.common.wire.frame import BATCH_MESSAGES_MAX
from magnetar.common.wire.pulsar_pb2 import CompressionType, ServerError

MESSAGE_BYTES_MIN: Final = 6
"""Minimum bytes of a message in a batch: its length and a SingleMessageMetadata with a payload size."""


def correct_counts(sends: SendRun) -> dict[int, SendRejected]:
    """Corrects the counts of a run; returns the refusals of invalid batches by index.

    Call it only for a run with counts.
    """
    refused = {}
    counts = sends.message_counts
    assert counts is not None, "a run of single messages has no counts to correct"
    for index, claimed in enumerate(counts):
        if claimed == 1:
            continue
        try:
            counts[index] = _message_count(sends.entries[index])
        except DataCorruption as error:
            refused[index] = SendRejected(
                sends.producer_id, sends.highest_sequence_id(index), ServerError.NotAllowedError, str(error)
            )
    return refused


def _message_count(entry: bytes) -> int:
    """Reads the number of messages of a batch. Raises DataCorruption when the payload cannot hold so many."""
    metadata = parse_metadata(entry)
    if not metadata.HasField("num_messages_in_batch"):
        return 1
    count = metadata.num_messages_in_batch
    if 1 <= count <= (len(entry) - payload_offset(entry)) // MESSAGE_BYTES_MIN:
        return count
    opaque = metadata.compression != CompressionType.NONE or metadata.encryption_keys
    if not opaque or not 1 <= count <= BATCH_MESSAGES_MAX:
        raise DataCorruption(f"invalid batch: its payload cannot hold {count} messages")
    return count
