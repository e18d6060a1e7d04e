"""Rows of frames as messages: columns, options, entries."""

from __future__ import annotations

import base64
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from magnetar.common.wire.pulsar_pb2 import SingleMessageMetadata
from magnetar.spark.sink.entries import EntryLimits, OutgoingEntry, batch_parts, entries_of, windows
from magnetar.spark.sink.errors import BadColumns, BadOption, BadRow
from magnetar.spark.sink.options import SinkOptions, parse_sink_options
from magnetar.spark.sink.rows import OutgoingRow, RowEncoder, check_columns
from magnetar.spark.sink.sequence_numbers import BATCHES, RowNumbers
from pyspark.sql.types import (
    BinaryType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructType,
    TimestampType,
)

TOPIC = "persistent://public/default/t"
LIMITS = EntryLimits("key", 1_000, 131_072)


def rows_of(default_topic: str = TOPIC, **columns: Any) -> list[OutgoingRow]:
    return list(RowEncoder(default_topic).rows(pa.RecordBatch.from_pydict(columns)))


def single_of(row: OutgoingRow) -> SingleMessageMetadata:
    return SingleMessageMetadata.FromString(row.encoded)


def test_every_column_stands_in_the_metadata() -> None:
    times = pa.array([1_700_000_000_123_456], pa.timestamp("us", tz="UTC"))
    (row,) = rows_of(
        value=["hello"],
        key=["k"],
        ordering_key=[b"\x00o"],
        properties=pa.array([[("b", "2"), ("a", "1")]], pa.map_(pa.string(), pa.string())),
        event_time=times,
        deliver_at=[1_800_000_000_000],
        topic=["other"],
    )
    single = single_of(row)
    assert (row.topic, row.payload, row.deliver_at_ms) == (
        "persistent://public/default/other",
        b"hello",
        1_800_000_000_000,
    )
    assert (single.partition_key, single.ordering_key, single.event_time) == (
        "k",
        b"\x00o",
        1_700_000_000_123,
    )
    assert [(each.key, each.value) for each in single.properties] == [("a", "1"), ("b", "2")]
    assert single.payload_size == 5
    assert not single.null_value


def test_the_order_of_a_map_makes_no_difference() -> None:
    kind = pa.map_(pa.string(), pa.string())
    one, other = rows_of(
        value=["v", "v"], properties=pa.array([[("a", "1"), ("b", "2")], [("b", "2"), ("a", "1")]], kind)
    )
    assert one.encoded == other.encoded


def test_null_is_a_message_without_value_and_an_empty_text_is_one() -> None:
    null, empty, said = rows_of(value=[None, "", "x"], key=["k", "k", "k"], null_value=[None, False, True])
    assert (single_of(null).null_value, single_of(empty).null_value) == (True, False)
    assert single_of(said).null_value
    assert said.payload == b""


def test_an_empty_key_is_a_key_and_bytes_travel_as_base64() -> None:
    (empty,) = rows_of(value=["v"], key=[""])
    assert single_of(empty).HasField("partition_key")
    (raw,) = rows_of(value=["v"], key_bytes=[b"\xff\x00"])
    assert single_of(raw).partition_key == base64.b64encode(b"\xff\x00").decode()
    assert single_of(raw).partition_key_b64_encoded


def test_a_row_without_topic_or_with_a_bad_one_is_refused_with_what_to_do() -> None:
    with pytest.raises(BadRow, match="give the option topic"):
        rows_of("", value=["v"], topic=pa.array([None], pa.string()))
    with pytest.raises(BadRow, match="topic 'a/b' of a row"):
        rows_of(value=["v"], topic=["a/b"])
    with pytest.raises(BadRow, match="1970"):
        rows_of(value=["v"], event_time=[-1])


def test_wrong_columns_are_named_all_at_once() -> None:
    schema = StructType().add("value", IntegerType()).add("kee", StringType()).add("properties", StringType())
    with pytest.raises(BadColumns) as caught:
        check_columns(schema, "")
    for part in ("value is int", "kee is not a column", "properties is string", "no topic given"):
        assert part in str(caught.value)
    with pytest.raises(BadColumns, match="the column value"):
        check_columns(StructType().add("key", StringType()), TOPIC)
    with pytest.raises(BadColumns, match="both key and key_bytes"):
        check_columns(
            StructType().add("value", StringType()).add("key", StringType()).add("key_bytes", BinaryType()),
            TOPIC,
        )


def test_every_documented_column_is_taken() -> None:
    schema = (
        StructType()
        .add("value", BinaryType())
        .add("key", StringType())
        .add("ordering_key", StringType())
        .add("properties", MapType(StringType(), StringType()))
        .add("event_time", TimestampType())
        .add("deliver_at", LongType())
        .add("topic", StringType())
    )
    check_columns(schema, "")


def test_wrong_options_are_named_all_at_once_with_what_is_possible() -> None:
    with pytest.raises(BadOption) as caught:
        parse_sink_options(
            {"topik": "t", "hashing": "md5", "batch.id": "3", "busy.timeout": "soon", "topic": "a/b"}
        )
    for part in ("did you mean topic", "one of java, murmur3", "batch.id needs query.id", "seconds", "'a/b'"):
        assert part in str(caught.value)


def test_options_are_taken_in_any_case_and_a_path_is_a_topic() -> None:
    options = parse_sink_options({"Path": "t", "BATCHING": "Plain", "checkpointLocation": "/tmp/x"})
    assert options == SinkOptions(topic=TOPIC, batching="plain")


# Entries

KEYS = st.sampled_from([None, "a", "b", "c"])


@given(
    st.lists(st.tuples(KEYS, st.binary(max_size=30), st.booleans()), max_size=60),
    st.sampled_from(["key", "plain", "none"]),
    st.integers(1, 5),
    st.integers(40, 200),
    st.integers(1, 20),
)
def test_entries_keep_every_row_once_within_limits_and_in_the_order_of_its_key(
    given_rows: list[tuple[str | None, bytes, bool]],
    batching: str,
    messages_max: int,
    bytes_max: int,
    window: int,
) -> None:
    rows = rows_of(
        value=[payload for _, payload, _ in given_rows],
        key=pa.array([key for key, _, _ in given_rows], pa.string()),
        deliver_at=pa.array([5 if later else None for _, _, later in given_rows], pa.int64()),
    )
    limits = EntryLimits(batching, messages_max, bytes_max)

    def made() -> list[OutgoingEntry]:
        numbers = RowNumbers(BATCHES, 1)
        return [
            entry
            for each in windows(iter(rows), window)
            for entry in entries_of(each, lambda row: f"{TOPIC}-{row.key}", numbers, limits)
        ]

    entries = made()
    assert entries == made(), "the same rows make the same entries"
    ids = [each for entry in entries for each in entry.sequence_ids]
    assert ids == sorted(set(ids)), "ids ascend in the order of sending"
    for key in {row.key for row in rows}:
        sent = [row for entry in entries for row in entry.rows if row.key == key]
        assert sent == [row for row in rows if row.key == key], f"messages of key {key!r} keep their order"
    for entry in entries:
        assert len(entry.rows) <= messages_max
        assert len(entry.rows) == 1 or entry.byte_length <= bytes_max
        assert len(entry.rows) == 1 or not any(row.deliver_at_ms for row in entry.rows)
        assert {f"{TOPIC}-{row.key}" for row in entry.rows} == {entry.topic}
        assert batching != "none" or len(entry.rows) == 1


def test_an_entry_has_one_key_unless_that_is_not_wanted() -> None:
    rows = rows_of(value=["1", "2", "3", "4"], key=["a", "b", "a", "b"])
    by_key = entries_of(rows, lambda row: TOPIC, RowNumbers(BATCHES, 0), LIMITS)
    assert [[row.payload for row in entry.rows] for entry in by_key] == [[b"1", b"3"], [b"2", b"4"]]
    plain = entries_of(rows, lambda row: TOPIC, RowNumbers(BATCHES, 0), EntryLimits("plain", 1_000, 1_000))
    assert [[row.payload for row in entry.rows] for entry in plain] == [[b"1", b"2", b"3", b"4"]]


def test_the_messages_of_a_batch_say_their_own_sequence_ids() -> None:
    rows = rows_of(value=["one", "two"], key=["k", "k"])
    (entry,) = entries_of(rows, lambda row: TOPIC, RowNumbers(BATCHES, 9), LIMITS)
    payload, found = b"".join(batch_parts(entry)), []
    while payload:
        size = int.from_bytes(payload[:4], "big")
        single = SingleMessageMetadata.FromString(payload[4 : 4 + size])
        found.append((single.sequence_id, single.partition_key, payload[4 + size :][: single.payload_size]))
        payload = payload[4 + size + single.payload_size :]
    assert found == [(entry.sequence_ids[0], "k", b"one"), (entry.sequence_ids[1], "k", b"two")]
