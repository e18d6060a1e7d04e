"""Routes that analyze a backlog entry by entry, and report whether a subscription is replicated."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from aiohttp import web
from magnetar.broker.admin.edge.call import Call, answer, done
from magnetar.broker.admin.edge.errors import Refused
from magnetar.broker.admin.objects.subscriptions import (
    on_stored_subscription,
    reset_data,
    subscription_routes,
)
from magnetar.broker.admin.objects.topics import persistent, stored_subscription
from magnetar.broker.config import BacklogScanConfig
from magnetar.broker.subscriptions.subscription import Subscription
from magnetar.broker.topics.persistent_topic import PersistentTopic
from magnetar.common.naming.position import Position
from magnetar.ledger.managed_ledger.cursor import Cursor
from magnetar.ledger.managed_ledger.managed_ledger import ManagedLedger

_READ_ENTRIES: Final = 500
_READ_BYTES: Final = 1 << 20


async def _analyze(call: Call) -> web.Response:
    value = await call.json_or({})
    start, _, _ = reset_data(value)
    topic = await persistent(call, "Analyze backlog")
    subscription = stored_subscription(topic, call.subscription)
    now, config = call.broker.ledgers.clock.monotonic, call.broker.config.backlog_scan
    return answer(await analyze(topic.ledger, subscription.cursor, start, config, now))


async def analyze(
    ledger: ManagedLedger,
    cursor: Cursor,
    start: Position,
    config: BacklogScanConfig,
    now: Callable[[], float],
) -> dict[str, Any]:
    """Counts unacknowledged entries of the cursor from `start` on, and the messages in them.

    `aborted` when the limits of `config` were reached. All messages of a batch count. Without entry filters,
    all entries count as accepted. Entries of aborted transactions do not count, and entries from the first
    open one on are not read. Raises StorageError.
    """
    entries = messages = examined = 0
    seen: list[Position] = []
    transactions = ledger.transactions
    give_up_at = now() + config.time_max_ms / 1000
    at = ledger.next_position(max(cursor.mark_delete, Position(start.ledger_id, start.entry_id - 1)))
    while at is not None and examined < config.entries_max and now() < give_up_at:
        read = await ledger.read(at, min(_READ_ENTRIES, config.entries_max - examined), _READ_BYTES)
        for run in read.runs:
            counts = run.message_counts
            examined += len(run.entries)
            if transactions is not None and transactions.is_aborted(run.ledger_id, run.first_entry_id):
                continue
            for index in range(len(run.entries)):
                position = Position(run.ledger_id, run.first_entry_id + index)
                if not cursor.is_acked(*position):
                    entries += 1
                    messages += 1 if counts is None else counts[index]
                    seen = [seen[0] if seen else position, position]
        examined += len(read.unreadable)
        at = ledger.next_position(Position(read.next.ledger_id, read.next.entry_id - 1))
    found = {
        "entries": entries,
        "messages": messages,
        "filterRejectedEntries": 0,
        "filterAcceptedEntries": entries,
        "filterRescheduledEntries": 0,
        "filterRejectedMessages": 0,
        "filterAcceptedMessages": messages,
        "filterRescheduledMessages": 0,
        "aborted": at is not None,
    }
    if not seen:
        return found
    first, last = (f"{each.ledger_id}:{each.entry_id}" for each in seen)
    return {**found, "firstMessageId": first, "lastMessageId": last}


async def _replicated(call: Call) -> web.Response:
    found = await on_stored_subscription(call, "Replicated subscription status", _not_replicated)
    return answer({name: value for part in found.done.values() for name, value in part.items()})


async def _not_replicated(topic: PersistentTopic, subscription: Subscription) -> dict[str, bool]:
    return {topic.name.full: False}


async def _set_replicated(call: Call) -> web.Response:
    wanted = await call.json()
    if not isinstance(wanted, bool):
        raise Refused(400, "the body must be true or false")
    await on_stored_subscription(call, "Replicated subscription status", _not_replicated, body=False)
    if wanted:
        raise Refused(
            405,
            "replicated subscriptions are not supported yet: create it in each cluster that needs it",
        )
    return done()


ROUTES: Final = [
    *subscription_routes(
        "POST",
        "analyzeBacklog",
        _analyze,
        "Count entries and messages of a backlog by reading it from a message on.",
        body="ResetCursorData",
        answer="AnalyzeSubscriptionBacklogResult",
    ),
    *subscription_routes(
        "GET",
        "replicatedSubscriptionStatus",
        _replicated,
        "Get whether a subscription is replicated: always false, because replication is not supported yet.",
        answer="Map<boolean>",
    ),
    *subscription_routes(
        "POST",
        "replicatedSubscriptionStatus",
        _set_replicated,
        "Set whether a subscription is replicated: only `false` is accepted, because replication is "
        "not supported yet.",
        body="boolean",
        status=204,
        errors={405: "replicated subscriptions are not supported yet; the topic is not persistent"},
    ),
]
