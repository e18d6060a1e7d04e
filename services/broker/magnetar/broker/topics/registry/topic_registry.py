"""Loaded topics of this broker: loading, creating, listing and deleting topics.

Concurrent requests for a topic share one load.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType
from typing import Final

from magnetar.broker.byte_budget import ByteBudget
from magnetar.broker.client_endings import EndCode
from magnetar.broker.namespaces import Namespaces
from magnetar.broker.ownership.ownership import Ownership
from magnetar.broker.policies.effective_policies import EffectivePolicies
from magnetar.broker.policies.policy_store import PolicyStore
from magnetar.broker.schemas.schema_store import SchemaStore
from magnetar.broker.subscriptions.limits.broker_unacked_limit import broker_unacked_limit
from magnetar.broker.task_spawner import Spawn
from magnetar.broker.topics.config import TopicSettings
from magnetar.broker.topics.non_persistent_topic import NonPersistentTopic
from magnetar.broker.topics.persistent_topic import PersistentTopic
from magnetar.broker.topics.publish.in_process_limit import InProcess
from magnetar.broker.topics.publish.publish_gate import PublishLimits
from magnetar.broker.topics.registry.creation_guards import guards_of
from magnetar.broker.topics.registry.exclusions import Exclusions
from magnetar.broker.topics.registry.policy_refresher import PolicyRefresher
from magnetar.broker.topics.registry.topic_loads import counted_load
from magnetar.broker.topics.subscribe.dispatch_rates import DispatchRates
from magnetar.broker.topics.topic import Topic
from magnetar.broker.topics.topic_context import TopicContext
from magnetar.common.errors import (
    NamespaceNotFound,
    NotAllowed,
    OwnershipLost,
    ServiceNotReady,
    TooManyRequests,
    TopicBusy,
    TopicNotFound,
)
from magnetar.common.metadata.keys import Keys
from magnetar.common.metadata.store import Check, Delete, MetadataStore, Op, Put, Versioned
from magnetar.common.metadata.values import PartitionedTopic, Policies, TopicPolicies, decode, encode
from magnetar.common.naming.bundle_range import BundleRange
from magnetar.common.naming.namespace_name import NamespaceName
from magnetar.common.naming.topic_name import PERSISTENT, TopicName, is_system_topic
from magnetar.common.obs.logs import get_logger
from magnetar.common.runtime.cooperative_iteration import iterate_cooperatively
from magnetar.ledger.managed_ledger.context import ManagedLedgerContext
from magnetar.ledger.managed_ledger.directory import delete_managed_ledger
from magnetar.ledger.managed_ledger.topic_loading import open_managed_ledger

log = get_logger(__name__)

NOT_PARTITIONED: Final = 0

CLOSE_BEFORE_DELETION_S: Final = 10.0
"""Seconds for closing a topic cleanly before it is deleted or unloaded."""

LOADS_BEFORE_CLOSE_S: Final = 5.0
"""Seconds that a closing broker waits for topics being loaded: they have nothing to confirm."""


@dataclass(frozen=True, slots=True)
class _Loading:
    task: asyncio.Task[Topic]
    create: bool


class TopicRegistry:
    """Loaded topics by full name."""

    def __init__(
        self,
        config: TopicSettings,
        budget: ByteBudget,
        ledgers: ManagedLedgerContext,
        metadata: MetadataStore,
        keys: Keys,
        namespaces: Namespaces,
        policies: PolicyStore,
        schemas: SchemaStore,
        spawn: Spawn,
        ownership: Ownership,
    ) -> None:
        self._ownership = ownership
        self._policies = policies
        self._refresher = PolicyRefresher(policies, spawn)
        self._config = config
        self._ledgers = ledgers
        self._metadata = metadata
        self._keys = keys
        self._namespaces = namespaces
        self._schemas = schemas
        self._publish_limits = PublishLimits(config, ledgers.clock)
        self._dispatch_rates = DispatchRates(config.policies.rates, ledgers.clock)
        self._context = TopicContext(
            config,
            budget,
            ledgers.clock,
            spawn,
            publish_limits=self._publish_limits,
            broker_unacked=broker_unacked_limit(config.dispatch),
            dispatch_rates=self._dispatch_rates,
        )
        self._topics: dict[str, Topic] = {}
        self._loading: dict[str, _Loading] = {}
        self.exclusions = Exclusions(lambda: (*self._topics, *self._loading))
        """Topics being deleted, or created without being loaded."""
        self._in_process = InProcess(config.topics.non_persistent_in_process_max)
        self._closing = False
        self._no_loads: ServiceNotReady | None = None
        self.on_non_persistent: Callable[[TopicName, bool], None] = lambda name, there: None
        """Callback for created and deleted non-persistent topics, which metadata does not list."""

    def refuse_loads(self, error: ServiceNotReady | None) -> None:
        """Refuses loads with `error`, or allows them again with None; loaded topics are still served."""
        self._no_loads = error

    @property
    def loaded(self) -> Mapping[str, Topic]:
        """The topics loaded now, by full name."""
        return MappingProxyType(self._topics)

    async def get(self, name: TopicName, *, create: bool, claim: bool = False) -> Topic:
        """Returns a topic, loading it if needed.

        `create`: the client allows its creation; the configuration must allow it, too. `claim`: the topic was
        not looked up, so its bundle is assigned now if it has no owner. Raises TopicNotFound,
        NamespaceNotFound, NotAllowed, TooManyRequests, ServiceNotReady (also when another broker serves the
        topic), StorageError.
        """
        if claim:
            await self._ownership.claim(name)
        else:
            await self._ownership.settled(name)
            self._ownership.check(name)
        while True:
            topic = self._topics.get(name.full)
            if topic is not None:
                topic.check_open()
                if create:
                    topic.inactive_since = None  # a client; requests that only read do not keep the topic
                return topic
            loading = self._loading.get(name.full)
            if loading is None or loading.task.done():
                # A finished load stays registered until the loop runs its callback. Awaiting it takes no turn
                # of the loop: a caller that fails with it and retries would never let the callback run.
                loading = self._start_loading(name, create)
            try:
                # Shielded: cancelling one caller must not cancel the load for the others.
                return await asyncio.shield(loading.task)
            except TopicNotFound:
                if loading.create or not create:
                    raise
                # The pending load may not create it; load it again with this caller's right to create.
            except asyncio.CancelledError:
                task = asyncio.current_task()
                if not loading.task.cancelled() or (task is not None and task.cancelling()):
                    raise
                # The load was canceled, not the caller: another broker has become the owner.
                raise ServiceNotReady(f"topic {name} moved to another broker; look it up again") from None

    def _start_loading(self, name: TopicName, create: bool) -> _Loading:
        if self._closing:
            raise ServiceNotReady("the broker is shutting down")
        if self._no_loads is not None:
            raise ServiceNotReady(*self._no_loads.args)
        self._ownership.check(name)
        self.exclusions.check_not_deleted(name)
        if len(self._loading) >= self._config.topics.loads_max:
            raise TooManyRequests(
                f"{len(self._loading)} topics are already loading (maxConcurrentTopicLoadRequest)"
            )
        task = asyncio.create_task(self._load(name, create), name=f"load {name}")
        loading = self._loading[name.full] = _Loading(task, create)
        task.add_done_callback(lambda _: self._load_ended(name, loading))
        return loading

    def _load_ended(self, name: TopicName, loading: _Loading) -> None:
        if self._loading.get(name.full) is loading:
            del self._loading[name.full]

    async def _load(self, name: TopicName, create: bool) -> Topic:
        with counted_load(self._config.cluster_name):
            return await self._load_now(name, create)

    async def _load_now(self, name: TopicName, create: bool) -> Topic:
        await self.check_allowed(name)
        self._schemas.forget(name)  # another topic of this name may have been deleted, here or elsewhere
        topic: Topic
        generation = self._policies.generation
        policies = await self._policies.of_topic(name)
        if name.persistent:
            topic = await self._load_persistent(name, policies, create and await self._may_create(name))
        else:
            if not create or not await self._may_create(name):
                raise TopicNotFound(f"topic {name} does not exist and may not be created automatically")
            topic = NonPersistentTopic(
                name,
                policies,
                self._config.dispatch,
                self._ledgers.clock,
                self._in_process,
                publish_limits=self._publish_limits,
            )
        if self._closing:
            await topic.close()
            raise ServiceNotReady("the broker is shutting down")
        self._topics[name.full] = topic
        if not name.persistent:
            self.on_non_persistent(name, True)
        if generation != self._policies.generation:
            self._refresher.refresh([topic])
        return topic

    def rates_changed(self) -> None:
        """Handles changed rates of the broker; loaded topics get them with their policies."""
        self._publish_limits.rates_changed()
        self._dispatch_rates.rates_changed()

    def policies_changed(self, namespace: NamespaceName | None, changed: TopicName | None) -> None:
        """Refreshes the policies of the loaded topics that a change may affect."""
        self._refresher.refresh(
            topic
            for topic in self._topics.values()
            if (namespace is None or topic.name.namespace == namespace)
            and (changed is None or topic.name.base == changed)
        )

    async def policies_applied(self, seconds_max: float) -> None:
        """Waits until every loaded topic has the changed policies, or until `seconds_max` have passed."""
        await self._refresher.applied(seconds_max)

    async def _load_persistent(
        self, name: TopicName, policies: EffectivePolicies, create: bool
    ) -> PersistentTopic:
        topic = PersistentTopic(name, policies, self._context, self._forget, lease=self._ownership.lease)
        ledger = await open_managed_ledger(
            self._ledgers,
            name.full,
            topic,
            create=create,
            properties={},
            guards=partial(self._guards, name),
        )
        try:
            await topic.attach(ledger)
            topic.check_open()
        except asyncio.CancelledError:
            ledger.lose(OwnershipLost(f"{name} was assigned to another broker before it was loaded"))
            raise
        except BaseException:
            await ledger.close()
            raise
        return topic

    async def _guards(self, name: TopicName) -> list[Check]:
        partition = name.partition_index >= 0 and await self.partitions(name.base) != NOT_PARTITIONED
        return await guards_of(self._metadata, self._keys, name, partition=partition)

    async def check_allowed(self, name: TopicName) -> None:
        """Raises NotAllowed or NamespaceNotFound for a topic that clients may not use."""
        topics = self._config.topics
        if not (topics.persistent_enabled if name.persistent else topics.non_persistent_enabled):
            raise NotAllowed(f"{name.domain} topics are disabled on this broker: {name}")
        if is_system_topic(name):
            raise NotAllowed(f"{name} is a name reserved for the system")
        await self.check_namespace(name.namespace)

    async def check_namespace(self, namespace: NamespaceName) -> None:
        """Raises NamespaceNotFound; tenants and namespaces are never created automatically."""
        if not await self._namespaces.exists(namespace):
            raise NamespaceNotFound(f"namespace {namespace} does not exist; create it first")

    async def _may_create(self, name: TopicName) -> bool:
        """Whether a topic may be created automatically; always true for a partition within its topic's
        count.
        """
        if name.partition_index >= 0:
            partitions = await self.partitions(name.base)
            if partitions != NOT_PARTITIONED:
                return name.partition_index < partitions
        elif await self.partitions(name) != NOT_PARTITIONED:
            return False  # messages sent to it would be in none of its partitions
        if not (await self._policies.of_namespace(name.namespace)).auto_topic_creation:
            return False
        await self.check_room(name)
        return True

    async def check_room(self, name: TopicName, partitions: int = 1) -> None:
        """Raises NotAllowed when this topic is missing and its namespace is at its maximum of topics."""
        most = (await self._policies.of_namespace(name.namespace)).max_topics
        if not most or not name.persistent or await self.exists(name):
            return
        if len(await self.list(name.namespace, persistent=True)) + partitions > most:
            raise NotAllowed(f"namespace {name.namespace} may have {most} topics; {name} would exceed that")

    async def partitions(self, name: TopicName) -> int:
        """Returns the number of partitions of a topic; 0 when it is not partitioned."""
        found = await self._metadata.get(self._keys.partitioned_topic(name))
        return NOT_PARTITIONED if found is None else decode(PartitionedTopic, found.value).partitions

    async def exists(self, name: TopicName) -> bool:
        """Whether the topic exists, loaded or not."""
        if name.full in self._topics:
            return True
        return name.persistent and await self._metadata.get(self._keys.topic_head(name)) is not None

    async def list(
        self, namespace: NamespaceName, *, persistent: bool, system_too: bool = False
    ) -> list[str]:
        """Lists the full names of a namespace's topics, sorted; system topics only with `system_too`."""
        if persistent:
            listing = await self._metadata.children(self._keys.topic_heads_prefix(PERSISTENT, namespace))
            names = [
                self._keys.topic_of_head(item.key) async for item in iterate_cooperatively(listing.items)
            ]
        else:
            names = [
                topic.name
                for topic in self._topics.values()
                if not topic.name.persistent and topic.name.namespace == namespace
            ]
        return sorted(name.full for name in names if system_too or not is_system_topic(name))

    async def loads_done(
        self, concerned: Callable[[TopicName], bool], *, seconds_max: float | None = None
    ) -> None:
        """Waits until none of these topics is being loaded. Loads longer than `seconds_max` are cancelled,
        and their clients have to look the topic up again.
        """
        tasks = [each.task for full, each in self._loading.items() if concerned(TopicName.parse(full))]
        if tasks:
            _, late = await asyncio.wait(tasks, timeout=seconds_max)
            for task in late:
                task.cancel()

    async def delete(
        self, name: TopicName, *, force: bool, unless_subscribed: bool = False, keep_grants: bool = False
    ) -> None:
        """Delete a topic with its subscriptions, its messages and its schemas.

        Raises TopicBusy while a producer or a consumer is connected, unless `force`, which disconnects them;
        with `unless_subscribed` (deletion by inactivity) also while there is a subscription. With
        `keep_grants` (by inactivity, too) permissions stay, for the next topic of that name. A loaded topic
        is fenced before the first await, so a caller's preceding check stays valid.
        Clients that ask for it meanwhile get ServiceNotReady, and the next topic of that name is a new one.
        Raises TopicNotFound, ServiceNotReady when it is being deleted already or another broker serves it,
        StorageError, MetadataError.
        """
        await self._ownership.claim(name)
        async with self.exclusions.deleting(name):
            loading = self._loading.get(name.full)
            if loading is not None:
                await asyncio.wait([loading.task])
                self._ownership.check(name)  # it may have moved to another broker, with clients
            topic = self._topics.get(name.full)
            if topic is None:
                if not await self.exists(name):
                    raise TopicNotFound(f"topic {name} does not exist")
            else:
                check_deletable(topic, force=force, unless_subscribed=unless_subscribed)
                await self._unload_for_good(topic, EndCode.TOPIC_DELETED)
            with_it = await self._said_of(name, keep_grants=keep_grants) if name.partition_index < 0 else []
            if name.persistent:
                await delete_managed_ledger(self._ledgers, name.full, with_it)
            elif with_it:
                await self._metadata.commit(with_it)

    async def said_of_partitioned(
        self, partitioned: Versioned, name: TopicName, *, keep_grants: bool = False
    ) -> Sequence[Op]:
        """The deletion of a partitioned topic's metadata, with its policies and schemas.

        With `keep_grants` the permissions of roles stay, for the next topic of that name.
        """
        said = await self._said_of(name, keep_grants=keep_grants)
        return [Delete(partitioned.key, partitioned.version), *said]

    async def _said_of(self, name: TopicName, *, keep_grants: bool) -> Sequence[Op]:
        """The deletion of its policies and schemas: they go with the topic, in its transaction, or they would
        be those of the next one of its name.
        """
        key = self._keys.topic_policies(name)
        change: Op = Delete(key)
        found = await self._metadata.get(key) if keep_grants else None
        if found is not None:
            permissions = decode(TopicPolicies, found.value).policies.permissions
            if permissions:
                kept = TopicPolicies(policies=Policies(permissions=permissions))
                change = Put(key, encode(kept), found.version)
        return [change, *await self._schemas.deletions(name)]

    async def unload(self, name: TopicName, code: EndCode = EndCode.UNLOADED) -> None:
        """Closes a topic; it is loaded again on request. Does nothing when it is not loaded.

        Clients are notified, reconnect, and find `code` as the reason.
        """
        topic = self._topics.get(name.full)
        if topic is not None:
            await self._unload_for_good(topic, code)

    async def _unload_for_good(self, topic: Topic, code: EndCode) -> None:
        topic.disconnect_clients(code)
        closed = False
        try:
            await asyncio.wait_for(topic.close(), CLOSE_BEFORE_DELETION_S)
            closed = True
        except TimeoutError:
            # Storage does not confirm the pending messages. The ledgers stay open, to be deleted or
            # recovered.
            log.warning("topic not closed cleanly in time", topic=topic.name.full)
        finally:
            if not closed and isinstance(topic, PersistentTopic):
                topic.give_up()
            self._forget(topic)

    def _forget(self, topic: Topic) -> None:
        if self._topics.get(topic.name.full) is topic:
            del self._topics[topic.name.full]
            if not topic.name.persistent:
                self.on_non_persistent(topic.name, False)

    async def prove_ownership(self, *, silent: bool, look: Callable[[], object]) -> None:
        """Makes topics with clients prove that this broker owns them, or abandons them; metadata is `silent`
        (does not answer), or may be soon.

        `look` is called in between, so that a long pass over many topics does not count as a suspended
        process.
        """
        async for topic in iterate_cooperatively(list(self._topics.values())):
            look()
            if not topic.has_clients or not (silent or topic.name.persistent):
                continue
            try:
                topic.prove_ownership()
            except Exception:
                log.exception("ownership of a topic could not be checked", topic=topic.name.full)
            if topic.closing:
                self._forget(topic)

    def abandon(self, error: OwnershipLost) -> None:
        """Abandons all topics because other brokers own them: loaded ones are lost, pending loads fail."""
        self._closing = True
        self._abandon(error, lambda name: True)

    def abandon_bundle(self, namespace: NamespaceName, bundle: BundleRange, error: OwnershipLost) -> None:
        """Abandons the topics of a bundle that another broker owns: loaded ones and those being loaded are
        lost.
        """
        self._abandon(error, lambda name: name.namespace == namespace and name.hash in bundle)

    def _abandon(self, error: OwnershipLost, concerned: Callable[[TopicName], bool]) -> None:
        for full, loading in self._loading.items():
            if concerned(TopicName.parse(full)):
                loading.task.cancel()
        for topic in list(self._topics.values()):
            if concerned(topic.name):
                topic.abandon(error)
                if not self._closing:
                    self._forget(topic)

    async def close(self) -> None:
        """Closes every topic: notifies clients first, then confirms published messages and flushes
        cursors.
        """
        self._closing = True
        await self.loads_done(lambda name: True, seconds_max=LOADS_BEFORE_CLOSE_S)
        topics = list(self._topics.values())
        for topic in topics:
            topic.disconnect_clients(EndCode.BROKER_STOPPING)
        results = await asyncio.gather(*(topic.close() for topic in topics), return_exceptions=True)
        for topic, result in zip(topics, results, strict=True):
            if isinstance(result, BaseException):
                log.error("topic did not close cleanly", topic=topic.name.full, error=str(result))
        self._topics.clear()


def check_deletable(topic: Topic, *, force: bool, unless_subscribed: bool = False) -> None:
    """Raises TopicBusy while the topic is in use; see TopicRegistry.delete."""
    if topic.has_clients and not force:
        raise TopicBusy(
            f"topic {topic.name} has active producers/subscriptions; disconnect them, or delete it with force"
        )
    if unless_subscribed and topic.subscriptions:
        raise TopicBusy(f"topic {topic.name} has subscriptions")
