"""Internal statistics of a topic's managed ledger in Pulsar's form."""

from __future__ import annotations

from itertools import islice
from typing import Any, Final

from magnetar.broker.admin.stats.subscription_stats import time_text
from magnetar.broker.topics.persistent_topic import PersistentTopic
from magnetar.broker.topics.topic import Topic
from magnetar.common.naming.position import Position
from magnetar.ledger.managed_ledger.cursor import Cursor
from magnetar.ledger.managed_ledger.offload_figures import is_offloaded

RANGES_MAX: Final = 1_000
"""Individually acknowledged ranges shown for one cursor; there may be a million."""

_NO_CURSOR: Final = {
    "waitingReadOp": False,
    "pendingReadOps": 0,
    "messagesConsumedCounter": 0,
    "cursorLedger": 0,
    "cursorLedgerLastEntry": 0,
    "active": False,
    "numberOfEntriesSinceFirstNotAckedMessage": 0,
    "totalNonContiguousDeletedMessagesRange": 0,
    "subscriptionHavePendingRead": False,
    "subscriptionHavePendingReplayRead": False,
}


def internal_stats(topic: Topic) -> dict[str, Any]:
    """Returns ledgers and cursors; mostly zeros for a non-persistent topic."""
    if not isinstance(topic, PersistentTopic):
        return {
            **_counters(topic.stats.entries_in),
            "cursors": dict.fromkeys(topic.subscriptions, _NO_CURSOR),
        }
    ledger = topic.ledger
    spans = ledger.spans.spans
    view, has_view = ledger.compaction.figures, ledger.compaction.horizon is not None
    last = spans[-1] if spans and not spans[-1].closed else None
    cursors = {name: _cursor(topic, cursor) for name, cursor in ledger.cursors.items()}
    if (compaction := topic.compaction_subscription()) is not None:
        cursors[compaction.name] = {
            **_cursor(topic, compaction.cursor),
            "cursorLedger": -1,
            "cursorLedgerLastEntry": -1,
            "state": "NoLedger",
            "properties": {"CompactedTopicLedger": view.ledger_id},
        }
    shown = {
        **_counters(topic.stats.entries_in),
        "numberOfEntries": ledger.entries,
        "totalSize": ledger.storage_bytes,
        "currentLedgerEntries": last.entries if last else 0,
        "currentLedgerSize": last.byte_length if last else 0,
        "waitingCursorsCount": sum(each["waitingReadOp"] for each in cursors.values()),
        "pendingAddEntriesCount": ledger.writes.pending_entries,
        "lastConfirmedEntry": _text(ledger.last_confirmed),
        "state": _state(topic),
        "ledgers": [
            {
                "ledgerId": span.ref.id,
                "entries": span.entries if span.closed else 0,
                "size": span.byte_length if span.closed else 0,
                "offloaded": is_offloaded(span),
                "underReplicated": False,
            }
            for span in spans
        ],
        "cursors": cursors,
        "schemaLedgers": [],
        "compactedLedger": {
            "ledgerId": view.ledger_id,
            "entries": view.entries if has_view else -1,
            "size": view.stored_bytes if has_view else -1,
            "offloaded": False,
            "underReplicated": False,
        },
    }
    if spans and spans[-1].opened_ms:
        shown["lastLedgerCreatedTimestamp"] = time_text(spans[-1].opened_ms)
    return shown


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
    source = None if subscription is None else subscription.source
    read = cursor.mark_delete if source is None else max(source.read_position, cursor.mark_delete)
    following = ledger.next_position(read)
    caught_up = following is None
    if following is None:
        last = ledger.last_confirmed
        following = Position(last.ledger_id, last.entry_id + 1)
    records = ledger.cursor_records if cursor.durable else None
    waits = source is not None and caught_up and not source.reading
    return {
        "markDeletePosition": _text(cursor.mark_delete),
        "readPosition": _text(following),
        "waitingReadOp": waits,
        "pendingReadOps": int(source is not None and source.reading),
        "messagesConsumedCounter": max(0, topic.stats.entries_in - cursor.backlog()),
        "cursorLedger": -1 if records is None else records.ledger_id,
        "cursorLedgerLastEntry": -1 if records is None else records.entry_id,
        "individuallyDeletedMessages": _ranges(cursor),
        "state": "NoLedger" if records is None else "Open",
        "active": subscription is not None and bool(subscription.consumers),
        "numberOfEntriesSinceFirstNotAckedMessage": ledger.entries_between(cursor.mark_delete, read) + 1,
        "totalNonContiguousDeletedMessagesRange": cursor.acked_range_count,
        "subscriptionHavePendingRead": waits or (source is not None and source.reading),
        "subscriptionHavePendingReplayRead": source is not None and source.reading and source.replaying,
        "properties": {},
    }


def _ranges(cursor: Cursor) -> str:
    """Returns the individually acknowledged ranges; each excludes its first position and includes its
    last.
    """
    texts = [
        f"({ledger_id}:{first - 1}..{ledger_id}:{last}]"
        for ledger_id, first, last in islice(cursor.acked_ranges(), RANGES_MAX)
    ]
    if len(texts) == RANGES_MAX and cursor.acked_range_count > RANGES_MAX:
        texts.append("...")
    return f"[{','.join(texts)}]"


def _text(position: Position) -> str:
    return f"{position.ledger_id}:{position.entry_id}"
