"""The soak as a test: a few seconds of it in each run, a minute with all topics in the full tier.

`make soak` runs it for longer.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.integration.harness import StandaloneServer, temporary_directory
from tests.soak.soak import SETTINGS, Load, Outcome, errors_in, run


def soak(load: Load) -> Outcome:
    """Fails with everything that was broken, the end of the server's log, and how to see it again."""
    directory = temporary_directory()
    server = StandaloneServer(directory, SETTINGS)
    try:
        outcome = run(server, load, lambda phase, done, total: None)
    finally:
        server.kill()
    if outcome.violations:
        told = "\n".join(outcome.violations[:20])
        pytest.fail(f"{told}\n{server.log_tail()}\nkept for a look: {directory}\nagain: {load.command}")
    shutil.rmtree(directory, ignore_errors=True)
    return outcome


def missing(outcome: Outcome) -> list[str]:
    """What has to happen for the soak to say something, and has not."""
    happens = ("acknowledged", "given back", "left", "connections cut", "delivered to the library")
    silent = [str(kind) for kind, counts in outcome.by_kind.items() if not counts["messages"]]
    return silent + [what for what in happens if not outcome.counts[what]]


@pytest.mark.full
def test_a_few_seconds_of_churn_lose_nothing_and_break_no_order() -> None:
    for seconds in (4.0, 16.0, 64.0):  # longer where a busy machine gets less done
        outcome = soak(Load(seed=1, seconds=seconds, topics=32, library_topics=4))
        if not missing(outcome):
            return
    pytest.fail(f"never happened: {missing(outcome)}")


@pytest.mark.full
def test_a_minute_of_churn_on_two_hundred_topics_loses_nothing_and_breaks_no_order() -> None:
    outcome = soak(Load(seed=2, seconds=60.0))
    assert outcome.counts["delivered"] > outcome.counts["confirmed"] > 10_000


def test_errors_in_the_log_of_a_server_are_found(tmp_path: Path) -> None:
    server = StandaloneServer(tmp_path)
    lines = (
        "--- start 1: magnetar standalone",
        '{"event": "listening", "level": "info"}',
        '{"event": "a task failed", "level": "error"}',
        "Traceback (most recent call last):",
    )
    server.log_path.write_text("\n".join(lines))
    assert errors_in(server) == [*lines[2:]]
