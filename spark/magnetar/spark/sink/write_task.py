"""One task of a write: rows to entries, entries to producers, skipping stored ones.

A task has one producer name, which its partition number gives it, on every partition of every topic that it
writes to. Brokers let a name in once: an attempt that runs beside another one waits until that has gone, and
then sees in the last sequence id what it has left. So it does not matter which attempt of them wins.

The caller's thread takes rows from Spark and encodes them, and a thread with an event loop publishes.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine, Iterable
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final, TypeVar

from magnetar.client.client import Client
from magnetar.client.errors import ClientError
from magnetar.client.transactions.coordinators import Coordinators
from magnetar.common.naming.topic_name import TopicName
from magnetar.common.naming.txn_id import Action, TxnId
from magnetar.common.obs.logs import get_logger
from magnetar.spark.sink.commit_log import TaskCommit
from magnetar.spark.sink.entries import EntryLimits, OutgoingEntry, entries_of, windows
from magnetar.spark.sink.errors import WITHOUT_DEDUPLICATION, NotDeduplicated, SinkError
from magnetar.spark.sink.options import SinkOptions
from magnetar.spark.sink.producer import SequencedProducer
from magnetar.spark.sink.routing import HASHES, partition_of
from magnetar.spark.sink.rows import OutgoingRow, RowEncoder
from magnetar.spark.sink.sequence_numbers import NONE_YET, Numbering, PlainNumbers, Resumption, RowNumbers
from magnetar.spark.sink.value_schema import ValueSchema, value_encoder

if TYPE_CHECKING:
    import pyarrow as pa

log = get_logger(__name__)

T = TypeVar("T")

PRODUCERS_MAX: Final = 1_000
"""Partitions of topics that one task writes to at once; one more is an error, which names the way out."""

PENDING_BYTES_MAX: Final = 32 * 1024 * 1024
"""Bytes in flight of all producers together; at this many, sending waits."""

EARLIER_TRY_FACTOR: Final = 30
"""A later try of a task may run beside an earlier one, and waits so many times longer for the name: Spark
ends it when the earlier one is done."""


@dataclass(frozen=True, slots=True)
class Written:
    """Result of a task; rows that an earlier attempt had published count as `found`."""

    published: int
    found: int
    commit: TaskCommit | None = None
    """The transaction to commit; None without transactions, and without rows."""


@dataclass(frozen=True, slots=True)
class TaskIdentity:
    """Identity of a task, the same for all its attempts except their number."""

    query_id: str
    partition: int
    batch: int
    numbering: Numbering

    attempt: int = 0
    """Which try it is, from 0."""

    @property
    def producer_name(self) -> str:
        return f"spark-{self.query_id}-{self.partition}"


def write_rows(
    batches: Iterable[pa.RecordBatch],
    options: SinkOptions,
    identity: TaskIdentity,
    schema: ValueSchema | None = None,
    *,
    in_transaction: bool = False,
) -> Written:
    """Publish the rows of a task; returns once all are durable. `schema` is that of the column value.
    `in_transaction`: in one that the driver commits, and that is aborted here if the task fails.

    Raises SinkError, ClientError, RowsDiffer.
    """
    encoder = RowEncoder(options.topic, None if schema is None else value_encoder(schema))
    numbers = PlainNumbers() if in_transaction else RowNumbers(identity.numbering, identity.batch)
    limits = EntryLimits(options.batching, options.batch_messages_max, options.batch_bytes_max)
    with _Loop() as loop:
        publishing = loop.run(_opened(options, identity, schema, in_transaction))
        under_way: Future[None] | None = None
        try:
            places = _Places(loop, publishing, options, identity, numbers)
            for window in windows(row for batch in batches for row in encoder.rows(batch)):
                entries = entries_of(window, places.place, numbers, limits)
                # One window is encoded while the one before is published.
                if under_way is not None:
                    under_way.result()
                under_way = loop.start(publishing.publish(entries))
            if under_way is not None:
                under_way.result()
            written = loop.run(publishing.finish())
            if isinstance(numbers, PlainNumbers) and publishing.txn is not None:
                commit = TaskCommit(identity.partition, publishing.txn, numbers.rows, numbers.checksum)
                return replace(written, commit=commit)
            return written
        finally:
            if under_way is not None:
                under_way.cancel()
            loop.run(publishing.close())


class _Loop:
    """A thread with an event loop, ended with the block."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="magnetar-sink", daemon=True)

    def __enter__(self) -> _Loop:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def start(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return self.start(work).result()


class _Places:
    """Chooses the topic of rows; asks for the partitions of a topic when it first sees it."""

    def __init__(
        self,
        loop: _Loop,
        publishing: Publishing,
        options: SinkOptions,
        identity: TaskIdentity,
        numbers: RowNumbers | PlainNumbers,
    ) -> None:
        self._loop = loop
        self._publishing = publishing
        self._hash = HASHES[options.hashing]
        self._start = identity.partition
        self._numbers = numbers
        self._partitions: dict[str, list[str]] = {}
        self._row = 0

    def place(self, row: OutgoingRow) -> str:
        partitions = self._partitions.get(row.topic)
        if partitions is None:
            partitions = self._loop.run(self._publishing.partitions(row.topic))
            self._partitions[row.topic] = partitions
            # With more partitions than before rows go elsewhere: the rows are not what they were, either.
            self._numbers.mix(f"{row.topic} {len(partitions)}".encode())
        self._row += 1
        return partitions[partition_of(row.key, self._row - 1, self._start, len(partitions), self._hash)]


@dataclass(slots=True)
class _Partition:
    producer: SequencedProducer
    resumption: Resumption | None
    """None in a transaction: nothing of an earlier attempt is there."""
    checked: bool
    """Whether the broker is known to deduplicate it."""


@dataclass(slots=True)
class _Counts:
    published: int = 0
    found: int = 0
    checked_topics: set[str] = field(default_factory=set)


class Publishing:
    """The producers of one task. All methods in one event loop."""

    def __init__(
        self,
        client: Client,
        options: SinkOptions,
        identity: TaskIdentity,
        schema: ValueSchema | None = None,
        *,
        in_transaction: bool = False,
    ) -> None:
        self._client = client
        self._coordinators = client.coordinators if in_transaction else None
        self.txn: TxnId | None = None
        """The transaction of this attempt, from its first row on."""
        self._finished = False
        self._schema = schema
        self._options = options
        self._identity = identity
        self._open: dict[str, _Partition] = {}
        self._counts = _Counts()

    async def partitions(self, topic: str) -> list[str]:
        """The names to publish to. Raises ClientError."""
        return await self._client.partitions(topic)

    async def publish(self, entries: list[OutgoingEntry]) -> None:
        """Send what is not stored of these, in order. Raises SinkError, ClientError, RowsDiffer."""
        for entry in entries:
            partition = self._open.get(entry.topic) or await self._opened(entry.topic)
            if partition.resumption is None:
                self._counts.published += len(entry.rows)
                await partition.producer.send(entry.after(partition.producer.last_sequence_id))
                continue
            if not partition.checked:
                await self._check(partition, entry)
            stored = partition.resumption.stored(entry.sequence_ids)
            self._counts.found += stored
            self._counts.published += len(entry.rows) - stored
            if stored < len(entry.rows):
                await partition.producer.send(entry.without(stored) if stored else entry)
        producers = [partition.producer for partition in self._open.values()]
        if sum(producer.pending_bytes for producer in producers) > PENDING_BYTES_MAX:
            for producer in producers:
                await producer.flushed()

    async def finish(self) -> Written:
        """Wait until everything is durable. Raises ClientError, RowsDiffer."""
        for partition in self._open.values():
            if partition.resumption is not None:
                partition.resumption.finish()
        for partition in self._open.values():
            await partition.producer.flushed()
        self._finished = True
        return Written(self._counts.published, self._counts.found)

    async def close(self) -> None:
        await asyncio.gather(*(partition.producer.close() for partition in self._open.values()))
        if self._coordinators is not None and self.txn is not None and not self._finished:
            try:
                await self._coordinators.end(self.txn, Action.ABORT)
            except ClientError as error:
                log.warning("transaction not aborted, it times out", txn=str(self.txn), error=str(error))
        await self._client.close()

    async def _opened(self, topic: str) -> _Partition:
        if len(self._open) >= PRODUCERS_MAX:
            raise SinkError(
                f"a task writes to more than {PRODUCERS_MAX} topics or partitions: repartition the rows by "
                "their topic and key before the write"
            )
        if self._coordinators is not None:
            producer = await self._in_transaction(self._coordinators, topic)
            partition = self._open[topic] = _Partition(producer, None, checked=True)
            return partition
        producer = await self._connected(topic)
        try:
            resumption = self._resumption(producer)
        except BaseException:
            await producer.close()
            raise
        # Who knows the name counts its sequence ids.
        checked = (
            self._options.deduplication == "none"
            or producer.last_sequence_id != NONE_YET
            or TopicName.parse(topic).base.full in self._counts.checked_topics
        )
        partition = self._open[topic] = _Partition(producer, resumption, checked)
        return partition

    async def _in_transaction(self, coordinators: Coordinators, topic: str) -> SequencedProducer:
        """Opens a producer whose topic takes part in the transaction; publishing to a topic that deduplicates
        goes on after a lost connection.
        """
        if self.txn is None:
            self.txn = await coordinators.begin(self._options.transaction_timeout)
        await coordinators.add_topics(self.txn, [topic])
        try:
            return await self._connected(topic, self.txn, deduplicated=True)
        except NotDeduplicated:
            return await self._connected(topic, self.txn, deduplicated=False)

    async def _connected(
        self, topic: str, txn: TxnId | None = None, *, deduplicated: bool | None = None
    ) -> SequencedProducer:
        if deduplicated is None:
            deduplicated = self._options.deduplication != "none"
        producer = SequencedProducer(
            self._client,
            topic,
            self._identity.producer_name,
            self._options.compression_type,
            deduplicated=deduplicated,
            schema=None if self._schema is None else self._schema.wire(),
            txn=txn,
        )
        factor = EARLIER_TRY_FACTOR if self._identity.attempt else 1
        await producer.open_when_free(self._options.busy_timeout * factor)
        return producer

    def _resumption(self, producer: SequencedProducer) -> Resumption:
        identity = self._identity
        subject = f"{producer.topic}: producer {producer.name!r}"
        return Resumption(identity.numbering, identity.batch, producer.last_sequence_id, subject)

    async def _check(self, partition: _Partition, entry: OutgoingEntry) -> None:
        """Publish the first message of all and ask what the broker knows of it. Raises NotDeduplicated.

        Brokers of Magnetar have refused the producer by now; others do not say whether they deduplicate a
        topic, only what the last sequence id of a name is.
        That may be a later one then: another attempt of the task had the name in between.
        """
        topic = entry.topic
        await partition.producer.send(entry.only(1))
        await partition.producer.flushed()
        await partition.producer.close()
        partition.producer = await self._connected(topic)
        if partition.producer.last_sequence_id < entry.sequence_ids[0]:
            raise NotDeduplicated(f"{topic}: {WITHOUT_DEDUPLICATION}. One message was published to find out")
        partition.resumption = self._resumption(partition.producer)
        partition.checked = True
        self._counts.checked_topics.add(TopicName.parse(topic).base.full)
        # It will be found, and is this attempt's own.
        self._counts.published += 1
        self._counts.found -= 1


async def _opened(
    options: SinkOptions, identity: TaskIdentity, schema: ValueSchema | None, in_transaction: bool
) -> Publishing:
    client = Client.with_options(options.client_options())
    return Publishing(client, options, identity, schema, in_transaction=in_transaction)
