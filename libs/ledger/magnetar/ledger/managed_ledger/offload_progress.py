"""Offload progress of a topic's ledgers at its owner, and how the owner learns it.

Jobs take a ledger on under its own key, at any broker; the owner reads its topic's keys when it loads the
topic, from time to time, and whenever a ledger is not where it should be. What it knows may be old, then.
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
    """How long bookies keep a ledger after its objects are whole; negative: for ever."""
    objects_first: bool = False
    """Reads go to objects even while bookies have the ledger."""


NO_OFFLOAD: Final = OffloadRules()


def note(span: LedgerSpan, value: TopicLedger, version: int) -> bool:
    """Take what metadata says of a ledger at this version, unless something newer is known; True when it is
    something else than was known.
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
    """Ask metadata about one ledger; True when something changed. Raises MetadataError, StorageError."""
    found = await ctx.metadata.get(ctx.keys.topic_ledger(creation_id, span.ref.id))
    return found is not None and _take(span, found)


async def refresh_all(ctx: ManagedLedgerContext, creation_id: int, spans: LedgerSpans) -> None:
    """Ask metadata about all closed ledgers of a topic. Raises MetadataError, StorageError."""
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
    """Where the whole objects of a ledger are; None when there are none."""
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
    """Reads a ledger from its objects; None when there are none, or nothing here could read them."""
    offload = span.offload
    if offload is None or ctx.cold is None:
        return None
    if offload.reader is None:
        ledger = cold_ledger(span, topic, creation_id)
        offload.reader = None if ledger is None else ColdLedgerReader(ctx.cold, ledger)
    return offload.reader
