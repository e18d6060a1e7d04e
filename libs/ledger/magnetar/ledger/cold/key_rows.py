"""Rebuilds entries without the bodies of their messages from rows, for the first pass of a compaction.

The column with the messages' bodies is most of an object, and only lengths matter there: which messages have
a body is known from `payload_size` in a batch and from `uncompressed_size` outside of one. Entries that are
stored as a whole (encrypted, damaged, markers) come whole.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any, Final, NamedTuple

from magnetar.common.errors import DataCorruption
from magnetar.common.wire.frame import encode_entry
from magnetar.common.wire.pulsar_pb2 import MessageMetadata
from magnetar.ledger.cold.entry_envelope import decode_envelope
from magnetar.ledger.cold.entry_parsing import parse_stored
from magnetar.ledger.cold.entry_rebuild import RunBuilder, first_rows
from magnetar.ledger.ledger_store import Run

KEY_COLUMNS: Final = (
    "ledger_id",
    "entry_id",
    "broker_publish_time",
    "message_index",
    "raw_entry",
    "entry_metadata",
    "message_metadata",
)
"""The columns that `key_runs_of` needs."""


class KeyRun(NamedTuple):
    """Consecutive entries, for their keys."""

    run: Run
    bodies: bool
    """Whether the entries are whole. Otherwise the messages' bodies are left out: nothing follows the
    metadata of a message, in a batch or not, and lengths are only in the metadata. Such entries must
    never be delivered.
    """
    byte_length: int
    """Bytes of the entries with their bodies, as far as their metadata tells."""

    def slice(self, first: int, last: int) -> KeyRun | None:
        """Returns the part between two entries, both inclusive; None if it is empty."""
        first, last = max(first, self.run.first_entry_id), min(last, self.run.last_entry_id)
        if first > last:
            return None
        share = (last - first + 1) / len(self.run.entries)
        return KeyRun(self.run.slice(first, last), self.bodies, round(self.byte_length * share))


def key_runs_of(columns: Mapping[str, Sequence[Any]]) -> list[KeyRun] | None:
    """Returns the entries of rows that begin and end with whole entries, in order, without bodies; None if a
    message with a key does not say whether it has a body.

    Needs KEY_COLUMNS. Raises DataCorruption for rows not produced by `rows_of`.
    """
    envelopes = columns["entry_metadata"]
    starts = first_rows(envelopes)
    if not starts:
        return []
    ledger_ids, entry_ids = columns["ledger_id"], columns["entry_id"]
    broker_times, indexes = columns["broker_publish_time"], columns["message_index"]
    raw_entries, singles = columns["raw_entry"], columns["message_metadata"]
    found: list[KeyRun] = []
    builder, bodies = RunBuilder(), True
    sizes: list[int] = []

    def take() -> None:
        for run in builder.take():
            found.append(KeyRun(run, bodies, run.byte_length + sum(sizes[: len(run.entries)])))
            del sizes[: len(run.entries)]

    for start, stop in pairwise((*starts, len(envelopes))):
        envelope = decode_envelope(envelopes[start])
        entry = raw_entries[start]
        if (entry is not None) is not bodies:
            take()
            bodies = entry is not None
        size = 0
        if entry is None:
            if entry_ids[start] != entry_ids[stop - 1]:
                raise DataCorruption(f"rows of entry {entry_ids[stop - 1]} without its first")
            metadata = parse_stored(envelope.metadata)
            size = metadata.uncompressed_size
            if singles[start] is not None:
                entry = encode_entry(envelope.metadata, _metadata_of_batch(singles, start, stop))
            elif _tells_length(metadata):
                entry = encode_entry(envelope.metadata, b"")
            else:
                return None
        sizes.append(size)
        builder.add(
            ledger_ids[start],
            entry_ids[start],
            entry,
            broker_times[start] // 1000,
            indexes[start],
            envelope.message_count,
            envelope.run_flags,
            None,  # the topic knows by their positions which entries were aborted
        )
    take()
    return found


def _tells_length(metadata: MessageMetadata) -> bool:
    """Returns whether the metadata of a message outside of batches tells if it deletes its key."""
    has = metadata.HasField
    return has("uncompressed_size") or not has("partition_key") or metadata.num_chunks_from_msg > 1


def _metadata_of_batch(singles: Sequence[bytes | None], start: int, stop: int) -> bytes:
    parts: list[bytes] = []
    for single in singles[start:stop]:
        if single is None:
            raise DataCorruption("a message of a batch without its metadata")
        parts += (len(single).to_bytes(4, "big"), single)
    return b"".join(parts)
