"""Recorded intents to delete: written with the change that makes something unused, removed when it is gone.

A crash between the two leaves the intent, and whoever runs `finish_intents` next does the rest; nothing is
orphaned (storage contract, section 4). Everything here may be done twice.

The objects of an offloaded ledger are named by an intent of their own, from the transaction on in which the
ledger's key goes; whoever has the packages to reach them finishes it.

A ledger in the making has an intent until something names it. So the transaction that deletes a ledger holds
its intent at the version that was read: an intent that is gone by then says that the ledger is in use.
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
    """The write that records that a ledger is to be deleted."""
    intent_id = delete_ledger_intent_id(ref.id)
    intent = Intent(id=intent_id, created_ms=ctx.clock.wall_ms())
    intent.delete_ledger.ref.CopyFrom(ref_value(ref))
    return Put(ctx.keys.intent(intent_id), encode(intent), expected_version)


def delete_objects_intents(ctx: ManagedLedgerContext, ledger: TopicLedger) -> list[Op]:
    """The writes that record that a closed ledger's objects are to be deleted, if it has some.

    They go in the transaction that deletes the ledger's key at the version at which it was read: from then on
    no attempt at it can be completed, and nothing reads its objects. Those of an attempt that still runs, or
    that was given up, are named too; what it writes later is swept.
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
    """Do what a recorded intent says, and remove it in the same transaction; nothing when there is none."""
    found = await ctx.metadata.get(ctx.keys.intent(delete_ledger_intent_id(ref.id)))
    if found is not None:
        await _delete_ledger(ctx, ref, found)


async def finish_quietly(ctx: ManagedLedgerContext, ref: LedgerRef) -> None:
    """`finish_delete_ledger`, leaving it for the next `finish_intents` when it fails."""
    try:
        await finish_delete_ledger(ctx, ref)
    except MagnetarError as error:
        log.warning("ledger not deleted yet", ledger=ref.id, error=str(error))


async def finish_intents(ctx: ManagedLedgerContext, *, age_min_ms: int = 0) -> int:
    """Finish every recorded intent that is at least so old; returns how many were finished.

    At the start of a process `age_min_ms` is 0. While topics are loaded give it a minute or more: a cursor
    ledger in the making has an intent until its head names it, and would have to be made again.
    An intent that fails is logged and left for the next time.
    """
    finished = 0
    now_ms = ctx.clock.wall_ms()
    for item in (await ctx.metadata.children(ctx.keys.intents_prefix)).items:
        try:
            intent = decode(Intent, item.value)
            # Without a least age the clock does not matter, which may have been set back.
            is_young = age_min_ms and now_ms - intent.created_ms < age_min_ms
            if is_young or not _is_ours(intent):
                continue
            finished += await _finish(ctx, item, intent)
        except MagnetarError as error:
            log.warning("intent not finished", intent=item.key, error=str(error))
    return finished


def _is_ours(intent: Intent) -> bool:
    """Namespaces and tenants are deleted by brokers."""
    return intent.WhichOneof("target") in ("delete_ledger", "delete_topic")


async def finish_delete_topic(ctx: ManagedLedgerContext, key: str, intent: Intent) -> None:
    """Delete every ledger of one life of a topic, then the intent itself."""
    target = intent.delete_topic
    for item in (await ctx.metadata.children(ctx.keys.topic_ledgers_prefix(target.creation_id))).items:
        await _delete_closed_ledger(ctx, item)
    for ref_named in target.ledgers:
        await ctx.ledgers.delete(read_ref(ref_named))
    await ctx.metadata.delete(key)
    log.info("topic deleted", topic=target.name)


async def _delete_closed_ledger(ctx: ManagedLedgerContext, item: Versioned) -> None:
    """Delete a ledger with its topic's key, as that stands: an offload job may be at work at it."""
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
    """False when the intent is not what it was: somebody finished it, or the ledger came to be of use."""
    try:
        await ctx.ledgers.delete(ref, with_ops=[Delete(intent.key, intent.version)])
    except VersionMismatch as error:
        if error.key != intent.key:
            raise
        return False
    return True
