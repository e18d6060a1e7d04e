"""The decisions of a query's driver: which transactions make up each of its batches.

Spark runs a batch again whose commit did not return. So the transactions of a batch are written down before
the first of them is committed; a driver that comes to the batch again commits those, and aborts what its own
tasks published. The log is a topic of the query. A driver that opens it shuts out the one before; a
subscription keeps what is needed.
"""

from __future__ import annotations

import asyncio
import json
import uuid
from dataclasses import dataclass
from typing import Any, Final

from magnetar.client.client import PAUSE_S_MAX, Client
from magnetar.client.consumer import Consumer
from magnetar.client.errors import ClientError, Refused
from magnetar.client.messages import Incoming, Outgoing
from magnetar.client.partition_consumer import ConsumerOptions
from magnetar.client.partition_producer import ProducerOptions
from magnetar.client.producer import Producer
from magnetar.common.naming.txn_id import TxnId
from magnetar.common.wire.pulsar_pb2 import ServerError
from magnetar.spark.sink.errors import SinkError

SUBSCRIPTION: Final = "spark"
_OPENED_BY: Final = "opened"


@dataclass(frozen=True, slots=True)
class TaskCommit:
    """The transaction of a task, to be committed."""

    partition: int
    """Number of the task in its batch."""
    txn: TxnId
    rows: int
    checksum: int
    """Checksum over all rows, in their order."""

    def same_rows(self, other: TaskCommit) -> bool:
        return (self.rows, self.checksum) == (other.rows, other.checksum)


@dataclass(frozen=True, slots=True)
class Decision:
    """The transactions of a batch."""

    batch: int
    tasks: tuple[TaskCommit, ...]
    done: bool = False
    """Whether all of them are committed."""

    def encode(self) -> bytes:
        tasks = [[task.partition, *task.txn, task.rows, task.checksum] for task in self.tasks]
        return json.dumps({"batch": self.batch, "done": self.done, "tasks": tasks}).encode()

    @classmethod
    def decode(cls, data: bytes) -> Decision:
        """Raises SinkError for what no driver wrote."""
        try:
            found: dict[str, Any] = json.loads(data)
            tasks = tuple(
                TaskCommit(partition, TxnId(most, least), rows, checksum)
                for partition, most, least, rows, checksum in found["tasks"]
            )
            return cls(int(found["batch"]), tasks, bool(found["done"]))
        except (ValueError, KeyError, TypeError) as error:
            raise SinkError(
                f"a message of the topic of commits is no decision ({error}): give the query a topic of its "
                "own with the option commit.topic"
            ) from error


class CommitLog:
    """The log of one query, opened by its driver for one batch; on one event loop."""

    def __init__(self, consumer: Consumer, producer: Producer, last: Decision | None) -> None:
        self._consumer = consumer
        self._producer = producer
        self.last = last
        """The newest decision; None before the first one."""

    @staticmethod
    async def open(client: Client, topic: str, busy_s_max: float) -> CommitLog:
        """Shuts out earlier drivers and reads up to here. Raises ClientError, SinkError."""
        consumer = await _when_free(client, topic, busy_s_max)
        producer: Producer | None = None
        try:
            options = ProducerOptions(batching=False, fencing=True)
            producer = await Producer.open(client, topic, options, lambda tags, entry: None)
            me = uuid.uuid4().hex
            await producer.send(Outgoing(b"", properties={_OPENED_BY: me}))
            await producer.flush()
            last = await _read_to(consumer, me, client.options.operation_timeout_s)
            return CommitLog(consumer, producer, last)
        except BaseException:
            if producer is not None:
                await producer.close()
            await consumer.close()
            raise

    async def decide(self, decision: Decision) -> None:
        """Appends a decision; it is durable on return. Raises ClientError, also if another driver has opened
        the log since.
        """
        await self._producer.send(Outgoing(decision.encode()))
        await self._producer.flush()
        self.last = decision

    async def close(self) -> None:
        await self._producer.close()
        await self._consumer.close()


async def _when_free(client: Client, topic: str, busy_s_max: float) -> Consumer:
    """Subscribes; waits for an earlier driver's subscription to end."""
    loop = asyncio.get_running_loop()
    deadline, pause = loop.time() + busy_s_max, 0.1
    options = ConsumerOptions(subscription=SUBSCRIPTION, earliest=True)
    while True:
        try:
            return await Consumer.open(client, [topic], options)
        except Refused as refused:
            if refused.code != ServerError.ConsumerBusy or loop.time() + pause > deadline:
                raise
        await asyncio.sleep(pause)
        pause = min(pause * 2, PAUSE_S_MAX)


async def _read_to(consumer: Consumer, me: str, timeout_s: float) -> Decision | None:
    """Returns the last decision before this driver's own mark; acknowledges what is before it."""
    kept: Incoming | None = None
    while True:
        try:
            async with asyncio.timeout(timeout_s):
                message = await consumer.receive()
        except TimeoutError:
            raise ClientError(
                "the topic of commits was not read to its end in time; run the query again"
            ) from None
        opened_by = message.properties.get(_OPENED_BY)
        if opened_by is None:
            if kept is not None:
                consumer.ack(kept)
            kept = message
            continue
        consumer.ack(message)
        if opened_by == me:
            return None if kept is None else Decision.decode(kept.payload)
