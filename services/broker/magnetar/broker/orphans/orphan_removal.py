"""Clears one orphan, in a transaction that fails when it has an owner by now.

The transaction checks every key that could reference the orphan. So nothing that is being created is deleted,
however old the scan is that found the orphan.
"""

from __future__ import annotations

from magnetar.broker.client_endings import EndCode
from magnetar.broker.orphans import orphan as orphans
from magnetar.broker.orphans.orphan import Orphan
from magnetar.broker.orphans.orphan_scan import (
    coordinator_of_ledger,
    ledger_orphan,
    namespace_intent,
    topic_of_ledger,
)
from magnetar.broker.topics.registry.topic_registry import TopicRegistry
from magnetar.common.errors import VersionMismatch
from magnetar.common.metadata.keys import delete_ledger_intent_id, delete_topic_intent_id
from magnetar.common.metadata.store import ABSENT, Check, Delete, Op, Versioned
from magnetar.common.metadata.values import LedgerMetadata, TopicHead, TopicLedger, decode
from magnetar.common.naming.topic_name import TopicName
from magnetar.common.runtime.cooperative_iteration import iterate_cooperatively
from magnetar.ledger.managed_ledger.context import ManagedLedgerContext
from magnetar.ledger.managed_ledger.directory import delete_managed_ledger
from magnetar.ledger.managed_ledger.intents import delete_objects_intents
from magnetar.ledger.managed_ledger.topic_head import read_ref


class Clearing:
    """Clears orphans; idempotent."""

    def __init__(self, ledgers: ManagedLedgerContext, registry: TopicRegistry) -> None:
        self._ledgers = ledgers
        self._metadata = ledgers.metadata
        self._keys = ledgers.keys
        self._registry = registry

    async def clear(self, orphan: Orphan) -> bool:
        """Clears an orphan; returns False when it is gone, has changed, or has an owner by now.

        Raises MetadataError, StorageError.
        """
        item = await self._metadata.get(orphan.key)
        if item is None or item.version != orphan.version:
            return False
        try:
            match orphan.kind:
                case orphans.LEDGER:
                    return await self._clear_ledger(item)
                case orphans.TOPIC_LEDGER:
                    return await self._clear_topic_ledger(item)
                case orphans.TOPIC:
                    return await self._clear_topic(self._keys.topic_of_head(item.key))
                case orphans.PARTITIONED_TOPIC:
                    guards = self._no_namespace(self._keys.topic_of_partitioned(item.key))
                case orphans.TOPIC_POLICIES:
                    guards = await self._nothing_there(self._keys.topic_of_policies(item.key))
                case _:
                    guards = await self._nothing_there(self._keys.topic_of_schema(item.key))
            await self._metadata.commit([Delete(item.key, item.version), *guards])
        except (VersionMismatch, _Belongs):
            return False
        return True

    async def _clear_ledger(self, item: Versioned) -> bool:
        value = decode(LedgerMetadata, item.value)
        guards = await self._nothing_names(value)
        # After the reads of the guarded keys: a guard detects every later change.
        if await ledger_orphan(self._metadata, self._keys, item) is None:
            return False
        await self._ledgers.ledgers.delete(read_ref(value.ref), with_ops=guards)
        return True

    async def _nothing_names(self, value: LedgerMetadata) -> list[Op]:
        """Returns checks that what could reference a ledger stays as it is now."""
        no_intent = Check(self._keys.intent(delete_ledger_intent_id(value.ref.id)), ABSENT)
        coordinator_id = coordinator_of_ledger(value)
        if coordinator_id is not None:
            key = self._keys.transaction_log_head(coordinator_id)
            log_head = await self._metadata.get(key)
            return [Check(key, ABSENT if log_head is None else log_head.version), no_intent]
        name = TopicName.parse(value.properties["topic"])
        head = await self._metadata.get(self._keys.topic_head(name))
        guards: list[Op] = [
            Check(self._keys.topic_head(name), ABSENT if head is None else head.version),
            no_intent,
        ]
        if head is not None:
            creation_id = decode(TopicHead, head.value).creation_id
            guards.append(Check(self._keys.topic_ledger(creation_id, value.ref.id), ABSENT))
        return guards

    async def _clear_topic_ledger(self, item: Versioned) -> bool:
        # No topic gets an existing creation id later: each id is assigned once, with its topic. The scan
        # found no topic with this id; the only topic that could have it is checked here.
        creation_id, ledger_id = self._keys.topic_ledger_ids_of(item.key)
        if await self._is_of_a_topic(creation_id, ledger_id):
            return False
        value = decode(TopicLedger, item.value)
        if value.offload.left_bookies_ms and await self._has_a_head(creation_id):
            return False
        intent = self._keys.intent(delete_topic_intent_id(creation_id))
        objects = delete_objects_intents(self._ledgers, value)
        await self._ledgers.ledgers.delete(
            read_ref(value.ref), with_ops=[Delete(item.key, item.version), Check(intent, ABSENT), *objects]
        )
        return True

    async def _has_a_head(self, creation_id: int) -> bool:
        """Checks every topic: a ledger deleted from bookies has no metadata that names its topic."""
        items = (await self._metadata.children(self._keys.topic_heads_prefix())).items
        async for item in iterate_cooperatively(items):
            if decode(TopicHead, item.value).creation_id == creation_id:
                return True
        return False

    async def _is_of_a_topic(self, creation_id: int, ledger_id: int) -> bool:
        """Whether the ledger belongs to a topic; also True when its metadata names none."""
        found = await self._metadata.get(self._keys.ledger(ledger_id))
        if found is None:
            return False
        name = topic_of_ledger(decode(LedgerMetadata, found.value))
        if name is None:
            return True
        head = await self._metadata.get(self._keys.topic_head(name))
        return head is not None and decode(TopicHead, head.value).creation_id == creation_id

    async def _clear_topic(self, name: TopicName) -> bool:
        await self._registry.unload(name, EndCode.TOPIC_DELETED)
        await delete_managed_ledger(self._ledgers, name.full, self._no_namespace(name))
        return True

    def _no_namespace(self, name: TopicName) -> list[Op]:
        return [
            Check(self._keys.namespace(name.namespace), ABSENT),
            Check(namespace_intent(self._keys, name.namespace), ABSENT),
        ]

    async def _nothing_there(self, name: TopicName) -> list[Op]:
        """Returns checks that no topic of that name exists, nor a partition of it."""
        if await self._metadata.get(self._keys.namespace(name.namespace)) is None:
            return self._no_namespace(name)
        if not name.persistent:
            raise _Belongs
        heads = await self._metadata.children(self._keys.topic_heads_prefix(name.domain, name.namespace))
        if any(self._keys.topic_of_head(head.key).base == name for head in heads.items):
            raise _Belongs
        return [
            Check(self._keys.topic_head(name), ABSENT),
            Check(self._keys.partitioned_topic(name), ABSENT),
        ]


class _Belongs(Exception):
    """Raised when the key has an owner and is no orphan."""
