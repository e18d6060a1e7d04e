"""The source of reads of a topic's ledger: the storage it was written to, or its objects.

A ledger that left bookies is read from objects only. Otherwise the topic's policies choose the first source,
and the other one is used if that fails. The owner's knowledge may be stale: before an entry missing or
damaged in storage counts as lost, metadata is read to check whether the ledger now has objects or has left
storage. While metadata is unavailable no entry counts as lost.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from magnetar.common.errors import DataCorruption, LedgerError, MetadataError
from magnetar.common.obs.log_limit import LogLimit
from magnetar.common.obs.logs import get_logger
from magnetar.common.obs.metrics import REGISTRY, begin_at_zero
from magnetar.ledger.cold.cold_reader import ColdLedgerReader, ObjectsUnavailable
from magnetar.ledger.cold.key_rows import KeyRun
from magnetar.ledger.ledger_store import LedgerReader, Run
from magnetar.ledger.managed_ledger.context import ManagedLedgerContext
from magnetar.ledger.managed_ledger.ledger_list import LedgerSpan, SpanOffload
from magnetar.ledger.managed_ledger.offload_progress import cold_reader, refresh
from prometheus_client import Counter

log = get_logger(__name__)

OTHER_TIER = Counter(
    "magnetar_cold_other_tier_reads",
    "Reads of an offloaded ledger that failed where it is read first, and succeeded where else it is.",
    ["failed"],
    registry=REGISTRY,
)
begin_at_zero(OTHER_TIER, "objects", "storage")

_lines = LogLimit()


@dataclass(slots=True)
class SpanReads:
    """Reads one topic's ledgers; created for one answer."""

    ctx: ManagedLedgerContext
    topic: str
    creation_id: int
    objects_first: bool = False
    _asked: set[int] = field(default_factory=set)

    async def read(self, span: LedgerSpan, first: int, last: int, max_bytes: int) -> list[Run]:
        """Reads like `LedgerReader.read`. Also raises NoSuchLedger, MetadataError.

        An error of storage is raised only if metadata confirms that the ledger has no complete objects.
        """
        known = span.offload
        try:
            return await self._read(span, first, last, max_bytes)
        except (LedgerError, MetadataError):
            if not await self._something_new(span, known):
                raise
        return await self._read(span, first, last, max_bytes)

    async def read_keys(self, span: LedgerSpan, first: int, last: int) -> list[KeyRun]:
        """Reads like `ColdStore.read_keys` a ledger that only objects have."""
        return await self._objects(span).read_keys(first, last)

    async def first_not_before(self, span: LedgerSpan, publish_time_ms: int) -> int:
        """Searches like `ColdStore.first_not_before`."""
        known = span.offload
        try:
            return await self._objects(span).first_not_before(publish_time_ms)
        except LedgerError:
            if not await self._something_new(span, known):
                raise
        return await self._objects(span).first_not_before(publish_time_ms)

    def from_objects(self, span: LedgerSpan) -> bool:
        """Returns whether the ledger is read from objects first."""
        offload = span.offload
        return offload is not None and (offload.left_bookies or (self.objects_first and offload.complete))

    def only_in_objects(self, span: LedgerSpan) -> bool:
        """Returns whether only objects have the ledger."""
        return span.offload is not None and span.offload.left_bookies

    def is_only_copy(self, span: LedgerSpan) -> bool:
        """Returns whether storage has the only copy of each entry: damage there means loss."""
        offload = span.offload
        if span.reader is None or span.reader.copies > 1:
            return False
        return offload is None or not (offload.complete or offload.left_bookies)

    async def _read(self, span: LedgerSpan, first: int, last: int, max_bytes: int) -> list[Run]:
        offload = span.offload
        if offload is None or not (offload.complete or offload.left_bookies):
            return await (await self._storage(span)).read(first, last, max_bytes)
        if offload.left_bookies:
            return await self._objects(span).read(first, last, max_bytes)
        try:
            return await (await self._reader(span, self.objects_first)).read(first, last, max_bytes)
        except (LedgerError, MetadataError) as error:
            failed = error
        reader = await self._reader(span, not self.objects_first)
        found = await reader.read(first, last, max_bytes)
        self._note_other(span, failed)
        return found

    async def _reader(self, span: LedgerSpan, objects: bool) -> LedgerReader:
        return self._objects(span) if objects else await self._storage(span)

    async def _storage(self, span: LedgerSpan) -> LedgerReader:
        if span.reader is None:
            span.reader = await self.ctx.ledgers.open(span.ref)
        return span.reader

    def _objects(self, span: LedgerSpan) -> ColdLedgerReader:
        if self.ctx.cold is None:
            raise ObjectsUnavailable(
                f"ledger {span.ref.id} of {self.topic} is in objects, and nothing in this process reads them"
            )
        reader = cold_reader(self.ctx, span, self.topic, self.creation_id)
        if reader is None:
            raise DataCorruption(
                f"ledger {span.ref.id} of {self.topic} left bookies, and metadata names no objects of it"
            )
        return reader

    async def _something_new(self, span: LedgerSpan, known: SpanOffload | None) -> bool:
        """Returns whether the ledger's state changed since a read began; if not, reads metadata once per
        instance. Raises MetadataError, StorageError.
        """
        if span.offload is not known:
            return True
        if not span.closed or span.ref.id in self._asked:
            return False
        self._asked.add(span.ref.id)
        return await refresh(self.ctx, self.creation_id, span)

    def _note_other(self, span: LedgerSpan, error: Exception) -> None:
        failed = "objects" if self.objects_first else "storage"
        OTHER_TIER.labels(failed).inc()
        if times := _lines.note(self.ctx.clock.monotonic()):
            log.warning(
                f"read of an offloaded ledger failed in {failed}, read elsewhere",
                topic=self.topic,
                ledger=span.ref.id,
                error=str(error),
                times=times,
            )
