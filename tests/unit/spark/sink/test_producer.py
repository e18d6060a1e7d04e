"""Entries under given sequence ids: what is sent, and what becomes of them when the connection ends."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

import pytest
from magnetar.client.client import Client
from magnetar.client.connection.frames import Receipts
from magnetar.client.errors import ClientError, ConnectionLost, TopicTerminated
from magnetar.common.naming.txn_id import TxnId
from magnetar.common.wire import commands
from magnetar.common.wire.producer_options import DEDUPLICATION, NOT_DEDUPLICATED, REQUIRED
from magnetar.common.wire.pulsar_pb2 import CompressionType, MessageMetadata, Schema, ServerError
from magnetar.spark.client_options import client_options
from magnetar.spark.sink.entries import OutgoingEntry
from magnetar.spark.sink.errors import BadRow, NotDeduplicated
from magnetar.spark.sink.producer import InterruptedInTransaction, NameBusy, SequencedProducer
from magnetar.spark.sink.rows import OutgoingRow

from tests.unit.spark.made_up_broker import MadeUpBroker, in_turn, receipt, refused, silent
from tests.unit.spark.sink.test_rows import TOPIC, rows_of

NAME = "spark-q-3"
TXN = TxnId(4, 2**40)
SCHEMA = Schema(name="t", type=Schema.Json, schema_data=b"{}")
DUPLICATES = refused(ServerError.NotAllowedError, f"{TOPIC} {NOT_DEDUPLICATED}")

Program = Callable[[MadeUpBroker, Client], Awaitable[None]]


def run(program: Program, reconnect_s: float = 300.0) -> MadeUpBroker:
    """Runs a program with a broker and a client of it; returns the broker."""

    async def main() -> MadeUpBroker:
        async with asyncio.timeout(30), MadeUpBroker() as broker:
            options = replace(client_options(broker.url), reconnect_timeout_s=reconnect_s)
            async with Client.with_options(options) as client:
                await program(broker, client)
            return broker

    return asyncio.run(main())


async def opened(client: Client, **options: Any) -> SequencedProducer:
    compression = options.pop("compression", CompressionType.NONE)
    producer = SequencedProducer(client, TOPIC, NAME, compression, **options)
    await producer.open_when_free(5)
    return producer


def entry(rows: list[OutgoingRow], *sequence_ids: int) -> OutgoingEntry:
    return OutgoingEntry(TOPIC, rows, list(sequence_ids), sum(row.byte_length for row in rows))


def one(sequence_id: int) -> OutgoingEntry:
    return entry(rows_of(value=[f"{sequence_id}"]), sequence_id)


def published(*entries: OutgoingEntry, **options: Any) -> list[tuple[MessageMetadata, bytes]]:
    async def program(broker: MadeUpBroker, client: Client) -> None:
        producer = await opened(client, **options)
        for each in entries:
            await producer.send(each)
        await producer.flushed()
        assert producer.pending_bytes == 0
        await producer.close()

    return run(program).entries


def test_a_batch_has_the_ids_of_its_rows_whatever_lies_between_them() -> None:
    ids = (7 << 36 | 11, 7 << 36 | 1 << 13 | 90, 7 << 36 | 2 << 13 | 3)
    rows = rows_of(value=["a", "b", "c"], key=["k", "k", "k"])
    ((metadata, payload),) = published(entry(rows, *ids), schema=SCHEMA)
    assert (metadata.producer_name, metadata.sequence_id, metadata.highest_sequence_id) == (
        NAME,
        ids[0],
        ids[-1],
    )
    assert (metadata.num_messages_in_batch, metadata.partition_key) == (3, "k")
    assert payload.endswith(b"c")


def test_a_batch_of_several_keys_has_none() -> None:
    ((metadata, _),) = published(entry(rows_of(value=["a", "b"], key=["k", "l"]), 1, 2))
    assert not metadata.HasField("partition_key")


def test_a_single_row_is_an_entry_with_all_of_its_columns_in_a_transaction_and_compressed() -> None:
    rows = rows_of(
        value=[b"v" * 1_000],
        key_bytes=[b"\xff"],
        ordering_key=[b"o"],
        event_time=[5],
        deliver_at=[6],
        properties=[[("p", "1")]],
    )
    ((metadata, payload),) = published(entry(rows, 9), txn=TXN, compression=CompressionType.ZLIB)
    assert (metadata.sequence_id, metadata.partition_key, metadata.partition_key_b64_encoded) == (
        9,
        "/w==",
        True,
    )
    assert (metadata.ordering_key, metadata.event_time, metadata.deliver_at_time) == (b"o", 5, 6)
    assert [(pair.key, pair.value) for pair in metadata.properties] == [("p", "1")]
    assert TxnId(metadata.txnid_most_bits, metadata.txnid_least_bits) == TXN
    assert (metadata.compression, metadata.uncompressed_size) == (CompressionType.ZLIB, 1_000)
    assert len(payload) < 100


def test_rows_carry_the_version_of_the_schema_that_the_broker_told() -> None:
    async def program(broker: MadeUpBroker, client: Client) -> None:
        broker.answers["producer"] = lambda command: commands.producer_success(
            command.request_id, NAME, schema_version=bytes(8), last_sequence_id=41
        )
        producer = await opened(client, schema=SCHEMA)
        assert producer.last_sequence_id == 41
        await producer.send(one(42))
        await producer.flushed()

    ((metadata, _),) = run(program).entries
    assert metadata.schema_version == bytes(8)


def test_what_is_unconfirmed_is_sent_again_as_it_was_after_the_connection_ended() -> None:
    async def program(broker: MadeUpBroker, client: Client) -> None:
        producer = await opened(client)
        broker.answers["send"] = silent
        for number in (3, 10):
            await producer.send(one(number))
        await broker.until("send", 2)
        broker.answers["send"] = receipt
        broker.cut()
        await producer.send(one(20))
        await producer.flushed()

    broker = run(program)
    assert [metadata.sequence_id for metadata, _ in broker.entries] == [3, 10, 3, 10, 20]
    assert broker.entries[:2] == broker.entries[2:4]
    opened_twice = broker.of("producer")
    assert [command.producer_name for command in opened_twice] == [NAME, NAME]
    assert [command.epoch for command in opened_twice] == [0, 1]
    for command in opened_twice:
        assert [(each.key, each.value) for each in command.metadata] == [(DEDUPLICATION, REQUIRED)]


def test_receipts_that_arrive_together_confirm_all_of_their_entries() -> None:
    entries, taken = 50, list[int]()
    held: list[bytes] = []

    def at_once(command: Any) -> bytes:
        held.append(receipt(command))
        return b"".join(held) if len(held) == entries else b""

    class Counting(SequencedProducer):
        def on_receipts(self, receipts: Receipts) -> None:
            taken.append(receipts.count)
            super().on_receipts(receipts)

    async def program(broker: MadeUpBroker, client: Client) -> None:
        broker.answers["send"] = at_once
        producer = Counting(client, TOPIC, NAME, CompressionType.NONE)
        await producer.open_when_free(5)
        for number in range(entries):
            await producer.send(one(number))
        await producer.flushed()
        assert producer.pending_bytes == 0

    run(program)
    assert sum(taken) > entries // 2, "most of them are taken as a run"


def test_a_transaction_without_deduplication_is_given_up_when_messages_are_in_doubt() -> None:
    async def program(broker: MadeUpBroker, client: Client) -> None:
        producer = await opened(client, deduplicated=False, txn=TXN)
        await producer.send(one(0))
        await producer.flushed()
        broker.cut()  # Nothing is in doubt.
        await broker.until("producer", 2)
        broker.answers["send"] = silent
        await producer.send(one(1))
        await broker.until("send", 2)
        broker.cut()
        with pytest.raises(InterruptedInTransaction, match="With deduplication in the namespace"):
            await producer.flushed()
        with pytest.raises(InterruptedInTransaction):
            await producer.send(one(2))
        await producer.close()

    broker = run(program)
    assert [metadata.sequence_id for metadata, _ in broker.entries] == [0, 1], "nothing was sent again"
    assert len(broker.of("producer")) == 2


def test_a_name_in_use_is_waited_for_until_it_is_free() -> None:
    busy = refused(ServerError.ProducerBusy, "the name is taken")

    async def program(broker: MadeUpBroker, client: Client) -> None:
        broker.answers["producer"] = in_turn(busy, busy, broker.answers["producer"])
        await opened(client)
        broker.answers["producer"] = busy
        with pytest.raises(NameBusy, match=f"still has the name '{NAME}'"):
            await SequencedProducer(client, TOPIC, NAME, CompressionType.NONE).open_when_free(0)

    assert len(run(program).of("producer")) == 4


@pytest.mark.parametrize(
    ("answer", "kind"),
    [(DUPLICATES, NotDeduplicated), (refused(ServerError.ProducerBusy, "taken"), NameBusy)],
)
def test_a_producer_that_is_refused_at_reconnection_ends_with_the_reason(
    answer: Callable[[Any], bytes], kind: type[ClientError]
) -> None:
    async def program(broker: MadeUpBroker, client: Client) -> None:
        producer = await opened(client)
        broker.answers["producer"], broker.answers["send"] = answer, silent
        await producer.send(one(0))
        await broker.until("send", 1)
        broker.cut()
        with pytest.raises(kind):
            await producer.flushed()

    run(program, reconnect_s=0.01)


def test_reconnection_ends_and_the_task_fails_with_the_last_reason() -> None:
    async def program(broker: MadeUpBroker, client: Client) -> None:
        producer = await opened(client)
        broker.stop()
        await producer.send(one(0))
        with pytest.raises(ConnectionLost, match="cannot connect"):
            await producer.flushed()

    run(program, reconnect_s=0.2)


def test_a_refused_entry_ends_the_producer_unless_the_reason_may_pass() -> None:
    def error(code: ServerError.ValueType) -> Callable[[Any], bytes]:
        return lambda command: commands.send_error(command.producer_id, command.sequence_id, code, "no")

    async def program(broker: MadeUpBroker, client: Client) -> None:
        producer = await opened(client)
        broker.answers["send"] = in_turn(error(ServerError.PersistenceError), receipt)
        await producer.send(one(5))
        await producer.flushed()
        broker.answers["send"] = error(ServerError.TopicTerminatedError)
        await producer.send(one(6))
        with pytest.raises(TopicTerminated):
            await producer.flushed()

    assert [metadata.sequence_id for metadata, _ in run(program).entries] == [5, 5, 6]


@pytest.mark.parametrize("compression", [CompressionType.NONE, CompressionType.ZLIB])
def test_rows_are_measured_as_they_are_sent(compression: CompressionType.ValueType) -> None:
    def row(payload: int, properties: int) -> OutgoingEntry:
        return entry(rows_of(value=[b"v" * payload], properties=[[("p", "x" * properties)]]), 1)

    async def program(broker: MadeUpBroker, client: Client) -> None:
        broker.answers["connect"] = lambda _: commands.connected("made up", 21, 10_000)
        producer = await opened(client, compression=compression)
        await producer.send(row(10_000, 7_000))
        await producer.flushed()
        with pytest.raises(BadRow, match="takes at most 10000, and with metadata 18192"):
            await producer.send(row(10_000, 20_000))
        if compression == CompressionType.NONE:
            with pytest.raises(BadRow, match="a row of 10001 bytes"):
                await producer.send(row(10_001, 0))
        else:
            await producer.send(row(1_000_000, 0))
            await producer.flushed()

    run(program)
