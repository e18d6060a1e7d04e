"""The words in which the status of a compaction is explained."""

from __future__ import annotations

from magnetar.broker.compaction.explanation import explain
from magnetar.broker.topics.compaction_state import CompactionState, CompactionStatus
from magnetar.common.naming.position import Position
from magnetar.ledger.compacted.figures import CompactionProgress, ViewFigures

from tests.unit.broker.compaction.fakes import FakeTopic


def test_a_topic_that_was_never_compacted_is_read_as_it_is() -> None:
    text = explain(FakeTopic(uncompacted=12_000))
    assert "No compaction has run since the topic was loaded." in text
    assert "read the topic itself" in text
    assert "12,000 bytes are not compacted yet; without a compaction threshold" in text


def test_a_view_and_a_threshold_are_named() -> None:
    topic = FakeTopic(threshold=1_000_000, uncompacted=5)
    topic.view.horizon, topic.view.figures = Position(7, 9), ViewFigures(3, 1, 1_234)
    text = explain(topic)
    assert "The compacted view ends at 7:9 and has 1,234 entries." in text
    assert "beyond the threshold of 1,000,000 bytes" in text
    assert "amaged" not in text
    topic.view.figures = ViewFigures(3, 4, 1_234, damaged=1)
    assert "Damaged or lost segments: 1 of 4; the next compaction makes them anew if" in explain(topic)


def test_each_state_of_a_run_has_its_sentence() -> None:
    topic = FakeTopic()
    state = topic.compaction = CompactionState(status=CompactionStatus.RUNNING)
    assert "waits until others of this broker end" in explain(topic)
    state.progress = CompactionProgress(entries_read=1_000, bytes_read=2_000, bytes_written=30)
    assert "1,000 entries examined, 2,000 bytes read and 30 written" in explain(topic)
    state.status, state.progress, state.last_error = CompactionStatus.ERROR, None, "the disk is full"
    assert "The last compaction failed: the disk is full." in explain(topic)
    state.status, state.duration_ms, state.removed = CompactionStatus.SUCCESS, 1_500, 42
    assert "took 1.5 s" in explain(topic)
    assert "left 42 messages out" in explain(topic)
