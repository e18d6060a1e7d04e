"""Transaction coordinators in calls: redirects to the owner of one, and calls about all of them.

Coordinator n belongs to the broker that owns the bundle of partition n of the assignment topic.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any, Final, TypeVar

from magnetar.broker.admin.edge.call import Call
from magnetar.broker.admin.edge.errors import Refused
from magnetar.broker.admin.edge.owners import send_on, topic_elsewhere
from magnetar.broker.admin.edge.peers import PEERS
from magnetar.broker.admin.objects.partitions import by_owner
from magnetar.broker.transactions.coordinator_topic import COORDINATORS
from magnetar.broker.transactions.coordinator_views import CoordinatorView, CoordinatorViews
from magnetar.common.metadata.values import BrokerRegistration
from magnetar.common.naming.topic_name import TopicName
from magnetar.common.naming.txn_id import TxnId

COORDINATOR: Final = "coordinatorId"
"""Query parameter that names one coordinator."""

AT_ONCE: Final = 16
"""Coordinators, or participants of a transaction, that one call asks at the same time."""

OFF: Final = {503: "transactions are off (transactionCoordinatorEnabled), or the owner is moving"}
"""The error of every route of transactions while they are off."""

_OFF: Final = "This Broker is not configured with transactionCoordinatorEnabled=true."

T = TypeVar("T")


def require_transactions(call: Call) -> CoordinatorViews:
    """Returns the coordinators. Raises Refused (503) when transactions are off."""
    found = call.broker.coordinators
    if found is None:
        raise Refused(503, _OFF)
    return found


def transaction_id(call: Call) -> TxnId:
    """Returns the transaction in the path. Raises Refused (400)."""
    return TxnId(_natural(call, "mostSigBits"), _natural(call, "leastSigBits"))


def _natural(call: Call, name: str) -> int:
    value = call.number(name)
    if not 0 <= value < 1 << 63:
        raise Refused(400, f"{name} must be from 0 to 2^63 - 1, not {value}")
    return value


async def require_coordinator(call: Call, coordinator_id: int) -> CoordinatorViews:
    """Returns the coordinators, of which one has this id. Raises Refused (404; 503 when they are off)."""
    found = require_transactions(call)
    if not 0 <= coordinator_id < await found.count():
        raise Refused(404, f"Transaction coordinator not found! coordinator id : {coordinator_id}")
    return found


async def coordinator_here(call: Call, coordinator_id: int) -> CoordinatorView:
    """Returns a coordinator that this broker owns.

    Raises a redirect to its owner, Refused as `require_coordinator`, and ServiceNotReady.
    """
    found = await require_coordinator(call, coordinator_id)
    owner = await topic_elsewhere(call.broker.cluster, COORDINATORS.partition(coordinator_id))
    send_on(call, owner, f"transaction coordinator {coordinator_id}")
    return await found.coordinator(coordinator_id)


async def of_each(call: Call, here: Callable[[CoordinatorView], Awaitable[Any]]) -> dict[int, Any]:
    """Returns JSON values by coordinator: `here` makes those of this broker; other owners get this call with
    the query parameter `coordinatorId`.

    Raises the first failure; ServiceNotReady when an owner does not answer.
    """
    found = require_transactions(call)

    async def of_one(coordinator_id: int) -> Any:
        async def act(owner: BrokerRegistration | None) -> Any:
            if owner is None:
                return await here(await found.coordinator(coordinator_id))
            query = {**call.request.query, COORDINATOR: str(coordinator_id)}
            path = call.request.rel_url.raw_path
            return await call.request.app[PEERS].ask(owner, "GET", path, query, caller=call.request)

        return await at_owner(call, COORDINATORS.partition(coordinator_id), act)

    ids = range(await found.count())
    return dict(zip(ids, await all_of([of_one(each) for each in ids]), strict=True))


async def at_owner(
    call: Call, topic: TopicName, act: Callable[[BrokerRegistration | None], Awaitable[T]]
) -> T:
    """Calls `act` with the broker that owns the topic, None for this one, as `by_owner` does."""
    cluster = call.broker.cluster
    if cluster is None:
        return await act(None)
    return await by_owner(partial(topic_elsewhere, cluster, topic), act)


async def all_of(work: Sequence[Awaitable[T]]) -> list[T]:
    """Returns all results in order, with `AT_ONCE` under way at most. At the first failure ends the others,
    and raises it.
    """
    slots = asyncio.Semaphore(AT_ONCE)

    async def one(each: Awaitable[T]) -> T:
        async with slots:
            return await each

    tasks = [asyncio.ensure_future(one(each)) for each in work]
    try:
        return await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
