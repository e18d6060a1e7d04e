"""Configuration of transactions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from magnetar.common.config.settings import setting

_PROVIDERS: Final = "org.apache.pulsar."

_COORDINATOR_STORE: Final = f"{_PROVIDERS}transaction.coordinator.impl.MLTransactionMetadataStoreProvider"
_BUFFER: Final = f"{_PROVIDERS}broker.transaction.buffer.impl.TopicTransactionBufferProvider"
_PENDING_ACK_STORE: Final = f"{_PROVIDERS}broker.transaction.pendingack.impl.MLPendingAckStoreProvider"


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionConfig:
    """Transactions, and calls between brokers that end them."""

    enabled: bool = setting(
        False,
        "Serve transactions. The first start with it creates the transaction coordinators, 16 in a cluster "
        "and 1 in a standalone. When false, clients are refused; what a topic stores of transactions is "
        "honored all the same, so messages after an open transaction wait until transactions are on again.",
        key="transactionCoordinatorEnabled",
    )
    active_max: int = setting(
        0,
        "Maximum open transactions of one coordinator; a client that begins another one is refused and "
        "retries later. 0 sets no limit.",
        key="maxActiveTransactionsPerCoordinator",
        minimum=0,
    )
    requests_max: int = setting(
        1_000,
        "Maximum ends of transactions that wait for the answer of one other broker; further ends wait their "
        "turn.",
        key="transactionBufferClientMaxConcurrentRequests",
        minimum=1,
    )
    request_timeout_ms: int = setting(
        3_000,
        "Milliseconds that one call to end transactions on another broker may take; a transaction that is "
        "not ended by then is sent again.",
        key="transactionBufferClientOperationTimeoutInMills",
        minimum=100,
    )
    coordinator_store: str = setting(
        _COORDINATOR_STORE,
        "Pulsar's class that stores coordinators. The store is built in; other classes cannot be loaded.",
        key="transactionMetadataStoreProviderClassName",
        choices=(_COORDINATOR_STORE,),
    )
    buffer_provider: str = setting(
        _BUFFER,
        "Pulsar's class that keeps open messages of topics. It is built in; other classes cannot be loaded.",
        key="transactionBufferProviderClassName",
        choices=(_BUFFER,),
    )
    pending_ack_store: str = setting(
        _PENDING_ACK_STORE,
        "Pulsar's class that stores pending acknowledgements. The store is built in; other classes cannot be "
        "loaded.",
        key="transactionPendingAckStoreProviderClassName",
        choices=(_PENDING_ACK_STORE,),
    )
