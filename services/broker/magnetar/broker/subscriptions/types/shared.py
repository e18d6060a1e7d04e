"""Shared: each entry goes to one of many consumers, in turn; all chunks of a message go to the same one."""

from __future__ import annotations

from itertools import islice
from typing import ClassVar

from magnetar.broker.dispatch.chunk_affinity import ChunkAffinity
from magnetar.broker.dispatch.eligibility import IDLE_SHOWN_MAX, Code, reason
from magnetar.broker.dispatch.shared import SharedDispatcher
from magnetar.broker.reason import Reason
from magnetar.broker.subscriptions.config import DispatchConfig
from magnetar.broker.subscriptions.consumers.consumer import Consumer
from magnetar.broker.subscriptions.types.individual_delivery import IndividualDelivery
from magnetar.broker.subscriptions.types.subscription_type import DeliveryParts, SubscriptionType, SubType
from magnetar.common.errors import DataCorruption
from magnetar.common.wire.batch import parse_metadata
from magnetar.ledger.ledger_store import RUN_CHUNK, Run


class SharedType(SubscriptionType[SharedDispatcher[Consumer]]):
    """Shared subscriptions."""

    __slots__ = ()

    sub_type: ClassVar[SubType.ValueType] = SubType.Shared
    individual: ClassVar[bool] = True

    def dispatcher(self, first: Consumer, topic: str, config: DispatchConfig) -> SharedDispatcher[Consumer]:
        return SharedDispatcher(config.round_robin_entries_max)

    def delivery(self, dispatcher: SharedDispatcher[Consumer], parts: DeliveryParts) -> SharedDelivery:
        return SharedDelivery(dispatcher, parts)

    def choose(self, dispatcher: SharedDispatcher[Consumer], entry: bytes) -> tuple[Consumer, int] | None:
        choice = dispatcher.next()
        if choice is not None:
            dispatcher.took()
        return choice


class SharedDelivery(IndividualDelivery):
    """Delivery to the consumers of a Shared subscription. Implements delivery.Delivery."""

    __slots__ = ("_chunks", "_dispatcher", "_parked")

    def __init__(self, dispatcher: SharedDispatcher[Consumer], parts: DeliveryParts) -> None:
        super().__init__(dispatcher.consumers, parts)
        self._dispatcher = dispatcher
        self._chunks: ChunkAffinity[Consumer] | None = None
        self._parked: dict[Consumer, list[tuple[int, int]]] | None = None
        """Parked chunks by the consumer of their message; other entries are delivered meanwhile."""

    @property
    def keeps_ready(self) -> bool:
        return any(each.capacity > 0 for each in self._parked or ())

    def kept_back(self) -> list[Reason]:
        found = []
        for consumer, chunks in islice((self._parked or {}).items(), IDLE_SHOWN_MAX):
            held = consumer.held_back_by
            if held is not None:
                text = f"{len(chunks)} chunks wait for consumer {consumer.name}, which has the first ones"
                found.append(
                    reason(
                        Code.CHUNK_BLOCKED,
                        f"{text}: {held.text}",
                        since_ms=held.since_ms,
                        consumer=consumer.name,
                        address=consumer.peer.address,
                        entries=len(chunks),
                        cause=str(held.code),
                    )
                )
        return found

    def idle(self) -> list[Reason]:
        ready = [each.priority_level for each in self._consumers if each.capacity > 0]
        best = min(ready, default=None)
        return [
            reason(
                Code.LOWER_PRIORITY,
                f"consumer {each.name} has level {each.priority_level}, and one of level {best} has permits",
                stops=False,
                consumer=each.name,
                address=each.peer.address,
                priorityLevel=each.priority_level,
            )
            for each in islice((each for each in self._consumers if best is not None), IDLE_SHOWN_MAX)
            if best is not None and each.priority_level > best
        ]

    def step(self, entries_max: int, bytes_max: int) -> tuple[int, int] | None:
        if self._parked:
            self._unpark()
        choice = self._dispatcher.next()
        if choice is None:
            return None
        consumer, messages_max = choice
        messages_max = min(messages_max, entries_max)
        source, outlet = self._source, self._outlet
        peeked = source.peek(messages_max)
        if peeked is None:
            return None
        run, replayed = peeked
        if outlet.skips(run):
            source.advance(len(run.entries))
            return len(run.entries), 0
        if replayed and not outlet.has_entry_state:
            passed, singles = source.take_replayed(messages_max, bytes_max)
            if singles:
                self._dispatcher.took()
                return len(singles), self._send_singly(consumer, singles)
            if passed:
                return passed, 0
        chunk = run.flags & RUN_CHUNK
        part = outlet.front(consumer, run, 1 if chunk else messages_max, bytes_max, replayed=replayed)
        if part is None:
            source.advance(1)
            return 1, 0
        if chunk:
            self._send_chunk(consumer, part)
        else:
            self._dispatcher.took()
            outlet.send(consumer, part, individual=True)
        source.advance(len(part.entries))
        return len(part.entries), part.byte_length

    def _send_singly(self, consumer: Consumer, runs: list[Run]) -> int:
        """Sends runs of one ordinary entry each, without state in the cursor; returns bytes."""
        size = sum([run.byte_length for run in runs])
        consumer.deliver_runs(runs, len(runs), size)
        add = consumer.pending.add
        for run in runs:
            add(run.ledger_id, run.first_entry_id, 1)
        consumer.note_unacked()
        ledger_id, entry_id = max([(run.ledger_id, run.first_entry_id) for run in runs])
        self._outlet.count(ledger_id, entry_id, len(runs), size)
        return size

    def consumer_removed(self, consumer: Consumer) -> None:
        if self._chunks is not None:
            self._chunks.forget(consumer)
        super().consumer_removed(consumer)
        if self._parked is not None:
            self._source.replay_all(self._parked.pop(consumer, ()))

    def rewind(self) -> None:
        self._parked = None
        super().rewind()

    def _send_chunk(self, candidate: Consumer, run: Run) -> None:
        """Sends a chunk to the consumer that got its message's first chunk, or parks it until that consumer
        has permits.
        """
        if self._chunks is None:
            self._chunks = ChunkAffinity()
            self._source.in_order = True
        try:
            metadata = parse_metadata(run.entries[0])
        except DataCorruption:
            # Stored in the client's format: not a valid chunk, which its reader detects.
            self._dispatcher.took()
            self._outlet.send(candidate, run, individual=True)
            return
        target = self._chunks.target(metadata.uuid, candidate)
        if target.capacity <= 0:
            if self._parked is None:
                self._parked = {}
            self._parked.setdefault(target, []).append((run.ledger_id, run.first_entry_id))
            return
        if target is candidate:
            self._dispatcher.took()
        self._outlet.send(target, run, individual=True)
        self._chunks.delivered(metadata.uuid, metadata.chunk_id, metadata.num_chunks_from_msg, target)

    def _unpark(self) -> None:
        """Redelivers the parked chunks of consumers that have permits again."""
        assert self._parked is not None, "checked before"
        for consumer in [each for each in self._parked if each.capacity > 0]:
            self._source.replay_all(self._parked.pop(consumer))
