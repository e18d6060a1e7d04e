"""Which entries tasks read: every one that is wanted once, whatever the sizes."""

from __future__ import annotations

import random
from itertools import pairwise
from typing import Any

import pytest
from magnetar.common.offload.offload_pb2 import COMPLETE, Ledger
from magnetar.ledger.cold.layout import Manifest, Part
from magnetar.spark.ledgers.ledger_source import ServiceAddress
from magnetar.spark.message_ids import BEGINNING, END, MessageAt
from magnetar.spark.source.reading_plan import (
    LOOK_BACK_ENTRIES,
    ColdLedger,
    TimeBounds,
    TopicLedgers,
    TopicRange,
    cold_ledger,
    earlier_entries,
    look_back,
    share_out,
    spans,
    topic_ranges,
)

SERVICE = ServiceAddress("127.0.0.1:1")
OWNER = ServiceAddress("127.0.0.1:2")


def ledger(ledger_id: int, entries: int, *, cold: bool = False, closed: bool = True, **more: Any) -> Ledger:
    made = Ledger(
        ledger_id=ledger_id,
        last_entry_id=entries - 1,
        entries=entries,
        byte_length=entries * 100,
        closed_ms=1 if closed else 0,
        **more,
    )
    if cold:
        made.offload.state = COMPLETE
        made.offload.location = "file:///cold"
        made.offload.path = f"t/n/topic/ledger={ledger_id}/attempt={ledger_id:032x}"
        made.offload.manifest_sha256 = ledger_id.to_bytes(32, "big")
    return made


def manifest(of: Ledger, parts: int) -> Manifest:
    entries = of.entries
    cuts = [entries * number // parts for number in range(parts + 1)]
    made = [
        Part(
            name=f"part-{number:05d}.parquet",
            first_entry_id=low,
            last_entry_id=high - 1,
            rows=high - low,
            entries=high - low,
            raw_entries=0,
            byte_length=10,
            sha256=b"s" * 32,
            payload_crc32c=0,
            payload_bytes=(high - low) * 100,
            raw_crc32c=0,
            raw_bytes=0,
        )
        for number, (low, high) in enumerate(pairwise(cuts))
        if high > low
    ]
    return Manifest(
        topic="persistent://t/n/topic",
        creation_id=1,
        ledger_id=of.ledger_id,
        ledger_key=0,
        attempt=b"a" * 16,
        first_entry_id=0,
        last_entry_id=entries - 1,
        entries=entries,
        rows=entries,
        raw_entries=0,
        first_index=0,
        max_publish_time_ms=0,
        exact=False,
        parts=tuple(made),
        created_ms=0,
        release="",
    )


def nowhere(cold: ColdLedger) -> Manifest | None:
    return None


def topic(*ledgers: Ledger) -> TopicLedgers:
    return TopicLedgers(
        topic="persistent://t/n/topic",
        partition=-1,
        creation_id=1,
        service=SERVICE,
        owner=OWNER,
        ledgers=ledgers,
    )


def entries_of(tasks: list[tuple[TopicRange, ...]]) -> list[tuple[int, int]]:
    return [
        (each.ledger_id, entry)
        for task in tasks
        for work in task
        for each in work.ranges
        for entry in range(each.first_entry_id, each.last_entry_id + 1)
    ]


@pytest.mark.parametrize("seed", range(30))
def test_every_wanted_entry_is_in_one_range_of_one_task_in_order(seed: int) -> None:
    chance = random.Random(seed)
    ledgers, manifests, ledger_id = [], {}, 0
    for _ in range(chance.randint(1, 6)):
        ledger_id += chance.randint(1, 3)
        made = ledger(ledger_id, chance.randint(1, 40), cold=chance.random() < 0.5)
        cold = cold_ledger(made)
        if cold is not None and chance.random() < 0.9:
            manifests[cold] = manifest(made, chance.randint(1, 4))
        ledgers.append(made)
    described = topic(*ledgers)
    places = sorted(
        MessageAt(chance.randint(0, ledger_id + 1), chance.randint(0, 40), chance.choice((-1, 0, 2)))
        for _ in range(2)
    )
    start, end = chance.choice((BEGINNING, places[0])), chance.choice((END, places[1]))
    task_bytes = chance.choice((1, 150, 1_000, 1_000_000))
    ranges = topic_ranges(described, start, end, manifests.get, range_bytes=task_bytes)
    tasks = share_out([(described, start, end, ranges)], task_bytes, joins=True)
    everything = [(each.ledger_id, entry) for each in ledgers for entry in range(each.entries)]
    expected = [
        (number, entry)
        for number, entry in everything
        if (number, entry) >= start[:2]
        and ((number, entry) < end[:2] or ((number, entry) == end[:2] and end.batch_index > 0))
    ]
    assert entries_of(tasks) == expected
    if task_bytes == 1:
        assert all(len(work.ranges) == 1 for task in tasks for work in task)
    for task in tasks:
        for work in task:
            assert all((each.part is None) != (each.source is None) for each in work.ranges)


def test_small_topics_share_a_task_and_large_ledgers_have_several() -> None:
    small = [(topic(ledger(number, 5)), BEGINNING, END) for number in range(1, 9)]
    shared = share_out(
        [
            (each, start, end, topic_ranges(each, start, end, nowhere, range_bytes=10_000))
            for each, start, end in small
        ],
        10_000,
        joins=False,
    )
    assert len(shared) == 1
    assert len(shared[0]) == 8
    large = topic(ledger(1, 1_000))
    ranges = list(topic_ranges(large, BEGINNING, END, nowhere, range_bytes=10_000))
    assert len(ranges) == 10
    assert len(share_out([(large, BEGINNING, END, ranges)], 10_000, joins=False)) == 10


def test_the_open_ledger_is_read_through_its_owner() -> None:
    described = topic(ledger(1, 5), ledger(2, 5, closed=False))
    closed, opened = topic_ranges(described, BEGINNING, END, nowhere, range_bytes=10_000)
    assert closed.source is not None
    assert closed.source.service == SERVICE
    assert opened.source is not None
    assert opened.source.service == OWNER


def test_ledgers_are_left_out_by_time_only_where_clocks_cannot_matter() -> None:
    old = ledger(1, 5, max_publish_time_ms=1_000, opened_ms=500)
    unknown = ledger(2, 5, opened_ms=1_000)
    young = ledger(3, 5, max_publish_time_ms=900_000, opened_ms=800_000)
    described = topic(old, unknown, young)

    def found(times: TimeBounds) -> list[int]:
        ranges = topic_ranges(described, BEGINNING, END, nowhere, range_bytes=10_000, times=times)
        return [each.ledger_id for each in ranges]

    assert found(TimeBounds(start_ms=1_000)) == [1, 2, 3]
    assert found(TimeBounds(start_ms=1_001)) == [2, 3]
    assert found(TimeBounds(end_ms=700_000)) == [1, 2]
    assert found(TimeBounds(end_ms=799_000)) == [1, 2, 3]


def test_only_some_ledgers_are_read_where_that_is_said() -> None:
    described = topic(ledger(1, 5), ledger(2, 5), ledger(3, 5))
    ranges = topic_ranges(described, BEGINNING, END, nowhere, range_bytes=10_000, only={2})
    assert [each.ledger_id for each in ranges] == [2]


def test_spans_end_before_their_end_unless_it_is_inside_a_batch() -> None:
    ledgers = [ledger(1, 5), ledger(3, 5)]
    assert [each[1:] for each in spans(ledgers, MessageAt(1, 2), MessageAt(3, 1))] == [(2, 4), (0, 0)]
    assert [each[1:] for each in spans(ledgers, MessageAt(1, 2), MessageAt(3, 1, 2))] == [(2, 4), (0, 1)]
    assert [each[1:] for each in spans(ledgers, MessageAt(2, 9), END)] == [(0, 4)]
    assert list(spans(ledgers, MessageAt(1, 5), MessageAt(3, 0))) == []


def test_looking_back_goes_through_the_range_and_then_before_it_and_has_a_bound() -> None:
    described = topic(ledger(1, 3_000), ledger(2, 10, cold=True), ledger(4, 20))
    ranges = list(topic_ranges(described, MessageAt(4, 5), END, nowhere, range_bytes=500))
    before = earlier_entries(described, ranges[0])
    assert [(each.ledger_id, each.first_entry_id, each.last_entry_id) for each in before] == [
        (4, 0, 4),
        (2, 0, 9),
        (1, 3_000 - (LOOK_BACK_ENTRIES - 15), 2_999),
    ]
    work = TopicRange(described.topic, -1, BEGINNING, END, tuple(ranges), before)
    back = [
        (each.ledger_id, entry)
        for each in look_back(work, 4, 12)
        for entry in range(each.last_entry_id, each.first_entry_id - 1, -1)
    ]
    assert len(back) == LOOK_BACK_ENTRIES
    assert back[0] == (4, 11)
    assert back == sorted(set(back), reverse=True)


def test_a_manifest_that_could_not_be_read_is_no_reason_to_leave_its_ledger_out() -> None:
    described = topic(ledger(1, 5, cold=True))
    (found,) = topic_ranges(described, BEGINNING, END, nowhere, range_bytes=10_000)
    assert found.source is not None
