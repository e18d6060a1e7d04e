"""Rules of deduplication, as pure state.

Each producer name has two sequence ids: the highest persisted one, and the highest pushed one, which may
still be in flight. A message at or below the first is a duplicate. A message between the two has a copy in
flight and is held until the result is known. Batches are judged by their first id and recorded by their last.
Of a chunked message only the last chunk is judged and recorded, because all chunks have the same id.

The ids of an open transaction count as in flight until it ends, also when its messages are durable: a commit
persists them, an abort forgets them. Sent again by the same transaction they are duplicates at once, since
its client commits only after all receipts.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Container, Iterable, Sequence
from enum import Enum
from itertools import islice
from operator import lt
from typing import Final

from magnetar.broker.topics.publish.open_sequence_ids import OpenSequenceIds
from magnetar.common.errors import DataCorruption
from magnetar.common.naming.txn_id import Action, TxnId
from magnetar.common.wire.batch import parse_metadata
from magnetar.common.wire.events import SendRun
from magnetar.common.wire.pulsar_pb2 import MessageMetadata
from magnetar.ledger.managed_ledger.deduplication import DeduplicationSnapshot, ProducerSequence

UNCOUNTED: Final = -1
"""The sequence id of an entry that is neither judged nor recorded: a marker, a chunk that is not the last."""

_SEQUENCE_ID_MAX: Final = 2**63 - 1
"""Maximum sequence id: clients use signed 64 bits, and a higher value is not a sequence id."""

NONE_YET: Final = -1
"""Last sequence id of an unknown name."""


def counted_ids(metadata: MessageMetadata) -> tuple[int, int]:
    """Returns (id by which an entry is judged, id that is recorded) from its metadata, or UNCOUNTED."""
    first = metadata.sequence_id
    last_chunk = metadata.num_chunks_from_msg - 1
    if first > _SEQUENCE_ID_MAX or (last_chunk > 0 and metadata.chunk_id != last_chunk):
        return UNCOUNTED, UNCOUNTED
    return first, _highest(first, metadata.highest_sequence_id)


def counted_ids_of(sends: SendRun) -> tuple[list[int], list[int]]:
    """Returns the same for the entries of a run, from their Sends; only the metadata of chunks is read."""
    count = len(sends.entries)
    if sends.marker:
        return [UNCOUNTED] * count, [UNCOUNTED] * count
    if sends.is_chunk:
        pairs = [_chunk_ids(entry, sends.sequence_id(index)) for index, entry in enumerate(sends.entries)]
        return [first for first, _ in pairs], [highest for _, highest in pairs]
    firsts = sends.sequence_ids()
    if max(firsts) > _SEQUENCE_ID_MAX:
        firsts = [first if first <= _SEQUENCE_ID_MAX else UNCOUNTED for first in firsts]
    if sends.highest_varints is None:
        return firsts, firsts
    highests = [sends.highest_sequence_id(index) for index in range(count)]
    return firsts, [_highest(first, highest) for first, highest in zip(firsts, highests, strict=True)]


def _highest(first: int, highest: int) -> int:
    return highest if first < highest <= _SEQUENCE_ID_MAX else first


def _chunk_ids(entry: bytes, sequence_id: int) -> tuple[int, int]:
    try:
        metadata = parse_metadata(entry)
    except DataCorruption:
        # Invalid metadata, so the entry is not a chunk.
        return UNCOUNTED, UNCOUNTED
    metadata.sequence_id = sequence_id
    return counted_ids(metadata)


class Verdict(Enum):
    """Result of judging a message."""

    NEW = "new"
    DUPLICATE = "duplicate"
    IN_FLIGHT = "in flight"


class _Producer:
    """State of one name; `in_flight` has the highest id of each accepted run, in order.

    `open` has the durable ids of open transactions; None without any. `runs_in_transactions` counts those of
    `in_flight`.
    """

    __slots__ = ("in_flight", "last_active_ms", "open", "persisted", "pushed", "runs_in_transactions")

    def __init__(self, persisted: int, last_active_ms: int) -> None:
        self.persisted = self.pushed = persisted
        self.last_active_ms = last_active_ms
        self.in_flight: deque[int] = deque()
        self.open: OpenSequenceIds | None = None
        self.runs_in_transactions = 0

    def last_pushed(self) -> int:
        """Computes `pushed`, after something in flight was refused or has ended."""
        of_transactions = NONE_YET if self.open is None else self.open.highest
        return max(self.persisted, *self.in_flight, of_transactions, NONE_YET)

    def judge_open(self, ids: OpenSequenceIds, first: int, new: int, txn: TxnId | None) -> Verdict:
        """Judges an id between the persisted and the pushed one where transactions are open.

        `new`: the highest id that the run itself has before. An id that no copy of a message has is new: the
        message was sent in a transaction that was aborted while a later one went on.
        """
        if txn is not None and ids.sent_by(txn, first):
            return Verdict.DUPLICATE
        if first <= max(new, *self.in_flight, NONE_YET) or ids.sent_by_any(first):
            return Verdict.IN_FLIGHT
        return Verdict.NEW


class DeduplicationState:
    """The producers of one topic, with every entry up to `position` counted in.

    At most `producers_max` names are kept, the latest active ones; names in `connected`, or with anything in
    flight, are never forgotten.
    """

    __slots__ = ("_connected", "_inactivity_ms", "_open_names", "_producers", "_producers_max", "position")

    def __init__(
        self,
        snapshot: DeduplicationSnapshot,
        *,
        now_ms: int,
        producers_max: int,
        inactivity_ms: int,
        connected: Container[str],
    ) -> None:
        self.position = snapshot.position
        self._producers_max = producers_max
        self._inactivity_ms = inactivity_ms
        self._connected = connected
        self._open_names: dict[TxnId, set[str]] = {}
        # No producer can be active while the topic is not loaded: that time does not count.
        away_ms = now_ms - max((each.last_active_ms for each in snapshot.producers.values()), default=now_ms)
        # Ordered by activity: the first name is removed first.
        self._producers = {
            name: _Producer(producer.sequence_id, producer.last_active_ms + away_ms)
            for name, producer in sorted(snapshot.producers.items(), key=lambda item: item[1].last_active_ms)
        }

    def __len__(self) -> int:
        return len(self._producers)

    def last_sequence_id(self, name: str) -> int:
        """Returns the highest durable id of the name, in open transactions, too; -1 when none is known.

        A new producer of that name continues after it, so that its ids never meet those of a transaction that
        is committed later.
        """
        producer = self._producers.get(name)
        if producer is None:
            return NONE_YET
        return producer.persisted if producer.open is None else max(producer.persisted, producer.open.highest)

    def in_flight(self, name: str) -> bool:
        """True while a run of this name is neither confirmed nor refused."""
        producer = self._producers.get(name)
        return producer is not None and bool(producer.in_flight)

    def has_open(self, name: str) -> bool:
        """True while messages of this name are in open transactions, durable or not."""
        producer = self._producers.get(name)
        return producer is not None and (producer.open is not None or producer.runs_in_transactions > 0)

    def judge(
        self,
        name: str,
        firsts: Sequence[int],
        highests: Sequence[int],
        start: int = 0,
        txn: TxnId | None = None,
    ) -> tuple[Verdict, int]:
        """Returns (verdict, end) of the longest part of a run from `start` on that has one verdict.

        `firsts` and `highests` are the sequence ids of its entries; UNCOUNTED always passes. `txn` is the
        transaction that the run is in. Nothing is recorded: call `push` after publishing the part.
        """
        producer = self._producers.get(name)
        persisted, pushed = (
            (NONE_YET, NONE_YET) if producer is None else (producer.persisted, producer.pushed)
        )
        count = len(firsts)
        if start == 0 and firsts[0] > pushed and all(map(lt, highests, islice(firsts, 1, None))):
            return Verdict.NEW, count
        verdict: Verdict | None = None
        new = NONE_YET
        for index in range(start, count):
            first = firsts[index]
            if first == UNCOUNTED or first > pushed:
                its = Verdict.NEW
            elif first <= persisted:
                its = Verdict.DUPLICATE
            elif producer is None or producer.open is None:
                its = Verdict.IN_FLIGHT
            else:
                its = producer.judge_open(producer.open, first, new, txn)
            if its is Verdict.NEW:
                new = max(new, highests[index])
                pushed = max(pushed, new)
            if verdict is None:
                verdict = its
            elif its is not verdict:
                return verdict, index
        assert verdict is not None, "a run has entries"
        return verdict, count

    def push(self, name: str, highest: int, now_ms: int, txn: TxnId | None = None) -> None:
        """Records a new run in flight by its highest id; `confirm` or `refuse` follows, in a transaction
        `confirm_open` or `refuse`.
        """
        producer = self._producers.get(name)
        if producer is None:
            producer = self._producers[name] = _Producer(NONE_YET, now_ms)
        producer.in_flight.append(highest)
        producer.pushed = max(producer.pushed, highest)
        if txn is not None:
            producer.runs_in_transactions += 1

    def confirm(self, name: str, now_ms: int) -> None:
        """Records that the name's oldest run in flight is persisted."""
        producer = self._producers[name]
        highest = producer.in_flight.popleft()
        producer.persisted = max(producer.persisted, highest)
        self._active(name, producer, now_ms)

    def confirm_open(
        self, name: str, txn: TxnId, firsts: Sequence[int], highests: Sequence[int], now_ms: int
    ) -> None:
        """Records that the name's oldest run in flight is durable, in an open transaction."""
        producer = self._producers[name]
        producer.in_flight.popleft()
        producer.runs_in_transactions -= 1
        self._open(name, producer, txn, firsts, highests)
        self._active(name, producer, now_ms)

    def _open(
        self, name: str, producer: _Producer, txn: TxnId, firsts: Sequence[int], highests: Sequence[int]
    ) -> None:
        for first, highest in zip(firsts, highests, strict=True):
            if first == UNCOUNTED:
                continue
            if producer.open is None:
                producer.open = OpenSequenceIds()
            producer.open.add(txn, first, highest)
            self._open_names.setdefault(txn, set()).add(name)

    def end(self, txn: TxnId, action: Action) -> Iterable[str]:
        """Persists the ids of a transaction that was committed, or forgets those of an aborted one.

        Returns the names that have published in it.
        """
        names = self._open_names.pop(txn, ())
        for name in names:
            producer = self._producers[name]
            assert producer.open is not None, "the name has published in the transaction"
            highest = producer.open.end(txn)
            if action is Action.COMMIT:
                producer.persisted = max(producer.persisted, highest)
            if not producer.open:
                producer.open = None
            producer.pushed = producer.last_pushed()
        return names

    def refuse(self, name: str, txn: TxnId | None = None) -> None:
        """Records that the name's latest run in flight is certainly not stored (refusals include all later
        runs).
        """
        producer = self._producers[name]
        producer.in_flight.pop()
        if txn is not None:
            producer.runs_in_transactions -= 1
        producer.pushed = producer.last_pushed()

    def replay(self, name: str, highest: int, now_ms: int) -> None:
        """Records an entry that was read from the topic while it is loaded."""
        producer = self._producers.get(name) or _Producer(NONE_YET, now_ms)
        producer.persisted = max(producer.persisted, highest)
        producer.pushed = max(producer.pushed, highest)
        self._active(name, producer, now_ms)

    def replay_open(self, name: str, txn: TxnId, first: int, highest: int, now_ms: int) -> None:
        """Records an entry of an open transaction that was read from the topic while it is loaded."""
        producer = self._producers.get(name) or _Producer(NONE_YET, now_ms)
        self._open(name, producer, txn, (first,), (highest,))
        producer.pushed = producer.last_pushed()
        self._active(name, producer, now_ms)

    def _active(self, name: str, producer: _Producer, now_ms: int) -> None:
        producer.last_active_ms = now_ms
        self._producers.pop(name, None)
        self._producers[name] = producer
        surplus = len(self._producers) - self._producers_max
        if surplus > 0:
            for oldest in list(islice(filter(self._may_go, self._producers), surplus)):
                del self._producers[oldest]

    def _may_go(self, name: str) -> bool:
        producer = self._producers[name]
        return not producer.in_flight and producer.open is None and name not in self._connected

    def forget_inactive(self, now_ms: int) -> None:
        """Removes the names that were inactive for long enough; connected ones count as active."""
        for name, producer in list(self._producers.items()):
            if producer.last_active_ms + self._inactivity_ms > now_ms:
                break
            if self._may_go(name):
                del self._producers[name]
            else:
                self._active(name, producer, now_ms)

    def snapshot(self) -> DeduplicationSnapshot:
        """Returns the persisted state of the most recently active names within the limit."""
        producers = {
            name: ProducerSequence(producer.persisted, producer.last_active_ms)
            for name, producer in self._producers.items()
            if producer.persisted != NONE_YET
        }
        for name in list(islice(producers, max(0, len(producers) - self._producers_max))):
            del producers[name]
        return DeduplicationSnapshot(self.position, producers)
