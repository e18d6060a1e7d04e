"""Cache of sealed segments' indexes: loaded from their footers on demand, within a memory limit."""

from __future__ import annotations

from collections import OrderedDict

from magnetar.common.errors import DataCorruption
from magnetar.common.obs.logs import get_logger
from magnetar.common.runtime.blocking import BlockingPool
from magnetar.ledger.ledger_store import LedgerRef
from magnetar.ledger.segment_log.index import LedgerIndex
from magnetar.ledger.segment_log.recovery import rebuild_indexes
from magnetar.ledger.segment_log.segment import Segment

log = get_logger(__name__)


class IndexCache:
    """Evicts the least recently used index first. The indexes are stored in their segments. Used on
    the loop.
    """

    def __init__(self, pool: BlockingPool, bytes_max: int) -> None:
        self._pool = pool
        self._bytes_max = bytes_max
        self._bytes = 0
        self._sizes: OrderedDict[tuple[Segment, LedgerRef], int] = OrderedDict()

    @property
    def byte_length(self) -> int:
        """Memory of the cached indexes in bytes."""
        return self._bytes

    async def get(self, segment: Segment, ref: LedgerRef) -> LedgerIndex | None:
        """Returns a ledger's index in a segment; None if the segment holds nothing of it. Raises OSError."""
        index = segment.indexes.get(ref)
        if index is not None:
            if segment.sealed:
                self._touch(segment, ref, index)
            return index
        if ref not in segment.summaries:
            return None
        try:
            index = await self._pool.run(lambda: segment.load_index(ref))
        except DataCorruption as error:
            log.error("a segment's index is damaged, made again from its records", error=str(error))
            index = (await self._pool.run(lambda: rebuild_indexes(segment))).get(ref) or LedgerIndex()
            index.incomplete = len(index) < segment.summaries[ref].runs
        segment.indexes[ref] = index
        if not segment.retired:
            self._touch(segment, ref, index)
        return index

    def sealed(self, segment: Segment) -> None:
        """Takes over the open index of a segment that was sealed."""
        for ref, index in list(segment.indexes.items()):
            self._touch(segment, ref, index)

    def dropped(self, segment: Segment) -> None:
        """Drops the indexes of a segment being removed."""
        for ref in segment.indexes:
            self._bytes -= self._sizes.pop((segment, ref), 0)

    def _touch(self, segment: Segment, ref: LedgerRef, index: LedgerIndex) -> None:
        key = (segment, ref)
        size = self._sizes.pop(key, 0)
        self._sizes[key] = index.memory_bytes
        self._bytes += index.memory_bytes - size
        while self._bytes > self._bytes_max and len(self._sizes) > 1:
            (old, old_ref), size = self._sizes.popitem(last=False)
            self._bytes -= size
            old.indexes.pop(old_ref, None)
