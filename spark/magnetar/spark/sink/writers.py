"""The sink of `format("magnetar")`: `df.write` and `df.writeStream` publish rows to topics.

What Spark may do to a write, and what becomes of it:

Where the broker has transactions, each task publishes in one of its own, which it aborts when it fails. The
driver writes down which transactions make up the batch, and commits them (`batch_commit`): rows appear when
their batch is committed, and a batch that is run again is committed once, whatever order its rows have.
Without transactions:

- *A task is tried again* (its process died, say): the same producer name and sequence ids, so that the broker
  drops what the first try has stored.
- *A task runs twice at once* (speculation, or an executor that was given up and lives): the second one waits
  for the name, and finds everything stored.
- *A query is started again*: it repeats the batch that was not committed, under the same numbers, since name
  and numbers come from the checkpoint's query id, the task's partition and the batch.
- *A batch comes again with other rows* (a shuffle that has another order, other partitions): found by the
  check in the sequence ids, and refused before anything of it is lost.
- *A query stands still for long in the middle of a batch*: brokers forget names that were not used for
  brokerDeduplicationProducerInactivityTimeoutMinutes (6 hours unless configured otherwise), and the batch is
  published as a whole once more.
- *A write fails for good*: what was published stays published, as topics have no way back. A new write is
  another one, unless it is given the query.id of the first.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from magnetar.common.obs.logs import get_logger
from magnetar.spark.sink.commit_log import TaskCommit
from magnetar.spark.sink.errors import SinkError
from magnetar.spark.sink.options import SinkOptions, parse_sink_options
from magnetar.spark.sink.rows import check_columns
from magnetar.spark.sink.sequence_numbers import BATCHES, ONE_BATCH
from magnetar.spark.sink.transactions import abort_tasks, commit_tasks, use_transactions
from magnetar.spark.sink.value_schema import ValueSchema, value_schema
from magnetar.spark.sink.write_task import TaskIdentity, write_rows
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)
from pyspark.taskcontext import TaskContext

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

log = get_logger(__name__)

QUERY_ID_PROPERTY: Final = "sql.streaming.queryId"
BATCH_ID_PROPERTY: Final = "streaming.sql.batchId"
"""Local properties by which Spark tells the tasks of a micro-batch its query and number."""


@dataclass(frozen=True)
class TaskWritten(WriterCommitMessage):
    """The report of a task to the driver."""

    published: int
    found: int
    query_id: str = ""
    commit: TaskCommit | None = None


def batch_writer(options: Mapping[str, str], schema: StructType, overwrite: bool) -> TopicWriter:
    """Implements `DataSource.writer`. Raises BadOption, BadColumns, SinkError."""
    parsed, values = _checked(options, schema, overwrite)
    # Made once for a write, on the driver: all tries of its tasks have the same.
    return TopicWriter(parsed, parsed.query_id or uuid.uuid4().hex, values, use_transactions(parsed))


def stream_writer(options: Mapping[str, str], schema: StructType, overwrite: bool) -> TopicStreamWriter:
    """Implements `DataSource.streamWriter`. Raises BadOption, BadColumns, SinkError."""
    parsed, values = _checked(options, schema, overwrite)
    return TopicStreamWriter(parsed, values, use_transactions(parsed))


class TopicWriter(DataSourceArrowWriter):
    """`df.write.format("magnetar").mode("append")`."""

    def __init__(
        self, options: SinkOptions, query_id: str, values: ValueSchema | None, transactions: bool
    ) -> None:
        self._options = options
        self._query_id = query_id
        self._values = values
        self._transactions = transactions

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Publish the rows of one task."""
        numbered = self._options.batch_id is not None
        task = _task()
        identity = TaskIdentity(
            self._query_id,
            task.partitionId(),
            self._options.batch_id or 0,
            BATCHES if numbered else ONE_BATCH,
            task.attemptNumber(),
        )
        return _write(iterator, self._options, identity, self._values, self._transactions)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        if self._transactions:
            commit_tasks(self._options, self._query_id, self._options.batch_id, _commits(messages))
        _log_written(self._query_id, messages)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        if self._transactions:
            abort_tasks(self._options, _commits(messages))
        else:
            _log_aborted(self._query_id, messages)


class TopicStreamWriter(DataSourceStreamArrowWriter):
    """`df.writeStream.format("magnetar")`."""

    def __init__(self, options: SinkOptions, values: ValueSchema | None, transactions: bool) -> None:
        self._options = options
        self._values = values
        self._transactions = transactions

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Publish the rows of one task of a micro-batch."""
        task = _task()
        query, batch = task.getLocalProperty(QUERY_ID_PROPERTY), task.getLocalProperty(BATCH_ID_PROPERTY)
        if not query or not batch:
            raise SinkError(
                "Spark does not say which query and which batch this task belongs to: streams are written in "
                "micro-batches, with a checkpoint"
            )
        identity = TaskIdentity(
            self._options.query_id or query.replace("-", ""),
            task.partitionId(),
            int(batch),
            BATCHES,
            task.attemptNumber(),
        )
        return _write(iterator, self._options, identity, self._values, self._transactions)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        if self._transactions and (query_id := _query_of(messages)):
            commit_tasks(self._options, query_id, batchId, _commits(messages))
        _log_written(f"batch {batchId}", messages)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        if self._transactions:
            abort_tasks(self._options, _commits(messages))
        else:
            _log_aborted(f"batch {batchId}", messages)


def _checked(
    options: Mapping[str, str], schema: StructType, overwrite: bool
) -> tuple[SinkOptions, ValueSchema | None]:
    parsed = parse_sink_options(options)
    if overwrite:
        raise SinkError(
            'topics are only added to: write with mode("append"), a stream with outputMode("append")'
        )
    is_encoded = parsed.value_format != "raw"
    check_columns(schema, parsed.topic, encoded=is_encoded)
    if not is_encoded:
        return parsed, None
    kind = next(field.dataType for field in schema.fields if field.name.lower() == "value")
    return parsed, value_schema(parsed.value_format, parsed.value_schema, kind)


def _write(
    rows: Iterator[pa.RecordBatch],
    options: SinkOptions,
    identity: TaskIdentity,
    values: ValueSchema | None,
    transactions: bool,
) -> TaskWritten:
    written = write_rows(rows, options, identity, values, in_transaction=transactions)
    return TaskWritten(written.published, written.found, identity.query_id, written.commit)


def _commits(messages: list[WriterCommitMessage | None]) -> list[TaskCommit]:
    """Returns what the tasks have to be committed."""
    told = [message.commit for message in messages if isinstance(message, TaskWritten)]
    return [each for each in told if each is not None]


def _query_of(messages: list[WriterCommitMessage | None]) -> str:
    """Returns the query's id, which Spark tells tasks alone; empty without tasks."""
    return next((message.query_id for message in messages if isinstance(message, TaskWritten)), "")


def _task() -> TaskContext:
    task = TaskContext.get()
    assert task is not None, "writers write in tasks of Spark"
    return task


def _log_written(write: str, messages: list[WriterCommitMessage | None]) -> None:
    told = [message for message in messages if isinstance(message, TaskWritten)]
    found = sum(message.found for message in told)
    if found:
        log.info(
            "rows were published by an earlier attempt",
            write=write,
            rows=found,
            published=sum(message.published for message in told),
        )


def _log_aborted(write: str, messages: list[WriterCommitMessage | None]) -> None:
    done = sum(isinstance(message, TaskWritten) for message in messages)
    log.warning(
        "write failed; published rows stay, and a retry with the same query.id does not publish them again",
        write=write,
        tasks_done=done,
        tasks=len(messages),
    )
