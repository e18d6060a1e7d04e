"""Routes that trim and truncate topics."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import Final

from aiohttp import web
from magnetar.broker.admin.edge.call import Call, done
from magnetar.broker.admin.edge.errors import Refused
from magnetar.broker.admin.objects.backlogs import skip
from magnetar.broker.admin.objects.partitions import on_topic, same
from magnetar.broker.admin.objects.topics import load, owned_topic_routes, stored
from magnetar.broker.topics.persistent_topic import PersistentTopic
from magnetar.common.naming.position import EARLIEST, Position
from magnetar.common.naming.topic_name import TopicName
from magnetar.common.security.authorization.operations import Operation
from magnetar.ledger.managed_ledger.ledger_list import LedgerSpan
from magnetar.ledger.managed_ledger.managed_ledger import ManagedLedger

TRUNCATE_LOOKS: Final = 250
"""Checks of a call whether the ledgers are deleted; their deletion continues after the call."""

_LOOK_EVERY_S: Final = 0.02


async def _trim(call: Call) -> web.Response:
    """Trims now; unneeded ledgers are also deleted without a request."""

    async def trim(name: TopicName) -> None:
        stored(await load(call.broker, name), "Trim").ledger.trim()

    await on_topic(call, trim, same(call))
    return done()


async def _truncate(call: Call) -> web.Response:
    if not call.topic.persistent:
        raise Refused(412, "NonPersistentTopic does not support truncate.")

    async def here(name: TopicName) -> None:
        await truncate(stored(await load(call.broker, name), "Truncate"))

    await on_topic(call, here, same(call))
    return done()


async def truncate(topic: PersistentTopic) -> None:
    """Deletes all present messages, even unread or retained ones: moves the cursors first, then deletes the
    ledgers.

    Later messages stay, and with a compaction threshold those that were not compacted yet. On return the
    cursors are durable and the ledgers deleted, unless that takes long; then they are deleted while the topic
    is loaded. Raises StorageError, ServiceNotReady when the topic is closed meanwhile.
    """
    ledger = topic.ledger
    end = await _end_of_what_is_there(topic)
    for subscription in list(topic.subscriptions.values()):
        await skip(subscription, end)
    # With deduplication, the snapshot on disk must include the deleted messages.
    ledger.deduplication.save()
    if ledger.compaction.held:
        end = min(end, ledger.compaction.horizon or EARLIEST)
    ledger.retain(replace(ledger.retention, truncated=end))
    await _looking(topic, lambda: not _has(ledger, end))


async def _end_of_what_is_there(topic: PersistentTopic) -> Position:
    """Closes the last ledger, because only whole ledgers can be deleted; returns its last entry."""
    spans = topic.ledger.spans
    if not spans.spans:
        return topic.ledger.last_confirmed
    last = spans.spans[-1].ref.id
    topic.ledger.roll()

    def written() -> list[LedgerSpan]:
        return [span for span in spans.spans if span.ref.id <= last]

    await _looking(topic, lambda: all(span.closed for span in written()))
    left = written()
    return Position(left[-1].ref.id, left[-1].entries - 1) if left else Position(last, -1)


async def _looking(topic: PersistentTopic, there: Callable[[], bool]) -> None:
    """Polls until the ledgers are deleted. Raises ServiceNotReady when the topic is closed; the caller has to
    retry.
    """
    for _ in range(TRUNCATE_LOOKS):
        if there():
            return
        topic.check_open()
        await asyncio.sleep(_LOOK_EVERY_S)


def _has(ledger: ManagedLedger, end: Position) -> bool:
    spans = ledger.spans.spans
    return bool(spans) and spans[0].last_position <= end


ROUTES: Final = [
    *owned_topic_routes(
        "POST",
        "trim",
        _trim,
        "Trim the ledgers that neither a subscription nor retention needs.",
        status=204,
        errors={405: "the topic is not persistent"},
        operation=Operation.TOPIC_ADMIN,
    ),
    *owned_topic_routes(
        "DELETE",
        "truncate",
        _truncate,
        "Delete all messages of a topic, consumed or not, and move its subscriptions to the end.",
        status=204,
        errors={412: "invalid name; the topic is not persistent"},
        operation=Operation.TENANT_ADMIN,
    ),
]
