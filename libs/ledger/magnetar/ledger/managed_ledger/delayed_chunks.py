"""Delayed entries as numbers and as records of the cursor ledger (proto/storage/v1/cursor_ledger.proto).

A delayed entry is one int, its key: the time in the highest bits, then ledger id, then entry id. So keys sort
as delayed entries are delivered (by time, ties by position), and one takes 48 bytes where a tuple takes 150.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, pairwise
from typing import Final, NamedTuple

from magnetar.common.errors import DataCorruption
from magnetar.ledger.managed_ledger import cursor_ledger_pb2 as pb
from magnetar.ledger.managed_ledger.cursor_records import decode_entry, encode_entry

CHUNK_ENTRIES: Final = 1_024
"""Delayed entries in one record (3 to 8 KiB), the unit of loading."""

_TIME_SHIFT: Final = 96
_LEDGER_SHIFT: Final = 32
_LEDGER_MASK: Final = (1 << 64) - 1
_ENTRY_MASK: Final = (1 << 32) - 1


def pack(deliver_at_ms: int, ledger_id: int, entry_id: int) -> int:
    """Returns the key of a delayed entry."""
    return deliver_at_ms << _TIME_SHIFT | ledger_id << _LEDGER_SHIFT | entry_id


def time_of(key: int) -> int:
    """Returns the entry's delivery time, ms since 1970 UTC."""
    return key >> _TIME_SHIFT


def position_of(key: int) -> tuple[int, int]:
    """Returns (ledger id, entry id) of a key."""
    return key >> _LEDGER_SHIFT & _LEDGER_MASK, key & _ENTRY_MASK


class ChunkContent(NamedTuple):
    """The delayed entries of a chunk as arrays, in key order."""

    times_ms: list[int]
    ledger_ids: list[int]
    entry_ids: list[int]

    def keys(self) -> list[int]:
        return [pack(*entry) for entry in zip(*self, strict=True)]


def encode_chunk(keys: Sequence[int]) -> bytes:
    """Encodes sorted keys, at least one, as an entry of the cursor ledger."""
    positions = [position_of(key) for key in keys]
    entry_ids = [entry_id for _, entry_id in positions]
    times = [time_of(key) for key in keys]
    numbers = {ledger_id: number for number, ledger_id in enumerate(sorted({each for each, _ in positions}))}
    chunk = pb.DelayedChunk(
        later_ms=[times[0], *(after - before for before, after in pairwise(times))],
        entry_steps=[entry_ids[0], *(after - before for before, after in pairwise(entry_ids))],
        ledgers=[numbers[ledger_id] for ledger_id, _ in positions] if len(numbers) > 1 else (),
        ledger_ids=list(numbers),
    )
    return encode_entry(pb.Entry(delayed_chunk=chunk))


def decode_chunk(data: bytes) -> ChunkContent:
    """Decodes a chunk. Raises DataCorruption, UnsupportedFormat."""
    return chunk_content(decode_entry(data).delayed_chunk)


def chunk_content(chunk: pb.DelayedChunk) -> ChunkContent:
    """Returns a chunk's content. Raises DataCorruption if its parts are inconsistent."""
    count = len(chunk.later_ms)
    entry_ids = list(accumulate(chunk.entry_steps))
    table = list(chunk.ledger_ids)
    try:
        ledger_ids = [table[number] for number in chunk.ledgers] if chunk.ledgers else table[:1] * count
    except IndexError as error:
        raise DataCorruption("a chunk of delayed entries names a ledger that it does not list") from error
    if not count or not count == len(entry_ids) == len(ledger_ids):
        raise DataCorruption(f"a chunk with {count} times of {len(entry_ids)} delayed entries")
    if min(entry_ids) < 0 or max(entry_ids) > _ENTRY_MASK:
        raise DataCorruption("a chunk of delayed entries with entry ids that cannot be")
    return ChunkContent(list(accumulate(chunk.later_ms)), ledger_ids, entry_ids)


def chunks_ahead(chunks: int) -> bytes:
    """Encodes the record that precedes this number of chunks."""
    return encode_entry(pb.Entry(delayed_chunks_ahead=pb.DelayedChunksAhead(chunks=chunks)))
