"""The records of a transaction log as bytes: proto/storage/v1/transaction_log.proto with a header.

Entries are bounded (`ENTRY_BYTES_MAX`, about): many changes are several entries, and so are the participants
of one large transaction in a snapshot.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from sys import intern
from typing import Final

from google.protobuf.message import DecodeError
from magnetar.common.errors import DataCorruption, UnsupportedFormat
from magnetar.common.naming.txn_id import Action
from magnetar.ledger.managed_ledger.record_header import RecordFormat
from magnetar.ledger.transaction_log import transaction_log_pb2 as pb
from magnetar.ledger.transaction_log.coordinator_state import (
    CoordinatorState,
    Outcome,
    Reason,
    Subscription,
    Transaction,
)

FORMAT: Final = RecordFormat("transaction record", magic=0x4D54, version=1)

ENTRY_BYTES_MAX: Final = 64 * 1024
"""Approximate maximum size of an entry in bytes; exceeded by at most one change or one part."""

NAMES_MAX: Final = 200
"""Names of participants in one change or in one part of a snapshot."""

_ACTIONS: Final = {Action.COMMIT: pb.COMMIT, Action.ABORT: pb.ABORT}
_READ_ACTIONS: Final = {value: action for action, value in _ACTIONS.items()}
_REASONS: Final = {Reason.REQUESTED: pb.REQUESTED, Reason.TIMED_OUT: pb.TIMED_OUT}
_READ_REASONS: Final = {value: reason for reason, value in _REASONS.items()}


def encode_entry(entry: pb.Entry) -> bytes:
    """Encodes an entry with its header."""
    return FORMAT.seal(entry.SerializeToString(deterministic=True))


def decode_entry(data: bytes) -> pb.Entry:
    """Decodes an entry. Raises DataCorruption, or UnsupportedFormat for an entry of a later release."""
    body = FORMAT.open(data)
    try:
        return pb.Entry.FromString(body)
    except DecodeError as error:
        raise DataCorruption(f"a transaction record with a good checksum does not parse: {error}") from error


# Changes


def begin_change(transaction: Transaction) -> pb.Change:
    return pb.Change(number=transaction.number, begin=_begin(transaction))


def topics_changes(number: int, topics: Sequence[str]) -> list[pb.Change]:
    """Returns the records of topics that take part."""
    return [
        pb.Change(number=number, topics=pb.Topics(names=topics[start : start + NAMES_MAX]))
        for start in range(0, len(topics), NAMES_MAX)
    ]


def subscriptions_changes(number: int, subscriptions: Sequence[Subscription]) -> list[pb.Change]:
    """Returns the records of subscriptions that take part."""
    return [
        pb.Change(number=number, subscriptions=_subscriptions(subscriptions[start : start + NAMES_MAX]))
        for start in range(0, len(subscriptions), NAMES_MAX)
    ]


def decide_change(number: int, action: Action, reason: Reason) -> pb.Change:
    return pb.Change(number=number, decide=_decide(action, reason))


def ended_change(number: int, ended_ms: int) -> pb.Change:
    return pb.Change(number=number, ended=pb.Ended(ended_ms=ended_ms))


def change_entries(changes: Iterable[pb.Change]) -> list[bytes]:
    """Encodes change records as entries, in order."""
    entries = []
    batch: list[pb.Change] = []
    size = 0
    for change in changes:
        batch.append(change)
        size += change.ByteSize()
        if size >= ENTRY_BYTES_MAX:
            entries.append(encode_entry(pb.Entry(changes=pb.Changes(changes=batch))))
            batch, size = [], 0
    if batch:
        entries.append(encode_entry(pb.Entry(changes=pb.Changes(changes=batch))))
    return entries


def apply_change(state: CoordinatorState, change: pb.Change) -> None:
    """Applies a change to a state. Raises DataCorruption if it cannot follow, UnsupportedFormat."""
    number = change.number
    kind = change.WhichOneof("change")
    if kind == "begin":
        begin = change.begin
        state.begin(number, begin.owner, begin.deadline_ms, begin.ttl_ms)
    elif kind == "topics":
        state.add_topics(number, change.topics.names)
    elif kind == "subscriptions":
        state.add_subscriptions(number, _read_subscriptions(change.subscriptions))
    elif kind == "decide":
        state.decide(number, *_read_decide(change.decide))
    elif kind == "ended":
        state.end(number, change.ended.ended_ms)
        state.forget(number)
    else:
        raise UnsupportedFormat(
            f"a record of transaction {number} is of a kind that this release does not know; run the release "
            "that wrote it, or a newer one"
        )


# Snapshots


def snapshot_entries(
    transactions: Iterable[Transaction], outcomes: Iterable[tuple[int, Outcome]], *, snapshot_id: int
) -> Iterator[bytes]:
    """Yields a whole snapshot, entry by entry: chunks, then the end mark."""
    chunk = pb.SnapshotChunk(snapshot_id=snapshot_id)
    size = 0
    end = pb.SnapshotEnd(snapshot_id=snapshot_id)
    for part in _parts(transactions, outcomes, end):
        if isinstance(part, pb.Outcome):
            chunk.outcomes.append(part)
        else:
            chunk.transactions.append(part)
        size += part.ByteSize()
        if size >= ENTRY_BYTES_MAX:
            yield encode_entry(pb.Entry(snapshot_chunk=chunk))
            end.chunks += 1
            chunk, size = pb.SnapshotChunk(snapshot_id=snapshot_id, index=end.chunks), 0
    if size:
        yield encode_entry(pb.Entry(snapshot_chunk=chunk))
        end.chunks += 1
    yield encode_entry(pb.Entry(snapshot_end=end))


def apply_chunk(state: CoordinatorState, chunk: pb.SnapshotChunk) -> None:
    """Adds a part of a snapshot to a state; parts come in order. Raises DataCorruption."""
    for part in chunk.transactions:
        number = part.number
        if part.HasField("begin"):
            state.begin(number, part.begin.owner, part.begin.deadline_ms, part.begin.ttl_ms)
        if part.HasField("topics"):
            state.add_topics(number, part.topics.names)
        if part.HasField("subscriptions"):
            state.add_subscriptions(number, _read_subscriptions(part.subscriptions))
        if part.HasField("decide"):  # in the last part, since participants are added before
            state.decide(number, *_read_decide(part.decide))
    for each in chunk.outcomes:
        outcome = Outcome(_read_action(each.action), each.ended_ms, intern(each.owner))
        state.outcomes[each.number] = outcome  # all of them: what is too old goes with the next one


def _parts(
    transactions: Iterable[Transaction], outcomes: Iterable[tuple[int, Outcome]], end: pb.SnapshotEnd
) -> Iterator[pb.Transaction | pb.Outcome]:
    for each in transactions:
        end.transactions += 1
        yield from _transaction_parts(each)
    for number, outcome in outcomes:
        end.outcomes += 1
        yield pb.Outcome(
            number=number,
            action=_ACTIONS[outcome.action],
            ended_ms=outcome.ended_ms,
            owner=outcome.owner,
        )


def _transaction_parts(transaction: Transaction) -> Iterator[pb.Transaction]:
    topics, subscriptions = transaction.topics, transaction.subscriptions
    part = pb.Transaction(number=transaction.number, begin=_begin(transaction))
    for start in range(0, max(len(topics), len(subscriptions)), NAMES_MAX):
        if start:
            yield part
            part = pb.Transaction(number=transaction.number)
        if names := topics[start : start + NAMES_MAX]:
            part.topics.names.extend(names)
        if some := subscriptions[start : start + NAMES_MAX]:
            part.subscriptions.CopyFrom(_subscriptions(some))
    if transaction.action is not None:
        part.decide.CopyFrom(_decide(transaction.action, transaction.reason))
    yield part


def _begin(transaction: Transaction) -> pb.Begin:
    return pb.Begin(deadline_ms=transaction.deadline_ms, ttl_ms=transaction.ttl_ms, owner=transaction.owner)


def _decide(action: Action, reason: Reason) -> pb.Decide:
    return pb.Decide(action=_ACTIONS[action], reason=_REASONS[reason])


def _subscriptions(subscriptions: Iterable[Subscription]) -> pb.Subscriptions:
    return pb.Subscriptions(
        subscriptions=[pb.Subscription(topic=topic, name=name) for topic, name in subscriptions]
    )


def _read_subscriptions(value: pb.Subscriptions) -> list[Subscription]:
    return [(each.topic, each.name) for each in value.subscriptions]


def _read_decide(value: pb.Decide) -> tuple[Action, Reason]:
    # A cause that only a later release knows changes nothing.
    return _read_action(value.action), _READ_REASONS.get(value.reason, Reason.REQUESTED)


def _read_action(value: pb.Action.ValueType) -> Action:
    action = _READ_ACTIONS.get(value)
    if action is None:
        raise UnsupportedFormat(
            f"a transaction record has action {value}, which this release does not know; run the release "
            "that wrote it, or a newer one"
        )
    return action
