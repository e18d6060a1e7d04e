"""The delayed index's records in the cursor ledger: writing, reading, and copying to a new cursor ledger.

The index is derived data: unreadable or uncopied records are dropped (`forget`) without waiting, so they
never delay the cursors that share the ledger.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from magnetar.common.errors import DataCorruption, MagnetarError
from magnetar.common.obs.logs import get_logger
from magnetar.ledger.ledger_store import LedgerReader, LedgerRef
from magnetar.ledger.managed_ledger.context import ManagedLedgerContext
from magnetar.ledger.managed_ledger.delayed_chunks import chunks_ahead, decode_chunk
from magnetar.ledger.managed_ledger.delayed_index import DelayedChunk, DelayedIndex
from magnetar.ledger.managed_ledger.new_record_ledger import NewRecordLedger

log = get_logger(__name__)

_COPY_BYTES_MAX: Final = 1024 * 1024
_READ_BYTES_MAX: Final = 1024 * 1024


class DelayedRecords:
    """The stored chunks of one topic's index. `forget` empties the index when they are lost."""

    __slots__ = ("_ctx", "_current_ref", "_forget", "_index", "_reader", "_unwritten", "topic")

    def __init__(
        self,
        ctx: ManagedLedgerContext,
        topic: str,
        index: DelayedIndex,
        current_ref: Callable[[], LedgerRef | None],
        forget: Callable[[str], None],
    ) -> None:
        """Creates the records. `current_ref` returns the cursor ledger named by the topic's head."""
        self._ctx = ctx
        self.topic = topic
        self._index = index
        self._current_ref = current_ref
        self._forget = forget
        self._unwritten: list[DelayedChunk] = []
        self._reader: LedgerReader | None = None

    # Writing

    def add(self, chunks: list[DelayedChunk]) -> None:
        """Schedules chunks for the next flush."""
        self._unwritten += chunks

    @property
    def due(self) -> bool:
        """Whether chunks wait to be written."""
        return bool(self._unwritten)

    def take(self) -> tuple[list[bytes], list[DelayedChunk]]:
        """Returns (entries for a flush, their chunks, which are the last entries)."""
        chunks = [chunk for chunk in self._unwritten if chunk.data is not None]
        self._unwritten = []
        return _entries(chunks), chunks

    def take_for_snapshot(self) -> tuple[list[bytes], list[DelayedChunk]]:
        """Returns the same for a new cursor ledger, including chunks of an unconfirmed flush."""
        self._unwritten = []
        chunks = [chunk for chunk in self._index.chunks() if chunk.data is not None]
        return _entries(chunks), chunks

    def written(self, chunks: list[DelayedChunk], last_entry_id: int) -> None:
        """Records that these chunks are confirmed, the last one at this entry id."""
        for number, chunk in enumerate(chunks):
            chunk.entry_id = last_entry_id - len(chunks) + 1 + number
            chunk.data = None

    @property
    def live(self) -> tuple[int, int]:
        """Returns (entries, bytes) of the cursor ledger that are still needed."""
        chunks = [chunk for chunk in self._index.chunks() if chunk.entry_id >= 0]
        return len(chunks), sum(chunk.byte_length for chunk in chunks)

    # Reading

    async def read(self, chunk: DelayedChunk) -> list[int]:
        """Reads the keys of a chunk. Raises StorageError, including DataCorruption."""
        if chunk.keys is not None:
            return chunk.keys
        data = chunk.data
        if data is None:
            (data,) = await self._read_raw(chunk.entry_id, 1)
        return decode_chunk(data).keys()

    async def _read_raw(self, first: int, count: int) -> list[bytes]:
        ref = self._current_ref()
        if ref is None:
            raise DataCorruption(f"{self.topic} has chunks of delayed entries and no cursor ledger")
        if self._reader is None or self._reader.ref != ref:
            self._reader = await self._ctx.ledgers.open(ref)
        found: list[bytes] = []
        while len(found) < count:
            at = first + len(found)
            for run in await self._reader.read(at, first + count - 1, _READ_BYTES_MAX):
                found += run.entries
        return found

    # Moving to a new cursor ledger

    async def copy_to(self, new: NewRecordLedger, moved: dict[DelayedChunk, int]) -> None:
        """Copies the stored chunks to a new cursor ledger; adds each one's new entry id to `moved`.

        Chunks written meanwhile are included, so none is missing on return. Raises the new ledger's errors.
        """
        while missing := [
            chunk for chunk in self._index.chunks() if chunk.entry_id >= 0 and chunk not in moved
        ]:
            missing.sort(key=lambda chunk: chunk.entry_id)
            lot = next(_lots(missing))
            try:
                entries = await self._read_raw(lot[0].entry_id, len(lot))
            except MagnetarError as error:
                self._forget(f"its records cannot be copied: {error}")
                return
            first = await new.append([chunks_ahead(len(lot)), *entries])
            for number, chunk in enumerate(lot):
                moved[chunk] = first + 1 + number

    def moved(self, moved: dict[DelayedChunk, int]) -> None:
        """Records that the topic's head names the new cursor ledger."""
        for chunk, entry_id in moved.items():
            chunk.entry_id = entry_id
        self._reader = None


def _entries(chunks: list[DelayedChunk]) -> list[bytes]:
    data = [chunk.data for chunk in chunks if chunk.data is not None]
    return [chunks_ahead(len(data)), *data] if data else []


def _lots(chunks: list[DelayedChunk]) -> Iterator[list[DelayedChunk]]:
    """Yields groups of consecutive chunks, each small enough to be copied at once."""
    lot: list[DelayedChunk] = []
    size = 0
    for chunk in chunks:
        if lot and (chunk.entry_id != lot[-1].entry_id + 1 or size >= _COPY_BYTES_MAX):
            yield lot
            lot, size = [], 0
        lot.append(chunk)
        size += chunk.byte_length
    yield lot
