"""Deletes namespaces and tenants completely, and resumes interrupted deletions.

The transaction that removes a namespace's key also writes an intent to delete all of its data. From then on
the namespace does not exist for any broker: the creation of a topic, policy or schema checks the namespace's
key in its own transaction, and the name cannot be reused before the intent is done. The topics are closed and
deleted, then their policies and schemas, and finally the intent. After a crash before the intent, nothing has
changed. After a later crash, the next `finish` resumes the deletion: at the start of a broker and once a
minute.

Without force, a topic may have been created just before the intent was written. The namespace is then
restored unchanged before anything is deleted.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, nullcontext
from typing import Final, TypeVar

from magnetar.broker.client_endings import EndCode
from magnetar.broker.namespaces import Namespaces
from magnetar.broker.policies.policy_store import PolicyStore
from magnetar.broker.policies.policy_writer import TRIES_MAX
from magnetar.broker.topics.registry.remote_topics import RemoteTopics
from magnetar.broker.topics.registry.topic_registry import TopicRegistry
from magnetar.broker.topics.topic import Topic
from magnetar.common.errors import (
    BeingDeleted,
    MagnetarError,
    NamespaceNotEmpty,
    NamespaceNotFound,
    NotAllowed,
    UnknownOutcome,
    VersionMismatch,
)
from magnetar.common.metadata.keys import delete_namespace_intent_id, delete_tenant_intent_id
from magnetar.common.metadata.store import ABSENT, TXN_OPS_MAX, Check, Delete, Op, Put, Versioned
from magnetar.common.metadata.values import Intent, decode, encode
from magnetar.common.naming.namespace_name import SYSTEM_NAMESPACE, NamespaceName
from magnetar.common.naming.topic_name import DOMAINS, PERSISTENT, TopicName, is_system_topic
from magnetar.common.obs.logs import get_logger
from magnetar.ledger.managed_ledger.context import ManagedLedgerContext
from magnetar.ledger.managed_ledger.directory import delete_managed_ledger

log = get_logger(__name__)

T = TypeVar("T")

AT_ONCE: Final = 16
"""Number of topics of a namespace that are closed or deleted at the same time."""

OWNERS_S: Final = 10.0
"""Seconds that the deletion of a namespace waits for other brokers to close its topics."""

LOOK_EVERY_S: Final = 0.05

AGAIN_AFTER_S: Final = 0.1
"""Seconds between two checks of a namespace that another request deletes, during a tenant's deletion."""


class Deletions:
    """Deletes the namespaces and tenants of a cluster."""

    def __init__(
        self,
        ledgers: ManagedLedgerContext,
        registry: TopicRegistry,
        namespaces: Namespaces,
        policies: PolicyStore,
    ) -> None:
        self._ledgers = ledgers
        self._metadata = ledgers.metadata
        self._keys = ledgers.keys
        self._clock = ledgers.clock
        self._registry = registry
        self._namespaces = namespaces
        self._policies = policies
        self._at_work: set[str] = set()
        self.elsewhere: RemoteTopics | None = None
        """Topics loaded by other brokers; None without other brokers."""

    async def delete_namespace(self, name: NamespaceName, *, force: bool = False) -> None:
        """Deletes a namespace. On return it no longer exists, and its data is deleted as far as storage
        allowed.

        System topics do not prevent the deletion and are deleted, too. Raises NamespaceNotFound;
        NamespaceNotEmpty when it has topics and `force` is false (`force` closes them and disconnects their
        clients); BeingDeleted while another call deletes it; NotAllowed for the cluster's own namespace;
        MetadataError.
        """
        if name == SYSTEM_NAMESPACE:
            raise NotAllowed(f"{name} is the cluster's own and cannot be deleted")
        intent_id = delete_namespace_intent_id(name)
        # With force, no existing topic has to be preserved: a topic created too late finds no namespace.
        kept_out = nullcontext() if force else self._registry.exclusions.deleting_namespace(name)
        async with self._alone(intent_id, f"namespace {name}"):
            with kept_out:
                try:
                    await self._take_away(name, force)
                except NamespaceNotEmpty:
                    if not force:
                        raise
                    # An earlier deletion without force was cut short, and `finish` has restored its
                    # namespace.
                    await self._take_away(name, force)

    async def _take_away(self, name: NamespaceName, force: bool) -> None:
        intent_id = delete_namespace_intent_id(name)
        if await self._pending(intent_id) is None:
            await self._record_namespace(name, force)
        await self._go_on(intent_id, self._finish_namespace)

    async def delete_tenant(self, tenant: str, *, force: bool = False) -> None:
        """Deletes a tenant; with `force` also its namespaces, as far as storage allowed.

        Raises NamespaceNotFound; NamespaceNotEmpty when it has namespaces and `force` is false; BeingDeleted;
        NotAllowed for the cluster's own tenant; MetadataError.
        """
        if force and tenant == SYSTEM_NAMESPACE.tenant:
            raise NotAllowed(f"tenant {tenant} is the cluster's own and cannot be deleted")
        intent_id = delete_tenant_intent_id(tenant)
        async with self._alone(intent_id, f"tenant {tenant}"):
            if await self._pending(intent_id) is None:
                await self._record_tenant(tenant, force)
            if force:
                await self._go_on(intent_id, self._finish_tenant)

    async def finish(self, *, age_min_ms: int = 0) -> None:
        """Resumes every recorded deletion of a namespace or tenant that is at least `age_min_ms` old.

        Failures are logged and retried by the next call. Raises MetadataError when intents cannot be read.
        """
        now_ms = self._clock.wall_ms()
        for item in (await self._metadata.children(self._keys.intents_prefix)).items:
            try:
                intent = decode(Intent, item.value)
                act = self._act_for(intent)
                # Without a least age the wall clock is not used: it may have been set back.
                is_young = age_min_ms and now_ms - intent.created_ms < age_min_ms
                if act is None or is_young:
                    continue
                async with self._alone(intent.id, intent.id):
                    await self._go_on(intent.id, act)
            except (BeingDeleted, NamespaceNotEmpty):
                continue
            except MagnetarError as error:
                log.warning("deletion not finished", intent=item.key, error=str(error))

    def _act_for(self, intent: Intent) -> Callable[[Versioned, Intent], Awaitable[None]] | None:
        match intent.WhichOneof("target"):
            case "delete_namespace":
                return self._finish_namespace
            case "delete_tenant":
                return self._finish_tenant
        return None

    @asynccontextmanager
    async def _alone(self, intent_id: str, what: str) -> AsyncIterator[None]:
        if intent_id in self._at_work:
            raise BeingDeleted(f"{what} is already being deleted; retry when the deletion is done")
        self._at_work.add(intent_id)
        try:
            yield
        finally:
            self._at_work.discard(intent_id)

    async def _pending(self, intent_id: str) -> Versioned | None:
        return await self._metadata.get(self._keys.intent(intent_id))

    async def _go_on(self, intent_id: str, act: Callable[[Versioned, Intent], Awaitable[None]]) -> None:
        """Executes an intent if it still exists; a failure is left to the next `finish`.

        Raises NamespaceNotEmpty when a topic has to be preserved.
        """
        try:
            found = await self._pending(intent_id)
            if found is not None:
                await act(found, decode(Intent, found.value))
        except NamespaceNotEmpty:
            raise
        except MagnetarError as error:
            # The name no longer exists for any broker; the next `finish` deletes the rest.
            log.warning("deletion accepted but not complete", intent=intent_id, error=str(error))

    # -- namespaces

    async def _record_namespace(self, name: NamespaceName, force: bool) -> None:
        key, intent_id = self._keys.namespace(name), delete_namespace_intent_id(name)
        for last in [*([False] * (TRIES_MAX - 1)), True]:
            found = await self._metadata.get(key)
            if found is None:
                raise NamespaceNotFound(f"Namespace {name} does not exist.")
            if not force and (await self._has_topics(name) or await self._has_elsewhere(name)):
                raise NamespaceNotEmpty("Cannot delete non empty namespace")
            intent = Intent(id=intent_id, created_ms=self._clock.wall_ms())
            intent.delete_namespace.name = str(name)
            intent.delete_namespace.force = force
            if not force:
                intent.delete_namespace.namespace = found.value
            if await self._recorded(intent, Delete(key, found.version), last):
                self._namespaces.forget(name)
                log.info("namespace is being deleted", namespace=str(name), force=force)
                return

    async def _recorded(self, intent: Intent, taken_away: Delete, last: bool) -> bool:
        """Writes an intent together with the deletion; returns False when the key has changed, and raises on
        the last attempt.
        """
        key, value = self._keys.intent(intent.id), encode(intent)
        try:
            await self._metadata.commit([taken_away, Put(key, value, ABSENT)])
        except VersionMismatch:
            if last:
                raise
            return False
        except UnknownOutcome:
            # The transaction is atomic: if our own intent exists, the whole transaction was committed.
            found = await self._metadata.get(key)
            if found is None or found.value != value:
                if last:
                    raise
                return False
        return True

    async def _has_topics(self, name: NamespaceName) -> bool:
        """Whether metadata has topics of the namespace, not counting system topics."""
        keys = self._keys
        for domain in DOMAINS:
            heads = await self._metadata.children(keys.topic_heads_prefix(domain, name))
            partitioned = await self._metadata.children(keys.partitioned_topics_prefix(domain, name))
            topics = [keys.topic_of_head(item.key) for item in heads.items]
            topics += [keys.topic_of_partitioned(item.key) for item in partitioned.items]
            if any(not is_system_topic(topic) for topic in topics):
                return True
        return False

    async def _has_elsewhere(self, name: NamespaceName) -> bool:
        """Whether other brokers have topics of the namespace that are not in metadata."""
        names = [] if self.elsewhere is None else await self.elsewhere.non_persistent(name)
        return any(not is_system_topic(TopicName.parse(each)) for each in names)

    async def _finish_namespace(self, item: Versioned, intent: Intent) -> None:
        target = intent.delete_namespace
        name = NamespaceName.parse(target.name)
        tenant = await self._metadata.get(self._keys.tenant(name.tenant))
        # Without its tenant, the namespace cannot be restored.
        if not target.force and tenant is not None and await self._has_topics(name):
            await self._metadata.commit(
                [
                    # As in the creation of a namespace: a concurrent deletion of the tenant that has read it
                    # before fails.
                    Put(tenant.key, tenant.value, tenant.version),
                    Put(self._keys.namespace(name), target.namespace, ABSENT),
                    Delete(item.key, item.version),
                ]
            )
            log.info("namespace restored: a topic was created during its deletion", namespace=target.name)
            raise NamespaceNotEmpty("Cannot delete non empty namespace")
        await self._close_topics(name)
        await self._closed_elsewhere(name)
        # Another broker may have finished this, and the namespace may exist again.
        unfinished = Check(item.key, item.version)
        heads = await self._metadata.children(self._keys.topic_heads_prefix(PERSISTENT, name))
        topics = [self._keys.topic_of_head(head.key) for head in heads.items]
        await _at_once(topics, lambda topic: self._delete_topic(topic, unfinished))
        said = await self._said_in(name)
        fitting = TXN_OPS_MAX - 1
        for first in range(0, len(said), fitting):
            await self._metadata.commit([unfinished, *said[first : first + fitting]])
        await self._metadata.delete(item.key, item.version)
        self._policies.wrote(name, None)
        log.info("namespace deleted", namespace=target.name, topics=len(heads.items))

    async def _close_topics(self, name: NamespaceName) -> None:
        """Closes the namespace's loaded topics. They stay closed: later loads do not find the namespace."""
        registry = self._registry
        await registry.loads_done(lambda topic: topic.namespace == name)
        topics = [topic for topic in registry.loaded.values() if topic.name.namespace == name]
        for topic in topics:
            topic.disconnect_clients(EndCode.TOPIC_DELETED)
        await _at_once(topics, self._close)

    async def _closed_elsewhere(self, name: NamespaceName) -> None:
        """Waits until no broker owns a bundle of the namespace. Owners learn of the deletion through their
        watch and close its topics before they release the bundles. After OWNERS_S the deletion continues
        anyway: an owner that has not released its bundles loses their ledgers.
        """
        prefix = self._keys.namespace_bundle_owners_prefix(name)
        give_up_at = self._clock.monotonic() + OWNERS_S
        while (await self._metadata.children(prefix)).items:
            if self._clock.monotonic() >= give_up_at:
                log.warning("a deleted namespace is still owned", namespace=str(name), waited_s=OWNERS_S)
                return
            await asyncio.sleep(LOOK_EVERY_S)

    async def _close(self, topic: Topic) -> None:
        try:
            await self._registry.unload(topic.name)
        except MagnetarError as error:
            # The namespace has no owner any more; its ledgers are deleted without being closed.
            log.warning("topic of a deleted namespace did not close", topic=topic.name.full, error=str(error))

    async def _delete_topic(self, name: TopicName, unfinished: Check) -> None:
        await delete_managed_ledger(self._ledgers, name.full, [unfinished])

    async def _said_in(self, name: NamespaceName) -> list[Op]:
        """Returns the deletions of its topics' policies and schemas, including topics that are deleted or
        were never stored.
        """
        keys = self._keys
        prefixes = [
            prefix
            for domain in DOMAINS
            for prefix in (
                keys.partitioned_topics_prefix(domain, name),
                keys.topic_policies_prefix(domain, name),
                keys.namespace_schemas_prefix(domain, name),
            )
        ]
        listings = [await self._metadata.children(prefix) for prefix in prefixes]
        return [Delete(item.key) for listing in listings for item in listing.items]

    # -- tenants

    async def _record_tenant(self, tenant: str, force: bool) -> None:
        key = self._keys.tenant(tenant)
        for last in [*([False] * (TRIES_MAX - 1)), True]:
            found = await self._metadata.get(key)
            if found is None:
                raise NamespaceNotFound("Tenant doesn't exist")
            # The creation of a namespace checks the tenant's version in its transaction, so later creations
            # fail.
            if not force:
                if (await self._metadata.children(self._keys.namespaces_prefix(tenant))).items:
                    raise NamespaceNotEmpty("The tenant still has active namespaces")
                # Its namespaces come first: a namespace that is being deleted may be restored.
                await self._check_none_leaves(tenant)
                await self._metadata.delete(key, found.version)
                log.info("tenant deleted", tenant=tenant)
                return
            intent = Intent(id=delete_tenant_intent_id(tenant), created_ms=self._clock.wall_ms())
            intent.delete_tenant.name = tenant
            if await self._recorded(intent, Delete(key, found.version), last):
                log.info("tenant is being deleted with its namespaces", tenant=tenant)
                return

    async def _check_none_leaves(self, tenant: str) -> None:
        for item in (await self._metadata.children(self._keys.intents_prefix)).items:
            name = decode(Intent, item.value).delete_namespace.name
            if name and NamespaceName.parse(name).tenant == tenant:
                raise BeingDeleted(f"namespace {name} is being deleted; retry when the deletion is done")

    async def _finish_tenant(self, item: Versioned, intent: Intent) -> None:
        tenant = intent.delete_tenant.name
        while True:
            # No new namespace can be created; all of them stop existing before the first topic is closed.
            left = (await self._metadata.children(self._keys.namespaces_prefix(tenant))).items
            if not left:
                break
            for act in (self._record_by_tenant, self._delete_by_tenant):
                for each in left:
                    await self._unless_gone(act(self._keys.namespace_of(each.key)))
        await self._metadata.delete(item.key, item.version)
        log.info("tenant deleted", tenant=tenant)

    async def _record_by_tenant(self, name: NamespaceName) -> None:
        intent_id = delete_namespace_intent_id(name)
        async with self._alone(intent_id, f"namespace {name}"):
            if await self._pending(intent_id) is None:
                await self._record_namespace(name, True)

    async def _delete_by_tenant(self, name: NamespaceName) -> None:
        await self.delete_namespace(name, force=True)

    async def _unless_gone(self, work: Awaitable[None]) -> None:
        try:
            await work
        except NamespaceNotFound:
            return
        except BeingDeleted:
            await asyncio.sleep(AGAIN_AFTER_S)


async def _at_once(items: Sequence[T], act: Callable[[T], Awaitable[None]]) -> None:
    """Calls `act` on each item, AT_ONCE at a time; raises the first error after all items were tried."""
    errors: list[BaseException] = []
    for first in range(0, len(items), AT_ONCE):
        some = items[first : first + AT_ONCE]
        results = await asyncio.gather(*(act(each) for each in some), return_exceptions=True)
        errors += [result for result in results if isinstance(result, BaseException)]
    if errors:
        raise errors[0]
