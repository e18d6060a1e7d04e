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
    from magnetar.client.authentication.methods import Credentials as Credentials
    from magnetar.client.authentication.methods import OAuth2 as OAuth2
    from magnetar.client.authentication.methods import TlsCertificate as TlsCertificate
    from magnetar.client.authentication.methods import Token as Token
    from magnetar.client.client import Client as Client
    from magnetar.client.consumer.consumer import Consumer as Consumer
    from magnetar.client.consumer.dead_letters import DeadLetterPolicy as DeadLetterPolicy
    from magnetar.client.consumer.options import Chunking as Chunking
    from magnetar.client.consumer.options import KeySharedPolicy as KeySharedPolicy
    from magnetar.client.consumer.redelivery import RedeliveryDelay as RedeliveryDelay
    from magnetar.client.errors import ClientError as ClientError
    from magnetar.client.interceptors import ConsumerInterceptor as ConsumerInterceptor
    from magnetar.client.interceptors import ProducerInterceptor as ProducerInterceptor
    from magnetar.client.messages import Message as Message
    from magnetar.client.messages import MessageId as MessageId
    from magnetar.client.options import Tls as Tls
    from magnetar.client.producer.options import Batching as Batching
    from magnetar.client.producer.producer import Producer as Producer
    from magnetar.client.reader import Reader as Reader
    from magnetar.client.routing import CustomRouting as CustomRouting
    from magnetar.client.routing import RoundRobin as RoundRobin
    from magnetar.client.routing import SinglePartition as SinglePartition
    from magnetar.client.schemas.auto import AutoConsume as AutoConsume
    from magnetar.client.schemas.auto import AutoProduce as AutoProduce
    from magnetar.client.schemas.avro import Avro as Avro
    from magnetar.client.schemas.json import Json as Json
    from magnetar.client.schemas.key_value import KeyAndValue as KeyAndValue
    from magnetar.client.schemas.key_value import KeyValue as KeyValue
    from magnetar.client.schemas.primitive import Bool as Bool
    from magnetar.client.schemas.primitive import Bytes as Bytes
    from magnetar.client.schemas.primitive import Date as Date
    from magnetar.client.schemas.primitive import Float32 as Float32
    from magnetar.client.schemas.primitive import Float64 as Float64
    from magnetar.client.schemas.primitive import Instant as Instant
    from magnetar.client.schemas.primitive import Int8 as Int8
    from magnetar.client.schemas.primitive import Int16 as Int16
    from magnetar.client.schemas.primitive import Int32 as Int32
    from magnetar.client.schemas.primitive import Int64 as Int64
    from magnetar.client.schemas.primitive import LocalDate as LocalDate
    from magnetar.client.schemas.primitive import LocalDateTime as LocalDateTime
    from magnetar.client.schemas.primitive import LocalTime as LocalTime
    from magnetar.client.schemas.primitive import String as String
    from magnetar.client.schemas.primitive import Time as Time
    from magnetar.client.schemas.primitive import Timestamp as Timestamp
    from magnetar.client.schemas.protobuf_native import ProtobufNative as ProtobufNative
    from magnetar.client.schemas.records import AvroField as AvroField
    from magnetar.client.table_view import TableView as TableView
    from magnetar.client.transactions.transaction import Transaction as Transaction

_HOMES: Final = {
    "AutoConsume": "schemas.auto",
    "AutoProduce": "schemas.auto",
    "Avro": "schemas.avro",
    "AvroField": "schemas.records",
    "Basic": "authentication.methods",
    "Batching": "producer.options",
    "Bool": "schemas.primitive",
    "Bytes": "schemas.primitive",
    "Chunking": "consumer.options",
    "Client": "client",
    "ClientError": "errors",
    "Consumer": "consumer.consumer",
    "ConsumerInterceptor": "interceptors",
    "Credentials": "authentication.methods",
    "CustomRouting": "routing",
    "Date": "schemas.primitive",
    "DeadLetterPolicy": "consumer.dead_letters",
    "Float32": "schemas.primitive",
    "Float64": "schemas.primitive",
    "Instant": "schemas.primitive",
    "Int16": "schemas.primitive",
    "Int32": "schemas.primitive",
    "Int64": "schemas.primitive",
    "Int8": "schemas.primitive",
    "Json": "schemas.json",
    "KeyAndValue": "schemas.key_value",
    "KeySharedPolicy": "consumer.options",
    "KeyValue": "schemas.key_value",
    "LocalDate": "schemas.primitive",
    "LocalDateTime": "schemas.primitive",
    "LocalTime": "schemas.primitive",
    "Message": "messages",
    "MessageId": "messages",
    "OAuth2": "authentication.methods",
    "Producer": "producer.producer",
    "ProducerInterceptor": "interceptors",
    "ProtobufNative": "schemas.protobuf_native",
    "Reader": "reader",
    "RedeliveryDelay": "consumer.redelivery",
    "RoundRobin": "routing",
    "SinglePartition": "routing",
    "String": "schemas.primitive",
    "TableView": "table_view",
    "Time": "schemas.primitive",
    "Timestamp": "schemas.primitive",
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
