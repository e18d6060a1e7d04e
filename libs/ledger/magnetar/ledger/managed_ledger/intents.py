"""Deletion intents: recorded with the change that makes an object unused, removed once it is deleted.

After a crash in between, the next `finish_intents` completes the deletion, so nothing is orphaned (storage
contract, section 4). Every step is idempotent.

Objects of an offloaded ledger get an intent of their own in the transaction that removes the ledger's key; a
process with the packages to reach them finishes it.

A new ledger has an intent until something references it. So the transaction that deletes a ledger requires
its intent at the version that was read: a missing intent means that the ledger is in use.
"""

from __future__ import annotations

from magnetar.common.errors import MagnetarError, MetadataError, VersionMismatch
from magnetar.common.metadata.keys import delete_ledger_intent_id, delete_objects_intent_id
from magnetar.common.metadata.store import ANY_VERSION, Delete, Op, Put, Versioned
from magnetar.common.metadata.values import Intent, TopicLedger, decode, encode
from magnetar.common.obs.logs import get_logger
from magnetar.ledger.ledger_store import LedgerRef
from magnetar.ledger.managed_ledger.context import ManagedLedgerContext
from magnetar.ledger.managed_ledger.topic_head import read_ref, ref_value

log = get_logger(__name__)

_ATTEMPTS_MAX = 10


def delete_ledger_intent(
    ctx: ManagedLedgerContext, ref: LedgerRef, *, expected_version: int = ANY_VERSION
) -> Put:
    """Returns the write that records a ledger's deletion intent."""
    intent_id = delete_ledger_intent_id(ref.id)
    intent = Intent(id=intent_id, created_ms=ctx.clock.wall_ms())
    intent.delete_ledger.ref.CopyFrom(ref_value(ref))
    return Put(ctx.keys.intent(intent_id), encode(intent), expected_version)


def delete_objects_intents(ctx: ManagedLedgerContext, ledger: TopicLedger) -> list[Op]:
    """Returns the writes that record deletion intents for a closed ledger's objects, if any.

    They belong to the transaction that deletes the ledger's key at the version read: afterwards no attempt at
    it can complete, and nothing reads its objects. Objects of running or failed attempts are included;
    anything written later is swept.
    """
    offload = ledger.offload
    if not offload.path:
        return []
    intent_id = delete_objects_intent_id(ledger.ref.id, offload.attempt)
    intent = Intent(id=intent_id, created_ms=ctx.clock.wall_ms())
    intent.delete_objects.location = offload.location
    intent.delete_objects.path = offload.path
    return [Put(ctx.keys.intent(intent_id), encode(intent))]


async def finish_delete_ledger(ctx: ManagedLedgerContext, ref: LedgerRef) -> None:
    """Executes a recorded intent and removes it in the same transaction; does nothing without one."""
    found = await ctx.metadata.get(ctx.keys.intent(delete_ledger_intent_id(ref.id)))
    if found is not None:
        await _delete_ledger(ctx, ref, found)


async def finish_quietly(ctx: ManagedLedgerContext, ref: LedgerRef) -> None:
    """Calls `finish_delete_ledger`; on failure leaves the intent to the next `finish_intents`."""
    try:
        await finish_delete_ledger(ctx, ref)
    except MagnetarError as error:
        log.warning("ledger not deleted yet", ledger=ref.id, error=str(error))


async def finish_intents(ctx: ManagedLedgerContext, *, age_min_ms: int = 0) -> int:
    """Finishes every recorded intent of at least this age; returns how many were finished.

    Pass 0 at the start of a process. While topics are loaded pass a minute or more: a new cursor ledger has
    an intent until its head names it, and would have to be created again. A failed intent is logged and left
    for the next time.
    """
    finished = 0
    now_ms = ctx.clock.wall_ms()
    for item in (await ctx.metadata.children(ctx.keys.intents_prefix)).items:
        try:
            intent = decode(Intent, item.value)
            # Without a minimum age the clock, which may have been set back, is not used.
            is_young = age_min_ms and now_ms - intent.created_ms < age_min_ms
            if is_young or not _is_ours(intent):
                continue
            finished += await _finish(ctx, item, intent)
        except MagnetarError as error:
            log.warning("intent not finished", intent=item.key, error=str(error))
    return finished


def _is_ours(intent: Intent) -> bool:
    """Returns whether the intent is handled here; brokers delete namespaces and tenants."""
    return intent.WhichOneof("target") in ("delete_ledger", "delete_topic")


async def finish_delete_topic(ctx: ManagedLedgerContext, key: str, intent: Intent) -> None:
    """Deletes every ledger of one incarnation of a topic, then the intent."""
    target = intent.delete_topic
    for item in (await ctx.metadata.children(ctx.keys.topic_ledgers_prefix(target.creation_id))).items:
        await _delete_closed_ledger(ctx, item)
    for ref_named in target.ledgers:
        await ctx.ledgers.delete(read_ref(ref_named))
    await ctx.metadata.delete(key)
    log.info("topic deleted", topic=target.name)


async def _delete_closed_ledger(ctx: ManagedLedgerContext, item: Versioned) -> None:
    """Deletes a ledger with its topic-ledger key at its current version, since an offload job may be changing
    it.
    """
    found: Versioned | None = item
    for _ in range(_ATTEMPTS_MAX):
        if found is None:
            return
        value = decode(TopicLedger, found.value)
        ops = [Delete(found.key, found.version), *delete_objects_intents(ctx, value)]
        try:
            await ctx.ledgers.delete(read_ref(value.ref), with_ops=ops)
        except VersionMismatch as error:
            if error.key != found.key:
                raise
            found = await ctx.metadata.get(found.key)
        else:
            return
    raise MetadataError(f"{item.key} keeps changing while its ledger is deleted; it is tried again")


async def _finish(ctx: ManagedLedgerContext, item: Versioned, intent: Intent) -> bool:
    if intent.WhichOneof("target") == "delete_topic":
        await finish_delete_topic(ctx, item.key, intent)
        return True
    ref = read_ref(intent.delete_ledger.ref)
    done = await _delete_ledger(ctx, ref, item)
    if done:
        log.info("ledger deleted by its intent", ledger=ref.id)
    return done


async def _delete_ledger(ctx: ManagedLedgerContext, ref: LedgerRef, intent: Versioned) -> bool:
    """Deletes a ledger. Returns False if the intent has changed: it was finished elsewhere, or the ledger is
    in use.
    """
    try:
        await ctx.ledgers.delete(ref, with_ops=[Delete(intent.key, intent.version)])
    except VersionMismatch as error:
        if error.key != intent.key:
            raise
        return False
    return True
