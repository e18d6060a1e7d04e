"""Pulsar for Python, on asyncio: producers, consumers, readers, table views and transactions.

    from magnetar.client import Client

    async with Client("pulsar://localhost:6650") as client:
        producer = await client.create_producer("orders")
        await producer.send(b"hello")

Names are imported when they are first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from magnetar.client.authentication.methods import Basic as Basic
    from magnetar.client.authentication.methods import OAuth2 as OAuth2
    from magnetar.client.authentication.methods import TlsCertificate as TlsCertificate
    from magnetar.client.authentication.methods import Token as Token
    from magnetar.client.client import Client as Client
    from magnetar.client.consumer.consumer import Consumer as Consumer
    from magnetar.client.consumer.dead_letters import DeadLetterPolicy as DeadLetterPolicy
    from magnetar.client.consumer.options import Chunking as Chunking
    from magnetar.client.consumer.options import KeySharedPolicy as KeySharedPolicy
    from magnetar.client.consumer.redelivery import RedeliveryDelay as RedeliveryDelay
    from magnetar.client.messages import Message as Message
    from magnetar.client.messages import MessageId as MessageId
    from magnetar.client.options import Tls as Tls
    from magnetar.client.producer.options import Batching as Batching
    from magnetar.client.producer.producer import Producer as Producer
    from magnetar.client.reader import Reader as Reader
    from magnetar.client.routing import CustomRouting as CustomRouting
    from magnetar.client.routing import RoundRobin as RoundRobin
    from magnetar.client.routing import SinglePartition as SinglePartition
    from magnetar.client.table_view import TableView as TableView
    from magnetar.client.transactions.transaction import Transaction as Transaction

_HOMES: Final = {
    "Basic": "authentication.methods",
    "Batching": "producer.options",
    "Chunking": "consumer.options",
    "Client": "client",
    "Consumer": "consumer.consumer",
    "CustomRouting": "routing",
    "DeadLetterPolicy": "consumer.dead_letters",
    "KeySharedPolicy": "consumer.options",
    "Message": "messages",
    "MessageId": "messages",
    "OAuth2": "authentication.methods",
    "Producer": "producer.producer",
    "Reader": "reader",
    "RedeliveryDelay": "consumer.redelivery",
    "RoundRobin": "routing",
    "SinglePartition": "routing",
    "TableView": "table_view",
    "Tls": "options",
    "TlsCertificate": "authentication.methods",
    "Token": "authentication.methods",
    "Transaction": "transactions.transaction",
}

__all__ = sorted(_HOMES)


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
