"""`spark.readStream.format("magnetar")`: topics as streams, their places in Spark's checkpoint.

Where a micro-batch ends is decided once, before it runs, and stands in the checkpoint; a batch that is
repeated reads the same entries again, from wherever they are by then. New partitions, and new topics of a
pattern, are read from their first message on.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from time import monotonic
from typing import TYPE_CHECKING, Any, Final

from magnetar.common.errors import TopicNotFound
from magnetar.common.obs.logs import get_logger
from magnetar.spark.message_ids import BEGINNING, MessageAt
from magnetar.spark.source.pushed_filters import PushedFilters
from magnetar.spark.source.range_reader import MessagesLost
from magnetar.spark.source.read_task import ReadTask, RowMaker
from magnetar.spark.source.reading_plan import TimeBounds, TopicLedgers
from magnetar.spark.source.task_plan import Wanted, plan_tasks
from magnetar.spark.source.topic_description import Describer, bounds_of
from magnetar.spark.source_options import BadOption, SourceOptions
from magnetar.spark.stream.admission import Waiting, admitted, begin_of, checked_start, waiting_behind
from magnetar.spark.stream.offsets import UNKNOWN, TopicOffset, from_json, since_of, to_json
from magnetar.spark.stream.subscription import Acknowledger
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

log = get_logger(__name__)

FIND_S: Final = 5.0
"""Seconds between two lookups of new partitions and topics."""

DESCRIBE_S: Final = 0.1
"""Seconds between two checks for new messages."""

DESCRIBE_SHARE: Final = 4
"""So many times as long as they took is waited before the next ones: brokers with many topics are not kept
busy by a query that has nothing to do."""

DESCRIBE_MAX_S: Final = 5.0


class TopicStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """One for each query, in a process of the driver; only what `read` needs goes to tasks."""

    def __init__(self, rows: RowMaker) -> None:
        """Raises BadOption for what streams cannot do."""
        _check(rows.options)
        self._rows = rows
        self._options = rows.options
        self._times = TimeBounds(start_ms=rows.options.starting_time_ms)
        """Start time of a query that begins; later its offsets hold it."""
        self._describer = Describer(rows.options)
        self._described: dict[str, TopicLedgers] = {}
        self._said_gone: set[str] = set()
        self._names: list[str] = []
        self._found_at = self._describe_at = -math.inf
        self._target: dict[str, TopicOffset] | None = None
        self._acknowledger: Acknowledger | None = None

    def __getstate__(self) -> dict[str, Any]:
        """Tasks need neither connections nor what the driver knows."""
        return {"_rows": self._rows}

    # What Spark calls on the driver

    def initialOffset(self) -> dict[str, Any]:
        offsets = {}
        for described in self._describe(self._describer.topics()):
            at, _ = bounds_of(self._options, described)
            offsets[described.topic] = begin_of(described, self._first_in_time(described, at))
        if self._options.subscription:
            self._acknowledging().subscribe(list(offsets))
        return to_json(offsets, self._times.start_ms)

    def getDefaultReadLimit(self) -> ReadLimit:
        options = self._options
        if options.max_rows_per_trigger:
            return ReadMaxRows(options.max_rows_per_trigger)
        if options.max_bytes_per_trigger:
            return ReadMaxBytes(options.max_bytes_per_trigger)
        return ReadAllAvailable()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        offsets = from_json(start)
        self._acknowledge(offsets)  # Spark plans behind what it has committed.
        waiting = self._waiting(offsets)
        rows = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        size = limit.max_bytes if isinstance(limit, ReadMaxBytes) else None
        if rows is not None and self._options.max_bytes_per_trigger:
            size = self._options.max_bytes_per_trigger
        ends = admitted(waiting, rows=rows, size=size)
        found = {each.described.topic: end for each, end in zip(waiting, ends, strict=True)}
        return to_json({**offsets, **found}, since_of(start))

    def reportLatestOffset(self) -> dict[str, Any] | None:
        return None

    def prepareForTriggerAvailableNow(self) -> None:
        self._target = {}
        for described in self._describe(self._describer.topics()):
            self._target[described.topic] = begin_of(described, described.end)

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        before, after = from_json(start), from_json(end)
        times = TimeBounds(start_ms=since_of(end))
        moved = [topic for topic, offset in after.items() if before.get(topic) != offset]
        wanted = []
        for described in self._covering(moved, after):
            begin = before.get(described.topic, TopicOffset(described.creation_id, BEGINNING, UNKNOWN))
            finish = after[described.topic]
            if described.creation_id != finish.creation_id:
                self._lost(f"{described.topic} was deleted and made anew while a batch of it was to be read")
                continue
            if begin.creation_id != finish.creation_id:
                begin = TopicOffset(finish.creation_id, BEGINNING, UNKNOWN)
            begin = self._checked(described, begin)
            wanted.append(Wanted(described, begin.at, finish.at))
        tasks = plan_tasks(
            wanted,
            task_bytes=self._options.task_bytes,
            joins=self._rows.joins,
            times=times,
            fail_on_data_loss=self._options.fail_on_data_loss,
        )
        return [ReadTask(work, times) for work in tasks]

    def commit(self, end: dict[str, Any]) -> None:
        self._acknowledge(from_json(end))

    def stop(self) -> None:
        self._describer.close()
        if self._acknowledger is not None:
            self._acknowledger.close()

    # What Spark calls in tasks

    def read(self, partition: InputPartition) -> Iterator[Any]:
        if isinstance(partition, ReadTask):  # Spark makes an empty one where there is nothing.
            for work in partition.value:
                yield from self._rows.batches(work, partition.times, PushedFilters())

    # Inside

    def _waiting(self, offsets: Mapping[str, TopicOffset]) -> list[Waiting]:
        """Return the parts of topics to read, without deleted topics and those outside this run's target."""
        names, described_now = self._describe_now()
        for topic in offsets:
            if topic not in names and topic not in self._said_gone:
                self._said_gone.add(topic)
                self._lost(f"{topic} was deleted, or is not among the topics to be read any more")
        new = [name for name in names if name not in offsets]
        if new and self._options.subscription:
            self._acknowledging().subscribe(new)
        waiting = []
        for described in described_now:
            topic = described.topic
            target = None
            if self._target is not None:
                target = self._target.get(topic)
                if target is None:
                    continue
            start = offsets.get(topic) or begin_of(described, described.first)
            start = self._checked(described, start)
            waiting.append(waiting_behind(described, start, target))
        return waiting

    def _describe_now(self) -> tuple[list[str], list[TopicLedgers]]:
        """Names and descriptions as they are, or were a moment ago: Spark asks again and again."""
        now = monotonic()
        if now < self._describe_at and all(name in self._described for name in self._names):
            return self._names, [self._described[name] for name in self._names]
        if now - self._found_at >= FIND_S:
            self._find(now)
        try:
            described = self._describe(self._names)
        except TopicNotFound:
            self._find(now)
            described = self._describe(self._names)
        after = monotonic()
        pause_s = min(max(DESCRIBE_S, DESCRIBE_SHARE * (after - now)), DESCRIBE_MAX_S)
        self._describe_at = after + pause_s
        return self._names, described

    def _find(self, now: float) -> None:
        self._names = self._describer.topics()
        self._found_at = now

    def _acknowledge(self, offsets: Mapping[str, TopicOffset]) -> None:
        if self._options.subscription:
            missing = [topic for topic in offsets if topic not in self._described]
            if missing:
                self._describe_now()
            self._acknowledging().acknowledge(offsets, self._described)

    def _describe(self, topics: Sequence[str]) -> list[TopicLedgers]:
        described = self._describer.describe_all(topics)
        self._described.update((each.topic, each) for each in described)
        return described

    def _covering(self, topics: Sequence[str], ends: Mapping[str, TopicOffset]) -> list[TopicLedgers]:
        """Descriptions that reach as far as the ends: those of this batch's planning, mostly."""
        old = [
            topic
            for topic in topics
            if topic not in self._described or self._described[topic].end < ends[topic].at
        ]
        for topic in old:
            try:
                self._describe([topic])
            except TopicNotFound:
                self._described.pop(topic, None)
                self._lost(f"{topic} was deleted while a batch of it was to be read")
        return [self._described[topic] for topic in topics if topic in self._described]

    def _checked(self, described: TopicLedgers, start: TopicOffset) -> TopicOffset:
        return checked_start(described, start, fail_on_data_loss=self._options.fail_on_data_loss)

    def _first_in_time(self, described: TopicLedgers, at: MessageAt) -> MessageAt:
        """Without the ledgers that are wholly before `starting.time`."""
        for ledger in described.ledgers:
            if ledger.ledger_id >= at.ledger_id and self._times.may_hold(ledger):
                return max(at, MessageAt(ledger.ledger_id, 0))
        return max(at, described.end) if self._times.start_ms is not None else at

    def _lost(self, what: str) -> None:
        if self._options.fail_on_data_loss:
            raise MessagesLost(f"{what}; set failOnDataLoss to false to go on without it")
        log.warning("messages lost", reason=what)

    def _acknowledging(self) -> Acknowledger:
        if self._acknowledger is None:
            self._acknowledger = Acknowledger(self._options)
        return self._acknowledger


def _check(options: SourceOptions) -> None:
    if options.ending is not None or options.ending_by_topic or options.ending_time_ms is not None:
        raise BadOption('a stream has no end: "ending" and "ending.time" are for batches')
    if options.ledgers is not None:
        raise BadOption('"ledgers" is for batches')
