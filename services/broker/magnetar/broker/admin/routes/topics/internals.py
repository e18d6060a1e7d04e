"""Routes that return the stored state of topics from metadata: ledgers, cursors, sizes."""

from __future__ import annotations

from itertools import islice
from typing import Any, Final
from uuid import UUID

from aiohttp import web
from magnetar.broker.admin.edge.call import Call, answer
from magnetar.broker.admin.objects.partitions import on_topic, same
from magnetar.broker.admin.objects.subscriptions import reset_data
from magnetar.broker.admin.objects.topics import load, owned_topic_routes, partitions_of, persistent, stored
from magnetar.broker.admin.stats.internal_stats import RANGES_MAX
from magnetar.broker.admin.stats.subscription_stats import time_text
from magnetar.broker.topics.persistent_topic import PersistentTopic
from magnetar.common.metadata.values import TopicHead, decode
from magnetar.common.naming.position import Position
from magnetar.common.naming.topic_name import TopicName
from magnetar.common.security.authorization.operations import Operation
from magnetar.ledger.managed_ledger.cursor import Cursor
from magnetar.ledger.managed_ledger.ledger_list import LedgerSpan


async def _internal_info(call: Call) -> web.Response:
    if not await partitions_of(call):
        return answer(await _info(call, await persistent(call, "Internal info")))

    async def info(name: TopicName) -> dict[str, Any]:
        return await _info(call, stored(await load(call.broker, name), "Internal info"))

    found = (await on_topic(call, info, same(call))).done
    return answer({"version": 0, "partitions": {name.full: each for name, each in found.items()}})


async def _info(call: Call, topic: PersistentTopic) -> dict[str, Any]:
    ledgers, ledger = call.broker.ledgers, topic.ledger
    found = await ledgers.metadata.get(ledgers.keys.topic_head(topic.name))
    head = TopicHead() if found is None else decode(TopicHead, found.value)
    shown = [_ledger(span) for span in ledger.spans.spans]
    known = {each["ledgerId"] for each in shown}
    empty = [ref.id for ref in head.open_ledgers if ref.id not in known]
    info: dict[str, Any] = {
        "version": 0 if found is None else found.version,
        "creationDate": time_text(head.created_ms),
        "ledgers": shown + [{"ledgerId": ledger_id, "isOffloaded": False} for ledger_id in empty],
        "cursors": {
            name: _cursor(cursor, ledger.cursor_records)
            for name, cursor in ledger.cursors.items()
            if cursor.durable
        },
    }
    if head.HasField("terminated"):
        last = head.terminated
        info["terminatedPosition"] = _position(Position(last.last_ledger_id, last.last_entry_id))
    if ledger.properties:
        info["properties"] = dict(ledger.properties)
    return info


def _ledger(span: LedgerSpan) -> dict[str, Any]:
    """Returns the JSON of a ledger; an open ledger has no size yet."""
    shown: dict[str, Any] = {"ledgerId": span.ref.id}
    if span.closed:
        shown |= {"entries": span.entries, "size": span.byte_length}
    time_ms = span.closed_ms or span.opened_ms
    return shown | ({"timestamp": time_ms} if time_ms else {}) | _offloaded(span)


def _offloaded(span: LedgerSpan) -> dict[str, Any]:
    """Returns the offload state; the attempt id takes the place of Pulsar's uuid.

    `offloadedTo` has what a reader of the objects needs beside the store's credentials.
    """
    offload = span.offload
    if offload is None or not offload.complete:
        return {"isOffloaded": False}
    return {
        "isOffloaded": True,
        "offloadedContextUuid": str(UUID(bytes=offload.attempt)),
        "offloadedTo": {
            "location": offload.location,
            "path": offload.path,
            "manifestSha256": offload.manifest_sha256.hex(),
            "objectBytes": offload.object_bytes,
            "openedTimestamp": span.opened_ms,
            "maxPublishTimestamp": span.max_publish_time_ms,
        },
    }


def _cursor(cursor: Cursor, records: Position | None) -> dict[str, Any]:
    shown: dict[str, Any] = {
        "version": cursor.sequence,
        "cursorsLedgerId": -1 if records is None else records.ledger_id,
        "markDelete": _position(cursor.mark_delete),
    }
    ranges = [
        {"from": _position(Position(ledger, first - 1)), "to": _position(Position(ledger, last))}
        for ledger, first, last in islice(cursor.acked_ranges(), RANGES_MAX)
    ]
    return shown | ({"individualDeletedMessages": ranges} if ranges else {})


def _position(position: Position) -> dict[str, int]:
    return {"ledgerId": position.ledger_id, "entryId": position.entry_id}


async def _backlog(call: Call) -> web.Response:
    """Returns the figures that Pulsar computes for a topic without an owner."""
    topic = await persistent(call, "Get backlog")
    ledger, urls = topic.ledger, call.broker.urls
    backlogs = {name: cursor.backlog() for name, cursor in ledger.cursors.items() if cursor.durable}
    records = ledger.cursor_records
    return answer(
        {
            "storageSize": ledger.storage_bytes,
            "totalMessages": ledger.entries,
            "messageBacklog": sum(backlogs.values()),
            "brokerName": urls.any_http_url.partition("://")[2] or call.request.host,
            "topicName": topic.name.full,
            "dataLedgerDetails": [
                {
                    "entries": span.entries,
                    "timestamp": span.closed_ms or span.opened_ms,
                    "size": span.byte_length,
                    "ledgerId": span.ref.id,
                }
                for span in ledger.spans.spans
            ],
            "cursorDetails": {
                name: {
                    "cursorBacklog": entries,
                    "cursorLedgerId": -1 if records is None else records.ledger_id,
                }
                for name, entries in backlogs.items()
            },
            "statGeneratedAt": call.broker.ledgers.clock.wall_ms(),
        }
    )


async def _backlog_size(call: Call) -> web.Response:
    """Returns the bytes after a message: exact by ledgers, averaged within one. -1:-1 is before the first
    message.
    """
    position, _, _ = reset_data(await call.json())
    topic = await persistent(call, "Get backlog size")
    return answer(topic.ledger.spans.bytes_after(position))


_HERE: Final = {405: "the topic is not persistent"}
_ONE: Final = {405: "the topic is partitioned or not persistent"}

ROUTES: Final = [
    *owned_topic_routes(
        "GET",
        "internal-info",
        _internal_info,
        "Get the ledgers and cursors of a topic, or of each partition, as stored in metadata.",
        answer="ManagedLedgerInfo",
        errors=_HERE,
        operation=Operation.TOPIC_LOOKUP,
    ),
    *owned_topic_routes(
        "GET",
        "backlog",
        _backlog,
        "Get the stored size of a topic and the backlog size of each subscription.",
        answer="PersistentOfflineTopicStats",
        errors=_ONE,
        operation=Operation.TOPIC_CONSUME,
    ),
    *owned_topic_routes(
        "PUT",
        "backlogSize",
        _backlog_size,
        "Get the number of bytes stored after a message.",
        body="MessageId",
        answer="long",
        errors=_ONE,
        operation=Operation.TOPIC_CONSUME,
    ),
]
