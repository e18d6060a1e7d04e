"""What a stream reader plans: offsets, batches and what it says of topics that come, go or lose messages."""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from typing import Any

import pytest
from magnetar.common.errors import TopicNotFound
from magnetar.spark.message_ids import MessageAt
from magnetar.spark.rows.columns import chosen, frame_schema
from magnetar.spark.source.range_reader import MessagesLost
from magnetar.spark.source.read_task import RowMaker
from magnetar.spark.source.reading_plan import TimeBounds, TopicLedgers
from magnetar.spark.source_options import BadOption, SourceOptions, parse_options
from magnetar.spark.stream import reader as reader_module
from magnetar.spark.stream.offsets import BadOffset, TopicOffset, from_json, since_of
from magnetar.spark.stream.reader import TopicStreamReader
from pyspark.sql.datasource import InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxBytes, ReadMaxRows

from tests.unit.spark.stream.topic_world import SERVICE, World

A, B = "persistent://public/default/a", "persistent://public/default/b"


class Brokers:
    """What brokers say of topics; stands in the place of a Describer."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.monkeypatch = monkeypatch
        self.worlds: dict[str, TopicLedgers] = {}
        self.firsts: dict[int, list[int]] = {}
        self.acknowledged: list[dict[str, MessageAt]] = []
        self.subscribed: list[str] = []
        monkeypatch.setattr(reader_module, "Describer", lambda options: self)
        monkeypatch.setattr(reader_module, "Acknowledger", lambda options: self)
        monkeypatch.setattr(reader_module, "DESCRIBE_MAX_S", -1.0)
        monkeypatch.setattr(reader_module, "FIND_S", -1.0)

    def have(
        self, topic: str, counts: dict[int, list[int]], creation_id: int = 7, gone: Sequence[int] = ()
    ) -> None:
        """A topic with these messages by entry; of its ledgers some are gone."""
        described = World(counts, self.monkeypatch, self.firsts).described
        self.worlds[topic] = TopicLedgers(
            topic=topic,
            partition=-1,
            creation_id=creation_id,
            service=SERVICE,
            owner=SERVICE,
            ledgers=tuple(each for each in described.ledgers if each.ledger_id not in gone),
        )

    def topics(self) -> list[str]:
        return sorted(self.worlds)

    def describe_all(self, topics: Sequence[str]) -> list[TopicLedgers]:
        if any(topic not in self.worlds for topic in topics):
            raise TopicNotFound("gone")
        return [self.worlds[topic] for topic in topics]

    def subscribe(self, topics: Sequence[str]) -> None:
        self.subscribed += topics

    def acknowledge(self, offsets: dict[str, TopicOffset], described: dict[str, TopicLedgers]) -> None:
        self.acknowledged.append({topic: offset.at for topic, offset in offsets.items()})

    def close(self) -> None:
        """Nothing to close."""


@pytest.fixture
def brokers(monkeypatch: pytest.MonkeyPatch) -> Brokers:
    return Brokers(monkeypatch)


def reader(**options: str) -> TopicStreamReader:
    given = {"topics.pattern": ".*", **{name.replace("_", "."): text for name, text in options.items()}}
    parsed: SourceOptions = parse_options(given)
    return TopicStreamReader(RowMaker.of(parsed, frame_schema(chosen((), value=False), None)))


def at(offset: dict[str, Any]) -> dict[str, tuple[int, int, int]]:
    return {
        topic: (each.at.ledger_id, each.at.entry_id, each.index) for topic, each in from_json(offset).items()
    }


def entries(partitions: Sequence[InputPartition]) -> list[tuple[str, int, int, int]]:
    return [
        (work.topic, each.ledger_id, each.first_entry_id, each.last_entry_id)
        for partition in partitions
        for work in partition.value
        for each in work.ranges
    ]


def test_a_stream_begins_where_the_options_say(brokers: Brokers) -> None:
    brokers.have(A, {3: [2, 2], 5: [2]})
    assert at(reader().initialOffset()) == {A: (3, 0, 0)}
    assert at(reader(starting="latest").initialOffset()) == {A: (5, 1, 6)}
    assert at(reader(starting=f'{{"{A}": "3:1"}}').initialOffset()) == {A: (3, 1, 2)}


def test_a_topic_without_messages_has_an_offset_before_whatever_comes(brokers: Brokers) -> None:
    brokers.have(A, {})
    read = reader(starting="latest")
    start = read.initialOffset()
    brokers.have(A, {3: [1], 4: [2, 2]}, gone=[3])
    end = read.latestOffset(start, ReadAllAvailable())
    assert at(end) == {A: (4, 2, 5)}
    assert entries(read.partitions(start, end)) == [(A, 4, 0, 1)]


def test_batches_follow_one_another_without_gap_and_are_planned_the_same_again(brokers: Brokers) -> None:
    brokers.have(A, {3: [2, 2, 2], 5: [2, 2]})
    read = reader(maxRowsPerTrigger="4")
    limit = read.getDefaultReadLimit()
    assert limit == ReadMaxRows(4)
    assert reader(maxBytesPerTrigger="5").getDefaultReadLimit() == ReadMaxBytes(5)
    offset = read.initialOffset()
    found = []
    for _ in range(5):
        end = read.latestOffset(offset, limit)
        planned = entries(read.partitions(offset, end))
        assert entries(reader().partitions(offset, end)) == planned
        found += planned
        offset = end
    assert found == [(A, 3, 0, 1), (A, 3, 2, 2), (A, 5, 0, 0), (A, 5, 1, 1)]
    assert read.partitions(offset, offset) == []


def test_the_target_of_a_run_over_what_there_is_does_not_move(brokers: Brokers) -> None:
    brokers.have(A, {3: [2, 2]})
    read = reader()
    start = read.initialOffset()
    read.prepareForTriggerAvailableNow()
    brokers.have(A, {3: [2, 2, 2], 5: [2]})
    brokers.have(B, {6: [1]})
    end = read.latestOffset(start, ReadAllAvailable())
    assert at(end) == {A: (3, 2, 4)}
    assert read.latestOffset(end, ReadAllAvailable()) == end


def test_new_topics_are_read_from_their_first_message_and_subscribed(brokers: Brokers) -> None:
    brokers.have(A, {3: [2]})
    read = reader(subscription="s", service_url="pulsar://127.0.0.1:1")
    start = read.initialOffset()
    brokers.have(B, {4: [1], 6: [1, 1]}, gone=[4])
    end = read.latestOffset(start, ReadAllAvailable())
    assert at(end)[B] == (6, 2, 3)
    assert entries(read.partitions(start, end)) == [(A, 3, 0, 0), (B, 6, 0, 1)]
    assert brokers.subscribed == [A, B]
    assert brokers.acknowledged == [{A: MessageAt(3, 0)}]
    read.latestOffset(end, ReadAllAvailable())
    assert brokers.acknowledged[-1] == {A: MessageAt(3, 1), B: MessageAt(6, 2)}


def test_a_topic_that_is_deleted_is_said_and_can_be_borne(brokers: Brokers) -> None:
    brokers.have(A, {3: [2]})
    brokers.have(B, {4: [2]})
    read = reader()
    offset = read.latestOffset(read.initialOffset(), ReadAllAvailable())
    del brokers.worlds[B]
    with pytest.raises(MessagesLost, match="deleted"):
        read.latestOffset(offset, ReadAllAvailable())
    bearing = reader(failOnDataLoss="false")
    brokers.have(A, {3: [2, 2]})
    end = bearing.latestOffset(offset, ReadAllAvailable())
    assert at(end) == {A: (3, 2, 4), B: (4, 1, 2)}
    assert entries(bearing.partitions(offset, end)) == [(A, 3, 1, 1)]


def test_messages_trimmed_before_they_were_read_are_said_and_can_be_borne(brokers: Brokers) -> None:
    brokers.have(A, {3: [2, 2], 5: [2]})
    start = reader(maxRowsPerTrigger="2").initialOffset()
    offset = reader().latestOffset(start, ReadMaxRows(2))
    brokers.have(A, {3: [2, 2], 5: [2]}, gone=[3])
    with pytest.raises(MessagesLost, match="2 messages"):
        reader().latestOffset(offset, ReadAllAvailable())
    bearing = reader(failOnDataLoss="false")
    end = bearing.latestOffset(offset, ReadAllAvailable())
    assert entries(bearing.partitions(offset, end)) == [(A, 5, 0, 0)]


def test_a_topic_made_anew_is_read_from_its_beginning_where_that_is_to_be_borne(brokers: Brokers) -> None:
    brokers.have(A, {3: [2, 2]})
    offset = reader().latestOffset(reader().initialOffset(), ReadAllAvailable())
    brokers.have(A, {9: [1]}, creation_id=8)
    with pytest.raises(MessagesLost, match="recreated"):
        reader().latestOffset(offset, ReadAllAvailable())
    bearing = reader(failOnDataLoss="false")
    end = bearing.latestOffset(offset, ReadAllAvailable())
    assert from_json(end)[A] == TopicOffset(8, MessageAt(9, 1), 1)
    assert entries(bearing.partitions(offset, end)) == [(A, 9, 0, 0)]


def test_brokers_are_not_asked_again_and_again_by_a_query_without_news(
    brokers: Brokers, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = [100.0]
    monkeypatch.setattr(reader_module, "DESCRIBE_MAX_S", 5.0)
    monkeypatch.setattr(reader_module, "FIND_S", 5.0)
    monkeypatch.setattr("magnetar.spark.stream.reader.monotonic", lambda: clock[0])
    asked: list[float] = []
    takes_s = [0.0]
    describe_all = brokers.describe_all

    def slowly(topics: Sequence[str]) -> list[TopicLedgers]:
        asked.append(clock[0])
        clock[0] += takes_s[0]
        return describe_all(topics)

    monkeypatch.setattr(brokers, "describe_all", slowly)
    brokers.have(A, {3: [2]})
    read = reader()
    offset = read.initialOffset()
    for took, pause_s in ((0.0, 0.1), (0.5, 2.0), (10.0, 5.0)):
        takes_s[0] = took
        clock[0] += 60.0
        asked.clear()
        read.latestOffset(offset, ReadAllAvailable())
        clock[0] += pause_s * 0.9
        read.latestOffset(offset, ReadAllAvailable())
        assert len(asked) == 1
        clock[0] += pause_s * 0.2
        read.latestOffset(offset, ReadAllAvailable())
        assert len(asked) == 2


def test_a_topic_that_a_run_does_not_aim_at_keeps_its_place(brokers: Brokers) -> None:
    brokers.have(A, {3: [2]})
    brokers.have(B, {4: [2]})
    read = reader()
    offset = read.latestOffset(read.initialOffset(), ReadAllAvailable())
    there = brokers.worlds.pop(B)
    read.prepareForTriggerAvailableNow()
    brokers.worlds[B] = there
    assert read.latestOffset(offset, ReadAllAvailable()) == offset


def test_the_starting_time_of_a_query_stays_that_of_its_beginning(brokers: Brokers) -> None:
    brokers.have(A, {3: [2], 5: [2], 7: [2]})
    for ledger, newest_ms in zip(brokers.worlds[A].ledgers, (1_000, 2_000, 3_000), strict=True):
        ledger.max_publish_time_ms = newest_ms
    start = reader(starting_time="1500").initialOffset()
    # Begun again, with "an hour ago" of a later hour: what came meanwhile is behind the checkpoint.
    for options in ({"starting_time": "2500"}, {}):
        again = reader(**options)
        end = again.latestOffset(start, ReadAllAvailable())
        planned = again.partitions(start, end)
        assert entries(planned) == [(A, 5, 0, 0), (A, 7, 0, 0)]
        tasks: Sequence[Any] = pickle.loads(pickle.dumps(planned))
        assert {task.times for task in tasks} == {TimeBounds(start_ms=1_500)}
        assert since_of(end) == 1_500
    with pytest.raises(BadOffset):
        reader().latestOffset({**start, "since_ms": "yesterday"}, ReadAllAvailable())


def test_a_stream_begins_with_a_message_inside_of_a_batch(brokers: Brokers) -> None:
    brokers.have(A, {3: [2, 2], 5: [2]})
    for entry_id in (0, 1):
        start = reader(starting=f'{{"{A}": "3:{entry_id}:-1:1"}}').initialOffset()
        end = reader().latestOffset(start, ReadAllAvailable())
        (task,) = reader().partitions(start, end)
        assert task.value[0].start == MessageAt(3, entry_id, 1)
        assert entries([task])[0] == (A, 3, entry_id, 1)
        assert reader().latestOffset(end, ReadAllAvailable()) == end


def test_ledgers_before_the_starting_time_are_not_begun_with(brokers: Brokers) -> None:
    brokers.have(A, {3: [2], 5: [2], 7: [2]})
    old, middle, _ = brokers.worlds[A].ledgers
    old.max_publish_time_ms, middle.max_publish_time_ms = 1_000, 2_000
    assert at(reader(starting_time="1500").initialOffset()) == {A: (5, 0, 2)}
    assert at(reader(starting_time="1000").initialOffset()) == {A: (3, 0, 0)}


def test_options_without_stream_support_are_refused() -> None:
    for options in ({"ending": "latest"}, {"ending_time": "5"}, {"ledgers": '{"a": [1]}'}):
        with pytest.raises(BadOption):
            reader(**options)


def test_tasks_get_a_reader_without_connections(brokers: Brokers) -> None:
    brokers.have(A, {3: [2]})
    read = reader()
    read.initialOffset()
    sent = pickle.loads(pickle.dumps(read))
    assert list(sent.read(InputPartition(None))) == []
