"""Messages between pulsar-client of PyPI and magnetar-client, both ways: fields, entries, schemas, places."""

from __future__ import annotations

import asyncio
import base64
import random
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final, TypeVar

import pulsar
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from magnetar.client import (
    Avro,
    Batching,
    Client,
    Consumer,
    Json,
    Message,
    MessageId,
    Producer,
    Reader,
    String,
)
from magnetar.client.schemas.records import Int
from pulsar import schema

from tests.integration.client import pypi_orders
from tests.integration.clients import RECEIVE_MS_MAX, receive
from tests.integration.harness import Endpoint

T = TypeVar("T")

RECEIVE_S: Final = RECEIVE_MS_MAX / 1_000
KEY_NAME: Final = "owner"


@dataclass(frozen=True)
class Sent:
    """One message as both clients can send it; a payload of None is a null value."""

    payload: bytes | None
    key: str | None = None
    ordering_key: str | None = None
    properties: Mapping[str, str] = field(default_factory=dict)
    event_time_ms: int = 0


MESSAGES: Final = (
    Sent(b"plain"),
    Sent(b""),
    Sent(bytes(20_000), key="zeros"),
    Sent(b"keyed", key="größe 中文"),
    Sent(b"ordered", key="key", ordering_key="order"),
    Sent(b"properties", properties={"a": "1", "empty": "", "größe": "中文 🚀"}),
    Sent(b"dated", event_time_ms=1_234_567_890_123),
    Sent(None, key="deleted"),
    Sent(None),
    Sent(b"all", "key", "order", {"a": "b"}, 1),
)
LARGE: Final = Sent(random.Random(1).randbytes(11_000_000), key="large", properties={"size": "11 MB"})


@dataclass(frozen=True)
class Way:
    """How messages are sent, in the options of both producers."""

    ours: Mapping[str, Any] = field(default_factory=dict)
    theirs: Mapping[str, Any] = field(default_factory=dict)
    encrypted: bool = False
    messages: tuple[Sent, ...] = MESSAGES

    @staticmethod
    def batched(way: Way) -> Way:
        batching = {"batching_enabled": True, "batching_max_publish_delay_ms": 1_000}
        ours = {**way.ours, "batching": Batching(max_delay_s=1.0)}
        return replace(way, ours=ours, theirs={**way.theirs, **batching})


def compressed(name: str, kind: pulsar.CompressionType) -> Way:
    return Way({"compression": name, "batching": None}, {"compression_type": kind})


COMPRESSED: Final = {
    "lz4": compressed("lz4", pulsar.CompressionType.LZ4),
    "zlib": compressed("zlib", pulsar.CompressionType.ZLib),
    "zstd": compressed("zstd", pulsar.CompressionType.ZSTD),
    "snappy": compressed("snappy", pulsar.CompressionType.SNAPPY),
}
SINGLE: Final = {
    "plain": Way({"batching": None}),
    **COMPRESSED,
    "encrypted": Way({"batching": None}, encrypted=True),
    "encrypted-zstd": replace(COMPRESSED["zstd"], encrypted=True),
}
CHUNKED: Final = Way(
    {"batching": None, "chunking": True},
    {"chunking_enabled": True},
    messages=(MESSAGES[0], LARGE, MESSAGES[-1]),
)
WAYS: Final = {
    **SINGLE,
    **{f"batch-{name}": Way.batched(way) for name, way in SINGLE.items()},
    "chunks": CHUNKED,
    "chunks-lz4-encrypted": replace(
        CHUNKED,
        ours={**CHUNKED.ours, "compression": "lz4"},
        theirs={**CHUNKED.theirs, "compression_type": pulsar.CompressionType.LZ4},
        encrypted=True,
    ),
}
each_way = pytest.mark.parametrize("way", [pytest.param(way, id=name) for name, way in WAYS.items()])


@dataclass(frozen=True)
class Keys:
    """One pair of RSA keys, as each of the clients takes it."""

    public: bytes
    private: bytes
    theirs: pulsar.CryptoKeyReader


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Keys:
    directory: Path = tmp_path_factory.mktemp("keys")
    pair = rsa.generate_private_key(public_exponent=65_537, key_size=2_048)
    private = pair.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.TraditionalOpenSSL,
        serialization.NoEncryption(),
    )
    public = pair.public_key().public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    (directory / "private.pem").write_bytes(private)
    (directory / "public.pem").write_bytes(public)
    theirs = pulsar.CryptoKeyReader(str(directory / "public.pem"), str(directory / "private.pem"))
    return Keys(public, private, theirs)


def with_ours(endpoint: Endpoint, work: Callable[[Client], Coroutine[Any, Any, T]]) -> T:
    """Runs work with a magnetar-client that is closed after it."""

    async def run() -> T:
        async with Client(endpoint.service_url) as client:
            return await work(client)

    return asyncio.run(run())


def as_ours(message: Message) -> Sent:
    ordering_key = message.ordering_key
    return Sent(
        message.value,
        message.key,
        None if ordering_key is None else ordering_key.decode(),
        message.properties,
        message.event_time_ms,
    )


def as_theirs(message: pulsar.Message) -> Sent:
    raw = message._message
    return Sent(
        None if raw.has_null_value() else message.data(),
        message.partition_key() or None,
        message.ordering_key() or None,
        message.properties(),
        message.event_timestamp(),
    )


async def send_by_ours(client: Client, topic: str, way: Way, keys: Keys) -> list[MessageId]:
    options = {**way.ours, **({"public_keys": {KEY_NAME: keys.public}} if way.encrypted else {})}
    async with await client.create_producer(topic, **options) as producer:
        return await asyncio.gather(
            *(
                producer.send(
                    each.payload,
                    key=each.key,
                    ordering_key=None if each.ordering_key is None else each.ordering_key.encode(),
                    properties=each.properties,
                    event_time_ms=each.event_time_ms,
                )
                for each in way.messages
            )
        )


def send_by_theirs(client: pulsar.Client, topic: str, way: Way, keys: Keys) -> None:
    encryption = {"encryption_key": KEY_NAME, "crypto_key_reader": keys.theirs} if way.encrypted else {}
    producer = client.create_producer(topic, **way.theirs, **encryption)
    results: list[pulsar.Result] = []
    for each in way.messages:
        producer.send_async(
            each.payload,
            lambda result, _: results.append(result),
            partition_key=each.key,
            ordering_key=each.ordering_key,
            properties=dict(each.properties),
            event_timestamp=each.event_time_ms or None,
        )
    producer.flush()
    producer.close()
    assert results == [pulsar.Result.Ok] * len(way.messages)


@each_way
def test_messages_of_pulsar_client_are_received(
    endpoint: Endpoint, client: pulsar.Client, topic: str, keys: Keys, way: Way
) -> None:
    client.subscribe(topic, "sub").close()
    send_by_theirs(client, topic, way, keys)

    async def work(ours: Client) -> list[Message]:
        read_key = (lambda name, pairs: keys.private) if way.encrypted else None
        async with await ours.subscribe(topic, "sub", read_key=read_key) as consumer:
            return [await consumer.receive(RECEIVE_S) for _ in way.messages]

    messages = with_ours(endpoint, work)
    assert [as_ours(message) for message in messages] == list(way.messages)
    is_batched = way.theirs.get("batching_enabled", False)
    assert len({message.id.position for message in messages}) == (1 if is_batched else len(messages))


@each_way
def test_messages_of_magnetar_client_are_received(
    endpoint: Endpoint, client: pulsar.Client, topic: str, keys: Keys, way: Way
) -> None:
    reader = {"crypto_key_reader": keys.theirs} if way.encrypted else {}
    consumer = client.subscribe(topic, "sub", **reader)
    ids = with_ours(endpoint, lambda ours: send_by_ours(ours, topic, way, keys))
    messages = [receive(consumer) for _ in way.messages]
    assert [as_theirs(message) for message in messages] == list(way.messages)
    found = [MessageId.from_bytes(message.message_id().serialize()) for message in messages]
    assert found == ids


def test_a_key_of_bytes_is_base64_for_the_other_client(
    endpoint: Endpoint, client: pulsar.Client, topic: str
) -> None:
    """Its own has text alone; Java's marks such keys in the same way."""
    consumer = client.subscribe(topic, "sub")

    async def work(ours: Client) -> bytes | None:
        async with await ours.subscribe(topic, "ours") as own, await ours.create_producer(topic) as producer:
            await producer.send(b"m", key=b"\xff\x00")
            return (await own.receive(RECEIVE_S)).key_bytes

    assert with_ours(endpoint, work) == b"\xff\x00"
    assert receive(consumer).partition_key() == base64.b64encode(b"\xff\x00").decode()


def test_a_message_that_only_one_key_opens_is_ciphertext_for_the_others(
    endpoint: Endpoint, client: pulsar.Client, topic: str, keys: Keys
) -> None:
    action = pulsar.ConsumerCryptoFailureAction.CONSUME
    consumer = client.subscribe(topic, "sub", crypto_failure_action=action)
    way = Way({"batching": None}, encrypted=True, messages=(Sent(b"secret"),))
    send_by_theirs(client, topic, way, keys)

    async def work(ours: Client) -> Message:
        await send_by_ours(ours, topic, way, keys)
        own: Consumer[bytes] = await ours.subscribe(
            topic, "ours", crypto_failure="consume", initial_position="earliest"
        )
        return await own.receive(RECEIVE_S)

    of_theirs = with_ours(endpoint, work)
    assert of_theirs.encrypted is not None
    assert list(of_theirs.encrypted.keys) == [KEY_NAME]
    own, of_ours = receive(consumer), receive(consumer)
    assert own.data() == of_theirs.data != b"secret"
    assert [key.key for key in of_ours.encryption_context().keys()] == [KEY_NAME]  # noqa: SIM118 - no dict
    assert b"secret" not in of_ours.data()


@dataclass
class Line:
    """A record in a record."""

    sku: str
    count: Int


@dataclass
class Order:
    """A record as magnetar-client has it."""

    customer: str
    price: float
    lines: list[Line]
    note: str | None = None


ORDERS: Final = [Order("größe", 1.5, [Line("a", 1), Line("b", -2)], "中文 🚀"), Order("", -0.0, [])]
TEXTS: Final = ["größe 中文 🚀", ""]


@pytest.mark.parametrize(
    ("theirs", "ours", "their_values", "our_values"),
    [
        (schema.StringSchema(), String(), TEXTS, TEXTS),
        (schema.JsonSchema(pypi_orders.Order), Json(Order), pypi_orders.ORDERS, ORDERS),
        (schema.AvroSchema(pypi_orders.Order), Avro(Order), pypi_orders.ORDERS, ORDERS),
    ],
    ids=["string", "json", "avro"],
)
def test_values_of_one_topic_by_both_clients_are_read_by_both(
    endpoint: Endpoint,
    client: pulsar.Client,
    topic: str,
    theirs: Any,
    ours: Any,
    their_values: list[Any],
    our_values: list[Any],
) -> None:
    consumer = client.subscribe(topic, "theirs", schema=theirs)
    producer = client.create_producer(topic, schema=theirs)
    for value in their_values:
        producer.send(value)

    async def work(own: Client) -> list[Message]:
        async with await own.create_producer(topic, schema=ours) as producer:
            for value in our_values:
                await producer.send(value)
        async with await own.subscribe(topic, "ours", schema=ours, initial_position="earliest") as found:
            return [await found.receive(RECEIVE_S) for _ in range(4)]

    messages = with_ours(endpoint, work)
    assert [message.value for message in messages] == our_values * 2
    if our_values is not TEXTS:
        # The definition of a text is "null" in pulsar-client: a version of its own in Apache Pulsar alone.
        assert len({message.schema_version for message in messages}) == 1, "the definitions are one version"
    assert [receive(consumer).value() for _ in range(4)] == their_values * 2


def numbered(begin: int, end: int) -> tuple[Sent, ...]:
    return tuple(Sent(b"%d" % number) for number in range(begin, end))


def test_a_batch_acknowledged_in_part_goes_on_in_the_other_client(
    endpoint: Endpoint, client: pulsar.Client, topic: str, keys: Keys
) -> None:
    client.subscribe(topic, "sub").close()
    send_by_theirs(client, topic, Way.batched(Way(messages=numbered(0, 9))), keys)

    async def take(ours: Client, acknowledged: int) -> list[bytes]:
        async with await ours.subscribe(topic, "sub", batch_index_ack=True, ack_receipts=True) as consumer:
            messages = [await consumer.receive(RECEIVE_S) for _ in range(acknowledged)]
            await consumer.acknowledge(messages)
            return [message.data for message in messages]

    assert with_ours(endpoint, lambda ours: take(ours, 3)) == [b"0", b"1", b"2"]
    consumer = client.subscribe(topic, "sub", batch_index_ack_enabled=True)
    messages = [receive(consumer) for _ in range(6)]
    for message in messages[1:4]:
        consumer.acknowledge(message)
    consumer.close()
    assert [message.data() for message in messages] == [b"3", b"4", b"5", b"6", b"7", b"8"]
    assert with_ours(endpoint, lambda ours: take(ours, 3)) == [b"3", b"7", b"8"]


def test_a_message_id_of_one_client_is_a_place_for_the_other(
    endpoint: Endpoint, client: pulsar.Client, topic: str, keys: Keys
) -> None:
    send_by_theirs(client, topic, Way.batched(Way(messages=numbered(0, 5))), keys)
    theirs = client.create_reader(topic, pulsar.MessageId.earliest)
    third = [theirs.read_next(RECEIVE_MS_MAX) for _ in range(3)][-1].message_id()

    async def work(ours: Client) -> tuple[bytes, bytes]:
        reader: Reader[bytes] = await ours.create_reader(topic, MessageId.from_bytes(third.serialize()))
        found = await reader.read(RECEIVE_S)
        return found.data, found.id.to_bytes()

    data, stored = with_ours(endpoint, work)
    assert data == b"3"
    following = client.create_reader(topic, pulsar.MessageId.deserialize(stored))
    assert following.read_next(RECEIVE_MS_MAX).data() == b"4"


def test_a_producer_name_goes_on_in_the_other_client(
    endpoint: Endpoint, client: pulsar.Client, topic: str, rest: Any
) -> None:
    namespace = rest.new_namespace()
    rest.do("POST", f"/namespaces/{namespace}/deduplication", True)
    topic = f"persistent://{namespace}/t"
    consumer = client.subscribe(topic, "sub")
    producer = client.create_producer(topic, producer_name="shared")
    for number in range(1, 4):
        producer.send(b"%d" % number, sequence_id=number)
    producer.close()

    async def work(ours: Client) -> int:
        own: Producer[bytes] = await ours.create_producer(topic, name="shared")
        known = own.last_sequence_id
        for number in range(2, 6):
            await own.send(b"%d" % number, sequence_id=number)
        return known

    assert with_ours(endpoint, work) == 3
    again = client.create_producer(topic, producer_name="shared")
    assert again.last_sequence_id() == 5
    again.send(b"5", sequence_id=5)
    again.send(b"6", sequence_id=6)
    assert [receive(consumer).data() for _ in range(6)] == [b"1", b"2", b"3", b"4", b"5", b"6"]


def test_consumers_of_both_clients_share_a_subscription(
    endpoint: Endpoint, client: pulsar.Client, topic: str
) -> None:
    """A consumer that closes leaves its unacknowledged messages to that of the other client."""
    theirs = client.subscribe(topic, "sub", pulsar.ConsumerType.Shared)
    producer = client.create_producer(topic)

    async def work(ours: Client) -> set[bytes]:
        consumer: Consumer[bytes] = await ours.subscribe(topic, "sub", type="shared")
        for number in range(20):
            await asyncio.to_thread(producer.send, b"%d" % number)
        messages = await consumer.receive_batch(20, timeout_s=0.5)
        half = messages[: len(messages) // 2]
        await consumer.acknowledge(half)
        return {message.data for message in half}

    acknowledged = with_ours(endpoint, work)
    assert acknowledged
    found = {receive(theirs).data() for _ in range(20 - len(acknowledged))}
    assert found | acknowledged == {b"%d" % number for number in range(20)}
    assert not found & acknowledged
