"""Transactions: commands to coordinators, and the ends that coordinators of other products request."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import TYPE_CHECKING, Any, Final, TypeVar

from magnetar.broker.client_endings import EndCode
from magnetar.broker.handlers.client import Client
from magnetar.broker.transactions.participants import EndOutcome, EndResult, TransactionEnd
from magnetar.common.errors import (
    InvalidTxnStatus,
    MagnetarError,
    MetadataError,
    NotAllowed,
    ServiceNotReady,
    StorageError,
    TooManyTransactions,
    TransactionCoordinatorNotFound,
    TransactionNotFound,
)
from magnetar.common.naming.topic_name import TopicName, is_system_topic
from magnetar.common.naming.txn_id import Action, TxnId
from magnetar.common.wire import commands
from magnetar.common.wire.error_codes import code_of
from magnetar.common.wire.pulsar_pb2 import (
    COMMIT,
    CommandAddPartitionToTxn,
    CommandAddSubscriptionToTxn,
    CommandEndTxn,
    CommandEndTxnOnPartition,
    CommandEndTxnOnSubscription,
    CommandNewTxn,
    CommandTcClientConnectRequest,
    ServerError,
)

if TYPE_CHECKING:  # loaded where transactions are on
    from magnetar.broker.transactions.coordinator import Coordinator
    from magnetar.broker.transactions.coordinators import Coordinators

TTL_MS_MAX: Final = 1 << 45
"""Longest time to live of a transaction, in milliseconds: a thousand years."""

CLOSE_DELAY_S: Final = 0.5
"""Seconds before a connection is closed whose client asks again at once after it."""

_GO: Final = "Pulsar-Go"
"""Beginning of the version of Pulsar's Go client. It looks a coordinator up again only after its connection
was closed, and then repeats the command; and it takes each TcClientConnectResponse for a success.
"""

ANY_CALLER: Final = None
"""Stands for a super user, which may act on every transaction."""

OFF: Final = "transactions are disabled on this broker: set transactionCoordinatorEnabled=true"

Answer = Coroutine[Any, Any, None] | None

T = TypeVar("T")


def handle_tc_client_connect(client: Client, command: CommandTcClientConnectRequest) -> Answer:
    """Loads a coordinator of this broker, and answers once it can be used."""
    coordinators = _coordinators(client, command.request_id)
    return None if coordinators is None else _connect(client, command, coordinators)


async def _connect(
    client: Client, command: CommandTcClientConnectRequest, coordinators: Coordinators
) -> None:
    try:
        await coordinators.connect(command.tc_id)
    except MagnetarError as error:
        if not _ignores_connect_errors(client):
            raise
        client.peer.write(commands.error(command.request_id, code_of(error), str(error)))
        return
    client.peer.write(commands.tc_client_connected(command.request_id))


def handle_new_txn(client: Client, command: CommandNewTxn) -> Answer:
    """Begins a transaction of the client's role; `txn_ttl_seconds` carries milliseconds, as clients send
    it.
    """
    coordinators = _coordinators(client, command.request_id)
    return None if coordinators is None else _begin(client, command, coordinators)


async def _begin(client: Client, command: CommandNewTxn, coordinators: Coordinators) -> None:
    ttl_ms = min(command.txn_ttl_seconds, TTL_MS_MAX)
    owner = _principal(client)
    txn = await _ask(client, coordinators, command.tc_id, lambda it: it.begin(ttl_ms, owner))
    client.peer.write(commands.new_txn(command.request_id, txn))


def handle_add_partition(client: Client, command: CommandAddPartitionToTxn) -> Answer:
    """Registers topics that the transaction publishes to."""
    coordinators = _coordinators(client, command.request_id)
    return None if coordinators is None else _add_partitions(client, command, coordinators)


async def _add_partitions(
    client: Client, command: CommandAddPartitionToTxn, coordinators: Coordinators
) -> None:
    txn, names = _txn(command), [_participant(each) for each in command.partitions]
    for name in names:
        await client.services.authorizer.check_produce(client.principal, name)
    topics, caller = [name.full for name in names], _caller(client)
    await _ask(client, coordinators, txn.most, lambda it: it.add_partitions(txn, topics, caller))
    client.peer.write(commands.partitions_added(command.request_id, txn))


def handle_add_subscription(client: Client, command: CommandAddSubscriptionToTxn) -> Answer:
    """Registers subscriptions in which the transaction acknowledges."""
    coordinators = _coordinators(client, command.request_id)
    return None if coordinators is None else _add_subscriptions(client, command, coordinators)


async def _add_subscriptions(
    client: Client, command: CommandAddSubscriptionToTxn, coordinators: Coordinators
) -> None:
    txn = _txn(command)
    named = [(_participant(each.topic), each.subscription) for each in command.subscription]
    for name, subscription in named:
        await client.services.authorizer.check_consume(client.principal, name, subscription)
    added, caller = [(name.full, subscription) for name, subscription in named], _caller(client)
    await _ask(client, coordinators, txn.most, lambda it: it.add_subscriptions(txn, added, caller))
    client.peer.write(commands.subscriptions_added(command.request_id, txn))


def handle_end_txn(client: Client, command: CommandEndTxn) -> Answer:
    """Commits or aborts a transaction; answers once every topic has recorded it."""
    coordinators = _coordinators(client, command.request_id)
    return None if coordinators is None else _end(client, command, coordinators)


async def _end(client: Client, command: CommandEndTxn, coordinators: Coordinators) -> None:
    txn, action, caller = _txn(command), _action(command), _caller(client)
    await _ask(client, coordinators, txn.most, lambda it: it.end(txn, action, caller))
    client.peer.write(commands.txn_ended(command.request_id, txn))


async def _ask(
    client: Client,
    coordinators: Coordinators,
    coordinator_id: int,
    question: Callable[[Coordinator], Awaitable[T]],
) -> T:
    """Asks a coordinator of this broker, which is loaded if it is not.

    Raises TransactionCoordinatorNotFound for every failure that may pass: it is the one error after which
    clients look the coordinator up and send the command again.
    """
    try:
        return await question(await coordinators.of(coordinator_id))
    except TooManyTransactions:
        raise
    except (TransactionCoordinatorNotFound, ServiceNotReady, StorageError, MetadataError) as error:
        if _reconnects_only_when_closed(client):
            await asyncio.sleep(CLOSE_DELAY_S)
            client.peer.close(
                f"coordinator {coordinator_id} cannot be used here: {error}", EndCode.COORDINATOR_GONE
            )
        raise TransactionCoordinatorNotFound(
            f"coordinator {coordinator_id} cannot be used here, look it up again: {error}"
        ) from error


def handle_end_on_partition(client: Client, command: CommandEndTxnOnPartition) -> Answer:
    """Ends a transaction in a topic of this broker, for a super user."""
    if _coordinators(client, command.request_id) is None:
        return None
    return _end_here(client, command, command.topic, commands.txn_ended_on_partition)


def handle_end_on_subscription(client: Client, command: CommandEndTxnOnSubscription) -> Answer:
    """Ends a transaction in the topic of a subscription, for a super user: messages and acknowledgements of
    a topic end together.
    """
    if _coordinators(client, command.request_id) is None:
        return None
    return _end_here(client, command, command.subscription.topic, commands.txn_ended_on_subscription)


async def _end_here(
    client: Client,
    command: CommandEndTxnOnPartition | CommandEndTxnOnSubscription,
    topic: str,
    answer: Callable[[int, TxnId], bytes],
) -> None:
    txn = _txn(command)
    if not _is_super_user(client):
        raise TransactionNotFound(
            f"transaction {txn} may be ended in a topic by super users only; ask its coordinator"
        )
    low_watermark = (
        command.txnid_least_bits_of_low_watermark
        if command.HasField("txnid_least_bits_of_low_watermark")
        else -1
    )
    end = TransactionEnd(txn, TopicName.parse(topic).full, _action(command), low_watermark)
    (result,) = await client.services.transactions.topics.end((end,))
    _raise_unless_over(end, result)
    client.peer.write(answer(command.request_id, txn))


def _raise_unless_over(end: TransactionEnd, result: EndResult) -> None:
    if result.over:
        return
    if result.outcome is EndOutcome.REFUSED:
        raise InvalidTxnStatus(result.reason)
    raise ServiceNotReady(f"transaction {end.txn} is not ended in {end.topic}: {result.reason}")


def _reconnects_only_when_closed(client: Client) -> bool:
    return client.client_version.startswith(_GO)


def _ignores_connect_errors(client: Client) -> bool:
    return client.client_version.startswith(_GO)


def _coordinators(client: Client, request_id: int) -> Coordinators | None:
    """Returns the coordinators of this broker. With transactions off, answers with a plain Error, as clients
    expect it then, and returns None.
    """
    coordinators = client.services.transactions.coordinators
    if coordinators is None:
        client.peer.write(commands.error(request_id, ServerError.NotAllowedError, OFF))
    return coordinators


def _txn(
    command: CommandAddPartitionToTxn
    | CommandAddSubscriptionToTxn
    | CommandEndTxn
    | CommandEndTxnOnPartition
    | CommandEndTxnOnSubscription,
) -> TxnId:
    return TxnId(command.txnid_most_bits, command.txnid_least_bits)


def _action(command: CommandEndTxn | CommandEndTxnOnPartition | CommandEndTxnOnSubscription) -> Action:
    """Raises NotAllowed without an action: neither may be taken for granted."""
    if not command.HasField("txn_action"):
        raise NotAllowed("the end of a transaction needs an action, COMMIT or ABORT")
    return Action.COMMIT if command.txn_action == COMMIT else Action.ABORT


def _participant(topic: str) -> TopicName:
    """Returns a topic that can take part in transactions. Raises InvalidName, NotAllowed."""
    name = TopicName.parse(topic)
    if not name.persistent:
        raise NotAllowed(f"topic {name} is non-persistent: transactions need persistent topics")
    if is_system_topic(name):
        raise NotAllowed(f"{name} is a name reserved for the system")
    return name


def _principal(client: Client) -> str:
    """Returns the role that owns the transactions of this client; empty without authentication."""
    principal = client.principal
    if principal is None:
        return ""
    return principal.original or principal.role or ""


def _is_super_user(client: Client) -> bool:
    """Whether the client may act on transactions of others; every client may with authorization off."""
    authorizer = client.services.authorizer
    if not authorizer.enabled:
        return True
    return client.principal is not None and authorizer.decisions.all_super_users(client.principal)


def _caller(client: Client) -> str | None:
    """Returns the role whose transactions the client may act on; ANY_CALLER for super users."""
    authorizer = client.services.authorizer
    if authorizer.enabled and _is_super_user(client):
        return ANY_CALLER
    return _principal(client)
