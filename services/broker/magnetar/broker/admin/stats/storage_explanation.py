"""Why a topic's ledgers are kept: what keeps each, and where its bytes are."""

from __future__ import annotations

from collections import Counter
from enum import StrEnum
from typing import Any, Final

from magnetar.broker.reason import iso_time
from magnetar.broker.topics.persistent_topic import PersistentTopic
from magnetar.ledger.managed_ledger.kept_ledgers import HolderKind, Kept, KeptLedger, kept_ledgers
from magnetar.ledger.managed_ledger.ledger_list import LedgerSpan
from magnetar.ledger.managed_ledger.trimming import Keeper, Retention

HOLDERS_MAX: Final = 20
"""Maximum holders of one ledger that are named."""


class StorageCode(StrEnum):
    """The kinds of reasons to keep a ledger; docs/explain.md has each with its test."""

    OPEN_LEDGER = "open_ledger"
    SUBSCRIPTION = "subscription"
    DEDUPLICATION = "deduplication"
    COMPACTION = "compaction"
    TRANSACTIONS = "transactions"
    RETENTION = "retention"
    BEHIND_LEDGER = "behind_ledger"
    METADATA_RESTORED = "metadata_restored"
    BEING_DELETED = "being_deleted"


_NEXT: Final = {
    StorageCode.OPEN_LEDGER: "nothing: it is closed when it is full or old enough; magnetar admin topics "
    "unload closes it now",
    StorageCode.SUBSCRIPTION: "see magnetar explain subscription; skip its backlog, or delete it",
    StorageCode.DEDUPLICATION: "nothing: a snapshot of producers' sequence ids moves it on",
    StorageCode.COMPACTION: "see magnetar admin topics compaction-status; a compaction moves it on",
    StorageCode.TRANSACTIONS: "see magnetar admin transactions slow-transactions; their ends move it on",
    StorageCode.RETENTION: "nothing: it ends by itself; magnetar admin namespaces set-retention changes it",
    StorageCode.BEHIND_LEDGER: "free the ledger before it: ledgers are deleted from the front",
    StorageCode.METADATA_RESTORED: "finish the restore: magnetar admin metadata status",
    StorageCode.BEING_DELETED: "nothing: it is deleted at the next check, within a minute",
}


def storage_explanation(topic: PersistentTopic) -> dict[str, Any]:
    """Returns each ledger of a topic with what keeps it; their bytes sum up to `bytes`."""
    ledger = topic.ledger
    kept, now_ms = ledger.kept(), ledger.now_ms()
    lag_ms = ledger.offload.deletion_lag_ms
    rows = [_doomed(span) for span in kept.deleting]
    rows += [
        _row(each, kept, topic, now_ms, lag_ms) for each in kept_ledgers(ledger.spans.spans, kept, now_ms)
    ]
    by_code: Counter[str] = Counter()
    for row in rows:
        by_code[row["code"]] += row["bytes"]
    view = ledger.compaction.figures
    return {
        "topic": topic.name.full,
        "bytes": sum(row["bytes"] for row in rows),
        "bytesOnBookies": sum(row["bytes"] for row in rows if "bookies" in row["copies"]),
        "bytesByCode": dict(by_code),
        "compactedViewBytes": 0 if ledger.compaction.horizon is None else view.stored_bytes,
        "ledgers": rows,
        "partitions": {},
    }


def _row(each: KeptLedger, kept: Kept, topic: PersistentTopic, now_ms: int, lag_ms: int) -> dict[str, Any]:
    span = each.span
    code, text = _why(each, kept, topic, now_ms)
    copies = ["bookies"]
    offload = span.offload
    until: str | None = None
    if offload is not None and offload.complete:
        copies = ["objects"] if offload.left_bookies else ["bookies", "objects"]
        if not offload.left_bookies and lag_ms >= 0:
            until = iso_time(offload.completed_ms + lag_ms)
            text += f"; bookies keep a copy beside the objects until {until}"
    holders = [each.name or str(each.kind) for each in each.holders[:HOLDERS_MAX]]
    return _shown(span, code, text, copies, holders, until)


def _why(each: KeptLedger, kept: Kept, topic: PersistentTopic, now_ms: int) -> tuple[StorageCode, str]:
    """Returns what keeps a ledger, as a code and in words."""
    if each.keeper is Keeper.OPEN:
        return StorageCode.OPEN_LEDGER, "it is written to, and only closed ledgers are deleted"
    if each.keeper is Keeper.NEEDED:
        return _needed(each, topic)
    if each.keeper is Keeper.RETENTION:
        return StorageCode.RETENTION, _retained(each.span, kept.retention, now_ms)
    if kept.suspended:
        text = "metadata was restored and is not released: nothing is deleted until then"
        return StorageCode.METADATA_RESTORED, text
    if each.behind:
        return StorageCode.BEHIND_LEDGER, f"nothing needs it, but ledger {each.behind} before it is kept"
    return StorageCode.BEING_DELETED, "nothing needs it: it is deleted at the next check"


def _needed(each: KeptLedger, topic: PersistentTopic) -> tuple[StorageCode, str]:
    slowest = each.holders[0]
    more = f", as {len(each.holders) - 1} others do" if len(each.holders) > 1 else ""
    behind = topic.ledger.spans.bytes_after(slowest.position)
    if slowest.kind is HolderKind.SUBSCRIPTION:
        text = f"subscription {slowest.name} needs entries after {slowest.position}{more}"
        return StorageCode.SUBSCRIPTION, f"{text}: it is {behind} bytes behind"
    text = f"{slowest.kind} needs entries after {slowest.position}{more}"
    return StorageCode(str(slowest.kind)), text


def _retained(span: LedgerSpan, retention: Retention, now_ms: int) -> str:
    limits = []
    if retention.time_ms < 0:
        limits.append("of any age")
    else:
        left_s = max(0, span.closed_ms + retention.time_ms - now_ms) / 1000
        limits.append(f"for {retention.time_ms // 60_000} min after its closing, {left_s:.0f} s more")
    if retention.size_bytes < 0:
        limits.append("of any size")
    else:
        limits.append(f"while the ledgers after it have less than {retention.size_bytes} bytes")
    return f"retention keeps acknowledged messages: {', '.join(limits)}"


def _doomed(span: LedgerSpan) -> dict[str, Any]:
    text = "it is off the topic's list, and is being deleted"
    return _shown(span, StorageCode.BEING_DELETED, text, ["bookies"], [], None)


def _shown(
    span: LedgerSpan,
    code: StorageCode,
    text: str,
    copies: list[str],
    holders: list[str],
    bookies_until: str | None,
) -> dict[str, Any]:
    return {
        "ledgerId": span.ref.id,
        "entries": span.entries,
        "bytes": span.byte_length,
        "closed": iso_time(span.closed_ms) if span.closed else None,
        "copies": copies,
        "code": str(code),
        "text": text,
        "next": _NEXT[code],
        "holders": holders,
        "bookiesUntil": bookies_until,
    }
