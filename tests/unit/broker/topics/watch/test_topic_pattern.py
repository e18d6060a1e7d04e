"""Patterns of topics: the whole name without its domain, in linear time."""

from __future__ import annotations

import time

import pytest
from magnetar.broker.topics.watch.topic_pattern import TopicPattern
from magnetar.common.errors import NotAllowed
from magnetar.common.naming.topic_name import TopicName


@pytest.mark.parametrize(
    ("pattern", "topic", "matches"),
    [
        ("public/default/a.*", "abc", True),
        ("public/default/a", "abc", False),  # the whole name, not a part of it
        ("ault/a.*", "abc", False),
        (".*", "abc", True),
        ("persistent://public/default/a.*", "abc", True),
        ("persistent://public/default/a.*", "abc-partition-3", True),
        ("public/default/a", "a-partition-3", True),  # the partitioned topic's name
        ("public/default/a-partition-3", "a-partition-3", False),
        ("public/default/t-partition-0-x", "t-partition-0-x", True),
        ("(?i)public/default/ABC", "abc", True),
        (r"public/default/\d{3}", "123", True),
        ("public/default/é+", "ééé", True),
        ("non-persistent://public/default/.*", "non-persistent://public/default/v", True),
        ("^persistent://public/default/a$", "a", True),
    ],
)
def test_matching_topics(pattern: str, topic: str, matches: bool) -> None:
    assert TopicPattern(pattern).matches(TopicName.parse(topic)) is matches


def test_the_domain_that_it_names_says_which_topics_are_looked_at() -> None:
    assert TopicPattern("public/default/.*").domain == "persistent"
    assert TopicPattern("persistent://public/default/.*").domain == "persistent"
    assert TopicPattern("non-persistent://public/default/.*").domain == "non-persistent"


@pytest.mark.parametrize(
    "pattern", ["(", "*", "kafka://public/default/.*", "(?=a)b", r"(a)\1", "((a{100}){100}){100}"]
)
def test_invalid_pattern_is_refused_with_the_reason(pattern: str) -> None:
    with pytest.raises(NotAllowed, match="pattern"):
        TopicPattern(pattern)


@pytest.mark.parametrize("pattern", ["(a*)*b", "(a|a)*b", "(a?){25}a{25}b", "(.*)(.*)(.*)(.*)(.*)(.*)(.*)x"])
def test_no_pattern_makes_matching_explode(pattern: str) -> None:
    name = TopicName.parse("a" * 4_000)
    compiled = TopicPattern(".*/" + pattern)
    before = time.process_time()
    for _ in range(20):
        assert not compiled.matches(name)
    assert time.process_time() - before < 2.0, "backtracking would take longer than the universe"
