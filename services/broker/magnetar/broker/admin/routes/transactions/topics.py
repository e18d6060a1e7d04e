"""Routes of transactions in topics: unfinished and aborted ones, and pending acknowledgements."""

from __future__ import annotations

from typing import Any, Final

from aiohttp import web
from magnetar.broker.admin.edge.call import Call, answer
from magnetar.broker.admin.edge.routing import Route
from magnetar.broker.admin.objects.coordinators import OFF, require_transactions, transaction_id
from magnetar.broker.admin.objects.topics import persistent, stored_subscription
from magnetar.broker.admin.stats.topic_transaction_stats import (
    buffer_stats,
    in_buffer,
    in_pending_acks,
    pending_ack_stats,
    position_state,
    records_stats,
)
from magnetar.broker.subscriptions.subscription import Subscription
from magnetar.broker.topics.persistent_topic import PersistentTopic
from magnetar.common.naming.position import Position
from magnetar.common.security.authorization.operations import Operation

_WATERMARKS: Final = "lowWaterMarks"


async def _buffer_stats(call: Call) -> web.Response:
    topic = await _topic(call)
    shown = buffer_stats(topic, low_watermarks=call.flag(_WATERMARKS))
    return answer({**shown, "segmentsStats": {}} if call.flag("segmentStats") else shown)


async def _buffer_internal_stats(call: Call) -> web.Response:
    records = records_stats(await _topic(call))
    return answer({"snapshotType": "Single", "singleSnapshotSystemTopicInternalStats": records})


async def _in_buffer(call: Call) -> web.Response:
    txn = transaction_id(call)
    return answer(in_buffer(await _topic(call), txn))


async def _pending_ack_stats(call: Call) -> web.Response:
    topic, subscription = await _subscription(call)
    return answer(pending_ack_stats(topic, subscription, low_watermarks=call.flag(_WATERMARKS)))


async def _pending_ack_internal_stats(call: Call) -> web.Response:
    topic, _ = await _subscription(call)
    return answer({"pendingAckLogStats": records_stats(topic)})


async def _in_pending_acks(call: Call) -> web.Response:
    txn = transaction_id(call)
    topic, subscription = await _subscription(call)
    return answer(in_pending_acks(topic, subscription, txn))


async def _position(call: Call) -> web.Response:
    position = Position(call.number("ledgerId"), call.number("entryId"))
    index = call.query_number("batchIndex", -1)
    topic, subscription = await _subscription(call)
    return answer({"state": position_state(topic, subscription, position, index)})


async def _topic(call: Call) -> PersistentTopic:
    """Loads the call's topic. Raises Refused (503) when transactions are off; (405) as `persistent`."""
    require_transactions(call)
    return await persistent(call, "A transaction")


async def _subscription(call: Call) -> tuple[PersistentTopic, Subscription]:
    """Loads the call's topic, and returns it with its subscription. Raises Refused."""
    topic = await _topic(call)
    return topic, stored_subscription(topic, call.names["subName"])


_TOPIC: Final = "{tenant}/{namespace}/{topic}"
_ID: Final = "{mostSigBits}/{leastSigBits}"
_ERRORS: Final = {**OFF, 405: "the topic is partitioned", 412: "invalid name"}


def _route(path: str, handler: Any, summary: str, type_name: str, *query: str) -> Route:
    missing = "Namespace not found; Topic not found"
    return Route(
        object="transactions",
        method="GET",
        path=f"/admin/v3/transactions/{path}",
        handler=handler,
        summary=summary,
        query=query,
        answer=type_name,
        errors={**_ERRORS, 404: f"{missing}; Subscription not found" if "subName" in path else missing},
        at_owner=True,
        operation=Operation.TOPIC_LOOKUP,
    )


ROUTES: Final = [
    _route(
        f"transactionBufferStats/{_TOPIC}",
        _buffer_stats,
        "Get the open and aborted transactions of a topic, and up to where it can be read.",
        "TransactionBufferStats",
        f"{_WATERMARKS}:boolean=false",
        "segmentStats:boolean=false",
    ),
    _route(
        f"transactionBufferInternalStats/{_TOPIC}",
        _buffer_internal_stats,
        "Get the ledger with the records of a topic's transactions.",
        "TransactionBufferInternalStats",
        "metadata:boolean=false",
    ),
    _route(
        f"transactionInBufferStats/{_TOPIC}/{_ID}",
        _in_buffer,
        "Get the state of a transaction in a topic.",
        "TransactionInBufferStats",
    ),
    _route(
        f"pendingAckStats/{_TOPIC}/{{subName}}",
        _pending_ack_stats,
        "Get the transactions with pending acknowledgements in a subscription.",
        "TransactionPendingAckStats",
        f"{_WATERMARKS}:boolean=false",
    ),
    _route(
        f"pendingAckInternalStats/{_TOPIC}/{{subName}}",
        _pending_ack_internal_stats,
        "Get the ledger with the records of a subscription's pending acknowledgements.",
        "TransactionPendingAckInternalStats",
        "metadata:boolean=false",
    ),
    _route(
        f"transactionInPendingAckStats/{_TOPIC}/{{subName}}/{_ID}",
        _in_pending_acks,
        "Get the pending acknowledgements of a transaction in a subscription.",
        "TransactionInPendingAckStats",
    ),
    _route(
        f"positionStatsInPendingAck/{_TOPIC}/{{subName}}/{{ledgerId}}/{{entryId}}",
        _position,
        "Get whether a message is acknowledged in an open transaction.",
        "PositionInPendingAckStats",
        "batchIndex:int",
    ),
]
