"""Thresholds: which topics a pass compacts, and what it reports of those that wait for long."""

from __future__ import annotations

import asyncio
from typing import Any, cast

from magnetar.broker.compaction.monitor import DUE_SECONDS, HELD_BYTES, OVERDUE_MS, CompactionMonitor
from magnetar.broker.policies.config import CompactionConfig
from magnetar.broker.topics.compaction_state import NEVER_COMPACTED
from structlog.testing import capture_logs

from tests.unit.broker.compaction.fakes import FakeClock, FakeTopic


class Starts:
    """Writes down which topics a pass starts."""

    def __init__(self) -> None:
        self.topics: list[FakeTopic] = []

    def start(self, topic: FakeTopic) -> bool:
        self.topics.append(topic)
        return True


def monitor_of(*topics: FakeTopic) -> tuple[CompactionMonitor, Starts, FakeClock]:
    starts, clock = Starts(), FakeClock()
    loaded = {topic.name.full: topic for topic in topics}
    monitor = CompactionMonitor(
        lambda: cast(Any, loaded), cast(Any, starts), CompactionConfig(), cast(Any, clock)
    )
    return monitor, starts, clock


def look(monitor: CompactionMonitor) -> None:
    asyncio.run(monitor.look())


def test_topics_beyond_their_threshold_are_compacted_and_those_with_one_are_held() -> None:
    without = FakeTopic("without", threshold=0, uncompacted=10_000)
    at_threshold = FakeTopic("at", threshold=100, uncompacted=100)
    beyond = FakeTopic("beyond", threshold=100, uncompacted=101)
    monitor, starts, _ = monitor_of(without, at_threshold, beyond)
    look(monitor)
    assert starts.topics == [beyond]
    assert [topic.view.held for topic in (without, at_threshold, beyond)] == [False, True, True]
    assert HELD_BYTES._value.get() == 201
    assert without.compaction is at_threshold.compaction is NEVER_COMPACTED, "nothing is kept for idle topics"


def test_a_topic_over_its_threshold_for_a_day_is_reported_once() -> None:
    topic = FakeTopic(threshold=100, uncompacted=500)
    monitor, _, clock = monitor_of(topic)
    look(monitor)
    assert DUE_SECONDS._value.get() == 0
    topic.compaction.last_error = "the disk is full"
    clock.now_ms += OVERDUE_MS
    with capture_logs() as logs:
        look(monitor)
        look(monitor)
    assert [(each["topic"], each["hours"], each["error"]) for each in logs] == [
        (topic.name.full, 24, "the disk is full")
    ]
    assert DUE_SECONDS._value.get() == OVERDUE_MS / 1000
    topic.uncompacted = 0
    look(monitor)
    assert DUE_SECONDS._value.get() == 0
    assert topic.compaction.due_since_ms == 0


def test_a_topic_that_is_closing_is_left_alone() -> None:
    topic = FakeTopic(threshold=100, uncompacted=500)
    cast(Any, topic.state).closing = True
    monitor, starts, _ = monitor_of(topic)
    look(monitor)
    assert starts.topics == []
