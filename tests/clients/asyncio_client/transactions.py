"""Scenarios of transactions."""

from __future__ import annotations

import asyncio
from typing import Any

from magnetar.client import Batching, Consumer, MessageId, Producer, Transaction
from magnetar.client.errors import TransactionConflict, TransactionEnded
from magnetar.client.transactions.transaction import TransactionState

from tests.clients.asyncio_client.harness import (
    RECEIVE_S,
    Scene,
    expect,
    expect_equal,
    expect_refused,
    expect_silence,
    numbered,
    receive,
    send,
    texts,
)

TIMEOUT_S = 300


async def _begin(scene: Scene) -> Transaction:
    found: Transaction = await scene.client.transaction(TIMEOUT_S)
    return found


async def _send_together(
    producer: Producer[Any], transaction: Transaction, prefix: str, count: int
) -> list[MessageId]:
    """Send the texts PREFIX0, PREFIX1, ... without waiting in between; returns once they are stored."""
    contents = [f"{prefix}{number}".encode() for number in range(count)]
    return await asyncio.gather(*(producer.send(each, transaction=transaction) for each in contents))


async def txn_commit(scene: Scene) -> None:
    producer, consumer = await scene.producer(), await scene.consumer()
    transaction = await _begin(scene)
    await send(producer, numbered(0, 10), transaction=transaction)
    await expect_silence(consumer)
    await transaction.commit()
    messages = await receive(consumer, 10)
    expect_equal(texts(messages), numbered(0, 10), "committed messages")
    expect_equal(transaction.state, TransactionState.COMMITTED, "state")
    await consumer.acknowledge(messages)
    await scene.backlog_is(0)


async def txn_abort(scene: Scene) -> None:
    producer, consumer = await scene.producer(), await scene.consumer()
    transaction = await _begin(scene)
    await send(producer, numbered(0, 10), transaction=transaction)
    await transaction.abort()
    await send(producer, ["after"])
    expect_equal(texts(await receive(consumer, 1)), ["after"], "message after an abort")
    await expect_silence(consumer)
    await consumer.seek(MessageId.EARLIEST)
    messages = await receive(consumer, 1)
    expect_equal(texts(messages), ["after"], "message after a seek")
    await expect_silence(consumer)
    await consumer.acknowledge(messages)
    await scene.backlog_is(0)


async def txn_batches(scene: Scene) -> None:
    producer = await scene.producer(batching=Batching(max_messages=10, max_delay_s=1.0))
    consumer = await scene.consumer()
    first, second = await _begin(scene), await _begin(scene)
    for transaction, prefix in ((first, "a"), (second, "b")):
        ids = await _send_together(producer, transaction, prefix, 20)
        expect_equal(len({each.position for each in ids}), 2, f"batches of {prefix}")
    await first.abort()
    await second.commit()
    expect_equal(
        texts(await receive(consumer, 20)), [f"b{each}" for each in range(20)], "messages in batches"
    )
    await expect_silence(consumer)


async def txn_partitioned(scene: Scene) -> None:
    await scene.ask("partition", scene.topic(), 3)
    producer, consumer = await scene.producer(), await scene.consumer()
    aborted, committed = await _begin(scene), await _begin(scene)
    for transaction, prefix in ((aborted, "a"), (committed, "c")):
        ids = await _send_together(producer, transaction, prefix, 9)
        expect_equal({each.partition for each in ids}, {0, 1, 2}, f"partitions of {prefix}")
    await aborted.abort()
    await committed.commit()
    messages = await receive(consumer, 9)
    expect_equal(sorted(texts(messages)), [f"c{each}" for each in range(9)], "messages of three partitions")
    await expect_silence(consumer)


async def txn_order(scene: Scene) -> None:
    producer, consumer = await scene.producer(), await scene.consumer()
    await send(producer, ["before"])
    first, second = await _begin(scene), await _begin(scene)
    await send(producer, ["first"], transaction=first)
    await send(producer, ["second"], transaction=second)
    await send(producer, ["plain"])
    expect_equal(texts(await receive(consumer, 1)), ["before"], "message before the transactions")
    await second.commit()
    await expect_silence(consumer)
    await first.commit()
    expect_equal(texts(await receive(consumer, 3)), ["first", "second", "plain"], "messages in order")


async def txn_ack(scene: Scene) -> None:
    producer, consumer = await scene.producer(), await scene.consumer(type="shared")
    await send(producer, numbered(0, 4))
    messages = await receive(consumer, 4)
    committed, aborted = await _begin(scene), await _begin(scene)
    await consumer.acknowledge(messages[:2], transaction=committed)
    await consumer.acknowledge(messages[2], transaction=aborted)
    consumer.redeliver_unacknowledged()
    expect_equal(texts(await receive(consumer, 1)), ["message 3"], "message that is not acknowledged")
    await expect_silence(consumer)
    await committed.commit()
    await aborted.abort()
    await consumer.close()
    following = await scene.consumer(type="shared")
    messages = await receive(following, 2)
    expect_equal(sorted(texts(messages)), ["message 2", "message 3"], "messages after the ends")
    await expect_silence(following)
    await following.acknowledge(messages)
    await scene.backlog_is(0)


async def txn_ack_cumulative(scene: Scene) -> None:
    producer, consumer = await scene.producer(), await scene.consumer()
    await send(producer, numbered(0, 10))
    messages = await receive(consumer, 10)
    aborted = await _begin(scene)
    await consumer.acknowledge_cumulative(messages[7], transaction=aborted)
    await aborted.abort()
    committed = await _begin(scene)
    await consumer.acknowledge_cumulative(messages[4], transaction=committed)
    await committed.commit()
    await scene.backlog_is(5)
    await consumer.close()
    following = await scene.consumer()
    expect_equal(texts(await receive(following, 5)), numbered(5, 10), "messages of the next consumer")
    await expect_silence(following)


async def txn_ack_conflict(scene: Scene) -> None:
    producer, consumer = await scene.producer(), await scene.consumer(type="shared")
    await send(producer, ["message"])
    (message,) = await receive(consumer, 1)
    first, second = await _begin(scene), await _begin(scene)
    await consumer.acknowledge(message.id, transaction=first)
    await expect_refused(
        "acknowledgement of a message that another transaction acknowledged",
        consumer.acknowledge(message.id, transaction=second),
        (TransactionConflict, ExceptionGroup),
    )
    await first.commit()
    await second.abort()
    await scene.backlog_is(0)


async def txn_transform(scene: Scene) -> None:
    inputs, outputs = await scene.producer(), await scene.producer("-out")
    consumer, result = await scene.consumer(type="shared"), await scene.consumer("-out")
    await send(inputs, numbered(0, 10))
    rounds = done = aborts = 0
    while done < 10:
        (message,) = await receive(consumer, 1)
        transaction = await _begin(scene)
        await asyncio.gather(
            outputs.send(b"of " + message.data, transaction=transaction),
            consumer.acknowledge(message, transaction=transaction),
        )
        if rounds % 3 == 0 and aborts < 3:
            aborts += 1
            await transaction.abort()
            consumer.redeliver_unacknowledged()
        else:
            await transaction.commit()
            done += 1
        rounds += 1
    found = sorted(texts(await receive(result, 10)))
    expect_equal(found, [f"of {each}" for each in numbered(0, 10)], "outputs")
    await expect_silence(result)
    await scene.backlog_is(0)


async def txn_timeout(scene: Scene) -> None:
    producer, consumer = await scene.producer(), await scene.consumer()
    transaction: Transaction = await scene.client.transaction(2.0)
    await send(producer, ["late"], transaction=transaction)
    await send(producer, ["plain"])
    await expect_silence(consumer)
    expect_equal(texts(await receive(consumer, 1)), ["plain"], "message behind the timeout")
    await expect_silence(consumer)
    await expect_refused("commit of a transaction that timed out", transaction.commit(), TransactionEnded)


async def txn_reader(scene: Scene) -> None:
    producer = await scene.producer()
    await send(producer, ["first"])
    behind = await _begin(scene)
    await send(producer, ["aborted"], transaction=behind)
    reader = await scene.client.create_reader(scene.topic(), MessageId.EARLIEST)
    expect(await reader.has_message_available(), "no message is available before an open transaction")
    expect_equal((await reader.read(RECEIVE_S)).data, b"first", "message before the transaction")
    expect(not await reader.has_message_available(), "a message of an open transaction is available")
    await behind.abort()
    expect(not await reader.has_message_available(), "a message of an aborted transaction is available")
    async with scene.client.transaction(TIMEOUT_S) as transaction:
        await send(producer, ["committed"], transaction=transaction)
    expect(await reader.has_message_available(), "no committed message is available")
    expect_equal((await reader.read(RECEIVE_S)).data, b"committed", "committed message")
    expect(not await reader.has_message_available(), "a message is available at the end")


async def txn_moved(scene: Scene) -> None:
    await _disrupted(scene, "move")


async def txn_killed(scene: Scene) -> None:
    await _disrupted(scene, "kill")


async def _disrupted(scene: Scene, verb: str) -> None:
    """Messages and acknowledgements of transactions that were open during a disruption end as they should."""
    inputs, outputs = await scene.producer(), await scene.producer("-out")
    consumer = await scene.consumer(type="shared")
    # Before the messages: those of a ledger that ends, as with a move, go if no subscription keeps them.
    await (await scene.consumer("-out")).close()
    await send(inputs, numbered(0, 2))
    messages = await receive(consumer, 2)
    committed, aborted = await _begin(scene), await _begin(scene)
    await send(outputs, ["committed"], transaction=committed)
    await send(outputs, ["aborted"], transaction=aborted)
    await consumer.acknowledge(messages[0], transaction=committed)
    await consumer.acknowledge(messages[1], transaction=aborted)
    await scene.ask(verb, scene.topic("-out"))
    if verb == "move":
        await scene.ask(verb, scene.topic())
    await committed.commit()
    await aborted.abort()
    await send(outputs, ["after"])
    result = await scene.consumer("-out")
    found: dict[str, None] = {}
    while len(found) < 2:  # Other programs move the topic, too: then messages may repeat.
        found.update(dict.fromkeys(texts(await receive(result, 1))))
    expect_equal(list(found), ["committed", "after"], "outputs")
    consumer.redeliver_unacknowledged()
    (again,) = await receive(consumer, 1)
    expect_equal(texts([again]), ["message 1"], "input of the aborted transaction")
    await consumer.acknowledge(again)
    # A plain acknowledgement without a receipt is lost where it meets a move of another program: the message
    # comes again.
    repeated: list[str] = []
    repeating = asyncio.create_task(_acknowledge_all(consumer, repeated))
    try:
        await scene.backlog_is(0)
    finally:
        repeating.cancel()
        await asyncio.gather(repeating, return_exceptions=True)
    expect(set(repeated) <= {"message 1"}, f"repeated in the end: {repeated}")


async def _acknowledge_all(consumer: Consumer[Any], repeated: list[str]) -> None:
    async for message in consumer:
        repeated.append(message.data.decode())
        await consumer.acknowledge(message)
