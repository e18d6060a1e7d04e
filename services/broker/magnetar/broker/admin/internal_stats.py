"""The managed ledger of a topic in the shape of Pulsar's internal statistics."""

from __future__ import annotations

from typing import Any

from magnetar.broker.topics.persistent_topic import PersistentTopic
from magnetar.broker.topics.topic import Topic
from magnetar.common.naming.position import Position
from magnetar.ledger.managed_ledger.cursor import Cursor


def internal_stats(topic: Topic) -> dict[str, Any]:
    """Ledgers and cursors; of a non-persistent topic the same, mostly zero."""
    if not isinstance(topic, PersistentTopic):
        return {**_counters(topic.stats.entries_in), "cursors": {name: {} for name in topic.subscriptions}}
    ledger = topic.ledger
    spans = ledger.spans.spans
    last = spans[-1] if spans and not spans[-1].closed else None
    return {
        **_counters(topic.stats.entries_in),
        "numberOfEntries": ledger.entries,
        "totalSize": ledger.storage_bytes,
        "currentLedgerEntries": last.entries if last else 0,
        "currentLedgerSize": last.byte_length if last else 0,
        "waitingCursorsCount": sum(
            not topic.subscriptions[name].backlog() for name in ledger.cursors if name in topic.subscriptions
        ),
        "lastConfirmedEntry": _text(ledger.last_confirmed),
        "state": _state(topic),
        "ledgers": [
            {
                "ledgerId": span.ref.id,
                "entries": span.entries if span.closed else 0,
                "size": span.byte_length if span.closed else 0,
                "offloaded": False,
                "underReplicated": False,
            }
            for span in spans
        ],
        "cursors": {name: _cursor(topic, cursor) for name, cursor in ledger.cursors.items()},
        "schemaLedgers": [],
        "compactedLedger": {
            "ledgerId": -1,
            "entries": -1,
            "size": -1,
            "offloaded": False,
            "underReplicated": False,
        },
    }


def _state(topic: PersistentTopic) -> str:
    if topic.ledger.terminated:
        return "Terminated"
    return "Closed" if topic.closing else "LedgerOpened"


def _counters(entries_added: int) -> dict[str, Any]:
    return {
        "entriesAddedCounter": entries_added,
        "numberOfEntries": 0,
        "totalSize": 0,
        "currentLedgerEntries": 0,
        "currentLedgerSize": 0,
        "waitingCursorsCount": 0,
        "pendingAddEntriesCount": 0,
    }


def _cursor(topic: PersistentTopic, cursor: Cursor) -> dict[str, Any]:
    ledger = topic.ledger
    subscription = topic.subscriptions.get(cursor.name)
    behind = ledger.entries_between(cursor.mark_delete, ledger.last_confirmed)
    unread = subscription.unread() if subscription is not None else behind
    following = ledger.next_position(cursor.mark_delete)
    if unread != behind or following is None:
        last = ledger.last_confirmed
        following = Position(last.ledger_id, last.entry_id + 1)
    return {
        "markDeletePosition": _text(cursor.mark_delete),
        "readPosition": _text(following),
        "waitingReadOp": unread == 0,
        "pendingReadOps": 0,
        "messagesConsumedCounter": max(0, topic.stats.entries_in - cursor.backlog()),
        "cursorLedger": -1,
        "cursorLedgerLastEntry": -1,
        "individuallyDeletedMessages": "[]",
        "state": "Open",
        "active": subscription is not None and bool(subscription.consumers),
        "numberOfEntriesSinceFirstNotAckedMessage": behind + 1,
        "totalNonContiguousDeletedMessagesRange": 0,
        "subscriptionHavePendingRead": False,
        "subscriptionHavePendingReplayRead": False,
        "properties": {},
    }


def _text(position: Position) -> str:
    return f"{position.ledger_id}:{position.entry_id}"
