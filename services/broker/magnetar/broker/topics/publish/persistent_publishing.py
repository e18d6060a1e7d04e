"""The publish path of a persistent topic: appends messages to its managed ledger and sends receipts once they
are durable.

Work is done per run of entries, not per entry: one append, one pending item, one string of receipts.
Deduplication may be switched while messages are in flight: each run is finished on the path that published
it, and the deduplication state is written only when no older run is in flight, so that it covers everything
after it.
"""

from __future__ import annotations

from functools import partial
from itertools import groupby
from typing import Any

from magnetar.broker.stats import TopicStats
from magnetar.broker.task_spawner import Spawn
from magnetar.broker.topics.config import DeduplicationConfig
from magnetar.broker.topics.publish.deduplicated_publishing import (
    DeduplicatedPublishing,
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
from magnetar.broker.topics.publish.producers import Producers
from magnetar.broker.topics.publish.publish_gate import PublishGate, PublishLimits, TerminatedGate
from magnetar.broker.topics.publish.refusals import Refusals
from magnetar.broker.topics.publish.slow_publishes import SLOW_S, SlowPublish, SlowPublishes, slow_publish
from magnetar.broker.topics.publish.transactional_publishing import TransactionalPublishing, refuse_all
from magnetar.broker.topics.topic_state import TopicState
from magnetar.common.errors import StorageError
from magnetar.common.naming.txn_id import Action, TxnId
from magnetar.common.runtime.clock import Clock
from magnetar.common.wire.events import SendRun
from magnetar.ledger.ledger_store import Run
from magnetar.ledger.managed_ledger.managed_ledger import ManagedLedger


class PersistentPublishing:
    """Appends runs of producers and answers them when the managed ledger has confirmed or refused them."""

    __slots__ = (
        "_clock",
        "_config",
        "_deduplication",
        "_ledger",
        "_limits",
        "_producers",
        "_refusals",
        "_slow",
        "_spawn",
        "_state",
        "_stats",
        "_switched_at",
        "_transactional",
        "_transactions_enabled",
        "gate",
    )

    def __init__(
        self,
        state: TopicState,
        ledger: ManagedLedger,
        producers: Producers,
        refusals: Refusals,
        limits: PublishLimits | None,
        stats: TopicStats,
        config: DeduplicationConfig,
        clock: Clock,
        spawn: Spawn,
        *,
        transactions_enabled: bool,
    ) -> None:
        """`limits`: None for a topic without publish limits. `ledger`, `producers`, `refusals` and `stats`
        are those of the topic; borrowed. `transactions_enabled`: whether messages may be in transactions.
        """
        self._state = state
        self._ledger = ledger
        self._producers = producers
        self._refusals = refusals
        self._limits = limits
        self._stats = stats
        self._config = config
        self._clock = clock
        self._spawn = spawn
        self.gate: PublishGate | TerminatedGate | None = (
            None if limits is None else limits.gate(state.policies)
        )
        """Checks that messages have to pass; None without limits."""
        self._transactions_enabled = transactions_enabled
        self._transactional: TransactionalPublishing | None = None
        self._deduplication: DeduplicatedPublishing | None = None
        self._slow: SlowPublishes | None = None
        self._switched_at: int | None = None
        # Topic-wide index below which runs may have been published on the other path; None: no such run is in
        # flight.

    async def begin(self) -> None:
        """Loads the deduplication state, before the first run. Raises StorageError."""
        if self._ledger.terminated:
            self.terminate()
        if self._state.policies.deduplication:
            self._deduplication = self._new_deduplication()
            await self._deduplication.load()
        else:
            self._ledger.deduplication.drop()

    # Properties

    @property
    def times_rate_limited(self) -> int:
        """Number of times that reading a connection paused because of a publish rate, since the rate was
        set.
        """
        return self.gate.times_limited if isinstance(self.gate, PublishGate) else 0

    @property
    def deduplicates(self) -> bool:
        """Whether a sequence id that a producer name has published is not stored again."""
        return self._deduplication is not None

    def last_sequence_id(self, producer_name: str) -> int:
        """The highest persisted sequence id of a producer name; -1 when it is not kept or none is known."""
        return -1 if self._deduplication is None else self._deduplication.last_sequence_id(producer_name)

    async def settled(self, producer_name: str) -> None:
        """Waits until no run of this name is in flight, so that its last sequence id is final.

        Returns at once without deduplication.
        """
        if self._deduplication is not None:
            await self._deduplication.settled(producer_name)

    # Messages

    def publish(self, producer: Producer, sends: SendRun) -> None:
        if self.gate is not None:
            admitted = self.gate.admit(producer, sends)
            if not isinstance(admitted, SendRun):
                self._refusals.refuse_from(self.publish, producer, sends, admitted)
                return
        if self._deduplication is not None:
            self._deduplication.publish(producer, sends)
            return
        run = run_of(sends)
        pending = PendingPublish(producer, sends, run.byte_length, self._clock.monotonic())
        try:
            self._ledger.append(run, pending)
        except StorageError as error:
            self._refusals.refuse_for_storage(producer, sends, error)
            return
        producer.pending_runs += 1
        producer.peer.publish_pending(run.byte_length)
        self._stats.count_publish(run)
        producer.stats.count_publish(run)

    def publish_in(self, txn: TxnId, producer: Producer, sends: SendRun) -> None:
        if self._transactional is None:
            self._transactional = TransactionalPublishing(
                self._ledger, self._refusals, self._stats, self._clock, enabled=self._transactions_enabled
            )
        self._transactional.publish(txn, self.gate, self._deduplication, producer, sends)

    def transaction_ended(self, txn: TxnId, action: Action) -> None:
        """Handles the end of a transaction that may have published here; all its runs are confirmed."""
        if self._deduplication is not None:
            self._deduplication.transaction_ended(txn, action)

    def confirmed(self, publishes: list[tuple[Run, object]]) -> None:
        """Sends the receipts of runs that the ledger has confirmed, in their order."""
        now = self._clock.monotonic()
        if self._switched_at is not None:
            for way, part in groupby(publishes, key=way_of):
                if way is not None:
                    way.confirmed(list(part))
                else:
                    send_receipts(list(part), self._stats, now)
            self._check_switched()
        elif self._deduplication is not None:
            self._deduplication.confirmed(publishes)
        else:
            send_receipts(publishes, self._stats, now)
        oldest: Any = publishes[0][1]  # in order, so no other run of the group waited longer
        if now - oldest.taken_at > SLOW_S:
            self._note_slow(publishes[0][0], oldest, now)

    def _note_slow(self, run: Run, pending: PendingPublish, now: float) -> None:
        if self._slow is None:
            self._slow = SlowPublishes()
        if self._slow.wants(now, now - pending.taken_at):
            report, waited = self._ledger.writes.write_report(run)
            self._slow.add(slow_publish(run, pending, now, self._clock, report, waited))

    def slow_publishes(self) -> list[SlowPublish]:
        """Returns the slowest publishes of the last minute, the slowest first; at most one each second."""
        return [] if self._slow is None else self._slow.latest(self._clock.monotonic())

    def unconfirmed(self) -> tuple[PendingPublish, float, str | None] | None:
        """Returns the oldest unconfirmed run, the seconds that it has waited, and the reason why no ledger
        has it yet (None: a ledger has it). None without one.
        """
        oldest = self._ledger.writes.oldest
        if oldest is None:
            return None
        (_, pending), cause = oldest
        assert isinstance(pending, PendingPublish)
        return pending, self._clock.monotonic() - pending.taken_at, cause

    def refused(self, publishes: list[tuple[Run, object]], error: StorageError) -> None:
        """Sends errors for runs that are certainly not stored, and closes their producers."""
        for way, part in groupby(publishes, key=way_of):
            if way is not None:
                way.refused(list(part), error)
            else:
                refused = list(part)
                for _, pending in refused:
                    assert isinstance(pending, PendingPublish)
                    self._refusals.note_storage(pending.producer, len(pending.sends.entries), error)
                    self._refusals.close(pending.producer)
                send_refusals(refused, error)
        if self._switched_at is not None:
            self._check_switched()

    def terminate(self) -> None:
        """Refuses all further messages, permanently; runs in flight are still confirmed or refused."""
        self.gate = TerminatedGate(self._state.name)
        self._state.terminated = True

    def give_up(self) -> None:
        """Gives up on the runs in flight: the topic is lost, and they are never answered."""
        undecided = self._ledger.give_up()
        for way in {self._deduplication, *map(way_of, undecided)}:
            if way is not None:
                way.lost()
        for _, publish in undecided:
            assert isinstance(publish, PendingPublish)
            publish.producer.peer.publish_pending(-publish.byte_length)
            publish.producer.give_up()
        self._producers.lose()

    # Deduplication

    def _new_deduplication(self) -> DeduplicatedPublishing:
        return new_deduplication(
            self._config,
            self._ledger,
            self._producers,
            self._stats,
            self._clock,
            self._on_not_stored,
            partial(refuse_all, self._refusals),
        )

    def _on_not_stored(self, producer: Producer, entries: int, error: StorageError) -> None:
        self._refusals.note_storage(producer, entries, error)
        self._refusals.close(producer)

    def apply_policies(self) -> None:
        """Applies the current limits, and switches deduplication on or off as the policies require."""
        policies = self._state.policies
        if self._limits is not None and not isinstance(self.gate, TerminatedGate):
            self.gate = self._limits.gate(policies, self.gate)
        if policies.deduplication != (self._deduplication is not None) and not self._state.closing:
            self._switch_deduplication()
        if self._deduplication is not None:
            self._deduplication.snapshot_interval_s = policies.deduplication_snapshot_s

    def close(self) -> None:
        """Writes the deduplication state with each confirmation from now on, before the ledger closes."""
        if self._deduplication is not None:
            self._deduplication.close()

    def _switch_deduplication(self) -> None:
        """Switches deduplication for all later runs; switching off discards the state."""
        self._switched_at = self._ledger.next_index
        if self._deduplication is None:
            self._deduplication = self._new_deduplication()
        else:
            self._deduplication.retire()
            self._deduplication = None
            self._ledger.deduplication.drop()
        self._check_switched()

    def _check_switched(self) -> None:
        assert self._switched_at is not None, "called only after a switch"
        ledger = self._ledger
        # Fewer runs remain than at the switch when some were refused since.
        if ledger.confirmed_index >= min(self._switched_at, ledger.next_index):
            self._switched_at = None
            if self._deduplication is not None:
                self._spawn(self._deduplication.begin(), "begin deduplication")
