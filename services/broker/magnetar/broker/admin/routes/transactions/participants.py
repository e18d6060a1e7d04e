"""Participants of a transaction: its state in topics and subscriptions, asked of their owners."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from urllib.parse import quote

from magnetar.broker.admin.edge.call import Call
from magnetar.broker.admin.edge.errors import Refused
from magnetar.broker.admin.edge.peers import PEERS
from magnetar.broker.admin.objects.coordinators import all_of, at_owner
from magnetar.broker.admin.objects.partitions import attempt
from magnetar.broker.admin.objects.topics import load, stored, stored_subscription
from magnetar.broker.admin.stats.topic_transaction_stats import in_buffer, in_pending_acks
from magnetar.broker.topics.persistent_topic import PersistentTopic
from magnetar.broker.transactions.coordinator_views import TransactionFigures
from magnetar.common.errors import MagnetarError
from magnetar.common.metadata.values import BrokerRegistration
from magnetar.common.naming.topic_name import TopicName
from magnetar.common.naming.txn_id import TxnId

_ROOT = "/admin/v3/transactions"


async def transaction_json(
    call: Call, transaction: TransactionFigures, *, detailed: bool = True, participants_max: int | None = None
) -> dict[str, Any]:
    """Returns a transaction in Pulsar's form, if `detailed` with its state in each participant.

    A participant whose broker does not answer, or that was deleted, is named without a state. At most
    `participants_max` topics, and subscriptions, are named; None: all.
    """
    txn, topics = transaction.id, transaction.topics[:participants_max]
    subscriptions = transaction.subscriptions[:participants_max]
    produced: list[Any] = [{}] * len(topics)
    found: list[Any] = [{}] * len(subscriptions)
    if detailed:
        produced = await all_of([_in_topic(call, txn, each) for each in topics])
        found = await all_of([_in_subscription(call, txn, *each) for each in subscriptions])
    acked: dict[str, dict[str, Any]] = {}
    for (topic, name), state in zip(subscriptions, found, strict=True):
        acked.setdefault(topic, {})[name] = state
    shown: dict[str, Any] = {
        "txnId": str(txn),
        "status": transaction.status,
        "openTimestamp": transaction.opened_ms,
        "timeoutAt": transaction.timeout_ms,
        "producedPartitions": dict(zip(topics, produced, strict=True)),
        "ackedPartitions": acked,
    }
    return {**shown, "owner": transaction.owner} if transaction.owner else shown


async def _in_topic(call: Call, txn: TxnId, topic: str) -> Any:
    def here(found: PersistentTopic) -> dict[str, Any]:
        return in_buffer(found, txn)

    return await _state(call, topic, "transactionInBufferStats", f"{txn.most}/{txn.least}", here)


async def _in_subscription(call: Call, txn: TxnId, topic: str, name: str) -> Any:
    def here(found: PersistentTopic) -> dict[str, Any]:
        return in_pending_acks(found, stored_subscription(found, name), txn)

    rest = f"{quote(name, safe='')}/{txn.most}/{txn.least}"
    return await _state(call, topic, "transactionInPendingAckStats", rest, here)


async def _state(
    call: Call, topic: str, route: str, rest: str, here: Callable[[PersistentTopic], dict[str, Any]]
) -> Any:
    """Returns the state in one topic, asked of its owner; empty when it cannot be had."""
    name = TopicName.parse(topic)  # it was, before it took part
    parts = (name.tenant, name.namespace.namespace, name.local_name)
    path = f"{_ROOT}/{route}/" + "/".join(quote(part, safe="") for part in parts) + f"/{rest}"

    async def act(owner: BrokerRegistration | None) -> Any:
        if owner is None:
            return here(stored(await load(call.broker, name), "A transaction"))
        return await call.request.app[PEERS].ask(owner, "GET", path, caller=call.request)

    found = await attempt(at_owner(call, name, act))
    return {} if isinstance(found, MagnetarError | Refused) else found
