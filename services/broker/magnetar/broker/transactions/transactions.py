"""The transactions of one broker: its coordinators, its topics, and the check of what lingers in them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from magnetar.broker.ownership.ownership import Ownership
from magnetar.broker.task_spawner import Spawn
from magnetar.broker.topics.registry.topic_registry import TopicRegistry
from magnetar.broker.transaction_config import TransactionConfig
from magnetar.broker.transactions.coordinator_topic import coordinator_count, ensure_coordinators
from magnetar.broker.transactions.lingering import LingeringTransactions
from magnetar.broker.transactions.participants import Participants
from magnetar.broker.transactions.status import Statuses, TransactionStatuses
from magnetar.broker.transactions.topic_ends import TopicEnds
from magnetar.common.errors import ServiceNotReady
from magnetar.common.naming.bundle_range import BundleRange
from magnetar.common.naming.namespace_name import NamespaceName
from magnetar.common.naming.txn_id import TxnId
from magnetar.ledger.managed_ledger.context import ManagedLedgerContext

if TYPE_CHECKING:  # loaded by `start`: a broker without transactions needs none of it
    from magnetar.broker.transactions.coordinators import Coordinators


class Transactions:
    """Composes them: `start`, then `close`.

    With transactions off there are no coordinators; topics still end transactions that coordinators of other
    brokers end.
    """

    def __init__(self, topics: TopicRegistry, ownership: Ownership, ledgers: ManagedLedgerContext) -> None:
        self.topics = TopicEnds(topics, ownership)
        """Ends transactions in topics of this broker."""
        self.participants: Participants = self.topics
        """Ends transactions in topics of any broker; replaced in a cluster, before `start`."""
        self.statuses: Statuses = self
        """Asks coordinators of any broker; replaced in a cluster, before `start`."""
        self.coordinators: Coordinators | None = None
        """None while transactions are off."""
        self._ownership = ownership
        self._ledgers = ledgers
        self._lingering = LingeringTransactions(
            lambda: topics.loaded, lambda: self.statuses, self.topics, ledgers.clock
        )

    async def status(self, coordinator_id: int, transactions: Sequence[TxnId]) -> TransactionStatuses:
        """See `Statuses`: answers for the coordinators of this broker."""
        coordinators = self.coordinators
        if coordinators is None:
            raise ServiceNotReady("transactions are disabled on this broker")
        coordinator = await coordinators.of(coordinator_id)
        of = {txn: coordinator.status(txn) for txn in transactions}
        return TransactionStatuses(of, coordinator.low_watermark)

    async def start(self, spawn: Spawn, config: TransactionConfig, *, cluster: str, count: int) -> None:
        """Serves the coordinators of this broker, which the first start in the cluster creates, `count` of
        them. Raises MetadataError.
        """
        from magnetar.broker.transactions.coordinators import Coordinators

        metadata, keys, clock = self._ledgers.metadata, self._ledgers.keys, self._ledgers.clock
        await ensure_coordinators(metadata, keys, count, clock.wall_ms())
        self.coordinators = Coordinators(
            self._ledgers,
            self._ownership,
            self.participants,
            lambda: coordinator_count(metadata, keys),
            cluster=cluster,
            active_max=config.active_max,
        )
        spawn(self._lingering.run(), "lingering transactions")

    async def close_bundle(self, namespace: NamespaceName, bundle: BundleRange) -> None:
        """Closes the coordinators of a bundle before another broker takes it: what they decided is durable,
        and the next owner carries it out.
        """
        if self.coordinators is not None:
            await self.coordinators.close_bundle(namespace, bundle)

    def bundle_lost(self, namespace: NamespaceName, bundle: BundleRange) -> None:
        """Drops the coordinators of a bundle that another broker owns, without writing."""
        if self.coordinators is not None:
            self.coordinators.bundle_lost(namespace, bundle)

    def abandon(self, reason: str) -> None:
        """Drops all coordinators without writing: this broker is no longer registered."""
        if self.coordinators is not None:
            self.coordinators.abandon(reason)

    async def close(self) -> None:
        """Closes the coordinators: nothing is decided here any more. Idempotent."""
        if self.coordinators is not None:
            await self.coordinators.close()
