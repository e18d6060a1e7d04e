"""Publishing with deduplication: messages that are already stored are answered and not stored again.

A run without duplicates remains one append. Otherwise it is split: new parts are appended, duplicates are
answered with the id -1:-1, and entries whose first copy is in flight are held until that copy is confirmed
(then they are duplicates) or refused (then they are stored). Answers leave in the order of a producer's
messages.

A later message must not overtake a refused one: once the later one is stored, the refused one would be taken
for a duplicate. So after a refusal, all later messages of the producer are refused until the refused message
is resent.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Container
from dataclasses import dataclass, replace

from magnetar.broker.stats import TopicStats
from magnetar.broker.topics.config import DeduplicationConfig
from magnetar.broker.topics.publish.deduplication import (
    DeduplicationState,
    Verdict,
    counted_ids_of,
)
from magnetar.broker.topics.publish.deduplication_replay import replay
from magnetar.broker.topics.publish.pending_publish import (
    PendingPublish,
    note_published,
    part_of,
    run_in,
    run_of,
    storage_errors,
)
from magnetar.broker.topics.publish.producer import Answer, Producer
from magnetar.common.errors import DataCorruption, LogFailed, StorageError, TransactionNotAllowed
from magnetar.common.naming.position import Position
from magnetar.common.naming.txn_id import Action, TxnId
from magnetar.common.obs.logs import get_logger
from magnetar.common.obs.metrics import REGISTRY
from magnetar.common.runtime.clock import Clock
from magnetar.common.wire.batch import parse_metadata
from magnetar.common.wire.events import SendRun
from magnetar.common.wire.receipts import receipt, receipts
from magnetar.common.wire.varint import decode_varint
from magnetar.ledger.ledger_store import Run
from magnetar.ledger.managed_ledger.deduplication import DeduplicationSnapshot
from magnetar.ledger.managed_ledger.managed_ledger import ManagedLedger
from prometheus_client import Counter

log = get_logger(__name__)

DUPLICATES = Counter(
    "magnetar_duplicate_messages_total",
    "Duplicate entries that were acknowledged and not stored again.",
    registry=REGISTRY,
)

OnRefused = Callable[[Producer, int, StorageError], None]
"""Callback with a producer, the number of its entries that storage refused, and the error."""

OnNotAllowed = Callable[[Producer, SendRun, TransactionNotAllowed], None]
"""Callback with a producer and messages that its transaction may not publish."""


@dataclass(slots=True, eq=False)
class _Stored(PendingPublish):
    """A new part of a run that is not confirmed, with its producer."""

    answer: Answer
    way: DeduplicatedPublishing
    txn: TxnId | None


@dataclass(slots=True, eq=False)
class _Held:
    """One entry whose first copy is in flight, or in another transaction that is open."""

    producer: Producer
    sends: SendRun
    answer: Answer
    txn: TxnId | None


class DeduplicatedPublishing:
    """The publish path of one topic with deduplication; created by `new_deduplication`."""

    __slots__ = (
        "_clock",
        "_closing",
        "_config",
        "_held",
        "_ledger",
        "_on_not_allowed",
        "_on_refused",
        "_retired",
        "_state",
        "_stats",
        "_timer",
        "_unsaved_entries",
        "_waiting",
        "snapshot_interval_s",
    )

    def __init__(
        self,
        config: DeduplicationConfig,
        ledger: ManagedLedger,
        state: DeduplicationState,
        stats: TopicStats,
        clock: Clock,
        on_refused: OnRefused,
        on_not_allowed: OnNotAllowed,
    ) -> None:
        self._config = config
        self._ledger = ledger
        self._state = state
        self._stats = stats
        self._clock = clock
        self._on_refused = on_refused
        self._on_not_allowed = on_not_allowed
        self._held: dict[str, deque[_Held]] = {}
        self._waiting: dict[str, list[asyncio.Future[None]]] = {}
        self._unsaved_entries = 0
        self._timer: asyncio.TimerHandle | None = None
        self._closing = False
        self._retired = False
        self.snapshot_interval_s = config.snapshot_interval_s
        """Maximum seconds from an entry to the next snapshot of the state."""

    def last_sequence_id(self, name: str) -> int:
        """Returns the highest persisted sequence id of a producer name; -1 when none is known."""
        return self._state.last_sequence_id(name)

    async def settled(self, name: str) -> None:
        """Waits until no run of this name is in flight, so that its last sequence id is final."""
        while self._state.in_flight(name):
            waiting: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting.setdefault(name, []).append(waiting)
            await waiting

    # Receiving runs

    def publish(self, producer: Producer, sends: SendRun, txn: TxnId | None = None) -> None:
        """Publishes a run, or its new parts, in a transaction unless that is None."""
        firsts, highests = counted_ids_of(sends)
        start, count = 0, len(firsts)
        while start < count:
            verdict, end = self._state.judge(producer.name, firsts, highests, start, txn)
            part = _part(sends, start, end)
            if verdict is Verdict.NEW and self._held and self._waits(producer.name):
                verdict = Verdict.IN_FLIGHT
            if verdict is Verdict.NEW:
                if producer.refused_sequence_id is not None:
                    end = start + 1
                    part = _part(sends, start, end)
                self._take(producer, part, max(highests[start:end]), self._expect(producer), txn)
            elif verdict is Verdict.DUPLICATE:
                self._expect(producer).frames = _duplicates(producer, part)
            else:
                for index in range(end - start):
                    self._hold(producer, _part(part, index, index + 1), txn)
            start = end
        _send_answers(producer)

    def _take(
        self, producer: Producer, sends: SendRun, highest: int, answer: Answer, txn: TxnId | None
    ) -> None:
        if not _may_pass(producer, sends):
            error = LogFailed(
                f"message {producer.refused_sequence_id} of producer {producer.name!r} was refused; "
                "resend it before later messages"
            )
            self._refuse(producer, sends, error, answer)
            return
        run = run_of(sends) if txn is None else run_in(txn, sends)
        stored = _Stored(producer, sends, run.byte_length, self._clock.monotonic(), answer, self, txn)
        try:
            self._ledger.append(run, stored)
        except TransactionNotAllowed as error:
            answer.frames = b""  # the client hears of it with the closing of its producer
            self._on_not_allowed(producer, sends, error)
            return
        except StorageError as error:
            self._refuse(producer, sends, error, answer)
            self._on_refused(producer, len(run.entries), error)
            return
        self._state.push(producer.name, highest, run.publish_time_ms, txn)
        producer.peer.publish_pending(run.byte_length)
        self._stats.count_publish(run)
        producer.stats.count_publish(run)

    def _hold(self, producer: Producer, sends: SendRun, txn: TxnId | None) -> None:
        held = _Held(producer, sends, self._expect(producer), txn)
        self._held.setdefault(producer.name, deque()).append(held)
        producer.peer.publish_pending(sends.byte_length)

    def _expect(self, producer: Producer) -> Answer:
        """Appends an empty answer to a producer's queue, to be filled in later."""
        answer = Answer()
        if producer.answers is None:
            producer.answers = deque()
        producer.answers.append(answer)
        producer.pending_runs += 1
        return answer

    def _refuse(self, producer: Producer, sends: SendRun, error: StorageError, answer: Answer) -> None:
        answer.frames = storage_errors(producer, sends, error)
        ids = sends.sequence_ids()
        lowest, producer.refused_through = min(ids), max(producer.refused_through, *ids)
        if producer.refused_sequence_id is None or lowest < producer.refused_sequence_id:
            producer.refused_sequence_id = lowest

    # Results of appends

    def confirmed(self, publishes: list[tuple[Run, object]]) -> None:
        """Handles runs that are persisted."""
        now, now_ms = self._clock.monotonic(), self._clock.wall_ms()
        state = self._state
        entries = 0
        touched: dict[Producer, None] = {}
        for run, stored in publishes:
            assert isinstance(stored, _Stored)
            producer, sends = stored.producer, stored.sends
            if stored.txn is None:
                state.confirm(producer.name, now_ms)
            else:
                state.confirm_open(producer.name, stored.txn, *counted_ids_of(sends), now_ms)
            entries += len(run.entries)
            stored.answer.frames = receipts(
                producer.producer_id,
                run.ledger_id,
                run.first_entry_id,
                sends.sequence_varints,
                sends.highest_varints,
            )
            producer.peer.publish_pending(-stored.byte_length)
            touched[producer] = None
            note_published(self._stats, now, now - stored.taken_at, len(run.entries))
        last = publishes[-1][0]
        state.position = Position(last.ledger_id, last.last_entry_id)
        self._settle(touched)
        self._saved_later(entries)

    def refused(self, publishes: list[tuple[Run, object]], error: StorageError) -> None:
        """Handles the latest runs, in order, that are certainly not stored."""
        touched: dict[Producer, None] = {}
        for _, stored in publishes:
            assert isinstance(stored, _Stored)
            producer = stored.producer
            self._state.refuse(producer.name, stored.txn)
            self._refuse(producer, stored.sends, error, stored.answer)
            self._on_refused(producer, len(stored.sends.entries), error)
            producer.peer.publish_pending(-stored.byte_length)
            touched[producer] = None
        self._settle(touched)

    def transaction_ended(self, txn: TxnId, action: Action) -> None:
        """Counts the sequence ids of a transaction as persisted, or forgets them; decides what waited."""
        names = self._state.end(txn, action)
        touched: dict[Producer, None] = {}
        for name in names:
            self._decide_held(name, touched)
        for producer in touched:
            _send_answers(producer)
        if names:
            self._saved_later(1)

    def lost(self) -> None:
        """Handles the loss of the topic: pending requests get no answer."""
        self._stop_timer()
        for held in [each for queue in self._held.values() for each in queue]:
            held.producer.peer.publish_pending(-held.sends.byte_length)
            held.producer.give_up()
        self._held.clear()
        for waiting in self._waiting.values():
            _wake(waiting)
        self._waiting.clear()

    def _settle(self, touched: dict[Producer, None]) -> None:
        """Decides the held entries, wakes waiters, and sends the answers that are due."""
        for name in {producer.name for producer in touched}:
            self._decide_held(name, touched)
            if not self._state.in_flight(name):
                _wake(self._waiting.pop(name, ()))
        for producer in touched:
            _send_answers(producer)

    def _decide_held(self, name: str, touched: dict[Producer, None]) -> None:
        """Judges the held entries of a name again; adds their producers to `touched`."""
        for held in self._held.pop(name, ()):
            self._judge_again(held)
            touched[held.producer] = None

    def _judge_again(self, held: _Held) -> None:
        producer, sends = held.producer, held.sends
        firsts, highests = counted_ids_of(sends)
        verdict, _ = self._state.judge(producer.name, firsts, highests, txn=held.txn)
        if verdict is Verdict.NEW and self._waits(producer.name):
            verdict = Verdict.IN_FLIGHT
        if verdict is Verdict.IN_FLIGHT and not self._is_over(producer.name):
            self._held.setdefault(producer.name, deque()).append(held)
            return
        producer.peer.publish_pending(-sends.byte_length)
        if verdict is Verdict.DUPLICATE:
            held.answer.frames = _duplicates(producer, sends)
        elif verdict is Verdict.IN_FLIGHT:
            error = LogFailed(
                f"deduplication of {self._ledger.name} was switched off; send the message again"
            )
            self._refuse(producer, sends, error, held.answer)
            self._on_refused(producer, 1, error)
        elif producer.peer.connected and not producer.fenced and producer.last_words is None:
            self._take(producer, sends, highests[0], held.answer, held.txn)
        else:
            # Its client has disconnected, or was notified and resends the message.
            held.answer.frames = b""

    def _waits(self, name: str) -> bool:
        """Whether new messages of a name wait behind held ones: if the transaction with the copies of those
        is aborted, they must not be below an id that was persisted meanwhile.
        """
        return name in self._held and self._state.has_open(name)

    def _is_over(self, name: str) -> bool:
        """Whether a held entry would wait for a transaction whose end is no longer told."""
        return self._retired and not self._state.in_flight(name)

    # Snapshots

    def _saved_later(self, entries: int) -> None:
        if self._retired:
            return
        self._unsaved_entries += entries
        if self._closing or self._unsaved_entries >= self._config.snapshot_entries:
            self.save()
        elif self._timer is None:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(self.snapshot_interval_s, self.save)

    def save(self) -> None:
        """Requests a snapshot soon."""
        self._stop_timer()
        self._unsaved_entries = 0
        self._state.forget_inactive(self._clock.wall_ms())
        self._ledger.deduplication.save()

    async def keep(self) -> None:
        """Writes a snapshot now and keeps writing them from then on. Raises StorageError."""
        await self._ledger.deduplication.keep(self._snapshot, self._ledger.flush_cursors)

    def _snapshot(self) -> DeduplicationSnapshot:
        """Returns the state, at a position before the open transactions: their entries are replayed."""
        snapshot = self._state.snapshot()
        return replace(snapshot, position=min(snapshot.position, self._ledger.read_limit()))

    async def begin(self) -> None:
        """Starts deduplication on a topic whose earlier messages are all confirmed."""
        if self._retired or self._closing:
            return
        self._state.position = max(self._state.position, self._ledger.last_confirmed)
        try:
            await self.keep()
        except StorageError as error:
            # The next snapshot retries; a crash before it loses the state.
            log.warning("deduplication snapshot not written", topic=self._ledger.name, error=str(error))

    def retire(self) -> None:
        """Stops deduplication: finishes the runs in flight and writes no more snapshots."""
        self._retired = True
        self._stop_timer()
        touched: dict[Producer, None] = {}
        for name in list(self._held):
            self._decide_held(name, touched)
        for producer in touched:
            _send_answers(producer)

    def close(self) -> None:
        """Writes a snapshot with every later confirmation, because the topic closes and should replay
        nothing.
        """
        self._closing = True
        if self._unsaved_entries:
            self.save()

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    async def load(self) -> None:
        """Keeps a snapshot, and adds the entries after the stored one to the state. Raises StorageError."""
        await self.keep()
        entries = await replay(self._ledger, self._state)
        if entries:
            self._saved_later(entries)


def new_deduplication(
    config: DeduplicationConfig,
    ledger: ManagedLedger,
    producers: Container[str],
    stats: TopicStats,
    clock: Clock,
    on_refused: OnRefused,
    on_not_allowed: OnNotAllowed,
) -> DeduplicatedPublishing:
    """Creates the publish path with the stored snapshot of a topic, or with an empty state.

    `producers`: the names of connected producers; borrowed.
    """
    state = DeduplicationState(
        ledger.deduplication.loaded or DeduplicationSnapshot(ledger.last_confirmed),
        now_ms=clock.wall_ms(),
        producers_max=config.producers_max,
        inactivity_ms=config.inactivity_min * 60_000,
        connected=producers,
    )
    return DeduplicatedPublishing(config, ledger, state, stats, clock, on_refused, on_not_allowed)


def way_of(publish: tuple[Run, object]) -> DeduplicatedPublishing | None:
    """Returns the deduplicating path that published a run; None when it was not deduplicated."""
    pending = publish[1]
    return pending.way if isinstance(pending, _Stored) else None


def _part(sends: SendRun, start: int, end: int) -> SendRun:
    part = part_of(sends, range(start, end))
    assert part is not None, "a part has entries"
    return part


def _may_pass(producer: Producer, sends: SendRun) -> bool:
    """Whether a run may be published; false for a message behind a refused one that was not resent, and then
    `sends` is one entry.
    """
    refused = producer.refused_sequence_id
    if refused is None or sends.marker:
        return True
    first = sends.sequence_id(0)
    if first > refused or (first == refused and sends.is_chunk and not _begins_message(sends.entries[0])):
        return False
    highest = sends.highest_sequence_id(0)
    if highest >= producer.refused_through:
        producer.refused_sequence_id, producer.refused_through = None, -1
    elif highest >= refused:
        # Later messages were refused, too, and are resent next.
        producer.refused_sequence_id = highest + 1
    return True


def _begins_message(chunk: bytes) -> bool:
    try:
        return parse_metadata(chunk).chunk_id <= 0
    except DataCorruption:
        return True


def _duplicates(producer: Producer, sends: SendRun) -> bytes:
    """Encodes the receipts of duplicates."""
    DUPLICATES.inc(len(sends.entries))
    return b"".join(
        receipt(
            producer.producer_id,
            sends.sequence_id(index),
            -1,
            -1,
            0 if sends.highest_varints is None else decode_varint(sends.highest_varints[index]),
        )
        for index in range(len(sends.entries))
    )


def _send_answers(producer: Producer) -> None:
    """Sends the known answers, up to the first pending one."""
    answers, connected = producer.answers, producer.peer.connected
    while answers and (frames := answers[0].frames) is not None:
        answers.popleft()
        if frames and connected:
            producer.peer.write(frames)
        producer.settled()


def _wake(waiting: list[asyncio.Future[None]] | tuple[()]) -> None:
    for future in waiting:
        if not future.done():
            future.set_result(None)
