"""Release of an offloaded ledger by bookies (or a standalone's log): its objects become the only copy.

By the topic's owner alone, a while after the objects became whole, and only after every one of them was read
and compared with its checksum. In this order, so that at each moment something has every entry:

1. objects verified (`ColdStore.verify`), against what the ledger's key says;
2. in one transaction: the key says that the ledger has left, an intent to delete it is recorded. It is
   guarded by the key's version (the same whole objects, still) and by the head's (the same owner, still);
3. reads go to the objects;
4. the ledger is deleted, by its intent.

A crash after 2 leaves the intent to the next `finish_intents`. A crash before 2 changes nothing.
"""

from __future__ import annotations

from collections.abc import Container, Sequence
from typing import Final

from magnetar.common.errors import MetadataError, UnknownOutcome, VersionMismatch
from magnetar.common.metadata.store import Check, Op, Put, Versioned
from magnetar.common.metadata.values import TopicLedger, decode, encode
from magnetar.common.obs.logs import get_logger
from magnetar.common.obs.metrics import REGISTRY
from magnetar.ledger.cold.cold_reader import ColdLedger, Verified
from magnetar.ledger.ledger_store import LedgerRef
from magnetar.ledger.managed_ledger import offload_state
from magnetar.ledger.managed_ledger.context import ManagedLedgerContext
from magnetar.ledger.managed_ledger.intents import delete_ledger_intent, finish_quietly
from magnetar.ledger.managed_ledger.ledger_list import LedgerSpan
from magnetar.ledger.managed_ledger.offload_progress import OffloadRules, note
from magnetar.ledger.managed_ledger.offload_state import OffloadRefused
from magnetar.ledger.managed_ledger.topic_head import TopicHeadKey, read_ref
from prometheus_client import Counter

log = get_logger(__name__)

LEFT = Counter(
    "magnetar_cold_ledgers_left_bookies",
    "Ledgers whose objects were verified and became the only copy: bookies, or the log, delete theirs.",
    registry=REGISTRY,
)
DAMAGED = Counter(
    "magnetar_cold_damaged_ledgers",
    "Offloaded ledgers whose objects were found missing or damaged; they are wanted again where bookies have "
    "them still.",
    registry=REGISTRY,
)

_ATTEMPTS_MAX: Final = 5


def due(
    spans: Sequence[LedgerSpan], rules: OffloadRules, now_ms: int, skip: Container[LedgerRef] = ()
) -> LedgerSpan | None:
    """Returns the oldest ledger not in `skip` that must leave bookies once its objects are verified; None
    without one.
    """
    lag_ms = rules.deletion_lag_ms
    if lag_ms < 0:
        return None
    for span in spans:
        offload = span.offload
        if offload is None or not span.closed or not offload.complete or offload.left_bookies:
            continue
        if now_ms - offload.completed_ms >= lag_ms and span.ref not in skip:
            return span
    return None


async def leave(
    ctx: ManagedLedgerContext, head: TopicHeadKey, creation_id: int, span: LedgerSpan, verified: Verified
) -> bool:
    """Releases a ledger with verified objects from bookies. Idempotent.

    Returns False if its objects have been replaced or it is no longer part of the topic.

    Raises OwnershipLost if the topic has another owner; UnknownOutcome or another MetadataError if the
    outcome is unknown; a retry is safe.
    """
    await head.sync()
    key = ctx.keys.topic_ledger(creation_id, span.ref.id)
    for _ in range(_ATTEMPTS_MAX):
        found = await ctx.metadata.get(key)
        if found is None:
            return False
        before = decode(TopicLedger, found.value)
        if not _is_of(before, verified.ledger):
            note(span, before, found.version)
            return False
        if not offload_state.has_left_bookies(before):
            after = _left(before, verified, ctx.clock.wall_ms())
            put = Put(key, encode(after), found.version)
            ops: list[Op] = [
                Check(head.key, head.version),
                put,
                delete_ledger_intent(ctx, span.ref),
            ]
            try:
                found = Versioned(key, put.value, await ctx.metadata.commit(ops))
            except VersionMismatch as error:
                if error.key != key:
                    raise head.explain(error) from error
                continue
            except UnknownOutcome:
                # The transaction is atomic: if this process's value is there, so is the intent.
                now = await ctx.metadata.get(key)
                if now is None or now.value != put.value:
                    raise
                found = now
            LEFT.inc()
            log.info("ledger left bookies", ledger=span.ref.id, path=verified.ledger.path)
            before = after
        note(span, before, found.version)
        _learn(span, verified)
        await finish_quietly(ctx, span.ref)
        return True
    raise MetadataError(f"{key} keeps changing while its ledger is to leave bookies")


def _is_of(value: TopicLedger, ledger: ColdLedger) -> bool:
    """Return whether these are the complete objects of the ledger."""
    offload = value.offload
    return (
        offload_state.is_complete(value)
        and read_ref(value.ref) == ledger.ref
        and value.last_entry_id == ledger.last_entry_id
        and (offload.attempt, offload.location, offload.path, offload.manifest_sha256)
        == (ledger.attempt, ledger.location, ledger.path, ledger.manifest_sha256)
    )


def _left(before: TopicLedger, verified: Verified, now_ms: int) -> TopicLedger:
    after = offload_state.leave(before, attempt=verified.ledger.attempt, now_ms=now_ms)
    if not after.messages:
        # A takeover closed the ledger without reading it; with this value the topic loads without any object.
        after.messages = verified.messages
        after.first_index = verified.first_index
    after.max_publish_time_ms = after.max_publish_time_ms or verified.max_publish_time_ms
    return after


def _learn(span: LedgerSpan, verified: Verified) -> None:
    if span.messages < 0:
        span.messages, span.first_index = verified.messages, verified.first_index
    span.max_publish_time_ms = span.max_publish_time_ms or verified.max_publish_time_ms


async def want_again(ctx: ManagedLedgerContext, ledger: ColdLedger, reason: str) -> bool:
    """Requests another offload of a ledger whose objects are damaged, if bookies still have it.

    Returns False if its objects have been replaced or are the only copy. Raises MetadataError.
    """
    DAMAGED.inc()
    key = ctx.keys.topic_ledger(ledger.creation_id, ledger.ref.id)
    for _ in range(_ATTEMPTS_MAX):
        found = await ctx.metadata.get(key)
        if found is None or not _is_of(value := decode(TopicLedger, found.value), ledger):
            return False
        try:
            after = offload_state.again(
                value, attempt=ledger.attempt, error=reason, now_ms=ctx.clock.wall_ms()
            )
            await ctx.metadata.put(key, encode(after), found.version)
        except OffloadRefused as error:
            log.error("damaged objects are the only copy", topic=ledger.topic, error=str(error))
            return False
        except (VersionMismatch, UnknownOutcome):
            continue
        return True
    raise MetadataError(f"{key} keeps changing while its ledger is to be offloaded again")
