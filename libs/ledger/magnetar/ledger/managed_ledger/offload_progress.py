"""Offload state of a topic's ledgers at its owner, and how the owner refreshes it.

Jobs offload a ledger through its key at any broker; the owner reads its topic's keys when it loads the topic,
periodically, and when a ledger is not found where expected. Its knowledge may be stale.
"""

from __future__ import annotations

from dataclasses import dataclass
from sys import intern
from typing import Final

from magnetar.common.metadata.metadata_pb2 import Offload
from magnetar.common.metadata.store import Versioned
from magnetar.common.metadata.values import LEFT_BOOKIES, TopicLedger, decode
from magnetar.ledger.cold.cold_reader import ColdLedger, ColdLedgerReader
from magnetar.ledger.managed_ledger.context import ManagedLedgerContext
from magnetar.ledger.managed_ledger.ledger_list import LedgerSpan, LedgerSpans, SpanOffload


@dataclass(frozen=True, slots=True)
class OffloadRules:
    """Policies of a topic for its offloaded ledgers."""

    deletion_lag_ms: int = -1
    """Time in ms that bookies keep a ledger after its objects are complete; negative: indefinitely."""
    objects_first: bool = False
    """Read from objects first, even while bookies have the ledger."""


NO_OFFLOAD: Final = OffloadRules()


def note(span: LedgerSpan, value: TopicLedger, version: int) -> bool:
    """Updates a ledger's state from metadata at this version, unless a newer one is known; returns whether it
    changed.
    """
    before = span.offload
    if before is not None and before.version >= version:
        return False
    if not value.HasField("offload"):
        span.offload = None
        return before is not None
    offload = value.offload
    left = bool(value.format.incompatible_features & LEFT_BOOKIES)
    after = SpanOffload(
        version,
        offload.state,
        attempt=offload.attempt,
        location=intern(offload.location),
        path=offload.path,
        manifest_sha256=offload.manifest_sha256,
        completed_ms=offload.completed_ms,
        object_bytes=offload.object_bytes,
        left_bookies_ms=max(offload.left_bookies_ms, 1) if left else 0,
    )
    if before is not None and before.same_objects(after):
        after.reader = before.reader
    span.offload = after
    if after.left_bookies:
        span.reader = None
    return True


async def refresh(ctx: ManagedLedgerContext, creation_id: int, span: LedgerSpan) -> bool:
    """Reads one ledger's state from metadata; returns whether it changed. Raises MetadataError,
    StorageError.
    """
    found = await ctx.metadata.get(ctx.keys.topic_ledger(creation_id, span.ref.id))
    return found is not None and _take(span, found)


async def refresh_all(ctx: ManagedLedgerContext, creation_id: int, spans: LedgerSpans) -> None:
    """Reads the state of all closed ledgers of a topic from metadata. Raises MetadataError, StorageError."""
    for item in (await ctx.metadata.children(ctx.keys.topic_ledgers_prefix(creation_id))).items:
        span = spans.by_id.get(ctx.keys.topic_ledger_ids_of(item.key)[1])
        if span is not None:
            _take(span, item)


def _take(span: LedgerSpan, item: Versioned) -> bool:
    known = span.offload
    if known is not None and known.version >= item.version:
        return False
    value = decode(TopicLedger, item.value)
    return value.ref.key == span.ref.key and note(span, value, item.version)


def cold_ledger(span: LedgerSpan, topic: str, creation_id: int) -> ColdLedger | None:
    """Returns the location of a ledger's complete objects; None without any."""
    offload = span.offload
    if offload is None or offload.state != Offload.COMPLETE:
        return None
    return ColdLedger(
        topic,
        creation_id,
        span.ref,
        span.entries - 1,
        offload.location,
        offload.path,
        offload.attempt,
        offload.manifest_sha256,
    )


def cold_reader(
    ctx: ManagedLedgerContext, span: LedgerSpan, topic: str, creation_id: int
) -> ColdLedgerReader | None:
    """Returns a reader of a ledger's objects; None without any, or if this process cannot read them."""
    offload = span.offload
    if offload is None or ctx.cold is None:
        return None
    if offload.reader is None:
        ledger = cold_ledger(span, topic, creation_id)
        offload.reader = None if ledger is None else ColdLedgerReader(ctx.cold, ledger)
    return offload.reader
