"""Persistent topics: a managed ledger with producers that write it and subscriptions that read it."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from magnetar.broker.client_endings import EndCode
from magnetar.broker.offload_policy.policy import rules_of
from magnetar.broker.policies.effective_policies import EffectivePolicies
from magnetar.broker.stats import TopicStats
from magnetar.broker.subscriptions.limits.open_transactions import blocked_s
from magnetar.broker.subscriptions.subscription import Subscription
from magnetar.broker.tenure import Lease, Tenure
from magnetar.broker.topics.backlog.backlog import Backlog
from magnetar.broker.topics.backlog.backlog_quota import BacklogQuota
from magnetar.broker.topics.backlog.retention import retention_of
from magnetar.broker.topics.publish.persistent_publishing import PersistentPublishing
from magnetar.broker.topics.publish.producer import Producer
from magnetar.broker.topics.publish.producers import Producers
from magnetar.broker.topics.publish.refusals import Refusals
from magnetar.broker.topics.stored_entries import last_in_view, last_message_id, messages_of
from magnetar.broker.topics.subscribe.compaction_subscription import compaction_subscription
from magnetar.broker.topics.subscribe.persistent_subscriptions import PersistentSubscriptions
from magnetar.broker.topics.topic import Topic
from magnetar.broker.topics.topic_context import TopicContext
from magnetar.broker.topics.transaction_figures import TransactionFigures, figures_of
from magnetar.common.errors import OwnershipLost, StorageError
from magnetar.common.naming.position import EARLIEST, Position
from magnetar.common.naming.topic_name import TopicName
from magnetar.common.naming.txn_id import Action, TxnId
from magnetar.common.obs.logs import get_logger
from magnetar.ledger.ledger_store import Run
from magnetar.ledger.managed_ledger.cursor import Cursor
from magnetar.ledger.managed_ledger.entry_cache import ReadCounts
from magnetar.ledger.managed_ledger.managed_ledger import ManagedLedger
from magnetar.ledger.managed_ledger.offload_figures import offloaded_bytes
from magnetar.ledger.managed_ledger.pending_acks import PendingAck

log = get_logger(__name__)


class PersistentTopic(Topic):
    """One persistent topic: composes its parts over a managed ledger, and is the ledger's listener.

    It serves clients after `attach`; its parts do not exist before.
    """

    __slots__ = ("_context", "_copies", "_on_gone", "_tenure", "backlog", "ledger", "quota")

    ledger: ManagedLedger
    backlog: Backlog
    quota: BacklogQuota
    publishing: PersistentPublishing
    subscriptions: PersistentSubscriptions

    def __init__(
        self,
        name: TopicName,
        policies: EffectivePolicies,
        context: TopicContext,
        on_gone: Callable[[PersistentTopic], None],
        *,
        lease: Lease | None = None,
    ) -> None:
        """Builds a topic without its ledger.

        `on_gone` is called when the topic is lost. `lease` tells how long this broker certainly owns the
        topic; None without other brokers.
        """
        super().__init__(name, policies)
        self.stats = TopicStats()
        self._context = context
        self._on_gone = on_gone
        self._tenure = None if lease is None else Tenure(lease)
        self._copies = 0

    async def attach(self, ledger: ManagedLedger) -> None:
        """Starts serving from this managed ledger, which was opened with the topic as its listener.

        Raises StorageError when the deduplication state cannot be read.
        """
        context, limits = self._context, self._context.publish_limits
        self.ledger = ledger
        ledger.on_transaction_ended = self._transaction_ended
        self._apply_storage_policies()
        self.subscriptions = PersistentSubscriptions(
            self.state,
            ledger,
            context.config.dispatch,
            context.budget,
            self.stats,
            context.clock,
            context.spawn,
            context.broker_unacked,
            context.dispatch_rates,
            self._tenure,
        )
        self.backlog = Backlog(ledger, self.subscriptions)
        self.quota = BacklogQuota(self.state, self.backlog, context.clock)
        self.producers = Producers(
            self.state,
            ledger,
            refused=None if limits is None else limits.refused,
            check_quota=self.quota.check_producer,
        )
        self.refusals = Refusals(self.state, self.producers, limits)
        self.publishing = PersistentPublishing(
            self.state,
            ledger,
            self.producers,
            self.refusals,
            limits,
            self.stats,
            context.config.deduplication,
            context.clock,
            context.spawn,
            transactions_enabled=context.config.transactions.enabled,
        )
        await self.publishing.begin()

    def apply_policies(self, policies: EffectivePolicies) -> None:
        self.state.policies = policies
        self.producers.apply_policies()
        self.publishing.apply_policies()
        self._apply_storage_policies()
        self.subscriptions.apply_policies()

    def _apply_storage_policies(self) -> None:
        policies = self.state.policies
        self._copies = self.ledger.persist_as(policies.persistence)
        # Before retention: a topic with a threshold keeps what was not compacted yet.
        self.ledger.compaction.hold(policies.compaction_threshold_bytes > 0)
        self.ledger.retain(retention_of(policies))
        self.ledger.offload = rules_of(policies.offload)

    # Clients

    async def add_producer(self, producer: Producer, waits: Callable[[], None] = lambda: None) -> None:
        await super().add_producer(producer, waits)
        if self.publishing.deduplicates:
            # Runs in flight from an earlier connection count for the last sequence id.
            try:
                await self.publishing.settled(producer.name)
                self.producers.check_connected(producer)
            except BaseException:
                self.producers.remove(producer)
                raise

    # Messages

    def on_confirmed(self, publishes: list[tuple[Run, object]]) -> None:
        """Sends the receipts of durable runs, and wakes the subscriptions."""
        self.publishing.confirmed(publishes)
        self.subscriptions.wake(publishes[0][0])

    def _transaction_ended(
        self, txn: TxnId, action: Action, acks: Sequence[tuple[Cursor, PendingAck]]
    ) -> None:
        """Makes the end of a transaction take effect for producers and subscriptions; it is durable."""
        self.publishing.transaction_ended(txn, action)
        for cursor, acked in acks:
            subscription = self.subscriptions.get(cursor.name)
            if subscription is not None:
                subscription.transaction_ended(action, acked)
        self.subscriptions.read_limit_moved()

    def on_refused(self, publishes: list[tuple[Run, object]], error: StorageError) -> None:
        """Sends errors for runs that storage has refused: none of their entries is stored."""
        self.publishing.refused(publishes, error)

    def on_lost(self, error: StorageError) -> None:
        """Closes the connections of all clients: another broker owns the topic, or its storage is lost.

        No SendError is sent, because unconfirmed messages may be stored.
        """
        log.error("topic lost", topic=self.name.full, error=str(error))
        self.state.closing = True
        self.give_up()
        peers = {producer.peer for producer in self.producers.values()}
        for subscription in self.subscriptions.values():
            peers.update(consumer.peer for consumer in subscription.consumers)
        code = EndCode.OWNERSHIP_LOST if isinstance(error, OwnershipLost) else EndCode.STORAGE_LOST
        for peer in peers:
            peer.close(f"topic {self.name} is lost: {error}", code)
        self._on_gone(self)

    def give_up(self) -> None:
        """Gives up on all unconfirmed runs; their producers get no answer."""
        self.publishing.give_up()

    async def terminate(self) -> Position:
        self.check_open()
        if not self.ledger.terminated:
            self.publishing.terminate()
            self.ledger.seal()
            await self.producers.wait_persisted()
            self.check_open()
            await self.ledger.terminate()
        self.producers.disconnect_all(EndCode.TOPIC_TERMINATED)
        position = self.ledger.last_confirmed
        for subscription in self.subscriptions.values():
            subscription.tell_of_end()
        return position

    async def last_message_id(self, *, compacted: bool = False) -> tuple[Position, int]:
        if compacted and (found := last_in_view(self.ledger)) is not None:
            return found
        return await last_message_id(self.ledger, self._context.config.dispatch.read_bytes_max)

    def compaction_subscription(self) -> Subscription | None:
        """The subscription `__compaction` to show; see `compaction_subscription`."""
        context = self._context
        return compaction_subscription(
            self.ledger, context.config.dispatch, context.budget, self.stats, context.spawn
        )

    async def messages_of(self, position: Position) -> int:
        return await messages_of(self.ledger, position, self._context.config.dispatch.read_bytes_max)

    def is_written(self, within_ms: int) -> bool:
        spans = self.ledger.spans.spans
        return bool(spans) and self._context.clock.wall_ms() - spans[-1].max_publish_time_ms <= within_ms

    def expect_publish(self) -> None:
        self.ledger.prepare()

    # Figures

    @property
    def storage_bytes(self) -> int:
        return self.ledger.storage_bytes

    @property
    def storage_entries(self) -> int:
        return self.ledger.entries

    @property
    def copies(self) -> int:
        return self._copies

    @property
    def read_counts(self) -> ReadCounts | None:
        return self.ledger.read_counts

    @property
    def offloaded_bytes(self) -> int:
        return offloaded_bytes(self.ledger.spans.spans)

    @property
    def uncompacted_bytes(self) -> int:
        """Estimated bytes of the entries after the horizon of the compacted view; of all without a view."""
        return self.ledger.spans.bytes_after(self.ledger.compaction.horizon or EARLIEST)

    @property
    def transactions(self) -> TransactionFigures:
        return figures_of(self.ledger)

    @property
    def blocked_by_transaction_s(self) -> float:
        return blocked_s(self.ledger)

    @property
    def compacted_entries(self) -> int:
        return self.ledger.compaction.figures.entries

    @property
    def compacted_bytes(self) -> int:
        return self.ledger.compaction.figures.byte_length

    @property
    def backlog_bytes(self) -> int:
        return self.backlog.byte_length

    @property
    def delayed_index_bytes(self) -> int:
        return 0 if self.ledger.delays is None else self.ledger.delays.index.byte_size

    @property
    def oldest_backlog_age_s(self) -> int:
        return self.backlog.known_oldest_age_s(self._context.clock.wall_ms())

    # Ownership

    def prove_ownership(self) -> None:
        """Appends to the cursor ledger, which another owner fences before it delivers anything.

        A topic without a cursor ledger proves its ownership by its next data append.
        """
        if self._tenure is not None:
            self._tenure.prove(self.ledger, self.abandon)

    def abandon(self, error: OwnershipLost) -> None:
        self.state.closing = True
        self.ledger.lose(error)

    async def close(self) -> None:
        self.disconnect_clients(EndCode.UNLOADED)
        self.publishing.close()
        await self.ledger.close()
