from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from magnetar.broker.dispatch.eligibility import Code, Situation, explain, reason
from magnetar.broker.reason import Reason, in_words

ROOT = Path(__file__).parents[4]


@dataclass
class Fake:
    held_back_by: Reason | None
    priority_level: int = 0

    @property
    def capacity(self) -> int:
        return 0 if self.held_back_by else 1


FREE = Fake(None)
STUCK = Fake(reason(Code.NO_PERMITS, "consumer c has given no permits"))
PLAIN = Situation(backlog=5, nothing_left=False, candidates=[FREE])
NO_CONSUMER = reason(Code.NO_CONSUMER, "no consumer is connected")


def some(code: Code) -> Reason:
    return reason(code, f"because of {code}")


@pytest.mark.parametrize(
    ("now", "codes"),
    [
        (replace(PLAIN, backlog=0, nothing_left=True), ["nothing_to_deliver"]),
        (replace(PLAIN, candidates=[]), ["no_consumer"]),
        (replace(PLAIN, candidates=[STUCK, STUCK]), ["no_permits", "no_permits"]),
        (replace(PLAIN, paused_by=some(Code.SWITCHING_CONSUMER)), ["switching_consumer"]),
        (replace(PLAIN, limited_by=some(Code.UNACKED_LIMIT)), ["unacked_limit"]),
        (
            replace(PLAIN, throttled_by=some(Code.RATE_LIMITED), fetching=some(Code.READING)),
            ["rate_limited", "reading"],
        ),
        (
            replace(
                PLAIN,
                nothing_left=True,
                kept_back=[some(Code.DELAYED_UNTIL)],
                unacknowledged=some(Code.WAITING_FOR_ACKS),
            ),
            ["delayed_until", "waiting_for_acks"],
        ),
    ],
)
def test_each_cause_stops_delivery_and_is_in_the_words(now: Situation, codes: list[str]) -> None:
    found = explain(now, NO_CONSUMER)
    assert [each.code for each in found if each.stops] == codes
    words = in_words(found)
    assert words is not None
    assert all(each.text in words for each in found)


@pytest.mark.parametrize(
    ("now", "codes"),
    [
        (PLAIN, []),
        (replace(PLAIN, candidates=[FREE, STUCK]), ["no_permits"]),
        (replace(PLAIN, redelivers=True, limited_by=some(Code.UNACKED_LIMIT)), []),
        (replace(PLAIN, kept_back=[some(Code.KEY_BLOCKED)]), ["key_blocked"]),
        (replace(PLAIN, unacknowledged=some(Code.WAITING_FOR_ACKS)), []),
        (replace(PLAIN, idle=[replace(some(Code.LOWER_PRIORITY), stops=False)]), ["lower_priority"]),
        (replace(PLAIN, backlog=0), []),
    ],
)
def test_what_holds_up_a_part_only_does_not_stop(now: Situation, codes: list[str]) -> None:
    found = explain(now, NO_CONSUMER)
    assert [each.code for each in found] == codes
    assert in_words(found) is None


def test_the_page_has_each_code_with_a_test_that_exists() -> None:
    rows = [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in (ROOT / "docs/explain.md").read_text().splitlines()
        if line.startswith("| `")
    ]
    tests = {row[0].strip("`"): row[-1].strip("`") for row in rows}
    assert set(Code) <= tests.keys()
    for code in Code:
        path, _, name = tests[code].partition("::")
        text = (ROOT / "tests" / path).read_text()
        assert f"def {name}(" in text, tests[code]
        assert code.name in text or f'"{code}"' in text, f"{path} does not look for {code}"
