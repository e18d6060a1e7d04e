"""Creation, deletion and listing of managed ledgers without loading them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

from magnetar.common.errors import MagnetarError, MetadataError, UnknownOutcome, VersionMismatch
from magnetar.common.metadata.keys import delete_topic_intent_id
from magnetar.common.metadata.store import ABSENT, TXN_OPS_MAX, Check, Delete, Op, Put
from magnetar.common.metadata.values import CompactedView, Intent, TopicHead, decode, encode
from magnetar.common.naming.namespace_name import NamespaceName
from magnetar.common.naming.topic_name import PERSISTENT, TopicName
from magnetar.common.obs.logs import get_logger
from magnetar.ledger.managed_ledger.context import Guards, ManagedLedgerContext, no_guards
from magnetar.ledger.managed_ledger.intents import finish_delete_topic
from magnetar.ledger.managed_ledger.topic_head import ref_value
from magnetar.ledger.managed_ledger.view_record import find_view, ledgers_of

log = get_logger(__name__)

_ATTEMPTS_MAX = 5
_CREATED_AT_ONCE = 100
_OPS_OF_A_DELETION = 3


async def create_managed_ledgers(
    ctx: ManagedLedgerContext,
    names: Sequence[str],
    *,
    properties: Mapping[str, str] | None = None,
    guards: Guards = no_guards,
) -> None:
    """Creates the topics that do not exist; a topic has no owner until it is loaded. Idempotent.

    `guards` must hold at creation; its errors are raised.
    """
    for first in range(0, len(names), _CREATED_AT_ONCE):
        some = [TopicName.parse(name) for name in names[first : first + _CREATED_AT_ONCE]]
        await _create_some(ctx, some, properties or {}, guards)


async def _create_some(
    ctx: ManagedLedgerContext, names: list[TopicName], properties: Mapping[str, str], guards: Guards
) -> None:
    for _ in range(_ATTEMPTS_MAX):
        keys = [ctx.keys.topic_head(name) for name in names]
        missing = [key for key in keys if await ctx.metadata.get(key) is None]
        if not missing:
            return
        put_heads = partial(_new_heads, missing, await guards(), properties, ctx.clock.wall_ms())
        try:
            await ctx.creation_ids.commit(put_heads, len(missing))
        except (VersionMismatch, UnknownOutcome):
            continue
        return
    raise MetadataError(f"topics {names[0]} and so on are being made by others as well; try again")


def _new_heads(
    keys: Sequence[str],
    checks: Sequence[Check],
    properties: Mapping[str, str],
    created_ms: int,
    first_id: int,
) -> Sequence[Op]:
    heads = [
        TopicHead(creation_id=creation_id, properties=properties, created_ms=created_ms)
        for creation_id in range(first_id, first_id + len(keys))
    ]
    return [*(Put(key, encode(head), ABSENT) for key, head in zip(keys, heads, strict=True)), *checks]


async def delete_managed_ledger(ctx: ManagedLedgerContext, name: str, with_it: Sequence[Op] = ()) -> None:
    """Deletes one topic; see `delete_managed_ledgers`."""
    await delete_managed_ledgers(ctx, [name], with_it)


def deleted_at_once(with_it: Sequence[Op] = ()) -> int:
    """Returns how many topics fit in one transaction with these operations."""
    return (TXN_OPS_MAX - len(with_it)) // _OPS_OF_A_DELETION


async def delete_managed_ledgers(
    ctx: ManagedLedgerContext, names: Sequence[str], with_it: Sequence[Op] = ()
) -> None:
    """Deletes topics, all or none, with their ledgers and cursors; closes loaded ones. Idempotent.

    `with_it` are further operations for the transaction that removes the topics; they must fit
    (`deleted_at_once`), and without any topic there is no transaction. Raises VersionMismatch if one of their
    guards fails, MetadataError. Deletes the topics existing at the start, not later ones of the same name.
    The intents are recorded in the transaction that removes the heads, so after a crash the topics are
    complete or the next `finish_intents` continues the deletion.
    """
    keys = [ctx.keys.topic_head(TopicName.parse(name)) for name in names]
    meant: dict[str, int] | None = None
    for _ in range(_ATTEMPTS_MAX):
        found = [item for key in keys if (item := await ctx.metadata.get(key)) is not None]
        heads = {item.key: decode(TopicHead, item.value) for item in found}
        if meant is None:
            meant = {key: head.creation_id for key, head in heads.items()}
        doomed = [item for item in found if meant.get(item.key) == heads[item.key].creation_id]
        if not doomed:
            return
        intents: list[Intent] = []
        ops: list[Op] = []
        for item in doomed:
            head = heads[item.key]
            intent = _intent_to_delete(ctx, item.key, head)
            # The view changes in transactions with the head, whose version guards it as well.
            if (view := await find_view(ctx.metadata, ctx.keys, head)) is not None:
                refs = ledgers_of(decode(CompactedView, view.value))
                intent.delete_topic.ledgers.extend([ref_value(ref) for ref in refs])
                ops.append(Delete(view.key))
            intents.append(intent)
            ops += [Put(ctx.keys.intent(intent.id), encode(intent)), Delete(item.key, item.version)]
        try:
            await ctx.metadata.commit([*ops, *with_it])
        except VersionMismatch as error:
            if error.key not in heads:
                raise
        except UnknownOutcome:
            pass
        else:
            break
    else:
        raise MetadataError(f"topic {names[0]}, or others with it, keeps changing while it is deleted")
    for intent in intents:
        try:
            await finish_delete_topic(ctx, ctx.keys.intent(intent.id), intent)
        except MagnetarError as error:
            # The topic is gone; the next `finish_intents` removes its remains.
            log.warning("deleted topic has ledgers left", topic=intent.delete_topic.name, error=str(error))


def _intent_to_delete(ctx: ManagedLedgerContext, key: str, head: TopicHead) -> Intent:
    intent = Intent(id=delete_topic_intent_id(head.creation_id), created_ms=ctx.clock.wall_ms())
    intent.delete_topic.name = ctx.keys.topic_of_head(key).full
    intent.delete_topic.creation_id = head.creation_id
    intent.delete_topic.ledgers.extend(head.open_ledgers)
    if head.HasField("cursor_ledger"):
        intent.delete_topic.ledgers.append(head.cursor_ledger)
    return intent


async def managed_ledger_exists(ctx: ManagedLedgerContext, name: str) -> bool:
    """Whether a persistent topic with this name exists, loaded or not."""
    return await ctx.metadata.get(ctx.keys.topic_head(TopicName.parse(name))) is not None


async def list_managed_ledgers(
    ctx: ManagedLedgerContext, namespace: NamespaceName | None = None
) -> list[TopicName]:
    """Lists the persistent topics of one namespace or of all, in key order."""
    prefix = ctx.keys.topic_heads_prefix(PERSISTENT, namespace)
    return [ctx.keys.topic_of_head(item.key) for item in (await ctx.metadata.children(prefix)).items]
