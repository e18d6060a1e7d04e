"""What a job tells: lines, JSON, causes out of traces of Spark, states; and masters that try again."""

from __future__ import annotations

import io
import json

import pytest
from magnetar.common.offload.offload_pb2 import COMPLETE, RUNNING, WANTED, Ledger, OffloadState, State
from magnetar.spark.offload.job import Totals
from magnetar.spark.offload.outcomes import Outcome, Result
from magnetar.spark.offload.progress import BarWatcher, LineWatcher, as_json_line, closing_line, line_of
from magnetar.spark.offload.session import with_tries
from magnetar.spark.offload.spark_tasks import CAUSE_CHARS_MAX, cause_of
from magnetar.spark.offload.status import state_of
from rich.console import Console

DONE = Outcome(
    topic="persistent://a/b/c",
    ledger_id=7,
    result=Result.OFFLOADED,
    entries=10,
    entry_bytes=2_000_000,
    rows=1_000,
    raw_entries=2,
    raw_reasons=(("encrypted", 2),),
    object_bytes=500_000,
    seconds=1.25,
)
FAILED = Outcome(topic="persistent://a/b/c", ledger_id=8, result=Result.FAILED, reason="no space")


def test_lines() -> None:
    assert line_of(DONE) == (
        "ledger 7 of persistent://a/b/c: offloaded 1,000 rows of 10 entries, 2 entries kept raw "
        "(2 encrypted), 2.0 MB as 0.5 MB in 1.2 s"
    )
    assert line_of(FAILED) == "ledger 8 of persistent://a/b/c: failed: no space"
    assert json.loads(as_json_line(DONE))["rawReasons"] == {"encrypted": 2}


def test_a_watcher_without_a_terminal_prints_a_line_for_each_ledger() -> None:
    out, err = io.StringIO(), io.StringIO()
    watcher = LineWatcher(line_of, out, err)
    watcher.began(Ledger(topic="t", ledger_id=7, last_entry_id=9, byte_length=10), 1)
    watcher.advanced(Ledger(), "writing", 1, 2)
    watcher.ended(FAILED)
    watcher.close()
    assert err.getvalue() == "ledger 7 of t: 10 entries, 10 B in 1 part\n"
    assert out.getvalue() == line_of(FAILED) + "\n"


@pytest.mark.parametrize("width", [80, 140])
def test_a_line_with_a_bar_fits_and_ends_with_the_end_of_the_name(width: int) -> None:
    screen = io.StringIO()
    console = Console(file=screen, force_terminal=True, width=width, height=20, color_system=None)
    watcher = BarWatcher(line_of, io.StringIO(), console)
    topic = "persistent://public/default/orders-of-the-european-warehouse-2026-eu-west-partition-17"
    ledger = Ledger(topic=topic, ledger_id=1_234_567, last_entry_id=9, byte_length=10)
    watcher.advanced(ledger, "measuring", 0, 1)
    assert watcher._progress.tasks[0].total is None
    watcher.began(ledger, 100)
    watcher.advanced(ledger, "writing", 100, 100)
    watcher.advanced(ledger, "verifying", 42, 100)
    (bar,) = watcher._progress.tasks
    assert bar.finished_time is None, "its time stands still"
    assert (bar.completed, bar.total) == (142, 201)
    screen.truncate(0)
    watcher._progress.refresh()
    (line,) = [each for each in screen.getvalue().replace("\r", "\n").splitlines() if "ledger" in each]
    assert line.startswith(("ledger 1234567 ", "\x1b[2Kledger 1234567 "))
    assert " 42/100 verifying 0:00:0" in line
    assert line.rstrip().endswith("-partition-17")
    assert (topic.removeprefix("persistent://") in line) == (width == 140)
    watcher.close()


def test_lines_above_the_bars_are_whole_and_a_bar_goes_with_its_ledger() -> None:
    screen = io.StringIO()
    console = Console(file=screen, force_terminal=True, width=40, height=20, color_system=None)

    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    watcher = BarWatcher(line_of, Terminal(), console)
    watcher.began(Ledger(topic=DONE.topic, ledger_id=DONE.ledger_id), 3)
    watcher.ended(DONE)
    assert line_of(DONE) + "\n" in screen.getvalue()
    assert watcher._progress.tasks == []
    watcher.close()


def test_results_that_are_piped_stay_off_the_terminal() -> None:
    screen, piped = io.StringIO(), io.StringIO()
    console = Console(file=screen, force_terminal=True, width=80, height=20)
    watcher = BarWatcher(as_json_line, piped, console)
    watcher.ended(FAILED)
    watcher.close()
    assert json.loads(piped.getvalue())["reason"] == "no space"
    assert "no space" not in screen.getvalue()


def test_the_closing_line_counts_everything() -> None:
    totals = Totals()
    assert closing_line(totals) == "no pending ledgers to offload"
    assert closing_line(totals, stopped=True) == "stopped before any ledger"
    totals.add(DONE)
    totals.add(FAILED)
    assert closing_line(totals).startswith("ledgers: 1 offloaded, 1 failed; 1,000 rows, 2 entries kept raw")


@pytest.mark.parametrize(
    ("state", "left", "said"),
    [
        (None, 0, "on bookies"),
        (WANTED, 0, "waits"),
        (RUNNING, 0, "running"),
        (COMPLETE, 0, "offloaded"),
        (COMPLETE, 1, "offloaded, left bookies"),
    ],
)
def test_states(state: State.ValueType | None, left: int, said: str) -> None:
    ledger = Ledger(closed_ms=1)
    if state is not None:
        ledger.offload.CopyFrom(OffloadState(state=state, left_bookies_ms=left))
    assert state_of(ledger) == said
    ledger.closed_ms = 0
    assert state_of(ledger) == "open"


def test_the_cause_of_a_failed_spark_job_is_the_error_of_python() -> None:
    text = """An error occurred while calling z:org.apache.spark.api.python.PythonRDD.collectAndServe.
: org.apache.spark.SparkException: Job aborted due to stage failure: Task 1 in stage 1.0 failed 4 times
Traceback (most recent call last):
  File "worker.py", line 1, in main
    process()
magnetar.ledger.cold.objects.ObjectStoreUnavailable: cannot write x: the disk is full

\tat org.apache.spark.api.python.BasePythonRunner"""
    assert cause_of(text) == "ObjectStoreUnavailable: cannot write x: the disk is full"


def test_the_cause_without_an_error_of_python_is_a_line_of_spark() -> None:
    text = "An error occurred.\n: SparkException: Job aborted due to stage failure: executor lost\n\tat x"
    assert cause_of(text) == ": SparkException: Job aborted due to stage failure: executor lost"
    assert cause_of("") == "Spark gave no reason"
    assert len(cause_of("x" * 10_000)) == CAUSE_CHARS_MAX


@pytest.mark.parametrize(
    ("master", "tried"),
    [
        ("local", "local[1,4]"),
        ("local[2]", "local[2,4]"),
        ("local[*]", "local[*,4]"),
        ("local[2,1]", "local[2,1]"),
        ("local-cluster[2,1,1024]", "local-cluster[2,1,1024]"),
        ("spark://host:7077", "spark://host:7077"),
    ],
)
def test_local_masters_try_tasks_several_times(master: str, tried: str) -> None:
    assert with_tries(master) == tried
