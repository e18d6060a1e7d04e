"""What is held against what the PyPI client received."""

from __future__ import annotations

import pytest

from tests.chaos.library_clients import LibraryTopic
from tests.soak.history import ORDERED, Kind


@pytest.mark.parametrize("kind", ORDERED)
def test_a_message_that_comes_for_the_first_time_after_a_later_one_is_found(kind: Kind) -> None:
    topic = LibraryTopic("pulsar://127.0.0.1:1", "t", kind)
    last = -1
    for number in (0, 1, 2, 1, 2, 3, 5):
        last = topic.took(number, last)
    assert not topic.violations, "what comes again does so in order"
    topic.took(4, last)
    assert topic.violations == [f"PyPI client, {kind} of t: message 4 came for the first time after 5"]


def test_a_confirmed_message_that_never_came_is_found() -> None:
    topic = LibraryTopic("pulsar://127.0.0.1:1", "t", "Shared")
    topic.confirmed |= {0, 1}
    topic.took(1, -1)
    for thread in topic._threads:
        thread.run = lambda: None  # type: ignore[method-assign]
    topic.start()
    topic.finish(0.3)
    assert topic.violations == ["PyPI client, Shared of t: lost 1, the first is 0"]
