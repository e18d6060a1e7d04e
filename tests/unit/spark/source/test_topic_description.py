"""From where to where a topic is read, and what tasks of a frame that Spark reads itself are given."""

from __future__ import annotations

import pytest
from magnetar.common.offload.offload_pb2 import Ledger
from magnetar.spark.ledgers.ledger_source import ServiceAddress
from magnetar.spark.message_ids import BEGINNING, MessageAt
from magnetar.spark.native.topic_frame import hadoop_path
from magnetar.spark.source.reading_plan import TopicLedgers
from magnetar.spark.source.topic_description import bounds_of, option_of
from magnetar.spark.source_options import BadOption, parse_options
from magnetar.spark.stream.subscription import last_entry_before

BASE = "persistent://public/default/t"
SERVICE = ServiceAddress("127.0.0.1:1")


def described(topic: str = BASE, **last_entries: int) -> TopicLedgers:
    ledgers = [
        Ledger(ledger_id=int(name[1:]), last_entry_id=last, entries=last + 1)
        for name, last in last_entries.items()
    ]
    return TopicLedgers(
        topic=topic, partition=-1, creation_id=1, service=SERVICE, owner=SERVICE, ledgers=tuple(ledgers)
    )


def test_a_read_is_of_everything_that_there_is_unless_something_else_is_said() -> None:
    topic = described(l3=4, l5=9)
    assert bounds_of(parse_options({"topic": BASE}), topic) == (BEGINNING, MessageAt(5, 10))
    latest = parse_options({"topic": BASE, "starting": "latest"})
    assert bounds_of(latest, topic) == (MessageAt(5, 10), MessageAt(5, 10))
    between = parse_options({"topic": BASE, "starting": "3:2", "ending": "5:1:-1:2"})
    assert bounds_of(between, topic) == (MessageAt(3, 2), MessageAt(5, 1, 2))
    beyond = parse_options({"topic": BASE, "ending": "99:0"})
    assert bounds_of(beyond, topic) == (BEGINNING, MessageAt(5, 10))
    assert bounds_of(latest, described()) == (BEGINNING, BEGINNING)


def test_options_of_a_partitioned_topic_apply_to_partitions_except_message_ids() -> None:
    partition = f"{BASE}-partition-1"
    assert option_of(parse_options({"topic": BASE, "starting": "latest"}), partition, "starting") == "latest"
    by_base = parse_options({"topic": BASE, "starting": f'{{"{BASE}": "latest"}}'})
    assert option_of(by_base, partition, "starting") == "latest"
    by_partition = parse_options({"topic": BASE, "starting": f'{{"{BASE}": "latest", "{partition}": "3:4"}}'})
    assert option_of(by_partition, partition, "starting") == MessageAt(3, 4)
    with pytest.raises(BadOption, match="has partitions"):
        option_of(parse_options({"topic": BASE, "starting": "3:4"}), partition, "starting")
    alone = parse_options({"topic": partition, "starting": "3:4"})
    assert option_of(alone, partition, "starting") == MessageAt(3, 4)


def test_acknowledgment_names_the_last_entry_before_a_position() -> None:
    topic = described(l3=4, l5=9)
    assert last_entry_before(topic, BEGINNING) is None
    assert last_entry_before(topic, MessageAt(3, 0)) is None
    assert last_entry_before(topic, MessageAt(3, 1)) == MessageAt(3, 0)
    assert last_entry_before(topic, MessageAt(5, 0)) == MessageAt(3, 4)
    assert last_entry_before(topic, MessageAt(4, 7)) == MessageAt(3, 4)
    assert last_entry_before(topic, MessageAt(5, 50)) == MessageAt(5, 9)
    assert last_entry_before(topic, MessageAt(9, 0)) == MessageAt(5, 9)


@pytest.mark.parametrize(
    ("location", "expected"),
    [
        ("file:///var/cold", "file:///var/cold/t/part"),
        ("file:///var/cold/", "file:///var/cold/t/part"),
        ("s3://bucket/prefix", "s3a://bucket/prefix/t/part"),
        ("gcs://bucket", "gs://bucket/t/part"),
        ("hdfs://host:1/dir", "hdfs://host:1/dir/t/part"),
    ],
)
def test_locations_are_named_as_hadoop_names_them(location: str, expected: str) -> None:
    assert hadoop_path(location, "t/part") == expected
