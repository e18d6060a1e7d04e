"""Routes of transaction coordinators and their transactions.

A call about one coordinator is redirected to its owner; a call about all of them asks each owner.
"""

from __future__ import annotations

import asyncio
from itertools import chain
from typing import Any, Final

from aiohttp import web
from magnetar.broker.admin.edge.call import Call, answer, done
from magnetar.broker.admin.edge.errors import Refused
from magnetar.broker.admin.edge.json_stream import object_of, stream_json
from magnetar.broker.admin.edge.routing import Route
from magnetar.broker.admin.objects.coordinators import (
    COORDINATOR,
    OFF,
    all_of,
    coordinator_here,
    of_each,
    require_transactions,
    transaction_id,
)
from magnetar.broker.admin.routes.transactions.participants import transaction_json
from magnetar.broker.admin.stats.transaction_stats import coordinator_stats, log_stats
from magnetar.broker.transactions.coordinator_topic import COORDINATORS
from magnetar.broker.transactions.coordinator_views import CoordinatorView, TransactionFigures
from magnetar.common.errors import TransactionNotFound
from magnetar.common.naming.txn_id import TxnId
from magnetar.common.runtime.cooperative_iteration import iterate_cooperatively
from magnetar.common.security.authorization.operations import Operation

ABORT_S: Final = 25.0
"""Time that an abort by an operator waits for the participants, in seconds."""

SLOW_MAX: Final = 1_000
"""Slow transactions shown for one coordinator, the oldest ones."""

DETAILED_MAX: Final = 100
"""Slow transactions of one coordinator that are shown with their state in the participants."""

PARTICIPANTS_MAX: Final = 100
"""Topics, and subscriptions, that are named for a slow transaction; its metadata has all."""

COORDINATORS_MAX: Final = 256
"""Highest number of coordinators that can be set."""

_OPEN_MS: Final = "openAtLeastMs"
"""Query parameter in addition to Pulsar's: the least time that a transaction has been open, in ms."""


async def _list(call: Call) -> web.Response:
    count = await require_transactions(call).count()
    owners = await all_of([call.broker.lookup(COORDINATORS.partition(each)) for each in range(count)])
    return answer(
        [
            {"id": number, "brokerServiceUrl": urls.broker_url or urls.broker_url_tls}
            for number, urls in enumerate(owners)
        ]
    )


async def _stats(call: Call) -> web.Response:
    coordinator_id = _given_coordinator(call)
    if coordinator_id is not None:
        return answer(coordinator_stats((await coordinator_here(call, coordinator_id)).figures()))

    async def stats(coordinator: CoordinatorView) -> dict[str, Any]:
        return coordinator_stats(coordinator.figures())

    return answer({str(each): found for each, found in (await of_each(call, stats)).items()})


async def _internal_stats(call: Call) -> web.Response:
    coordinator = await coordinator_here(call, call.number("coordinatorId"))
    return answer({"transactionLogStats": log_stats(coordinator.log())})


async def _metadata(call: Call) -> web.Response:
    txn = transaction_id(call)
    coordinator = await coordinator_here(call, txn.most)
    return answer(await transaction_json(call, _found(coordinator, txn)))


async def _slow(call: Call) -> web.StreamResponse:
    """Lists transactions with a timeout of more than the given ms, as Pulsar does, oldest first."""
    coordinator_id = _given_coordinator(call)
    timeout_ms, open_ms = call.number("timeout"), call.query_number(_OPEN_MS, 0)
    begun_by = call.broker.ledgers.clock.wall_ms() - open_ms

    async def slow(coordinator: CoordinatorView) -> dict[str, Any]:
        found: list[TransactionFigures] = []
        async for each in iterate_cooperatively(coordinator.transactions()):
            if each.timeout_ms > timeout_ms and each.opened_ms <= begun_by:
                found.append(each)
                if len(found) == SLOW_MAX:
                    break
        shown = await all_of(
            [
                transaction_json(
                    call, each, detailed=number < DETAILED_MAX, participants_max=PARTICIPANTS_MAX
                )
                for number, each in enumerate(found)
            ]
        )
        return {each["txnId"]: each for each in shown}

    if coordinator_id is not None:
        parts = [await slow(await coordinator_here(call, coordinator_id))]
    else:
        parts = list((await of_each(call, slow)).values())
    return await stream_json(call.request, object_of(chain.from_iterable(each.items() for each in parts)))


async def _abort(call: Call) -> web.Response:
    """Aborts a transaction of any client, and waits for its participants for a limited time."""
    txn = transaction_id(call)
    coordinator = await coordinator_here(call, txn.most)
    abort = asyncio.ensure_future(coordinator.abort(txn))
    finished, _ = await asyncio.wait([abort], timeout=ABORT_S)
    if not finished:
        abort.add_done_callback(_heard)
        raise Refused(
            503,
            f"transaction {txn} is being aborted, but not every participant confirmed within {ABORT_S:g} s: "
            "the coordinator goes on by itself; read its metadata for the participants",
        )
    try:
        abort.result()
    except TransactionNotFound as error:
        raise _unknown(txn) from error
    return done()


def _heard(task: asyncio.Future[None]) -> None:
    """Retrieves the exception of an abort that no request waits for any more."""
    if not task.cancelled():
        task.exception()


async def _scale(call: Call) -> web.Response:
    transactions = require_transactions(call)
    wanted = await call.json()
    if not isinstance(wanted, int) or isinstance(wanted, bool):
        raise Refused(400, "the body must be the number of transaction coordinators")
    if wanted > COORDINATORS_MAX:
        raise Refused(412, f"there may be at most {COORDINATORS_MAX} transaction coordinators, not {wanted}")
    if not await transactions.grow(wanted):
        count = await transactions.count()
        raise Refused(
            406,
            "Number of transaction coordinators should be more than the current number of transaction "
            f"coordinator: {wanted} is not more than {count}",
        )
    return done()


def _given_coordinator(call: Call) -> int | None:
    return call.query_number(COORDINATOR, 0) if call.request.query.get(COORDINATOR) else None


def _found(coordinator: CoordinatorView, txn: TxnId) -> TransactionFigures:
    try:
        return coordinator.transaction(txn)
    except TransactionNotFound as error:
        raise _unknown(txn) from error


def _unknown(txn: TxnId) -> Refused:
    return Refused(404, f"The transaction with this txdID `{txn}`not found ")


_ROOT: Final = "/admin/v3/transactions"
_ID: Final = "{mostSigBits}/{leastSigBits}"
_NO_COORDINATOR: Final = {404: "Transaction coordinator not found"}
_NO_TRANSACTION: Final = {404: "Transaction coordinator or transaction not found"}


def _route(method: str, path: str, handler: Any, summary: str, **more: Any) -> Route:
    errors = {**OFF, **more.pop("errors", {})}
    return Route(
        object="transactions",
        method=method,
        path=f"{_ROOT}/{path}",
        handler=handler,
        summary=summary,
        operation=Operation.SUPER_USER,
        errors=errors,
        **more,
    )


ROUTES: Final = [
    _route(
        "GET",
        "coordinators",
        _list,
        "List the transaction coordinators with the brokers that own them.",
        answer="List<TransactionCoordinatorInfo>",
    ),
    _route(
        "GET",
        "coordinatorStats",
        _stats,
        "Get the statistics of one transaction coordinator, or of all of them by id.",
        query=(f"{COORDINATOR}:int",),
        answer="Any",
        errors=_NO_COORDINATOR,
    ),
    _route(
        "GET",
        "coordinatorInternalStats/{coordinatorId}",
        _internal_stats,
        "Get the log of a transaction coordinator.",
        query=("metadata:boolean=false",),
        answer="TransactionCoordinatorInternalStats",
        errors=_NO_COORDINATOR,
    ),
    _route(
        "POST",
        "transactionCoordinator/replicas",
        _scale,
        "Raise the number of transaction coordinators.",
        body="int",
        status=204,
        errors={406: "there are as many already", 412: f"more than {COORDINATORS_MAX}"},
    ),
    _route(
        "GET",
        f"transactionMetadata/{_ID}",
        _metadata,
        "Get a transaction with its participants.",
        answer="TransactionMetadata",
        errors=_NO_TRANSACTION,
    ),
    _route(
        "POST",
        f"abortTransaction/{_ID}",
        _abort,
        "Abort a transaction of any client.",
        status=204,
        errors={**_NO_TRANSACTION, 409: "the transaction is committing or committed"},
    ),
    _route(
        "GET",
        "slowTransactions/{timeout}",
        _slow,
        f"List transactions with a timeout longer than the given ms, at most {SLOW_MAX} of a coordinator, "
        "the oldest first.",
        query=(f"{COORDINATOR}:int", f"{_OPEN_MS}:long=0"),
        answer="Map<TransactionMetadata>",
        errors=_NO_COORDINATOR,
    ),
]
