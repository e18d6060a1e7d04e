"""How messages get into a persistent topic: to its managed ledger, and receipts back once they are durable.

Per run of entries, not per entry: one append, one pending item, one string of receipts. Deduplication may be
switched while messages are on their way: what was taken is finished the way in which it was taken, and a
state of deduplication is on disk only once nothing older is on its way, so that it stands for all after it.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping
from itertools import groupby

from magnetar.broker.config import BrokerConfig
from magnetar.broker.latencies import SAMPLER
from magnetar.broker.policies.effective import EffectivePolicies
from magnetar.broker.spawn import Spawn
from magnetar.broker.subscriptions.subscription import Subscription
from magnetar.broker.topics.publish.deduplicated_publishing import (
    DeduplicatedPublishing,
    load_deduplication,
    new_deduplication,
    way_of,
)
from magnetar.broker.topics.publish.pending_publish import (
    PendingPublish,
    run_of,
    send_receipts,
    send_refusals,
)
from magnetar.broker.topics.publish.producer import Producer
from magnetar.broker.topics.publish.publish_gate import PublishLimits, TerminatedGate
from magnetar.broker.topics.topic import Topic
from magnetar.common.errors import StorageError
from magnetar.common.naming.position import Position
from magnetar.common.naming.topic_name import TopicName
from magnetar.common.runtime.clock import Clock
from magnetar.common.wire.events import SendRun
from magnetar.ledger.ledger_store import Run
from magnetar.ledger.managed_ledger.managed_ledger import ManagedLedger


class PersistentPublishing(Topic):
    """The publishing side of a persistent topic. Listens to its managed ledger."""

    __slots__ = ("_clock", "_config", "_deduplication", "_spawn", "_switched_at", "ledger")

    ledger: ManagedLedger

    def __init__(
        self,
        name: TopicName,
        policies: EffectivePolicies,
        config: BrokerConfig,
        clock: Clock,
        spawn: Spawn,
        publish_limits: PublishLimits | None,
    ) -> None:
        super().__init__(name, policies, publish_limits)
        self._config = config
        self._clock = clock
        self._spawn = spawn
        self._deduplication: DeduplicatedPublishing | None = None
        self._switched_at: int | None = None
        # The topic-wide index up to which messages may have been taken another way; None: none is on its way.

    @property
    @abstractmethod
    def subscriptions(self) -> Mapping[str, Subscription]: ...

    async def _attach_publishing(self, ledger: ManagedLedger) -> None:
        """Publish to this ledger. Raises StorageError when the state of deduplication cannot be had."""
        self.ledger = ledger
        if ledger.terminated:
            self.gate = TerminatedGate(self.name)
        if self.policies.deduplication:
            self._deduplication = self._new_deduplication()
            await load_deduplication(self._deduplication)
        else:
            ledger.deduplication.drop()

    # -- producers

    @property
    def topic_epoch(self) -> int:
        return self.ledger.topic_epoch

    async def raise_topic_epoch(self, at_least: int) -> int:
        return await self.ledger.raise_topic_epoch(at_least)

    async def add_producer(self, producer: Producer, waits: Callable[[], None] = lambda: None) -> None:
        await super().add_producer(producer, waits)
        if self._deduplication is not None:
            # What a former connection left in flight belongs to the last sequence id.
            try:
                await self._deduplication.settled(producer.name)
                self.check_connected(producer)
            except BaseException:
                self.remove_producer(producer)
                raise

    @property
    def deduplicates(self) -> bool:
        return self._deduplication is not None

    def last_sequence_id(self, producer_name: str) -> int:
        return -1 if self._deduplication is None else self._deduplication.last_sequence_id(producer_name)

    # -- messages

    def is_written(self, within_ms: int) -> bool:
        spans = self.ledger.spans.spans
        return bool(spans) and self._clock.wall_ms() - spans[-1].max_publish_time_ms <= within_ms

    def expect_publish(self) -> None:
        self.ledger.prepare()

    def publish(self, producer: Producer, sends: SendRun) -> None:
        if self.gate is not None:
            admitted = self.gate.admit(producer, sends)
            if not isinstance(admitted, SendRun):
                self._publish_in_part(producer, sends, admitted)
                return
        if self._deduplication is not None:
            self._deduplication.publish(producer, sends)
            return
        run = run_of(sends)
        pending = PendingPublish(producer, sends, run.byte_length, self._clock.monotonic())
        try:
            self.ledger.append(run, pending)
        except StorageError as error:
            self.refuse_for_storage(producer, sends, error)
            return
        producer.pending_runs += 1
        producer.peer.publish_pending(run.byte_length)
        self.stats.count_publish(run)
        producer.stats.count_publish(run)

    def on_confirmed(self, publishes: list[tuple[Run, object]]) -> None:
        """The managed ledger's watermark passed these runs: send their receipts, wake the subscriptions."""
        if self._switched_at is not None:
            for way, part in groupby(publishes, key=way_of):
                self._confirmed(way, list(part))
            self._check_switched()
        else:
            self._confirmed(self._deduplication, publishes)
        subscriptions = self.subscriptions
        if subscriptions:
            now = self._clock.monotonic()
            if SAMPLER.due(now):
                SAMPLER.follow(publishes[0][0], subscriptions.values(), now, self._clock)
            for subscription in subscriptions.values():
                subscription.wake()

    def _confirmed(self, way: DeduplicatedPublishing | None, publishes: list[tuple[Run, object]]) -> None:
        if way is not None:
            way.confirmed(publishes)
        else:
            send_receipts(publishes, self.stats, self._clock.monotonic())

    def on_refused(self, publishes: list[tuple[Run, object]], error: StorageError) -> None:
        """Storage failed for too long: nothing of this is on the topic, and its senders hear so."""
        for way, part in groupby(publishes, key=way_of):
            if way is not None:
                way.refused(list(part), error)
            else:
                refused = list(part)
                for _, pending in refused:
                    assert isinstance(pending, PendingPublish)
                    self.note_storage_refusal(pending.producer, len(pending.sends.entries), error)
                    self.send_away(pending.producer)
                send_refusals(refused, error)
        if self._switched_at is not None:
            self._check_switched()

    async def terminate(self) -> Position:
        """What is on its way now is still confirmed or refused, and the last of it is the last position."""
        self.check_open()
        if not self.ledger.terminated:
            self.gate = TerminatedGate(self.name)
            self.ledger.seal()
            await self.wait_persisted()
            self.check_open()
            await self.ledger.terminate()
        self.disconnect_producers()
        return self.ledger.last_confirmed

    def give_up(self) -> None:
        """The topic is lost: what is on its way is charged to nobody any more, and nobody waits for it."""
        undecided = self.ledger.give_up()
        for way in {self._deduplication, *map(way_of, undecided)}:
            if way is not None:
                way.lost()
        for _, publish in undecided:
            assert isinstance(publish, PendingPublish)
            publish.producer.peer.publish_pending(-publish.byte_length)
            publish.producer.give_up()
        self.lose_producers()

    # -- deduplication

    def _new_deduplication(self) -> DeduplicatedPublishing:
        return new_deduplication(
            self._config.deduplication,
            self.ledger,
            self.producers,
            self.stats,
            self._clock,
            self._on_not_stored,
        )

    def _on_not_stored(self, producer: Producer, entries: int, error: StorageError) -> None:
        self.note_storage_refusal(producer, entries, error)
        self.send_away(producer)

    def apply_policies(self, policies: EffectivePolicies) -> None:
        super().apply_policies(policies)
        if policies.deduplication != (self._deduplication is not None) and not self.closing:
            self._switch_deduplication()
        if self._deduplication is not None:
            self._deduplication.snapshot_interval_s = policies.deduplication_snapshot_s

    def _switch_deduplication(self) -> None:
        """From here on; nothing of what is known is kept when it is switched off."""
        self._switched_at = self.ledger.next_index
        if self._deduplication is None:
            self._deduplication = self._new_deduplication()
        else:
            self._deduplication.retire()
            self._deduplication = None
            self.ledger.deduplication.drop()
        self._check_switched()

    def _check_switched(self) -> None:
        assert self._switched_at is not None, "asked only after a switch"
        ledger = self.ledger
        # Less was taken than at the switch when something was refused since.
        if ledger.confirmed_index >= min(self._switched_at, ledger.next_index):
            self._switched_at = None
            if self._deduplication is not None:
                self._spawn(self._deduplication.begin(), "begin deduplication")
