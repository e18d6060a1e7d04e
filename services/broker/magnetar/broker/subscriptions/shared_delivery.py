"""Shared: every entry to one of many consumers, by turns; all chunks of one message to the same one."""

from __future__ import annotations

from magnetar.broker.dispatch.chunk_affinity import ChunkAffinity
from magnetar.broker.dispatch.shared import SharedDispatcher
from magnetar.broker.stats import SubscriptionStats
from magnetar.broker.subscriptions.consumer import Consumer
from magnetar.broker.subscriptions.entry_source import EntrySource
from magnetar.broker.subscriptions.individual_delivery import IndividualDelivery
from magnetar.broker.subscriptions.outlet import Outlet
from magnetar.common.errors import DataCorruption
from magnetar.common.wire.batch import parse_metadata
from magnetar.ledger.ledger_store import RUN_CHUNK, Run
from magnetar.ledger.managed_ledger.cursor import Cursor


class SharedDelivery(IndividualDelivery):
    """Delivery to the consumers of a Shared subscription. Implements delivery.Delivery."""

    __slots__ = ("_chunks", "_dispatcher", "_parked")

    def __init__(
        self,
        dispatcher: SharedDispatcher[Consumer],
        source: EntrySource,
        cursor: Cursor,
        outlet: Outlet,
        stats: SubscriptionStats,
    ) -> None:
        super().__init__(dispatcher.consumers, source, cursor, outlet, stats)
        self._dispatcher = dispatcher
        self._chunks: ChunkAffinity[Consumer] | None = None
        self._parked: dict[Consumer, list[tuple[int, int]]] | None = None
        # Chunks that wait for the consumer of their message; others are delivered meanwhile.

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
        if replayed and not self._cursor.has_entry_state:
            passed, singles = source.take_replayed(messages_max, bytes_max)
            if singles:
                self._dispatcher.took()
                return len(singles), outlet.send_singly(consumer, singles)
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
        """Give one chunk to the consumer that has its message's first one, or park it until that one can."""
        if self._chunks is None:
            self._chunks = ChunkAffinity()
            self._source.in_order = True
        try:
            metadata = parse_metadata(run.entries[0])
        except DataCorruption:
            # Stored as its client sent it: no chunk of anything, and for its reader to judge.
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
        """Chunks whose consumer can take something again are delivered as a replay."""
        assert self._parked is not None, "asked before"
        for consumer in [each for each in self._parked if each.capacity > 0]:
            self._source.replay_all(self._parked.pop(consumer))
