"""Refused messages: what is logged of them."""

from __future__ import annotations

from dataclasses import dataclass

from magnetar.broker.topics.publish.pending_publish import RefusalLog
from magnetar.common.obs.log_limit import LINES_EVERY_S
from structlog.testing import capture_logs


@dataclass
class Clock:
    now: float = 1_000.0

    def monotonic(self) -> float:
        return self.now

    def wall_ms(self) -> int:
        return 0


def test_a_topic_that_refuses_everything_logs_one_line_a_second_with_how_many_entries_it_was() -> None:
    clock = Clock()
    refusals = RefusalLog("persistent://public/default/topic", clock)
    with capture_logs() as lines:
        for _ in range(1_024):
            refusals.note("producer", 5, "free disk space is under the log's reserve")
            clock.now += 1 / 512
    assert len(lines) == 2, "two seconds"
    first, second = lines
    assert (first["event"], first["topic"]) == ("publish refused", "persistent://public/default/topic")
    assert (first["producer"], first["error"]) == ("producer", "free disk space is under the log's reserve")
    assert first["entries"] == 5, "the first is told at once"
    assert second["entries"] == 5 * 512, "those between are not forgotten"


def test_a_refusal_after_a_quiet_time_is_told_at_once() -> None:
    clock = Clock()
    refusals = RefusalLog("topic", clock)
    with capture_logs() as lines:
        refusals.note("a", 1, "full")
        clock.now += LINES_EVERY_S
        refusals.note("b", 2, "full")
    assert [(line["producer"], line["entries"]) for line in lines] == [("a", 1), ("b", 2)]
