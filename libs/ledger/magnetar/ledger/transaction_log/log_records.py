"""The records of a transaction log as bytes: proto/storage/v1/transaction_log.proto with a header.

Entries are bounded (`ENTRY_BYTES_MAX`, about): many changes are several entries.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from magnetar.common.errors import UnsupportedFormat
from magnetar.common.naming.txn_id import Action
from magnetar.ledger.managed_ledger.record_header import RecordFormat, cut_by_size
from magnetar.ledger.transaction_log import transaction_log_pb2 as pb
from magnetar.ledger.transaction_log.coordinator_state import (
    CoordinatorState,
    Reason,
    Subscription,
    Transaction,
)

FORMAT: Final = RecordFormat("transaction record", magic=0x4D54, version=1)

ENTRY_BYTES_MAX: Final = 64 * 1024
"""Approximate maximum size of an entry in bytes; exceeded by at most one change or one part."""

NAMES_MAX: Final = 200
"""Names of participants in one change or in one part of a snapshot."""

ACTIONS: Final = {Action.COMMIT: pb.COMMIT, Action.ABORT: pb.ABORT}
_READ_ACTIONS: Final = {value: action for action, value in ACTIONS.items()}
_REASONS: Final = {Reason.REQUESTED: pb.REQUESTED, Reason.TIMED_OUT: pb.TIMED_OUT}
_READ_REASONS: Final = {value: reason for reason, value in _REASONS.items()}


def encode_entry(entry: pb.Entry) -> bytes:
    """Encodes an entry with its header."""
    return FORMAT.encode(entry)


def decode_entry(data: bytes) -> pb.Entry:
    """Decodes an entry. Raises DataCorruption, or UnsupportedFormat for an entry of a later release."""
    return FORMAT.decode(data, pb.Entry)


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
    return pb.Change(number=number, decide=encode_decision(action, reason))


def ended_change(number: int, ended_ms: int) -> pb.Change:
    return pb.Change(number=number, ended=pb.Ended(ended_ms=ended_ms))


def change_entries(changes: Iterable[pb.Change]) -> list[bytes]:
    """Encodes change records as entries, in order."""
    batches = cut_by_size(changes, ENTRY_BYTES_MAX)
    return [encode_entry(pb.Entry(changes=pb.Changes(changes=batch))) for batch in batches]


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
        state.decide(number, *read_decision(change.decide))
    elif kind == "ended":
        state.end(number, change.ended.ended_ms)
        state.forget(number)
    else:
        raise UnsupportedFormat(
            f"a record of transaction {number} is of a kind that this release does not know; run the release "
            "that wrote it, or a newer one"
        )


def _begin(transaction: Transaction) -> pb.Begin:
    return pb.Begin(deadline_ms=transaction.deadline_ms, ttl_ms=transaction.ttl_ms, owner=transaction.owner)


def encode_decision(action: Action, reason: Reason) -> pb.Decide:
    """Encodes a decision."""
    return pb.Decide(action=ACTIONS[action], reason=_REASONS[reason])


def _subscriptions(subscriptions: Iterable[Subscription]) -> pb.Subscriptions:
    return pb.Subscriptions(
        subscriptions=[pb.Subscription(topic=topic, name=name) for topic, name in subscriptions]
    )


def _read_subscriptions(value: pb.Subscriptions) -> list[Subscription]:
    return [(each.topic, each.name) for each in value.subscriptions]


def read_decision(value: pb.Decide) -> tuple[Action, Reason]:
    """Decodes a decision. Raises UnsupportedFormat for an action of a later release."""
    # A cause that only a later release knows changes nothing.
    return read_action(value.action), _READ_REASONS.get(value.reason, Reason.REQUESTED)


def read_action(value: pb.Action.ValueType) -> Action:
    """Decodes an action. Raises UnsupportedFormat for one of a later release."""
    action = _READ_ACTIONS.get(value)
    if action is None:
        raise UnsupportedFormat(
            f"a transaction record has action {value}, which this release does not know; run the release "
            "that wrote it, or a newer one"
        )
    return action
