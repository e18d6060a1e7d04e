"""Snapshots of a coordinator's state as entries of its log: written one after the other, and read back.

A coordinator may have many transactions over the same topics. So names stand once in each entry,
and the participants of one large transaction are cut into parts.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from sys import intern
from typing import Final

from magnetar.common.errors import DataCorruption
from magnetar.ledger.transaction_log import transaction_log_pb2 as pb
from magnetar.ledger.transaction_log.coordinator_state import CoordinatorState, Outcome, Reason, Transaction
from magnetar.ledger.transaction_log.log_records import (
    ACTIONS,
    ENTRY_BYTES_MAX,
    NAMES_MAX,
    encode_decision,
    encode_entry,
    read_action,
    read_decision,
)

_PART_BYTES: Final = 24
"""Bytes of a part beside its names and indexes, about."""

_INDEX_BYTES: Final = 2

_PARTS_MAX: Final = 250
"""Parts in one entry, so that encoding one takes about two milliseconds."""

_OUTCOMES_MAX: Final = 1_000
"""Outcomes in one entry."""


def snapshot_entries(
    transactions: Iterable[Transaction], outcomes: Iterable[tuple[int, Outcome]], *, snapshot_id: int
) -> Iterator[bytes]:
    """Yields a whole snapshot, entry by entry: chunks, then the end mark."""
    end = pb.SnapshotEnd(snapshot_id=snapshot_id)
    for chunk in _chunks(transactions, outcomes, end):
        chunk.snapshot_id, chunk.index = snapshot_id, end.chunks
        end.chunks += 1
        yield encode_entry(pb.Entry(snapshot_chunk=chunk))
    yield encode_entry(pb.Entry(snapshot_end=end))


def apply_chunk(state: CoordinatorState, chunk: pb.SnapshotChunk) -> None:
    """Adds a part of a snapshot to a state; parts come in order. Raises DataCorruption, UnsupportedFormat."""
    names = [intern(name) for name in chunk.names]
    try:
        for part in chunk.transactions:
            _apply_part(state, part, names)
        outcomes = chunk.outcomes
        for number, action, ended_ms, owner in zip(
            outcomes.numbers, outcomes.actions, outcomes.ended_ms, outcomes.owners, strict=True
        ):
            # All of them: what is too old goes with the next one.
            state.outcomes[number] = Outcome(read_action(action), ended_ms, names[owner])
    except (IndexError, ValueError) as error:
        raise DataCorruption(f"a part of a snapshot contradicts itself: {error}") from error


def _apply_part(state: CoordinatorState, part: pb.Transaction, names: list[str]) -> None:
    topics = tuple([names[index] for index in part.topics])
    pairs = iter(part.subscriptions)
    subscriptions = tuple([(names[index], names[next(pairs)]) for index in pairs])
    action, reason = read_decision(part.decide) if part.HasField("decide") else (None, Reason.REQUESTED)
    number = part.number
    before = state.transactions.get(number)
    if before is not None:
        topics, subscriptions = before.topics + topics, before.subscriptions + subscriptions
    elif number < state.next_number:
        raise DataCorruption(f"transaction {number} of a snapshot follows {state.next_number - 1}")
    else:
        state.next_number = number + 1
    state.transactions[number] = Transaction(
        number, names[part.owner], part.deadline_ms, part.ttl_ms, topics, subscriptions, action, reason
    )


class _Names:
    """The names of one chunk. `index` adds one that is new."""

    __slots__ = ("byte_length", "indexes")

    def __init__(self) -> None:
        self.indexes: dict[str, int] = {}
        self.byte_length = 0

    def index(self, name: str) -> int:
        indexes = self.indexes
        found = indexes.get(name)
        if found is None:
            found = indexes[name] = len(indexes)
            self.byte_length += len(name) + 3
        return found


def _chunks(
    transactions: Iterable[Transaction], outcomes: Iterable[tuple[int, Outcome]], end: pb.SnapshotEnd
) -> Iterator[pb.SnapshotChunk]:
    """Yields chunks of limited size; counts their content in `end`."""
    names, chunk, size = _Names(), pb.SnapshotChunk(), 0
    for each in transactions:
        end.transactions += 1
        for start in range(0, max(len(each.topics), len(each.subscriptions), 1), NAMES_MAX):
            size += _add_part(chunk, each, start, names)
            if size + names.byte_length >= ENTRY_BYTES_MAX or len(chunk.transactions) >= _PARTS_MAX:
                chunk.names.extend(names.indexes)
                yield chunk
                names, chunk, size = _Names(), pb.SnapshotChunk(), 0
    if size:
        chunk.names.extend(names.indexes)
        yield chunk
    remembered = iter(outcomes)
    while batch := list(islice(remembered, _OUTCOMES_MAX)):
        end.outcomes += len(batch)
        names = _Names()
        columns = pb.Outcomes(
            numbers=[number for number, _ in batch],
            actions=[ACTIONS[each.action] for _, each in batch],
            ended_ms=[each.ended_ms for _, each in batch],
            owners=[names.index(each.owner) for _, each in batch],
        )
        yield pb.SnapshotChunk(names=list(names.indexes), outcomes=columns)


def _add_part(chunk: pb.SnapshotChunk, transaction: Transaction, start: int, names: _Names) -> int:
    """Adds the participants of a transaction from `start`; returns the approximate bytes without names."""
    index = names.index
    topics = transaction.topics[start : start + NAMES_MAX]
    subscriptions = transaction.subscriptions[start : start + NAMES_MAX]
    action = transaction.action
    chunk.transactions.add(
        number=transaction.number,
        deadline_ms=transaction.deadline_ms,
        ttl_ms=transaction.ttl_ms,
        owner=index(transaction.owner),
        topics=[index(topic) for topic in topics],
        subscriptions=[index(name) for pair in subscriptions for name in pair],
        decide=None if action is None else encode_decision(action, transaction.reason),
    )
    return _PART_BYTES + _INDEX_BYTES * (len(topics) + 2 * len(subscriptions))
