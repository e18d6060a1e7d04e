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

from magnetar.client.back_off import BackOff
from magnetar.client.client import Client
from magnetar.client.consumer.consumer import Consumer
from magnetar.client.errors import ClientError, ConsumerBusy, OperationTimeout
from magnetar.client.messages import Message
from magnetar.client.producer.producer import Producer
from magnetar.common.naming.txn_id import TxnId
from magnetar.spark.sink.errors import SinkError

SUBSCRIPTION: Final = "spark"
RETRY_S_MAX: Final = 5.0
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

    def __init__(self, consumer: Consumer[bytes], producer: Producer[bytes], last: Decision | None) -> None:
        self._consumer = consumer
        self._producer = producer
        self.last = last
        """The newest decision; None before the first one."""

    @staticmethod
    async def open(client: Client, topic: str, busy_s_max: float) -> CommitLog:
        """Shuts out earlier drivers and reads up to here. Raises ClientError, SinkError."""
        consumer = await _when_free(client, topic, busy_s_max)
        producer: Producer[bytes] | None = None
        try:
            producer = await client.create_producer(
                topic,
                access_mode="exclusive_with_fencing",
                batching=None,
                send_timeout_s=0,  # What a decision waits for is bounded by the time for reconnection.
            )
            me = uuid.uuid4().hex
            await producer.send(b"", properties={_OPENED_BY: me})
            last = await _read_to(consumer, me, client.parts.options.operation_timeout_s)
            return CommitLog(consumer, producer, last)
        except BaseException:
            if producer is not None:
                await producer.close(flush=False)
            await consumer.close()
            raise

    async def decide(self, decision: Decision) -> None:
        """Appends a decision; it is durable on return. Raises ClientError, also if another driver has opened
        the log since.
        """
        await self._producer.send(decision.encode())
        self.last = decision

    async def close(self) -> None:
        await self._producer.close(flush=False)  # Nothing is on its way but after an error.
        await self._consumer.close()


async def _when_free(client: Client, topic: str, busy_s_max: float) -> Consumer[bytes]:
    """Subscribes; waits for an earlier driver's subscription to end."""
    loop = asyncio.get_running_loop()
    deadline, pauses = loop.time() + busy_s_max, BackOff(most_s=RETRY_S_MAX)
    while True:
        try:
            return await client.subscribe(topic, SUBSCRIPTION, initial_position="earliest")
        except ConsumerBusy:
            pause_s = pauses.next_s()
            if loop.time() + pause_s > deadline:
                raise
        await asyncio.sleep(pause_s)


async def _read_to(consumer: Consumer[bytes], me: str, timeout_s: float) -> Decision | None:
    """Returns the last decision before this driver's own mark; acknowledges what is before it."""
    kept: Message | None = None
    while True:
        try:
            message = await consumer.receive(timeout_s)
        except OperationTimeout:
            raise ClientError(
                "the topic of commits was not read to its end in time; run the query again"
            ) from None
        opened_by = message.properties.get(_OPENED_BY)
        if opened_by is None:
            if kept is not None:
                consumer.acknowledge_nowait(kept)
            kept = message
            continue
        consumer.acknowledge_nowait(message)
        if opened_by == me:
            return None if kept is None else Decision.decode(kept.data)
