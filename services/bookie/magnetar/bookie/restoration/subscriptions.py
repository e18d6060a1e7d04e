"""Drops the subscriptions of a topic whose cursor ledger is lost, so that it can be loaded.

A backup names a topic's cursor ledger of that time. It may have been replaced since and deleted by bookies:
then the acknowledgements are unknown and the topic is not loaded. While restored metadata is not released
nothing is trimmed, so subscriptions can be created again at any position.
"""

from __future__ import annotations

from magnetar.bookie.restoration.inventory import Inventory
from magnetar.bookie.restoration.reconciler import NotReconcilable
from magnetar.common.errors import VersionMismatch
from magnetar.common.metadata.keys import Keys
from magnetar.common.metadata.restoration import holds_deletion, read_restoration
from magnetar.common.metadata.store import Delete, MetadataStore, Op, Put
from magnetar.common.metadata.values import LedgerMetadata, TopicHead, decode, encode
from magnetar.common.naming.topic_name import TopicName
from magnetar.ledger.ledger_store import LedgerRef


async def forget_subscriptions(
    metadata: MetadataStore, keys: Keys, inventory: Inventory, topic: TopicName
) -> int:
    """Removes the cursor ledger from a topic's head and schedules its deletion; returns its reference.

    Raises NotReconcilable if the cursors exist, or if the topic's messages would be trimmed; MetadataError.
    """
    if not holds_deletion(await read_restoration(metadata, keys)):
        raise NotReconcilable(
            "this metadata was not restored, or is released: without subscriptions the topic's messages "
            "would be trimmed at once"
        )
    found = await metadata.get(keys.topic_head(topic))
    if found is None:
        raise NotReconcilable(f"there is no topic {topic.full}")
    head = decode(TopicHead, found.value)
    if not head.HasField("cursor_ledger"):
        raise NotReconcilable(f"{topic.full} names no cursor ledger: it has no subscriptions")
    ref = LedgerRef(head.cursor_ledger.id, head.cursor_ledger.key)
    holders = sorted(inventory.of(ref))
    if holders:
        raise NotReconcilable(
            f"the cursors of {topic.full} are there: {', '.join(holders)} hold ledger {ref.id}. If the topic "
            "does not load, the log of its broker says why"
        )
    head.ClearField("cursor_ledger")
    ops: list[Op] = [Put(found.key, encode(head), found.version)]
    ledger = await metadata.get(keys.ledger(ref.id))
    if ledger is not None and decode(LedgerMetadata, ledger.value).ref.key == ref.key:
        ops.append(Delete(ledger.key, ledger.version))
    try:
        await metadata.commit(ops)
    except VersionMismatch as error:
        raise NotReconcilable(f"{topic.full} changed meanwhile: run this again") from error
    return ref.id
