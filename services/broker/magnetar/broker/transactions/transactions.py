"""The transactions of one broker: its coordinators, its topics, and the check of what lingers in them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from magnetar.broker.ownership.ownership import Ownership
from magnetar.broker.task_spawner import Spawn
from magnetar.broker.topics.registry.topic_registry import TopicRegistry
from magnetar.broker.transactions.coordinator_topic import ensure_coordinators
from magnetar.broker.transactions.lingering import LingeringTransactions
from magnetar.broker.transactions.participants import EndResult, Participants, TransactionEnd
from magnetar.broker.transactions.status import Statuses, TransactionStatus, TransactionStatuses
from magnetar.broker.transactions.topic_ends import TopicEnds
from magnetar.common.errors import ServiceNotReady
from magnetar.common.metadata.keys import Keys
from magnetar.common.metadata.store import MetadataStore
from magnetar.common.naming.bundle_range import BundleRange
from magnetar.common.naming.namespace_name import NamespaceName
from magnetar.common.naming.txn_id import Action, TxnId
from magnetar.common.runtime.clock import Clock


class Coordinator(Protocol):
    """One transaction coordinator. `caller` is the role that acts; None may act on every transaction."""

    @property
    def low_watermark(self) -> int: ...

    async def begin(self, ttl_ms: int, owner: str) -> TxnId: ...

    async def add_partitions(self, txn: TxnId, topics: Sequence[str], caller: str | None) -> None: ...

    async def add_subscriptions(
        self, txn: TxnId, subscriptions: Sequence[tuple[str, str]], caller: str | None
    ) -> None: ...

    async def end(self, txn: TxnId, action: Action, caller: str | None) -> None: ...

    def status(self, txn: TxnId) -> TransactionStatus: ...


class Coordinators(Protocol):
    """The coordinators that this broker runs."""

    async def connect(self, tc_id: int) -> None: ...

    async def of(self, tc_id: int) -> Coordinator: ...


class Transactions:
    """Composes them: `start`, then `close`.

    With transactions off there are no coordinators; topics still end transactions that coordinators of other
    brokers end.
    """

    def __init__(
        self,
        topics: TopicRegistry,
        ownership: Ownership,
        metadata: MetadataStore,
        keys: Keys,
        clock: Clock,
    ) -> None:
        self.topics = TopicEnds(topics, ownership)
        """Ends transactions in topics of this broker."""
        self.participants: Participants = self.topics
        """Ends transactions in topics of any broker; replaced in a cluster, before `start`."""
        self.statuses: Statuses = self
        """Asks coordinators of any broker; replaced in a cluster, before `start`."""
        self.coordinators: Coordinators | None = None
        """None while transactions are off."""
        self._metadata = metadata
        self._keys = keys
        self._clock = clock
        self._lingering = LingeringTransactions(
            lambda: topics.loaded, lambda: self.statuses, self.topics, clock
        )

    async def end(self, ends: Sequence[TransactionEnd]) -> list[EndResult]:
        """See `Participants`: ends transactions in topics of any broker."""
        return await self.participants.end(ends)

    async def status(self, coordinator_id: int, transactions: Sequence[TxnId]) -> TransactionStatuses:
        """See `Statuses`: answers for the coordinators of this broker."""
        coordinators = self.coordinators
        if coordinators is None:
            raise ServiceNotReady("transactions are disabled on this broker")
        await coordinators.connect(coordinator_id)
        coordinator = await coordinators.of(coordinator_id)
        of = {txn: coordinator.status(txn) for txn in transactions}
        return TransactionStatuses(of, coordinator.low_watermark)

    async def start(self, spawn: Spawn, count: int) -> None:
        """Creates the cluster's `count` coordinators at the first start, and serves those of this broker.
        Raises MetadataError.
        """
        await ensure_coordinators(self._metadata, self._keys, count, self._clock.wall_ms())
        spawn(self._lingering.run(), "lingering transactions")

    async def close_bundle(self, namespace: NamespaceName, bundle: BundleRange) -> None:
        """Closes the coordinators of a bundle before another broker takes it: what they decided is durable,
        and the next owner carries it out.
        """

    def bundle_lost(self, namespace: NamespaceName, bundle: BundleRange) -> None:
        """Drops the coordinators of a bundle that another broker owns, without writing."""

    def abandon(self) -> None:
        """Drops all coordinators without writing: this broker is no longer registered."""

    async def close(self) -> None:
        """Closes the coordinators: nothing is decided any more. Idempotent."""
