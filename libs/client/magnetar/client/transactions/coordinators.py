"""Transactions as a client sees their coordinators: begin them, name what takes part, end them.

A coordinator serves a partition of `COORDINATORS`; the broker that owns the partition has it. Producers mark
what they publish with the id of the transaction. Rules: PIP-31, and docs/transactions.md.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Sequence
from typing import Any, Final

from magnetar.client.back_off import BackOff
from magnetar.client.connection.connection import Connection
from magnetar.client.errors import ConnectionLost, OperationTimeout, Refused, TransactionEnded
from magnetar.client.session import ClientParts
from magnetar.common.naming.topic_name import TopicName
from magnetar.common.naming.txn_id import Action, TxnId
from magnetar.common.wire.pulsar_pb2 import (
    ABORT,
    COMMIT,
    BaseCommand,
    CommandAddPartitionToTxn,
    CommandAddSubscriptionToTxn,
    CommandEndTxn,
    CommandNewTxn,
    CommandTcClientConnectRequest,
    ServerError,
    Subscription,
)

RETRY_S_MAX: Final = 5.0

COORDINATORS: Final = "persistent://pulsar/system/transaction_coordinator_assign"

_OFF: Final = frozenset(
    {
        ServerError.NotAllowedError,
        ServerError.TopicNotFound,
        ServerError.UnknownError,
        ServerError.MetadataError,
    }
)
"""Codes by which brokers without transactions refuse a client of a coordinator."""


class Coordinators:
    """The coordinators of a cluster; on the event loop of its client.

    Calls wait for a coordinator that moves, up to the client's operation timeout, and may be repeated.
    """

    def __init__(self, parts: ClientParts) -> None:
        self._parts = parts
        self._partitions: list[str] = []
        self._turn = itertools.count()
        self._connected: dict[int, Connection] = {}
        """By coordinator: the connection on which this client is known to it."""

    async def available(self) -> bool:
        """Returns whether the cluster has transactions. Raises ClientError if it cannot be reached."""
        try:
            await self._connection(0)
        except Refused as refused:
            if refused.code in _OFF:
                return False
            raise
        return True

    async def begin(self, timeout_s: float) -> TxnId:
        """Begins a transaction, which is aborted after so many seconds. Raises Refused, ConnectionLost."""
        await self._find()
        number = next(self._turn) % len(self._partitions)
        # The field carries milliseconds, whatever its name says.
        command = CommandNewTxn(request_id=0, tc_id=number, txn_ttl_seconds=round(timeout_s * 1000))
        answer = await self._ask(number, BaseCommand(type=BaseCommand.NEW_TXN, newTxn=command))
        return TxnId(answer.newTxnResponse.txnid_most_bits, answer.newTxnResponse.txnid_least_bits)

    async def add_topics(self, txn: TxnId, topics: Sequence[str]) -> None:
        """Names topics (partitions) to which the transaction publishes from now on. Raises TransactionEnded,
        Refused, ConnectionLost.
        """
        command = CommandAddPartitionToTxn(
            request_id=0, txnid_most_bits=txn.most, txnid_least_bits=txn.least, partitions=topics
        )
        await self._ask(
            txn.most, BaseCommand(type=BaseCommand.ADD_PARTITION_TO_TXN, addPartitionToTxn=command)
        )

    async def add_subscription(self, txn: TxnId, topic: str, subscription: str) -> None:
        """Names a subscription of a topic (or partition) on which the transaction acknowledges from now on.
        Raises TransactionEnded, Refused, ConnectionLost.
        """
        command = CommandAddSubscriptionToTxn(
            request_id=0,
            txnid_most_bits=txn.most,
            txnid_least_bits=txn.least,
            subscription=[Subscription(topic=topic, subscription=subscription)],
        )
        await self._ask(
            txn.most, BaseCommand(type=BaseCommand.ADD_SUBSCRIPTION_TO_TXN, addSubscriptionToTxn=command)
        )

    async def end(self, txn: TxnId, action: Action) -> None:
        """Ends a transaction; returns once that has taken effect everywhere. Idempotent.

        Raises TransactionEnded, Refused, ConnectionLost.
        """
        command = CommandEndTxn(
            request_id=0,
            txnid_most_bits=txn.most,
            txnid_least_bits=txn.least,
            txn_action=COMMIT if action is Action.COMMIT else ABORT,
        )
        await self._ask(txn.most, BaseCommand(type=BaseCommand.END_TXN, endTxn=command))

    async def _ask(self, number: int, command: BaseCommand) -> BaseCommand:
        loop = asyncio.get_running_loop()
        timeout_s = self._parts.options.operation_timeout_s
        deadline, pauses = loop.time() + timeout_s, BackOff(most_s=RETRY_S_MAX)
        while True:
            try:
                connection = await self._connection(number)
                return await connection.request(command, f"coordinator {number}", timeout_s)
            except Refused as error:
                if error.code in (ServerError.InvalidTxnStatus, ServerError.TransactionNotFound):
                    known = error.code == ServerError.InvalidTxnStatus
                    raise TransactionEnded(str(error), known=known) from error
                moved = error.code == ServerError.TransactionCoordinatorNotFound
                if not (moved or error.may_pass) or loop.time() > deadline:
                    raise
            except (ConnectionLost, OperationTimeout):
                if loop.time() > deadline:
                    raise
            self._connected.pop(number, None)
            await asyncio.sleep(pauses.next_s())

    async def _find(self) -> None:
        if not self._partitions:
            self._partitions = await self._parts.lookup.partitions(TopicName.parse(COORDINATORS))

    async def _connection(self, number: int) -> Connection:
        """Returns a connection to the broker of a coordinator, on which it knows this client."""
        known = self._connected.get(number)
        if known is not None and known.lost is None:
            return known
        topic = f"{COORDINATORS}-partition-{number}"
        connection = await self._parts.lookup.connection_of(topic)
        command: Any = CommandTcClientConnectRequest(request_id=0, tc_id=number)
        await connection.request(
            BaseCommand(type=BaseCommand.TC_CLIENT_CONNECT_REQUEST, tcClientConnectRequest=command),
            f"coordinator {number}",
            self._parts.options.operation_timeout_s,
        )
        self._connected[number] = connection
        return connection
