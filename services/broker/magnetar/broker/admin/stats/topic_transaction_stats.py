"""Transactions of topics and subscriptions in the form of Pulsar's admin API.

A topic has one ledger for the records of its cursors and transactions; it stands where Pulsar has a system
topic for the messages, and a hidden topic for the acknowledgements of each subscription.
"""

from __future__ import annotations

from typing import Any, Final

from magnetar.broker.admin.stats.transaction_stats import log_stats
from magnetar.broker.subscriptions.subscription import Subscription
from magnetar.broker.topics.persistent_topic import PersistentTopic
from magnetar.broker.transactions.coordinator_views import LogFigures
from magnetar.common.naming.position import Position
from magnetar.common.naming.txn_id import Action, TxnId
from magnetar.ledger.managed_ledger.pending_acks import CursorPending

_NEVER_USED: Final = "NoSnapshot"
"""State of a topic without transactions."""

_NOT_RECORDED: Final = {"recoverStartTime": 0, "recoverEndTime": 0}
"""Times of a recovery of its own: the state is loaded with the topic."""


def buffer_stats(topic: PersistentTopic, *, low_watermarks: bool) -> dict[str, Any]:
    """Returns the transactions of a topic's messages; its limit for readers is `maxReadPosition`."""
    transactions = topic.ledger.transactions
    shown = {
        "state": _NEVER_USED if transactions is None else "Ready",
        "maxReadPosition": str(topic.ledger.read_limit()),
        "lastSnapshotTimestamps": 0,
        "ongoingTxnSize": 0 if transactions is None else len(transactions.open),
        **_NOT_RECORDED,
        "totalAbortedTransactions": 0 if transactions is None else transactions.ended[Action.ABORT],
        "snapshotType": "Single",
    }
    return {**shown, "lowWaterMarks": _watermarks(topic)} if low_watermarks else shown


def in_buffer(topic: PersistentTopic, txn: TxnId) -> dict[str, Any]:
    """Returns the state of a transaction's messages: its first position while it is open, or its abort while
    that is remembered.
    """
    transactions = topic.ledger.transactions
    if transactions is None:
        return {"aborted": False}
    opened = transactions.open.get(txn)
    if opened is None or opened.first_position is None:
        return {"aborted": transactions.outcome(txn) is Action.ABORT}
    return {"startPosition": str(opened.first_position), "aborted": False}


def records_stats(topic: PersistentTopic) -> dict[str, Any]:
    """Returns the ledger that has the records of a topic's cursors and transactions."""
    name = topic.name
    path = f"{name.namespace}/{name.domain}/{name.local_name}/cursors"
    return log_stats(LogFigures(path, topic.ledger.cursor_records))


def pending_ack_stats(
    topic: PersistentTopic, subscription: Subscription, *, low_watermarks: bool
) -> dict[str, Any]:
    """Returns the transactions with pending acknowledgements in a subscription."""
    pending = _pending(topic, subscription)
    shown = {
        "state": "None" if topic.ledger.transactions is None else "Ready",
        "ongoingTxnSize": 0 if pending is None else len(pending.transactions),
        **_NOT_RECORDED,
    }
    return {**shown, "lowWaterMarks": _watermarks(topic)} if low_watermarks else shown


def in_pending_acks(topic: PersistentTopic, subscription: Subscription, txn: TxnId) -> dict[str, Any]:
    """Returns the cumulative position that a transaction acknowledges in a subscription, if any."""
    pending = _pending(topic, subscription)
    if pending is None or pending.cumulative is None or pending.cumulative[0] != txn:
        return {}
    return {"cumulativeAckPosition": str(pending.cumulative[1])}


def position_state(
    topic: PersistentTopic, subscription: Subscription, position: Position, batch_index: int
) -> str:
    """Returns Pulsar's name for how a message is acknowledged in a subscription; `batch_index` is -1 for a
    whole entry.
    """
    ledger, cursor = topic.ledger, subscription.cursor
    if ledger.spans.floor(position) != position:
        return "InvalidPosition"
    if position <= cursor.mark_delete:
        return "MarkDelete"
    pending = _pending(topic, subscription)
    held = pending is not None and pending.holds(position, batch_index)
    return "PendingAck" if held else "NotInPendingAck"


def _pending(topic: PersistentTopic, subscription: Subscription) -> CursorPending | None:
    transactions = topic.ledger.transactions
    return None if transactions is None else transactions.pending(subscription.cursor)


def _watermarks(topic: PersistentTopic) -> dict[str, int]:
    transactions = topic.ledger.transactions
    return {} if transactions is None else {str(k): v for k, v in transactions.low_watermarks.items()}
